"""A tokenizer seen from below: ids, their bytes, and text encoded as nothing but text.

The engine compares choices with tokens in bytes, because one character may be
spread over several tokens. Knows nothing of prompts or schemas.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

#: What is taken out of a tokenizer.json, beside the control tokens: nothing may be added, nothing may be cut.
_PLAIN: dict[str, Any] = {"post_processor": None, "truncation": None, "padding": None}

#: The first byte after a bare JSON value: number, true, null.
BARE_END = re.compile(rb"[,} \t\r\n]")


class TokenizationError(ValueError):
    """Text that this tokenizer cannot put into the form that the engine needs."""


class Vocabulary:
    """The vocabulary of one tokenizer.

    `tokenizer` is a fast tokenizer of `transformers` (it has a `backend_tokenizer`).
    Raises `TokenizationError` where there is none.
    """

    def __init__(self, tokenizer: Any) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise TokenizationError(
                f"{type(tokenizer).__name__} has no fast tokenizer; use a model with a tokenizer.json"
            )
        self._tokenizer = tokenizer
        data = json.loads(backend.to_str())
        added: dict[str, dict[str, Any]] = {entry["content"]: entry for entry in data["added_tokens"]}
        #: Added tokens by text. Runs of white space (Gemma lists some) control nothing.
        self.control: dict[str, int] = {
            text: entry["id"] for text, entry in added.items() if text.replace("▁", " ").strip()
        }
        self._control_ids = frozenset(self.control.values())
        #: Tags such as `<think>`, which a model writes as one token and a reader sees.
        self._tags = {entry["id"]: text.encode() for text, entry in added.items() if not entry["special"]}
        blanks = [entry for text, entry in added.items() if text not in self.control]
        ids = data["model"]["vocab"]
        if isinstance(ids, dict):
            for entry in blanks:  # one that the model does not know would get another id
                ids.setdefault(entry["content"], entry["id"])
        self._lead = _taken_lead(data)
        # Without its added tokens a tokenizer reads `<|im_end|>` or `<tool_call>` as characters.
        # The flag `encode_special_tokens` spares only those that are marked special.
        self._plain = Tokenizer.from_str(json.dumps(data | _PLAIN | {"added_tokens": blanks}))
        to_bytes = _byte_level if _is_byte_level(data["decoder"]) else _sentencepiece
        self._bytes: dict[int, bytes] = {
            i: to_bytes(token)
            for token, i in self._plain.get_vocab(with_added_tokens=False).items()
            if i not in self._control_ids
        }
        self._ids: dict[bytes, list[int]] = {}
        for i, text in self._bytes.items():
            self._ids.setdefault(text, []).append(i)
        self._sorted = sorted(self._ids)
        self._longest = max(map(len, self._sorted))
        #: Tokens that begin where a bare JSON value is over.
        self.bare_ends = np.array(sorted(i for i, text in self._bytes.items() if BARE_END.match(text)), dtype=np.int64)

    def encode(self, text: str) -> list[int]:
        """Ids of `text` as plain text within a text: no control token comes out of it, no space is put before it."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for several texts at once."""
        rows = [encoding.ids for encoding in self._plain.encode_batch(list(texts), add_special_tokens=False)]
        for text, ids in zip(texts, rows, strict=True):
            if not self._control_ids.isdisjoint(ids):
                raise TokenizationError(
                    f"the tokenizer makes a control token of plain text in {text[:60]!r}; remove it"
                )
        return rows

    def encode_after(self, before: str, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text as it is tokenised right after `before`.

        Raises `TokenizationError` where a token spans the boundary.
        """
        start = self.encode(before)
        rows = self.encode_many([before + text for text in texts])
        for text, ids in zip(texts, rows, strict=True):
            if ids[: len(start)] != start:
                raise TokenizationError(f"a token spans the end of {before[-20:]!r} and the start of {text[:40]!r}")
        return [ids[len(start) :] for ids in rows]

    def spelled(self, text: str) -> list[int]:
        """Ids whose bytes are exactly those of `text`.

        Those of `encode`, unless a tokenizer composes, folds or refuses it; then the longest tokens that fit.
        Raises `TokenizationError` where there are none.
        """
        wanted = text.encode()
        try:
            ids = self.encode(text)
        except TokenizationError:
            ids = []
        if b"".join(map(self.bytes_of, ids)) == wanted:
            return ids
        ids, at = [], 0
        while at < len(wanted):
            found = max(self.starting(wanted[at : at + self._longest]), key=lambda found: len(found[1]), default=None)
            if found is None:
                near = wanted[at - 3 if at > 3 else 0 : at + 4].decode(errors="ignore")
                raise TokenizationError(f"this tokenizer has no tokens for a character in {near!a}; use other words")
            token, piece = found
            ids.append(token)
            at += len(piece)
        return ids

    def begun(self, text: str, first: bool = False) -> str:
        """`text` with the space that the tokenizer puts before a text after a control token, or before the `first`."""
        wanted = self._lead.where == "always" or (self._lead.where == "first" and first)
        if not text or not wanted or (text[0] in " ▁" and not self._lead.doubles):
            return text
        return " " + text

    def pieces(self, scaffold: str) -> list[str | int]:
        """What a template wrote, split into control tokens and the plain text between them.

        The tokenizer itself splits: some control tokens swallow the white space beside them.
        """
        encoded = self._tokenizer(scaffold, add_special_tokens=False, return_offsets_mapping=True)
        pieces: list[str | int] = []
        at = 0
        for token, (start, end) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
            if token in self._control_ids:
                pieces += [scaffold[at:start], token]
                at = end
        return [piece for piece in [*pieces, scaffold[at:]] if piece != ""]

    def bytes_of(self, token: int) -> bytes:
        """The bytes a token stands for; empty for control tokens and for ids without text."""
        return self._bytes.get(token, b"")

    def written(self, token: int) -> bytes:
        """What a reader sees of a token that a model wrote: `bytes_of`, and added tokens that are not special."""
        return self._bytes.get(token) or self._tags.get(token, b"")

    def starting(self, text: bytes) -> Iterator[tuple[int, bytes]]:
        """Tokens that are a beginning of `text`, all of it included."""
        for end in range(1, min(len(text), self._longest) + 1):
            for i in self._ids.get(text[:end], ()):
                yield i, text[:end]

    def extending(self, text: bytes) -> Iterator[tuple[int, bytes]]:
        """Tokens that begin with `text` and go on after it."""
        for at in range(bisect_left(self._sorted, text), len(self._sorted)):
            token = self._sorted[at]
            if not token.startswith(text):
                return
            if len(token) > len(text):
                for i in self._ids[token]:
                    yield i, token


@dataclass(frozen=True)
class _Lead:
    """The space that a tokenizer puts before a text of its own accord."""

    where: str = "never"  # before each text between control tokens: "always"; at the start of all: "first"
    doubles: bool = False  # also before a text that begins with a space


def _taken_lead(data: dict[str, Any]) -> _Lead:
    """Takes the lead out of a tokenizer.json: a text is also cut where none belongs."""
    lead = _Lead()
    for step in [*_steps(data["normalizer"]), *_steps(data["pre_tokenizer"])]:
        if step["type"] == "Metaspace" and step["prepend_scheme"] != "never":
            lead = _Lead(step["prepend_scheme"])
            step["prepend_scheme"] = "never"
        elif step["type"] == "ByteLevel" and step.get("add_prefix_space"):
            lead = _Lead("always")
            step["add_prefix_space"] = False
        elif step["type"] == "Prepend":  # Llama 2
            lead = _Lead("always", doubles=True)
            step["prepend"] = ""
    return lead


def _steps(part: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """A normalizer or pre-tokenizer, sequences taken apart."""
    if part is None:
        return
    inner = part.get("normalizers") or part.get("pretokenizers")
    if inner is None:
        yield part
    else:
        for each in inner:
            yield from _steps(each)


def _is_byte_level(decoder: dict[str, Any] | None) -> bool:
    """Whether token strings are written in GPT-2's alphabet of 256 printable characters."""
    return decoder is not None and (
        decoder["type"] == "ByteLevel" or any(map(_is_byte_level, decoder.get("decoders", ())))
    )


def _gpt2_alphabet() -> dict[str, int]:
    """GPT-2's character for each byte: printable bytes stand for themselves, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + n): b for n, b in enumerate(rest)}


_GPT2_BYTES = _gpt2_alphabet()


def _byte_level(token: str) -> bytes:
    if not all(character in _GPT2_BYTES for character in token):
        return token.encode()
    return bytes(_GPT2_BYTES[character] for character in token)


def _sentencepiece(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    return token.replace("▁", " ").encode()
