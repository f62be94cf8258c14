"""A tokenizer seen from below: ids, their bytes, and text encoded as nothing but text.

The engine compares choices with tokens in bytes, because one character may be
spread over several tokens. Knows nothing of prompts or schemas.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

#: What is taken out of a tokenizer.json: nothing may become a control token, nothing may be cut.
_PLAIN: dict[str, Any] = {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}

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
        data = json.loads(backend.to_str())
        added: dict[str, int] = {entry["content"]: entry["id"] for entry in data["added_tokens"]}
        # Without its added tokens a tokenizer reads `<|im_end|>` or `<tool_call>` as characters.
        # The flag `encode_special_tokens` spares only those that are marked special.
        self._plain = Tokenizer.from_str(json.dumps(data | _PLAIN))
        #: Added tokens by text. Runs of white space (Gemma lists some) control nothing.
        self.control: dict[str, int] = {text: i for text, i in added.items() if text.strip()}
        self._control_ids = frozenset(self.control.values())
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
        """Ids of `text` as plain text: no special or added token comes out of it."""
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

    def bytes_of(self, token: int) -> bytes:
        """The bytes a token stands for; empty for control tokens and for ids without text."""
        return self._bytes.get(token, b"")

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
