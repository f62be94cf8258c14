"""Scores: log-probabilities at forks -> joint scores -> probabilities.

Pure arithmetic in float64. A branch's mass is the sum over its tokens, a form's score the
product of the masses on its path, a choice's score the sum over its forms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from core.result import Decision
from core.trie import FieldTrie, Fork


def decide(trie: FieldTrie, rows: Sequence[np.ndarray], temperature: float) -> Decision:
    """The decision of one field.

    `rows[i]` holds the log-probabilities, normalised over the full vocabulary, of
    `trie.forks[i].tokens`, shape (K,).
    """
    masses = [branch_masses(fork, row) for fork, row in zip(trie.forks, rows, strict=True)]
    scores = np.full(len(trie.field.choices), -np.inf)
    levels = [0] * len(scores)
    for form, path in zip(trie.forms, trie.paths, strict=True):
        score = sum(masses[fork][branch] for fork, branch in path)
        scores[form.choice] = np.logaddexp(scores[form.choice], score)
        levels[form.choice] = levels[form.choice] or len(path)  # of the canonical form, which comes first
    if not np.isfinite(scores).all():
        raise ArithmeticError(
            f"field {trie.field.name!r}: the model gives no finite scores; load it with another dtype, such as float32"
        )
    return Decision(
        name=trie.field.name,
        choices=trie.field.choices,
        scores=tuple(map(float, scores)),
        probabilities=tuple(map(float, _softmax((scores - scores.max()) / temperature))),
        levels=tuple(levels),
        winner=int(np.argmax(scores)),  # the first of equals
    )


def branch_masses(fork: Fork, row: np.ndarray) -> np.ndarray:
    """Log of the summed probability of each branch's tokens, shape (branches,).

    Shifted by each branch's maximum: a branch at -800 keeps a finite score.
    """
    row = row.astype(np.float64)
    starts = np.flatnonzero(np.diff(fork.branch, prepend=-1))
    highest = np.maximum.reduceat(row, starts)
    return highest + np.log(np.add.reduceat(np.exp(row - highest[fork.branch]), starts))


def _softmax(values: np.ndarray) -> np.ndarray:
    weights = np.exp(values - values.max())
    return weights / weights.sum()
