"""What the baseline may write: nothing is enforced, any JSON object, or the schema itself.

A constraint follows the object as it grows, from the opening that the prompt's tail already
holds. Grammars are llguidance's; knows nothing of models or clocks.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Literal, Protocol, get_args

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from core.prompt import Layout, literal
from core.schema import StructuredSchema
from core.vocabulary import Vocabulary

#: free: the prompt alone. json: any JSON object. schema: the keys in order, each with one of its choices.
Mode = Literal["free", "json", "schema"]
MODES: tuple[Mode, ...] = get_args(Mode)

#: Compiled grammars that are kept.
MAX_GRAMMARS = 32

_ANY_OBJECT = LLMatcher.grammar_from_json_schema({"type": "object"})


class Constraint(Protocol):
    """Which tokens may come next."""

    closed: bool  # the object is complete

    def bits(self) -> np.ndarray | None:
        """int32, 32 tokens a word; None where all may come."""
        ...

    def advance(self, token: int) -> None: ...

    def forced(self) -> list[int]:
        """The tokens that can only come next, taken as written."""
        ...


class GrammarError(ValueError):
    """A schema that no grammar can be made of, or text that one does not allow."""


class Grammars:
    """The constraints of one tokenizer, which is made ready once (about half a second)."""

    def __init__(self, vocabulary: Vocabulary, vocab_size: int, end_ids: frozenset[int]) -> None:
        tokenizer = TokenizerWrapper(_PlainTokenizer(vocabulary, vocab_size, end_ids))
        self._tokenizer = LLTokenizer(tokenizer, n_vocab=vocab_size, eos_token=sorted(end_ids))
        self._vocabulary = vocabulary
        self._vocab_size = vocab_size
        self._kept = lru_cache(MAX_GRAMMARS)(self._opened)

    def start(self, mode: Mode, schema: StructuredSchema, layout: Layout, cache: bool = True) -> Constraint:
        """The state after the layout's opening; `cache`: whether a grammar that was compiled before is used.

        Raises `GrammarError`, or `TokenizationError` for a schema with a character that no token spells.
        """
        if mode == "free":
            return Unguided(self._vocabulary, layout.opening)
        known = (layout, schema if mode == "schema" else None)
        matcher = self._kept(*known).deep_copy() if cache else self._opened(*known)
        return Guided(matcher, self._vocab_size)

    def _opened(self, layout: Layout, schema: StructuredSchema | None) -> LLMatcher:
        if schema:
            self._vocabulary.spelled(
                "".join(text for field in schema for text in map(str, (field.name, *field.choices)))
            )
        matcher = LLMatcher(self._tokenizer, canonical_grammar(schema, layout) if schema else _ANY_OBJECT)
        if not matcher.is_error():
            matcher.consume_tokens(self._vocabulary.encode(layout.opening))
        return _checked(matcher)


class _PlainTokenizer:
    """What llguidance asks of a tokenizer, from a vocabulary that makes no control token of any text."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary, vocab_size: int, end_ids: frozenset[int]) -> None:
        self._vocabulary = vocabulary
        self.eos_token_id = min(end_ids)
        # Padding too: an id without text must not pass for its name.
        self.special_token_ids = [i for i in range(vocab_size) if not vocabulary.bytes_of(i)]
        names = {token: text.encode() for text, token in vocabulary.control.items()}
        self.tokens = [vocabulary.bytes_of(i) or names.get(i, b"<[%d]>" % i) for i in range(vocab_size)]

    def __call__(self, text: str) -> list[int]:
        return self._vocabulary.spelled(text)


class Guided:
    """A constraint that a grammar enforces. llguidance raises nothing: each step looks for what it has to say."""

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
        self._matcher = matcher
        self._bits = allocate_token_bitmask(1, vocab_size)

    def bits(self) -> np.ndarray:
        fill_next_token_bitmask(self._matcher, self._bits)
        _checked(self._matcher)
        return self._bits[0]

    def advance(self, token: int) -> None:
        self._matcher.consume_token(token)
        _checked(self._matcher)

    def forced(self) -> list[int]:
        tokens = [] if self.closed else self._matcher.compute_ff_tokens()
        if tokens:
            self._matcher.consume_tokens(tokens)
        _checked(self._matcher)
        return tokens

    @property
    def closed(self) -> bool:
        return self._matcher.is_accepting()


def _checked(matcher: LLMatcher) -> LLMatcher:
    if matcher.is_error():
        reason = matcher.get_error().partition("\n")[0][:200]
        raise GrammarError(f"the baseline's grammar failed ({reason}); use baseline mode free, or fewer choices")
    return matcher


class Unguided:
    """Enforces nothing; sees by its braces when the object is complete, so that nobody waits for what follows it."""

    def __init__(self, vocabulary: Vocabulary, opening: str) -> None:
        self._vocabulary = vocabulary
        self._depth = 0
        self._in_string = self._escaped = self.closed = False
        self._read(opening.encode())

    def bits(self) -> None:
        return None

    def advance(self, token: int) -> None:
        self._read(self._vocabulary.written(token))

    def forced(self) -> list[int]:
        return []

    def _read(self, text: bytes) -> None:
        for byte in text:
            if self._escaped:
                self._escaped = False
            elif byte == 0x22:  # "
                self._in_string = not self._in_string
            elif self._in_string:
                self._escaped = byte == 0x5C  # \
            elif byte in b"{}":
                self._depth += 1 if byte == 0x7B else -1
                self.closed = self.closed or self._depth == 0


def canonical_grammar(schema: StructuredSchema, layout: Layout) -> str:
    """Lark for the object as this layout spells it, fields in order, so that keys and punctuation are forced.

    A general JSON Schema grammar leaves white space open, and then nothing is forced.
    """
    parts, values = [], []
    before = layout.start
    for number, field in enumerate(schema):
        parts.append(f"{_quoted(before + literal(field.name)[1:] + layout.colon)} VALUE_{number}")
        values.append(f"VALUE_{number}: {' | '.join(_quoted(literal(choice)) for choice in field.choices)}")
        before = layout.between
    return "\n".join([f"start: {' '.join(parts)} {_quoted(layout.end)}", *values])


def _quoted(text: str) -> str:
    """A string of Lark, which are JSON's, in ASCII: Lark's lexer stumbles over U+007F."""
    return json.dumps(text).replace("\x7f", "\\u007f")
