"""Whether a way of reading a model is right: the same numbers by several roads, whatever the framework.

A reader has `prefill`, `read`, `cache` and `append`, a head has `log_probabilities`; what goes between them is
theirs. See core/torch_probe.py and core/mlx_probe.py for what they are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from core.backend import TreeBatch

#: Largest difference of two log-probabilities in float32: the same sums in another order. A wrong reading is off by 1e-1.
CLOSE = 5e-4
#: Largest share of the probability that may go to other tokens with real weights, in float32 and in bf16.
CLOSE_REAL, CLOSE_REAL_BF16 = 1e-3, 0.25
#: By how much an earlier token must move what follows a later one, or no reading would be told from another.
TELLING = 1e-2

Distance = Callable[[np.ndarray, np.ndarray], float]  # of two rows of log-probabilities
Expected = dict[tuple[int, ...], np.ndarray]  # path after the text -> log-probabilities of what follows
R = TypeVar("R")  # a way to read
Trial = tuple[R, Callable[[], tuple[Any, Any]]]  # it, and what makes its reader and its head


@dataclass(frozen=True)
class Sample:
    """A text and what may follow it."""

    text: tuple[int, ...]
    paths: tuple[tuple[int, ...], ...]

    @property
    def cut(self) -> int:
        return len(self.text) // 2


SMALL = Sample((3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9), ((7, 2, 5, 3), (8, 2, 5, 7), (7, 2, 6), (7, 4)))
#: For real weights: control tokens, which low ids often are, put them beside themselves.
SENTENCE = "The form is filled in with one value for each key and nothing else, in this order: first the name, then"


def sample_of(tokenizer: Any) -> Sample:
    ids = tokenizer.encode(SENTENCE, add_special_tokens=False)
    *text, a, b, c, d = ids
    return Sample(tuple(text), ((a, b, c, d), (d, b, c), (a, b, d), (a, c)))


def first_right(
    trials: Iterable[Trial[R]], sample: Sample, expected: Expected, distance: Distance, close: float, by: str
) -> tuple[R | None, str]:
    """The first way to read that is right of its model, and what was found."""
    found: dict[str, R] = {}  # each outcome once
    for reading, made in trials:
        try:
            off = differences(*made(), sample, expected, distance)
            worst = np.max(list(off))  # nan where one is
        except Exception as failure:  # of any model class: what cannot run is not the way to read it
            outcome = f"fails ({' '.join(str(failure).split()) or type(failure).__name__})"
        else:
            outcome = f"within {worst:.0e} of plain forwards"
            if worst <= close:
                found[outcome] = reading
                return reading, _told(found, by)
        found.setdefault(outcome, reading)
    return None, _told(found, by)


def _told(found: dict[str, Any], by: str) -> str:
    return f"{'; '.join(f'{reading} {outcome}' for outcome, reading in found.items())} ({by})"


def differences(reader: Any, head: Any, sample: Sample, expected: Expected, distance: Distance) -> Iterator[float]:
    """How far each way to come to the same numbers is off."""
    text, cut, path = sample.text, sample.cut, sample.paths[0]
    tree, _ = TreeBatch.of(sample.paths)
    nodes = range(len(tree.tokens))
    truth = [expected[tuple(tree.tokens[step] for step in tree.path(node))] for node in nodes]

    begun = reader.prefill(text[:cut], None)
    seal = begun.seal()
    hidden, kept = reader.read(begun, text[cut:], tree, nodes, keep=True)
    yield off(head, hidden, truth, distance)
    for prefix, ids in ((kept, ()), (reader.prefill(text[cut:], begun), ()), (None, text)):
        yield off(head, reader.read(prefix, ids, tree, nodes, keep=False)[0], truth, distance)
    yield off(head, kept.hidden, [expected[()]], distance)
    cache = reader.cache(kept)
    yield off(head, reader.append(cache, len(text), path[:2]), [expected[path[:2]]], distance)
    yield off(head, reader.append(cache, len(text) + 2, path[2:3]), [expected[path[:3]]], distance)
    yield 0.0 if begun.seal() == seal else float("nan")


def reads_alike(reader: Any, head: Any, expected_of: Callable[[Sample], Expected], tokenizer: Any, exact: bool) -> bool:
    """Whether real weights give what their own forward gives: a gross error in loading does not pass."""
    sample = sample_of(tokenizer)
    sample = Sample(sample.text, sample.paths[:2])
    tree, ends = TreeBatch.of(sample.paths)
    expected = expected_of(sample)
    hidden, _ = reader.read(reader.prefill(sample.text, None), [], tree, ends, keep=False)
    return off(head, hidden, [expected[path] for path in sample.paths], share_moved) <= close_real(exact)


def close_real(exact: bool) -> float:
    """`exact`: computed in float32."""
    return CLOSE_REAL if exact else CLOSE_REAL_BF16


def off(head: Any, hidden: Any, truth: Sequence[np.ndarray], distance: Distance) -> float:
    rows = head.log_probabilities(hidden, [np.arange(len(row)) for row in truth])
    return float(np.max([distance(row, true) for row, true in zip(rows, truth, strict=True)]))


def largest_gap(one: np.ndarray, other: np.ndarray) -> float:
    return np.abs(one - other).max()


def share_moved(one: np.ndarray, other: np.ndarray) -> float:
    return np.abs(np.exp(one) - np.exp(other)).sum() / 2
