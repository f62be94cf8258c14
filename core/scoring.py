"""Scores: log-probabilities at forks -> joint scores -> probabilities.

Pure arithmetic in float64. A branch's mass is the sum over its tokens, a form's score the
product of the masses on its path, a choice's score the sum over its forms. Where a fork was
not read, what lies below it is bounded by the probability of getting there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from core.result import Decision
from core.trie import FieldTrie, Fork

#: By fork: the log of each branch's mass (branches,), None where the fork was not read.
Masses = Sequence[np.ndarray | None]


@dataclass(frozen=True)
class Standing:
    """What the forks read so far say of each of a field's C choices."""

    lower: np.ndarray  # (C,) score of the forms read to their ends, -inf where there are none
    upper: np.ndarray  # (C,) the most that the score can become
    is_read: np.ndarray  # (C,) bool: at least one form was read to its end
    #: Unread forks right below what was read -> log-probability of getting there, and the forms below.
    open: Mapping[int, tuple[float, tuple[int, ...]]]


def standing(trie: FieldTrie, masses: Masses) -> Standing:
    count = len(trie.field.choices)
    lower, upper, is_read = np.full(count, -np.inf), np.full(count, -np.inf), np.zeros(count, dtype=bool)
    reached: dict[int, float] = {}
    below: dict[int, list[int]] = {}
    for i, (form, path) in enumerate(zip(trie.forms, trie.paths, strict=True)):
        score, stop = _followed(path, masses)
        if stop is None:
            lower[form.choice] = np.logaddexp(lower[form.choice], score)
            is_read[form.choice] = True
        else:
            reached[stop] = score
            below.setdefault(stop, []).append(i)
        upper[form.choice] = np.logaddexp(upper[form.choice], score)
    return Standing(lower, upper, is_read, {fork: (reached[fork], tuple(forms)) for fork, forms in below.items()})


def decide(trie: FieldTrie, masses: Masses, temperature: float, prior: np.ndarray | None = None) -> Decision:
    """The decision of one field; `prior` (C,) is subtracted from the scores."""
    now = standing(trie, masses)
    if not np.isfinite(now.lower[now.is_read]).all():
        raise ArithmeticError(
            f"field {trie.field.name!r}: the model gives no finite scores; load it with another dtype, such as float32"
        )
    adjusted = now.lower if prior is None else now.lower - prior
    best = adjusted.max()
    weights = np.exp((adjusted - best) / temperature)
    unread = sum(
        _heaviest(reached - _least(prior, trie, forms) - best, len(forms), temperature)
        for reached, forms in now.open.values()
    )
    probabilities = weights / (weights.sum() + unread)
    mass = math.fsum([*np.exp(now.lower), *(math.exp(reached) for reached, _ in now.open.values())])
    return Decision(
        name=trie.field.name,
        choices=trie.field.choices,
        scores=_listed(now.lower, now.is_read),
        probabilities=_listed(probabilities, now.is_read),
        levels=_levels(trie),
        winner=int(np.argmax(adjusted)),  # the first of equals
        candidate_mass=min(1.0, mass),
        unread_mass=float(unread / (weights.sum() + unread)),
        prior=None if prior is None else tuple(map(float, prior)),
    )


def branch_masses(fork: Fork, row: np.ndarray) -> np.ndarray:
    """Log of the summed probability of each branch's tokens, shape (branches,).

    `row` holds the log-probabilities, normalised over the full vocabulary, of `fork.tokens`.
    Shifted by each branch's maximum: a branch at -800 keeps a finite score.
    """
    row = row.astype(np.float64)
    starts = np.flatnonzero(np.diff(fork.branch, prepend=-1))
    highest = np.maximum.reduceat(row, starts)
    return highest + np.log(np.add.reduceat(np.exp(row - highest[fork.branch]), starts))


def _followed(path: Sequence[tuple[int, int]], masses: Masses) -> tuple[float, int | None]:
    """The score along a path, and the unread fork at which it stops."""
    score = 0.0
    for fork, branch in path:
        mass = masses[fork]
        if mass is None:
            return score, fork
        score += float(mass[branch])
    return score, None


def _heaviest(bound: float, count: int, temperature: float) -> float:
    """The most that `count` unread scores can weigh which together have the log-mass `bound`.

    A power below 1 weighs most when the mass is spread evenly, one above 1 when a single score has it all.
    """
    return math.exp(bound / temperature + max(0.0, 1 - 1 / temperature) * math.log(count))


def _least(prior: np.ndarray | None, trie: FieldTrie, forms: Sequence[int]) -> float:
    return 0.0 if prior is None else float(min(prior[trie.forms[i].choice] for i in forms))


def _levels(trie: FieldTrie) -> tuple[int, ...]:
    """Forks on the path of each choice's canonical form, which comes first."""
    levels: dict[int, int] = {}
    for form, path in zip(trie.forms, trie.paths, strict=True):
        levels.setdefault(form.choice, sum(trie.forks[fork].branches > 1 for fork, _ in path))
    return tuple(levels[choice] for choice in range(len(trie.field.choices)))


def _listed(values: np.ndarray, is_read: np.ndarray) -> tuple[float | None, ...]:
    return tuple(float(value) if read else None for value, read in zip(values, is_read, strict=True))
