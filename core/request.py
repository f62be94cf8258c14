"""A request: what was asked, and the same in tokens.

The one place where a context and a temperature are checked. Knows nothing of models.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from core.backend import Prefix
from core.result import CacheState
from core.schema import StructuredSchema
from core.trie import Plan


class PromptTooLong(ValueError):
    """Prompt and answer do not fit the model's window."""


@dataclass(frozen=True)
class Request:
    context: str
    schema: StructuredSchema
    temperature: float = 1.0
    cache: bool = True  # whether head prefixes are used and kept

    def __post_init__(self) -> None:
        if not isinstance(self.context, str) or not self.context.strip():
            raise ValueError("the context is empty; give the text that the fields are about")
        if not self.context.isascii() and any("\ud800" <= c <= "\udfff" for c in self.context):
            raise ValueError("the context holds half a character (a lone surrogate); remove it")
        is_number = isinstance(self.temperature, int | float) and not isinstance(self.temperature, bool)
        if not is_number or not 0.0 < self.temperature <= sys.float_info.max:
            raise ValueError(f"temperature {self.temperature!r} must be a finite number above 0; 1.0 is neutral")


@dataclass(frozen=True)
class Prepared:
    """A request in tokens, and the cache state that its lanes start from."""

    request: Request
    plan: Plan
    context: tuple[int, ...]
    head: Prefix | None
    is_long: bool  # so long that a causal prefill of everything beats one masked pass after the head
    took_ms: float

    @property
    def cache(self) -> CacheState:
        if self.is_long or not self.request.cache:
            return "off"
        return "miss" if self.head is None else "hit"

    @property
    def prompt_tokens(self) -> int:
        return len(self.plan.prompt.head) + len(self.context) + len(self.plan.prompt.tail)

    @property
    def after_head(self) -> list[int]:
        return [*self.context, *self.plan.prompt.tail]

    @property
    def whole(self) -> list[int]:
        return [*self.plan.prompt.head, *self.after_head]
