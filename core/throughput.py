"""`python -m core.benchmark --throughput LIST`: rows a second on a vLLM server, by requests in flight.

Every row is a text of its own from its first line on, so that the server finds no more of it in its prefix cache
than the head. The numbers in flight take turns, so that a machine whose speed drifts treats them alike. Progress
goes to stderr; the last line on stdout is the same as JSON.
"""

from __future__ import annotations

import secrets
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from core.interruption import INTERRUPTED, interruptible
from core.setting import Setting, json_line
from core.wording import escaped

if TYPE_CHECKING:
    from core.engine import Engine
    from core.presets import Preset

#: Rows of one measurement: so many times what is in flight, and at least so many. In the last wave fewer are in flight.
WAVES, LEAST_ROWS = 4, 8


@dataclass
class Pace:
    """What one number in flight came to, in rounds."""

    in_flight: int
    seconds: list[float] = field(default_factory=list)  # of each round

    @property
    def rows(self) -> int:
        """Of each round."""
        return max(LEAST_ROWS, WAVES * self.in_flight)

    @property
    def rates(self) -> list[float]:
        """Rows a second, of each round."""
        return [self.rows / seconds for seconds in self.seconds]

    @property
    def rows_per_s(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rates)


@dataclass(frozen=True)
class Throughput:
    """The rounds of each number in flight, in the order that was asked for; `rounds` is how many were to be."""

    setting: Setting
    preset: str
    fields: int
    rounds: int
    paces: tuple[Pace, ...]

    @property
    def measured(self) -> list[Pace]:
        return [pace for pace in self.paces if pace.seconds]

    @property
    def is_whole(self) -> bool:
        return all(len(pace.seconds) == self.rounds for pace in self.paces)

    def ratio(self, pace: Pace) -> float | None:
        """To the first that was asked for; None where that was not measured."""
        first = self.paces[0]
        return pace.rows_per_s / first.rows_per_s if first.seconds else None

    def lines(self) -> Iterator[str]:
        yield from self.setting.lines()
        yield f"{self.preset}, {self.fields} fields, rows that differ from their first line on; the client's clock"
        yield f"{'in flight':>9}  {'rows':>5}  {'rows/s':>8}  {'range':>15}  {'ratio':>6}  {'n':>3}"
        for pace in self.measured:
            low, high, ratio = min(pace.rates), max(pace.rates), self.ratio(pace)
            times = "-" if ratio is None else f"{ratio:.2f}x"
            spread = f"{low:.2f}-{high:.2f}"
            yield (
                f"{pace.in_flight:>9}  {pace.rows:>5}  {pace.rows_per_s:>8.2f}  {spread:>15}  {times:>6}  "
                f"{len(pace.seconds):>3}"
            )

    def to_json(self) -> dict[str, Any]:
        figures = [
            {**asdict(pace), "rows": pace.rows, "rows_per_s": pace.rows_per_s, "ratio": self.ratio(pace)}
            for pace in self.measured
        ]
        about = {"preset": self.preset, "rounds": self.rounds, "whole": self.is_whole, "clock": "client"}
        return {"benchmark": "throughput", **asdict(self.setting), **about, "throughput": figures}


def report_throughput(engine: Engine, preset: Preset, name: str, rounds: int, numbers: Sequence[int]) -> int:
    """Measures and prints, also what was finished when it is interrupted; the exit status."""
    paces = tuple(map(Pace, numbers))
    found = Throughput(Setting.here(engine), name, len(preset.schema), rounds, paces)

    def told() -> None:
        for line in found.lines():
            print(escaped(line))
        print(json_line(found.to_json()), flush=True)

    with interruptible(engine, told):
        _measure(engine, preset, found)
    return 0 if found.is_whole else INTERRUPTED


def _measure(engine: Engine, preset: Preset, found: Throughput) -> None:
    texts = rows_of(preset.context, secrets.token_hex(4))
    engine.decode_many([next(texts)], preset.schema)  # has the server read the head
    for number in range(found.rounds):
        for pace in found.paces if number % 2 == 0 else found.paces[::-1]:
            engine.in_flight = pace.in_flight
            rows = [next(texts) for _ in range(pace.rows)]
            started = time.perf_counter()
            engine.decode_many(rows, preset.schema)
            pace.seconds.append(time.perf_counter() - started)
            print(
                f"round {number + 1} of {found.rounds}: {pace.in_flight} in flight, {pace.rates[-1]:.2f} rows/s",
                file=sys.stderr,
            )


def rows_of(text: str, run: str) -> Iterator[str]:
    """The text again and again, each with a first line of its own. `run`: another one for each run on a server."""
    return (f"{run}-{number}\n{text}" for number in count())
