"""The ar lane: the same model writes the same JSON token by token.

Greedy, after the same head, context and tail as the parallel lane. Mode `json` allows any
JSON object; the schema is in the prompt and is not enforced, so keys can be left out or made up.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import llguidance.hf
import numpy as np
from llguidance import LLMatcher
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from core.backend import Decoder
from core.vocabulary import Vocabulary

Mode = Literal["json"]
MODES: tuple[Mode, ...] = ("json",)

How = Literal["closed", "end_of_turn", "limit"]

_ANY_OBJECT = LLMatcher.grammar_from_json_schema({"type": "object"})


def token_limit(canonical: int) -> int:
    """Tokens after which the baseline is stopped, given those of the canonical JSON."""
    return 2 * canonical + 64


@dataclass(frozen=True)
class Written:
    """One token of the baseline."""

    token: int
    text: str  # characters that became complete with it
    how: How | None  # set on the last one


class Grammar:
    """Token masks for any JSON object; built once per tokenizer (about 0.3 s)."""

    def __init__(self, tokenizer: Any, vocab_size: int, end_ids: frozenset[int]) -> None:
        self._tokenizer = llguidance.hf.from_tokenizer(tokenizer, n_vocab=vocab_size, eos_token=sorted(end_ids))
        self._vocab_size = vocab_size

    def start(self, opening: str) -> Mask:
        """The state after the opening brace, which the prompt's tail already holds."""
        matcher = LLMatcher(self._tokenizer, _ANY_OBJECT)
        matcher.consume_tokens(self._tokenizer.tokenize_str(opening))
        assert not matcher.is_error(), matcher.get_error()
        return Mask(matcher, self._vocab_size)


class Mask:
    """Which tokens may come next, as the object grows."""

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
        self._matcher = matcher
        self._bits = allocate_token_bitmask(1, vocab_size)

    def bits(self) -> np.ndarray:
        """int32, 32 tokens a word."""
        fill_next_token_bitmask(self._matcher, self._bits)
        return self._bits[0]

    def advance(self, token: int) -> None:
        allowed = self._matcher.consume_token(token)
        assert allowed, self._matcher.get_error()

    @property
    def closed(self) -> bool:
        """Whether the object is complete."""
        return self._matcher.is_accepting()


def write(
    decoder: Decoder, mask: Mask, vocabulary: Vocabulary, end_ids: frozenset[int], limit: int
) -> Iterator[Written]:
    """Tokens until the object's closing brace, the end of the turn, or the limit.

    A character that is spread over several tokens comes with its last one.
    """
    characters = codecs.getincrementaldecoder("utf-8")("replace")
    for count in range(1, limit + 1):
        token = decoder.choose(mask.bits())
        if token in end_ids:
            yield Written(token, "", "end_of_turn")
            return
        mask.advance(token)
        text = characters.decode(vocabulary.bytes_of(token))
        if mask.closed:
            yield Written(token, text, "closed")
            return
        yield Written(token, text, "limit" if count == limit else None)
        if count < limit:
            decoder.append([token])
