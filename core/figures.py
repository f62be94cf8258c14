"""Figures: many trials of one preset, mode and head as one row, and what must be said beside it.

Times are medians with the 95th percentile, ratios come with their range; a figure is never
printed without its n. Knows nothing of engines, files or terminals.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from core.trials import Failure, Head, Trial


@dataclass(frozen=True)
class Spread:
    """One lane's time over several trials, in milliseconds."""

    median_ms: float
    p95_ms: float
    least_ms: float

    @classmethod
    def of(cls, ms: Sequence[float]) -> Spread:
        return cls(statistics.median(ms), percentile(ms, 95), min(ms))


@dataclass(frozen=True)
class Summary:
    """All trials of one preset, mode and head; each count is the lower median over the trials."""

    preset: str
    mode: str
    style: str
    head: Head
    n: int  # trials
    pcd: Spread
    ar: Spread
    speed_up: float  # median ar time / median pcd time
    least_speed_up: float  # of one round
    largest_speed_up: float
    pcd_passes: int  # requests on a server
    ar_passes: int
    pcd_sent_tokens: int | None  # of all prompts that a server was sent
    ar_sent_tokens: int | None
    pcd_queue_ms: float | None  # median, in the server's queue
    ar_queue_ms: float | None
    prompt_tokens: int
    tree_tokens: int
    ar_tokens: int  # forced ones included
    ar_forced: int
    first_token_ms: float | None  # median
    tokens_per_s: float | None  # median
    fields: int
    agree: int  # fields for which both lanes say the same
    expected: int  # fields whose right answer is known
    pcd_right: int
    ar_right: int
    parsed: int  # trials whose baseline wrote JSON to its end
    keeps_schema: int  # of them, those with each key once and nothing but allowed values
    limit_hits: int  # trials whose baseline was stopped by its token limit
    failures: int  # races that came to no end, which are in no figure here
    caches: tuple[str, ...]  # states of the head that the lanes started from
    readings: tuple[str, ...]  # how far the pcd lane read the trie: complete, best-first
    pcd_phases: Mapping[str, float]  # median milliseconds
    ar_phases: Mapping[str, float]
    size: int | None  # in a sweep: of what is larger in one case than in another

    @property
    def is_json(self) -> bool:
        """Whether the baseline wrote whole JSON every time; else its time is that of something else."""
        return self.parsed == self.n

    @property
    def marks(self) -> tuple[str, ...]:
        """What must stand beside the speed-up, in words."""
        not_json = self.n - self.parsed - self.limit_hits
        said = {
            f"PCD is slower ({ratio_text(self.speed_up)})": self.speed_up < 1,
            f"PCD is right less often ({self.pcd_right} against {self.ar_right} of {self.expected})": (
                self.pcd_right < self.ar_right
            ),
            f"{self.limit_hits} of {self.n} baseline texts ran into the token limit": self.limit_hits > 0,
            f"{not_json} of {self.n} baseline texts are no whole JSON": not_json > 0,
            f"not warm: the head was {', '.join(self.caches)}": self.head == "warm" and set(self.caches) != {"hit"},
            f"{self.failures} races failed": self.failures > 0,
        }
        return tuple(words for words, is_so in said.items() if is_so)


def summaries(trials: Iterable[Trial | Failure]) -> tuple[Summary, ...]:
    """A row for each preset, mode and head that has a trial, in the order of their first."""
    grouped: dict[tuple[str, str, str, Head], list[Trial | Failure]] = {}
    for trial in trials:
        grouped.setdefault((trial.preset, trial.mode, trial.style, trial.head), []).append(trial)
    rows = (([one for one in group if isinstance(one, Trial)], len(group)) for group in grouped.values())
    return tuple(summary_of(done, failures=size - len(done)) for done, size in rows if done)


def summary_of(trials: Sequence[Trial], failures: int = 0) -> Summary:
    """One row; `trials` are one or more of the same preset, mode, style and head."""
    first, ratios = trials[0], [trial.speed_up for trial in trials]
    pcd, ar = (Spread.of([getattr(trial, name) for trial in trials]) for name in ("pcd_ms", "ar_ms"))

    def count(name: str) -> int:
        return statistics.median_low(getattr(trial, name) for trial in trials)

    def counted(name: str) -> int | None:
        return None if getattr(first, name) is None else count(name)

    return Summary(
        preset=first.preset,
        mode=first.mode,
        style=first.style,
        head=first.head,
        n=len(trials),
        pcd=pcd,
        ar=ar,
        speed_up=ar.median_ms / pcd.median_ms,
        least_speed_up=min(ratios),
        largest_speed_up=max(ratios),
        pcd_passes=count("pcd_passes"),
        ar_passes=count("ar_passes"),
        pcd_sent_tokens=counted("pcd_sent_tokens"),
        ar_sent_tokens=counted("ar_sent_tokens"),
        pcd_queue_ms=_median(trial.pcd_queue_ms for trial in trials),
        ar_queue_ms=_median(trial.ar_queue_ms for trial in trials),
        prompt_tokens=first.prompt_tokens,
        tree_tokens=count("tree_tokens"),
        ar_tokens=count("ar_tokens"),
        ar_forced=count("ar_forced"),
        first_token_ms=_median([trial.first_token_ms for trial in trials]),
        tokens_per_s=_median([trial.tokens_per_s for trial in trials]),
        fields=first.fields,
        agree=count("agree"),
        expected=first.expected,
        pcd_right=count("pcd_right"),
        ar_right=count("ar_right"),
        parsed=sum(trial.outcome == "parsed" for trial in trials),
        keeps_schema=sum(trial.keeps_schema for trial in trials),
        limit_hits=sum(trial.how == "limit" for trial in trials),
        failures=failures,
        caches=tuple(sorted({trial.cache for trial in trials})),
        readings=tuple(sorted({trial.reading for trial in trials})),
        pcd_phases=_median_phases([trial.pcd_phases for trial in trials]),
        ar_phases=_median_phases([trial.ar_phases for trial in trials]),
        size=first.size,
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest rank: the smallest value that at least `percent` of all values do not exceed.

    It is always one of the values. For fewer than 20 of them the 95th percentile is the largest.
    """
    return sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1]


def ms_text(ms: float) -> str:
    """Milliseconds with three digits that count, or all of them: `4.21`, `42.1`, `421`, `4,210`."""
    return f"{ms:,.{0 if ms >= 99.95 else 1 if ms >= 9.995 else 2}f}"


def ratio_text(ratio: float) -> str:
    """`0.85x`, `4.2x`, `19x`: what a ratio of a few trials can bear. Never 1 for what is less."""
    if ratio < 1:
        return f"{min(ratio, 0.99):.2f}x"
    return f"{ratio:.{0 if ratio >= 99.5 else 1}f}x"


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _median_phases(trials: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """A phase that a trial did not have took 0 ms there."""
    names = dict.fromkeys(name for phases in trials for name in phases)
    return {name: statistics.median(phases.get(name, 0.0) for phases in trials) for name in names}
