"""Where two lines meet: both lanes' medians by the size of the request, one baseline mode at a time.

Pure: knows no engine and no plot.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from core.figures import Summary

#: The pcd lane beside the names of baseline modes.
PCD = "pcd"


@dataclass(frozen=True)
class Crossing:
    """A place where a baseline's line meets PCD's; `below` and `above` were measured, the rest is an estimate."""

    mode: str  # of the baseline
    below: int
    above: int
    size: float
    ms: float
    faster_after: str  # for larger requests: pcd, or the baseline's mode
    is_json: bool  # whether the baseline wrote whole JSON at both


def by_size(rows: Iterable[Summary], mode: str) -> dict[int, Summary]:
    """The rows of one baseline mode, by growing size."""
    return dict(sorted((row.size, row) for row in rows if row.mode == mode and row.size is not None))


def crossings(rows: Iterable[Summary], mode: str) -> tuple[Crossing, ...]:
    """Where a baseline's line meets PCD's, in log time over log size straight from point to point."""
    line = by_size(rows, mode)
    leads = _leads(line)
    found = []
    for below, above in pairwise(size for size in line if leads[size]):
        if (leads[below] > 0) == (leads[above] > 0):
            continue
        equal = [size for size in line if below < size < above]
        low, high = (equal[0], equal[-1]) if equal else (below, above)
        share = 0.5 if equal else leads[below] / (leads[below] - leads[above])
        size, ms = _between(low, high, share), _between(line[low].pcd.median_ms, line[high].pcd.median_ms, share)
        faster = PCD if leads[above] > 0 else mode
        found.append(Crossing(mode, low, high, size, ms, faster, line[low].is_json and line[high].is_json))
    return tuple(found)


def verdict(rows: Iterable[Summary], mode: str, unit: str) -> str:
    """One sentence: where a baseline's line meets PCD's, or that it does not."""
    line = by_size(rows, mode)
    if not line:
        return f"{mode}: not measured"
    if found := crossings(line.values(), mode):
        return "; ".join(_place(crossing, unit) for crossing in found)
    leads, sizes = _leads(line).values(), list(line)
    where = f"from {sizes[0]:,} to {sizes[-1]:,} {unit}" if len(sizes) > 1 else f"at {sizes[0]:,} {unit}"
    if not any(leads):
        return f"{PCD} and {mode} take the same time {where}"
    return f"{PCD} and {mode} do not cross {where}: {PCD if max(leads) > 0 else mode} is faster"


def size_text(size: float) -> str:
    """An estimated size, with three digits that count or all of them."""
    return f"{size:.1f}" if size < 99.95 else f"{size:,.0f}"


def _leads(line: Mapping[int, Summary]) -> dict[int, float]:
    """By size: above 0 where PCD is the faster one."""
    return {size: math.log(row.speed_up) for size, row in line.items()}


def _place(crossing: Crossing, unit: str) -> str:
    estimate = f"between {crossing.below:,} and {crossing.above:,} {unit}, estimated at {size_text(crossing.size)}"
    where = f"at {crossing.below:,} {unit}" if crossing.below == crossing.above else estimate
    mark = "" if crossing.is_json else " (! the baseline did not always write whole JSON there)"
    return f"{PCD} = {crossing.mode} {where}: {crossing.faster_after} is faster above{mark}"


def _between(low: float, high: float, share: float) -> float:
    """The number at a share of the way from `low` to `high` on a logarithmic scale."""
    return low ** (1 - share) * high**share
