"""`python -m core.benchmark --scaling fields|choices|context`: how both lanes grow with a request.

One size grows, everything else stays. Each request of the sweep gets a race per baseline mode and
round; the requests take turns, so that a machine whose speed drifts treats them alike.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from core.figures import ms_text, ratio_text
from core.grammar import MODES
from core.lines import PCD, Measurement, Point, by_size, crossings, summary, verdict
from core.plot import PlotError, require_plotting, save_plot
from core.report import Setting, json_line, write_whole
from core.request import PromptTooLong, Request
from core.review import escaped
from core.synthetic import CHOICES_A_FIELD, schema_of_choices, schema_of_fields, text_of_tokens
from core.trace import RunEnded
from core.trials import HEADS, MOST_ROUNDS, ORDERS, Case, Head, Turn, measured

if TYPE_CHECKING:
    from core.engine import Engine

__all__ = [
    "AXES", "Axis", "Measurement", "PlotError", "Point", "Sweep", "cases", "crossings", "points", "report",
    "save_plot", "summary", "verdict",
]  # fmt: skip

Axis = Literal["fields", "choices", "context"]

#: What stays while something else grows.
TEXT_TOKENS, FIELDS = 128, 8

INTERRUPTED = "interrupted"
EXIT_INTERRUPTED = 130  # as shells have it after Ctrl-C
PATIENCE_S = 10.0  # with the pass in hand, after Ctrl-C


@dataclass(frozen=True)
class Growth:
    """What an axis makes larger, and what it leaves alone."""

    sizes: tuple[int, ...]
    unit: str
    fixed: str


AXES: Mapping[str, Growth] = {
    "fields": Growth(
        (1, 2, 4, 8, 16, 28, 64), "fields", f"{CHOICES_A_FIELD} choices a field, a text of about {TEXT_TOKENS} tokens"
    ),
    "choices": Growth(
        (2, 4, 8, 16, 32, 64, 128, 255), "choices of one field", f"one field, a text of about {TEXT_TOKENS} tokens"
    ),
    "context": Growth(
        (64, 128, 256, 512, 1024, 2048), "tokens of text", f"{FIELDS} fields of {CHOICES_A_FIELD} choices each"
    ),
}


@dataclass(frozen=True)
class Sized:
    """One request of a sweep."""

    x: int  # fields, choices of the one field, or tokens of the text
    case: Case
    context_tokens: int  # as the engine counts them
    prompt_tokens: int


@dataclass(frozen=True)
class Sweep:
    """What was measured, and where and how."""

    axis: Axis
    head: Head
    modes: tuple[str, ...]
    rounds: int  # planned
    setting: Setting
    left_out: tuple[int, ...] = ()  # sizes that do not fit the model's window
    points: tuple[Point, ...] = ()
    stopped: str = ""  # why it ended before its time

    @property
    def unit(self) -> str:
        return AXES[self.axis].unit

    @property
    def fixed(self) -> str:
        return f"{AXES[self.axis].fixed}, head {self.head}"

    def to_json(self) -> dict[str, Any]:
        found = [asdict(one) for mode in self.modes for one in crossings(self.points, mode)]
        plain = {**asdict(self), **asdict(self.setting)}
        del plain["setting"]
        return {"benchmark": "scaling", "unit": self.unit, "fixed": self.fixed, **plain, "crossings": found}


def points(
    engine: Engine,
    axis: Axis,
    modes: Sequence[str] = ("json", "schema"),
    rounds: int = 5,
    head: Head = "warm",
    requests: Sequence[Sized] | None = None,
) -> Generator[Measurement, None, None]:
    """Races as they end, a round of warm-up before those that count; closing the generator stops the engine.

    `requests`: the first of what `cases` gives, if that is at hand. Raises `ValueError` for what
    cannot be measured, and where a race fails.
    """
    _check(axis, modes, rounds, head)
    requests = cases(engine, axis, head)[0] if requests is None else requests
    for number in range(rounds + 1):
        for place, sized in enumerate(requests):
            for mode in modes:
                # Each lane comes first in every second race of a request, and in half of the races of a round.
                order = ORDERS[(number + place) % 2]
                turn = Turn(sized.case.name, mode, "pretty", head, order, number)
                one = _raced(engine, sized, turn)
                if one.counts and head == "warm" and one.trial.cache == "miss":  # the head was driven out meanwhile
                    one = _raced(engine, sized, turn)
                yield one


def cases(engine: Engine, axis: Axis, head: Head = "warm") -> tuple[tuple[Sized, ...], tuple[int, ...]]:
    """The requests of an axis, and the sizes that do not fit the model's window.

    Raises `PromptTooLong` where none does.
    """
    made: list[Sized] = []
    left_out: list[int] = []
    for size in AXES[axis].sizes:
        try:
            made.append(_sized(engine, axis, size, head))
        except PromptTooLong:
            left_out.append(size)
            if len(left_out) == len(AXES[axis].sizes):
                raise
    return tuple(made), tuple(left_out)


def _sized(engine: Engine, axis: Axis, size: int, head: Head) -> Sized:
    text_tokens, field_count = (size, FIELDS) if axis == "context" else (TEXT_TOKENS, size)
    text = text_of_tokens(text_tokens, lambda text: len(engine.vocabulary.encode(text)))
    schema = schema_of_choices(size) if axis == "choices" else schema_of_fields(field_count)
    request = Request(text, schema, cache=head == "warm")
    prepared = engine.owner.submit(lambda job: engine.prepare(request)).result()
    context_tokens = len(prepared.context)
    x = context_tokens if axis == "context" else size
    return Sized(x, Case(f"{x} {AXES[axis].unit}", text, schema), context_tokens, prepared.prompt_tokens)


def _raced(engine: Engine, sized: Sized, turn: Turn) -> Measurement:
    case = sized.case
    options = {"order": turn.order, "mode": turn.mode, "style": turn.style, "cache": turn.head == "warm"}
    race = engine.race(case.context, case.schema, **options)
    try:
        events = race.wait()
    finally:
        race.cancel()  # Ctrl-C must not leave the engine at work
    end = events[-1]
    if not isinstance(end, RunEnded) or end.state != "done":
        raise ValueError(f"{case.name}, baseline mode {turn.mode}: the race {end.state}: {end.message}")
    return Measurement(sized.x, sized.context_tokens, measured(turn, case, events))


def _check(axis: str, modes: Sequence[str], rounds: int, head: str) -> None:
    if axis not in AXES:
        raise ValueError(f"axis {axis!r} is unknown; use one of: {', '.join(AXES)}")
    if head not in HEADS:
        raise ValueError(f"head {head!r} is unknown; use one of: {', '.join(HEADS)}")
    if not modes:
        raise ValueError(f"no baseline mode is given; use some of: {', '.join(MODES)}")
    for mode in modes:
        if mode not in MODES:
            raise ValueError(f"baseline mode {mode!r} is unknown; use some of: {', '.join(MODES)}")
        if list(modes).count(mode) > 1:
            raise ValueError(f"baseline mode {mode!r} is given twice; once is enough")
    if not 1 <= rounds <= MOST_ROUNDS:
        raise ValueError(f"rounds {rounds} must be a number from 1 to {MOST_ROUNDS}")


# --- the command ---


def report(
    engine: Engine,
    axis: Axis,
    modes: Sequence[str] = ("json", "schema"),
    rounds: int = 5,
    head: Head = "warm",
    *,
    json_file: Path | None = None,
    csv_file: Path | None = None,
    plot_file: Path | None = None,
) -> int:
    """Measures, prints a table, sentences and one line of JSON, and writes the files; the exit status.

    After Ctrl-C, and where a race fails, what was measured by then. Raises `ValueError` before anything
    is measured where the sweep cannot be run or a file cannot be written.
    """
    _check(axis, modes, rounds, head)
    require_files(json_file, csv_file, plot_file)
    requests, left_out = cases(engine, axis, head)
    sweep = Sweep(axis, head, tuple(modes), rounds, Setting.here(engine), left_out)
    measurements: list[Measurement] = []
    total = (rounds + 1) * len(requests) * len(modes)
    try:
        with closing(points(engine, axis, modes, rounds, head, requests)) as races:
            for number, one in enumerate(races, start=1):
                measurements.append(one)
                print(_progress(one, number, total), file=sys.stderr)
    except KeyboardInterrupt:
        engine.owner.close(PATIENCE_S)
        sweep = replace(sweep, stopped=INTERRUPTED)
    except ValueError as error:  # a race that failed, such as for want of memory
        sweep = replace(sweep, stopped=str(error))
    sweep = replace(sweep, points=summary(measurements))
    for line in lines_of(sweep):
        print(escaped(line))
    try:
        write(sweep, json_file, csv_file, plot_file)
    finally:
        print(json_line(sweep.to_json()), flush=True)
    return EXIT_INTERRUPTED if sweep.stopped == INTERRUPTED else int(bool(sweep.stopped))


def require_files(json_file: Path | None, csv_file: Path | None, plot_file: Path | None) -> None:
    """Raises `ValueError` where a file could not be written after all the work."""
    for file in filter(None, (json_file, csv_file, plot_file)):
        if not file.parent.is_dir() or file.is_dir():
            raise ValueError(f"{file}: cannot be written; give the name of a file in a folder that is there")
    if plot_file:
        require_plotting(plot_file)


def _progress(one: Measurement, number: int, total: int) -> str:
    trial = one.trial
    times = f"pcd {ms_text(trial.pcd_ms)} ms, baseline {ms_text(trial.ar_ms)} ms"
    return f"{number} of {total}: {trial.preset}, {trial.mode}: {times}{'' if one.counts else ' (warm-up)'}"


def lines_of(sweep: Sweep) -> Iterator[str]:
    """The sweep for a terminal."""
    yield from sweep.setting.lines()
    yield f"{sweep.unit}; fixed: {sweep.fixed}; engine time, medians of n races a baseline mode"
    if sweep.left_out:
        yield f"left out, do not fit the model's window: {', '.join(map(str, sweep.left_out))}"
    if sweep.stopped:
        yield f"stopped ({sweep.stopped}); these are the races that were done by then"
    if not sweep.points:
        yield "nothing was measured"
        return
    yield from _table(sweep)
    for mode in sweep.modes:
        yield verdict(sweep.points, mode, sweep.unit)


def _table(sweep: Sweep) -> Iterator[str]:
    columns = "".join(f"{mode + ' ms':>12} {'/ pcd':>6}{'n':>4} " for mode in sweep.modes)
    yield f"{sweep.axis:>8} {'text':>6} {'prompt':>7} {'head':>9} {'pcd ms':>10} {columns}"
    lines = {mode: by_size(sweep.points, mode) for mode in sweep.modes}
    for x, pcd in by_size(sweep.points, PCD).items():
        row = f"{x:>8} {pcd.context_tokens:>6} {pcd.prompt_tokens:>7} {pcd.cache:>9} {ms_text(pcd.ms):>10} "
        row += "".join(_cell(lines[mode].get(x), pcd) for mode in sweep.modes)
        marks = [f"{mode}: {lines[mode][x].marks}" for mode in sweep.modes if x in lines[mode] and lines[mode][x].marks]
        yield row + ("! " + "; ".join(marks) if marks else "")


def _cell(point: Point | None, pcd: Point) -> str:
    if point is None:
        return f"{'-':>12} {'-':>6}{0:>4} "
    mark = "!" if point.marks else " "
    return f"{ms_text(point.ms):>12} {ratio_text(point.ms / pcd.ms):>6}{point.n:>4}{mark}"


def write(sweep: Sweep, json_file: Path | None, csv_file: Path | None, plot_file: Path | None) -> None:
    """The files that are asked for, each whole or not touched. Raises `OSError`."""
    if json_file:
        write_whole(json_file, json_line(sweep.to_json()) + "\n")
    if csv_file:
        text = io.StringIO(newline="")
        table = csv.writer(text)
        table.writerow([field.name for field in fields(Point)])
        table.writerows([vars(point).values() for point in sweep.points])
        write_whole(csv_file, text.getvalue())
    if plot_file and sweep.points:
        save_plot(sweep, plot_file)
