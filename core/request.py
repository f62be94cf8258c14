"""A request: what was asked, and the same in tokens.

The one place where a context and the ways to decide it are checked. Knows nothing of models.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import get_args

from core.backend import Prefix, Strategy
from core.plans import PriorScores
from core.prompt import PromptTooLong, Style
from core.result import CacheState, Prior, ReadingKind, Scoring
from core.schema import StructuredSchema
from core.trie import Plan
from core.wording import shown

__all__ = ["Prepared", "PromptTooLong", "Request", "RequestError", "check_one_of"]


class RequestError(ValueError):
    """A request that asks for nothing that can be done; the message says what to change."""


@dataclass(frozen=True)
class Request:
    context: str
    schema: StructuredSchema
    temperature: float = 1.0
    cache: bool = True  # whether plans, head prefixes and priors are used and kept
    scoring: Scoring = "identify"
    prior: Prior = "none"
    complete: bool | None = None  # whether every fork is read; None: where that is the cheaper way
    style: Style = "pretty"  # of the JSON that the prompt asks both lanes for

    def __post_init__(self) -> None:
        if not isinstance(self.context, str) or not self.context.strip():
            raise RequestError("the context is empty; give the text that the fields are about")
        if not self.context.isascii() and any("\ud800" <= c <= "\udfff" for c in self.context):
            raise RequestError("the context holds half a character (a lone surrogate); remove it")
        if not isinstance(self.schema, StructuredSchema):
            raise RequestError(f"the schema is a {type(self.schema).__name__}; make it a StructuredSchema(...)")
        is_number = isinstance(self.temperature, int | float) and not isinstance(self.temperature, bool)
        if not is_number or not 0.0 < self.temperature <= sys.float_info.max:
            raise RequestError(f"temperature {shown(self.temperature)} must be a finite number above 0; 1.0 is neutral")
        check_one_of("cache", self.cache, (True, False))
        check_one_of("scoring", self.scoring, get_args(Scoring))
        check_one_of("prior", self.prior, get_args(Prior))
        check_one_of("style", self.style, get_args(Style))
        check_one_of("complete", self.complete, (None, True, False))


@dataclass(frozen=True)
class Prepared:
    """A request in tokens, and the cache state that its lanes start from."""

    request: Request
    plan: Plan
    plan_state: CacheState
    context: tuple[int, ...]
    head: Prefix | None
    cache: CacheState  # of the head
    strategy: Strategy
    reading: ReadingKind
    is_long: bool  # so long that a causal prefill of everything beats one masked pass after the head
    prior: PriorScores | None  # if it was asked for and is here
    prior_state: CacheState
    blank: tuple[int, ...]  # the context without content, whose scores a prior is
    took_ms: float

    @property
    def prompt_tokens(self) -> int:
        return len(self.plan.prompt.head) + len(self.context) + len(self.plan.prompt.tail)

    @property
    def after_head(self) -> list[int]:
        return [*self.context, *self.plan.prompt.tail]

    @property
    def whole(self) -> list[int]:
        return [*self.plan.prompt.head, *self.after_head]

    def require_room(self, window: int, model: str) -> None:
        """Raises `PromptTooLong` where prompt and answer have more tokens than the model's window."""
        plan = self.plan
        answer = max(plan.canonical_tokens, plan.deepest)
        needed = self.prompt_tokens + answer + max(0, len(self.blank) - len(self.context))
        if needed > window:
            raise PromptTooLong(
                f"the request needs {needed} tokens (schema {len(plan.prompt.head)}, text {len(self.context)}, "
                f"answer {answer + len(plan.prompt.tail)}) and the window of {model} holds {window}; "
                f"shorten the text or the schema by {needed - window} tokens"
            )

    @property
    def needs_prior(self) -> bool:
        return self.request.prior == "content_free" and self.prior is None


def check_one_of(name: str, value: object, known: tuple[object, ...]) -> None:
    """Raises `ValueError` for a value that is none of these, by value and type."""
    if not any(value is one or (isinstance(one, str) and value == one) for one in known):
        raise RequestError(f"{name} {shown(value)} is unknown; use one of: {', '.join(map(str, known))}")
