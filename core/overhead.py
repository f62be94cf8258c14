"""What a pass costs beside its tokens, measured on the machine at hand.

A graphics card reads 200 tokens in the time of 20: there everything is read at once. A CPU
pays for each token: there it pays to read less and more often.
"""

from __future__ import annotations

import time

import numpy as np

from core.backend import Backend, Prefix, TreeBatch

#: Lines of the two passes that are compared: a token that they share, and three of their own.
FEW, MANY = 1, 22
ROUNDS = 2


def measured_overhead(backend: Backend, prefix: Prefix) -> float:
    """A pass's cost with no token in it, in tokens; endless where tokens cost nothing."""
    seconds: dict[int, list[float]] = {FEW: [], MANY: []}
    for _ in range(ROUNDS):
        for lines, taken in seconds.items():
            taken.append(_pass_s(backend, prefix, lines))
    few, many = min(seconds[FEW]), min(seconds[MANY])
    per_token = (many - few) / (3 * (MANY - FEW))
    return max(0.0, few / per_token - 4) if per_token > 0 else float("inf")


def _pass_s(backend: Backend, prefix: Prefix, lines: int) -> float:
    """Seconds of one pass over so many lines, each read at its end."""
    tree, ends = TreeBatch.of([0, line, 1, 2] for line in range(lines))
    wanted = [np.arange(4)] * lines
    backend.synchronize()
    started = time.perf_counter()
    backend.read(prefix, [], tree, ends, wanted)
    backend.synchronize()
    return time.perf_counter() - started
