"""Compiled plans, head prefixes and priors of one engine, kept for the next request.

All are immutable and keyed by what they were made from. Bounded: the least recently used go
first. An entry is checked when it is found; one that fails is made again. Belongs to the
owner thread.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from core.backend import Identity, Prefix
from core.prompt import PROMPT_VERSION, ChatFormat
from core.result import CacheReport, CacheState
from core.trie import Plan, compile_plan
from core.vocabulary import Vocabulary

if TYPE_CHECKING:
    from core.request import Prepared, Request

MAX_ENTRIES = 32
MAX_BYTES = 512 * 2**20  # of head prefixes
MAX_PLAN_BYTES = 256 * 2**20  # a plan of 1,024 integers holds 53 MB of token ids

#: By field: the scores of its choices on a text without content.
PriorScores = tuple[np.ndarray, ...]

T = TypeVar("T")


@dataclass(frozen=True)
class _Entry(Generic[T]):
    value: T
    nbytes: int
    seal: int


class Shelf(Generic[T]):
    """A bounded store; `nbytes` and `seal` measure a value when it comes and when it is found again."""

    def __init__(self, max_entries: int, max_bytes: int, nbytes: Callable[[T], int], seal: Callable[[T], int]) -> None:
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._nbytes, self._seal = nbytes, seal
        self._entries: OrderedDict[str, _Entry[T]] = OrderedDict()
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        # A list first, which is one step of the interpreter: a status is asked for while the owner thread stores.
        return sum(entry.nbytes for entry in list(self._entries.values()))

    def size(self, key: str) -> int:
        """Bytes of one entry; 0 where there is none."""
        entry = self._entries.get(key)  # one step: another thread may drive the entry out
        return entry.nbytes if entry else 0

    def find(self, key: str) -> tuple[T | None, CacheState]:
        """The value and `hit`; None and `miss`, or `fallback` where the value failed its check and is gone."""
        entry = self._entries.get(key)
        if entry is None:
            return None, "miss"
        if (self._nbytes(entry.value), self._seal(entry.value)) != (entry.nbytes, entry.seal):
            del self._entries[key]
            return None, "fallback"
        self._entries.move_to_end(key)
        return entry.value, "hit"

    def keep(self, key: str, value: T) -> None:
        """Stores the value; one that is larger than the whole budget is not kept and drives out no other."""
        size = self._nbytes(value)
        if size > self._max_bytes:
            return
        self._entries.pop(key, None)
        self._entries[key] = _Entry(value, size, self._seal(value))
        while len(self._entries) > self._max_entries or self.nbytes > self._max_bytes:
            self._entries.popitem(last=False)
            self.evicted += 1


class Plans:
    """What the engine has made of schemas so far."""

    def __init__(
        self,
        chat: ChatFormat,
        vocabulary: Vocabulary,
        identity: Identity,
        max_entries: int = MAX_ENTRIES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._chat = chat
        self._vocabulary = vocabulary
        self._window, self._most_ids = identity.window, identity.most_ids
        made_by = (identity.fingerprint, identity.backend, identity.dtype, chat.key, PROMPT_VERSION)
        self._model = hashlib.sha256(repr(made_by).encode()).hexdigest()
        self._plans: Shelf[Plan] = Shelf(max_entries, MAX_PLAN_BYTES, lambda plan: plan.nbytes, Plan.seal)
        self._heads: Shelf[Prefix] = Shelf(max_entries, max_bytes, lambda head: head.nbytes, lambda head: head.seal())
        self._priors: Shelf[PriorScores] = Shelf(max_entries, max_bytes, _prior_bytes, _prior_seal)

    def key(self, request: Request, *more: str) -> str:
        """What values are found by: model, dtype, template, prompt version, ordered schema, style, and `more`."""
        return " ".join((self._model, request.schema.digest, request.style, *more))

    def plan(self, request: Request) -> tuple[Plan, CacheState]:
        """The compiled schema; raises `TokenizationError`, or `PromptTooLong` where the head alone is."""
        key = self.key(request, request.scoring)
        plan, state = self._plans.find(key) if request.cache else (None, "off")
        if plan is None:
            self._chat.check_length(request.schema, request.style, self._window)
            plan = compile_plan(
                request.schema, self._chat, self._vocabulary, request.scoring, request.style, self._most_ids
            )
            if request.cache:
                self._plans.keep(key, plan)
        return plan, state

    def head(self, request: Request) -> tuple[Prefix | None, CacheState]:
        """The state after the schema's head, if it is here."""
        return self._heads.find(self.key(request))

    def keep_head(self, request: Request, head: Prefix) -> None:
        self._heads.keep(self.key(request), head)

    def prior(self, request: Request) -> tuple[PriorScores | None, CacheState]:
        return self._priors.find(self.key(request, request.scoring))

    def keep_prior(self, request: Request, scores: PriorScores) -> None:
        self._priors.keep(self.key(request, request.scoring), scores)

    @property
    def held(self) -> tuple[int, int]:
        """Head prefixes now, and their bytes; from any thread."""
        return len(self._heads), self._heads.nbytes

    def report(self, asked: Prepared) -> CacheReport:
        """A request's states beside what is held now."""
        own = 0 if asked.cache == "off" else self._heads.size(self.key(asked.request))
        return CacheReport(
            asked.cache, asked.plan_state, asked.prior_state, *self.held, evicted=self._heads.evicted, head_bytes=own
        )


def _prior_bytes(scores: PriorScores) -> int:
    return sum(array.nbytes for array in scores)


def _prior_seal(scores: PriorScores) -> int:
    return hash(tuple(array.tobytes() for array in scores))
