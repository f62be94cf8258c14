"""From races to lines: medians of each lane by the size of the request, and where two lines meet.

Pure: knows no engine and no plot.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from core.trials import Trial

#: The line of the pcd lane; the other lines have the names of their baseline modes.
PCD = "pcd"


@dataclass(frozen=True)
class Measurement:
    """One race of a sweep."""

    x: int  # fields, choices of the one field, or tokens of the text
    context_tokens: int
    trial: Trial  # of round 0 where it only warms up

    @property
    def counts(self) -> bool:
        return self.trial.round > 0


@dataclass(frozen=True)
class Point:
    """A point of a line: the median over the races of one request, in engine time."""

    line: str  # pcd, or a baseline mode
    x: int
    n: int  # races; the pcd lane runs in those of every mode
    ms: float
    least_ms: float
    most_ms: float
    tokens: float  # median; pcd: of the tree batch; a baseline: written
    context_tokens: int
    prompt_tokens: int  # head, context and tail
    cache: str  # states of the head that the lanes started from
    marks: str  # how many of the races have which mark: "limit 2, not_parsable 1"


@dataclass(frozen=True)
class Crossing:
    """A place where a baseline's line meets PCD's; `below` and `above` were measured, the rest is an estimate."""

    line: str
    below: int
    above: int
    x: float
    ms: float
    faster_after: str  # the line that is the faster one for more
    marked: bool  # whether a mark stands beside the baseline at one of the two


def summary(measurements: Iterable[Measurement]) -> tuple[Point, ...]:
    """The points of every line that the races so far allow, PCD's first, by growing size."""
    counted = [each for each in measurements if each.counts]
    found = []
    for line in [PCD, *dict.fromkeys(each.trial.mode for each in counted)]:
        for x in sorted({each.x for each in counted}):
            if races := [each for each in counted if each.x == x and line in (PCD, each.trial.mode)]:
                found.append(_point(line, races))
    return tuple(found)


def crossings(points: Sequence[Point], line: str) -> tuple[Crossing, ...]:
    """Where a baseline's line meets PCD's, in log time over log size straight from point to point."""
    pcd, ar = by_size(points, PCD), by_size(points, line)
    sizes = sorted(pcd.keys() & ar.keys())
    leads = {x: math.log(ar[x].ms / pcd[x].ms) for x in sizes}  # above 0 PCD is the faster one
    found = []
    for below, above in pairwise(x for x in sizes if leads[x]):
        if (leads[below] > 0) == (leads[above] > 0):
            continue
        equal = [x for x in sizes if below < x < above]
        low, high = (equal[0], equal[-1]) if equal else (below, above)
        share = 0.5 if equal else leads[below] / (leads[below] - leads[above])
        x, ms = _between(low, high, share), _between(pcd[low].ms, pcd[high].ms, share)
        faster = PCD if leads[above] > 0 else line
        found.append(Crossing(line, low, high, x, ms, faster, bool(ar[low].marks or ar[high].marks)))
    return tuple(found)


def verdict(points: Sequence[Point], line: str, unit: str) -> str:
    """One sentence: where a baseline's line meets PCD's, or that it does not."""
    pcd, ar = by_size(points, PCD), by_size(points, line)
    sizes = sorted(pcd.keys() & ar.keys())
    if not sizes:
        return f"{line}: not measured"
    if found := crossings(points, line):
        return "; ".join(_place(crossing, unit) for crossing in found)
    leads = [ar[x].ms - pcd[x].ms for x in sizes]
    where = f"from {sizes[0]:,} to {sizes[-1]:,} {unit}" if len(sizes) > 1 else f"at {sizes[0]:,} {unit}"
    if not any(leads):
        return f"{PCD} and {line} take the same time {where}"
    return f"{PCD} and {line} do not cross {where}: {PCD if max(leads) > 0 else line} is faster"


def by_size(points: Iterable[Point], line: str) -> dict[int, Point]:
    return {point.x: point for point in points if point.line == line}


def size_text(x: float) -> str:
    """An estimated size, with three digits that count or all of them."""
    return f"{x:.1f}" if x < 99.95 else f"{x:,.0f}"


def _point(line: str, races: Sequence[Measurement]) -> Point:
    is_pcd, trials = line == PCD, [race.trial for race in races]
    times = [trial.pcd_ms if is_pcd else trial.ar_ms for trial in trials]
    marks = Counter(mark for trial in trials for mark in _marks(trial) if not is_pcd)
    return Point(
        line=line,
        x=races[0].x,
        n=len(trials),
        ms=statistics.median(times),
        least_ms=min(times),
        most_ms=max(times),
        tokens=statistics.median(trial.tree_tokens if is_pcd else trial.ar_tokens for trial in trials),
        context_tokens=races[0].context_tokens,
        prompt_tokens=trials[0].prompt_tokens,
        cache=", ".join(sorted({trial.cache for trial in trials})),
        marks=", ".join(f"{mark} {number}" for mark, number in sorted(marks.items())),
    )


def _marks(trial: Trial) -> list[str]:
    """What must stand beside the baseline's time."""
    is_limited, is_json = trial.how == "limit", trial.outcome == "parsed"
    return ["limit"] if is_limited else [] if is_json else [trial.outcome]


def _place(crossing: Crossing, unit: str) -> str:
    estimate = f"between {crossing.below:,} and {crossing.above:,} {unit}, estimated at {size_text(crossing.x)}"
    where = f"at {crossing.below:,} {unit}" if crossing.below == crossing.above else estimate
    mark = " (! mind the marks of the baseline there)" if crossing.marked else ""
    return f"{PCD} = {crossing.line} {where}: {crossing.faster_after} is faster above{mark}"


def _between(low: float, high: float, share: float) -> float:
    """The number at a share of the way from `low` to `high` on a logarithmic scale."""
    return low ** (1 - share) * high**share
