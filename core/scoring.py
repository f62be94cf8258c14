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
    """The decision of one field; `prior` (C,) is subtracted from the scores.

    Raises `ArithmeticError` where the model gave no finite numbers.
    """
    now = checked_standing(trie, masses)
    less = np.zeros(len(now.lower)) if prior is None else prior
    adjusted, most = now.lower - less, now.upper - less
    winner = int(np.argmax(adjusted))  # the first of equals
    # One shift for all, before the division: a temperature near zero makes of any difference an infinite one.
    top = max([adjusted[winner], *np.delete(most, winner)])
    with np.errstate(over="ignore"):
        weights = np.exp((adjusted - top) / temperature)
        # What is certain: the others may lose to the winner's own unread forms, the winner may not.
        shares = weights / (weights.sum() + _heaviest(trie, now, less, top, temperature))
        shares[winner] = weights[winner] / (weights.sum() + _heaviest(trie, now, less, top, temperature, winner))
    mass = math.fsum([*np.exp(now.lower), *(math.exp(reached) for reached, _ in now.open.values())])
    return Decision(
        name=trie.field.name,
        choices=trie.field.choices,
        scores=_listed(now.lower, now.is_read),
        probabilities=_listed(shares, now.is_read),
        levels=_levels(trie),
        winner=winner,
        candidate_mass=min(1.0, mass),
        unread_mass=max(0.0, 1.0 - math.fsum(shares)) if now.open else 0.0,
        prior=None if prior is None else tuple(map(float, prior)),
        **_unasked(trie, masses),
    )


def checked_standing(trie: FieldTrie, masses: Masses) -> Standing:
    """The standing of a field that can be decided; raises `ArithmeticError`."""
    now = standing(trie, masses)
    if not now.is_read.any() or np.isnan(now.upper).any() or not np.isfinite(now.lower[now.is_read]).all():
        raise ArithmeticError(
            f"field {trie.field.name!r}: the model gives no finite scores; load it with another dtype, such as float32"
        )
    return now


def path_shares(trie: FieldTrie, choice: int, masses: Masses) -> tuple[tuple[int, float | None], ...]:
    """The tokens of a choice's canonical line, each with the probability that the model goes on into its branch.

    None for a token at which nothing was read. The product of the others is what the line has of the choice's score.
    """
    i = next(i for i, form in enumerate(trie.forms) if form.choice == choice)
    read = {
        len(trie.forks[fork].path): mass[branch] for fork, branch in trie.paths[i] if (mass := masses[fork]) is not None
    }
    shares = {depth: min(1.0, math.exp(mass)) for depth, mass in read.items()}  # sums of float32 may exceed 1
    return tuple((token, shares.get(depth)) for depth, token in enumerate(trie.forms[i].tokens))


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


def _unasked(trie: FieldTrie, masses: Masses) -> dict[str, float]:
    """Tokens that were not asked for at the forks that were read, and the most that they hold together."""
    if not any(fork.unasked for fork in trie.forks):
        return {}
    reached: dict[int, float] = {}
    for path in trie.paths:
        score = 0.0
        for fork, branch in path:
            if (mass := masses[fork]) is None:
                break
            reached[fork] = score
            score += float(mass[branch])
    cut = [(fork, score) for fork, score in reached.items() if trie.forks[fork].unasked]
    most = math.fsum(math.exp(score) * max(0.0, 1.0 - float(np.exp(masses[fork]).sum())) for fork, score in cut)
    return {"unasked": sum(trie.forks[fork].unasked for fork, _ in cut), "unasked_mass": min(1.0, most)}


def _heaviest(
    trie: FieldTrie, now: Standing, less: np.ndarray, top: float, temperature: float, but: int | None = None
) -> float:
    """The most that the unread forms of all choices `but` one can add to the weights, exp((score - less - top) / T).

    A power 1 / T of at most 1 is heaviest when a fork's mass is spread evenly over all that it can go to.
    A power above 1 grows faster than its base: a choice gains the more, the more of it is there already.
    """
    weight = 0.0
    for reached, forms in now.open.values():
        choices = [choice for i in forms if (choice := trie.forms[i].choice) != but]
        if not choices:
            continue
        if temperature >= 1.0:
            bound = (reached - less[choices].min() - top) / temperature
            weight += np.exp(bound + (1 - 1 / temperature) * math.log(len(choices)))
        else:
            before, after = now.lower[choices], now.upper[choices]
            gained = np.exp((after - less[choices] - top) / temperature) * -np.expm1((before - after) / temperature)
            part = np.exp(reached - after) / -np.expm1(before - after)  # of what may be added to the choice
            weight += (np.minimum(1.0, part) * gained).max()
    return float(weight)


def _levels(trie: FieldTrie) -> tuple[int, ...]:
    """Forks on the path of each choice's canonical form, which comes first."""
    levels: dict[int, int] = {}
    for form, path in zip(trie.forms, trie.paths, strict=True):
        levels.setdefault(form.choice, sum(trie.forks[fork].branches > 1 for fork, _ in path))
    return tuple(levels[choice] for choice in range(len(trie.field.choices)))


def _listed(values: np.ndarray, is_read: np.ndarray) -> tuple[float | None, ...]:
    return tuple(float(value) if read else None for value, read in zip(values, is_read, strict=True))
