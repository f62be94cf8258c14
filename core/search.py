"""Search: which forks a pass reads, of fields that are decided in the same wave.

Complete: all of them, as far as a pass has room. Best-first: the likeliest, and what lies
below them, until no choice that was not read can win any more. Knows scores and token
paths; knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from core.scoring import branch_masses, standing
from core.trie import FieldTrie, Plan

#: Masses are sums of float32 numbers: a branch may seem to hold this much more than what leads to it.
SLACK = 1e-5

#: Passes that a best-first read takes beyond the first: none or one on 255 tariff codes, with SmolLM2-135M.
TYPICAL_PASSES = 1


@dataclass
class Asked:
    """One field on its way to a decision."""

    trie: FieldTrie
    lead: tuple[int, ...] = ()  # tokens of the lines that stand before its own
    prior: np.ndarray | None = None  # (choices,)
    masses: list[np.ndarray | None] = field(default_factory=list)  # by fork

    def __post_init__(self) -> None:
        self.masses = [None] * len(self.trie.forks)

    def path(self, fork: int) -> tuple[int, ...]:
        return self.lead + self.trie.forks[fork].path


class Search:
    """The forks of one wave; `next` until it returns nothing, and `take` what was read each time."""

    def __init__(self, fields: Sequence[Asked], allowance: int | None) -> None:
        """`allowance`: nodes that a best-first pass reads on the chance that they are needed; None reads all."""
        self.fields = fields
        self._allowance = allowance

    def next(self, room: int) -> list[tuple[int, int]]:
        """(field, fork) of what the next pass reads, in at most `room` nodes if a single path fits at all."""
        if self._allowance is None:
            unread = [
                (i, fork) for i, asked in enumerate(self.fields) for fork, m in enumerate(asked.masses) if m is None
            ]
            return unread[: fitting(self._paths(unread), room)]
        likely = sorted(self._candidates())
        top = {i: fork for _, i, fork in reversed(likely)}  # each field needs at least this one
        needed = list(top.items())
        others = [(i, fork) for _, i, fork in likely if top[i] != fork]
        limit = min(room, node_count(self._paths(needed)) + self._allowance)
        return [*needed, *others][: fitting(self._paths([*needed, *others]), limit)]

    def take(self, read: Sequence[tuple[int, int]], rows: Sequence[np.ndarray]) -> None:
        """The log-probabilities of what `next` named."""
        for (i, fork), row in zip(read, rows, strict=True):
            asked = self.fields[i]
            asked.masses[fork] = branch_masses(asked.trie.forks[fork], row)

    def _paths(self, forks: Iterable[tuple[int, int]]) -> list[tuple[int, ...]]:
        return [self.fields[i].path(fork) for i, fork in forks]

    def _candidates(self) -> Iterable[tuple[float, int, int]]:
        for i, asked in enumerate(self.fields):
            for likelihood, fork in contenders(asked):
                yield -likelihood, i, fork


def contenders(asked: Asked) -> Iterable[tuple[float, int]]:
    """(likelihood of leading to the winner, fork) of the unread forks below which the winner may still lie.

    An unread choice is bounded by the probability of getting to the unread fork above it,
    so that what is left out cannot win.
    """
    trie, now = asked.trie, standing(asked.trie, asked.masses)
    prior = np.zeros(len(now.lower)) if asked.prior is None else asked.prior
    lower, upper = now.lower - prior, now.upper - prior
    may_win = (upper >= lower.max() - SLACK) & (now.upper > now.lower)
    if now.is_read.any():
        may_win[int(np.argmax(lower))] = False  # its other forms only make it more
    for top, (_, forms) in now.open.items():
        choices = sorted({trie.forms[i].choice for i in forms})
        if not may_win[choices].any():
            continue
        bound = float(np.exp(upper[choices].max() - upper.max()))
        for fork, count in _forks_below(trie, top, forms):
            yield bound * count / len(forms), fork


def _forks_below(trie: FieldTrie, top: int, forms: Sequence[int]) -> Iterable[tuple[int, int]]:
    """(fork, forms that go through it), `top` first."""
    counts: dict[int, int] = {}
    for i in forms:
        steps = [fork for fork, _ in trie.paths[i]]
        for fork in steps[steps.index(top) :]:
            counts[fork] = counts.get(fork, 0) + 1
    return counts.items()


def pays(plan: Plan, overhead: float) -> bool:
    """Whether a best-first read is likely to be faster: `overhead` is what a pass costs beside its tokens, in tokens."""
    first = node_count(trie.forks[0].path for trie in plan.tries if trie.forks)
    return len(plan.tree.tokens) - first > (TYPICAL_PASSES + 1) * overhead


def fitting(paths: Sequence[tuple[int, ...]], limit: int) -> int:
    """How many of the paths, from the first on, make a tree of at most `limit` nodes; the first always does."""
    nodes: set[tuple[int, ...]] = set()
    for count, path in enumerate(paths):
        nodes.update(path[:end] for end in range(1, len(path) + 1))
        if count and len(nodes) > limit:
            return count
    return len(paths)


def node_count(paths: Iterable[tuple[int, ...]]) -> int:
    return len({path[:end] for path in paths for end in range(1, len(path) + 1)})
