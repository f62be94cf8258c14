"""A benchmark's report as the page shows it: rows of texts, frames for plots, lines. No events, no gradio."""

from __future__ import annotations

import math

import pandas

from core.figures import Summary, ratio_text
from core.report import MARKDOWN, Column, Report, range_text
from core.trials import Benchmark, Trial, Turn
from core.ui.measurements import Step
from core.ui.note import Note
from core.wording import escaped

PCD, AR = "PCD", "AR"

_SHARED = {column.heading: column for column in MARKDOWN}

#: The mode stands beside the speed-up, and behind it what has to be said of it.
COLUMNS = (
    Column("preset", lambda row: escaped(row.preset)),
    _SHARED["head"],
    _SHARED["mode"],
    Column("AR ÷ PCD", lambda row: " ".join([ratio_text(row.speed_up), *_signs(row)])),
    Column("range", range_text),
    Column("notes", lambda row: "; ".join(row.marks) or "–"),
    *(_SHARED[heading] for heading in ("valid", "right PCD, AR", "same fields", "PCD ms (p95)", "AR ms (p95)", "n")),
    *(_SHARED[heading] for heading in ("passes PCD/AR", "tree tokens", "reading", "AR tokens (forced)", "JSON")),
)
HEADINGS = tuple(column.heading for column in COLUMNS)

#: A scale from 0 to any of these has a tick at its end.
AXIS_STEPS = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12)
#: A point at the very end would be cut in half.
MARGIN = 1.03


def table(report: Report) -> list[list[str]]:
    """A row for each preset, mode and head that was raced, under `HEADINGS`."""
    return [[column.cell(row) for column in COLUMNS] for row in report.summaries]


def medians(report: Report) -> pandas.DataFrame:
    """Each lane's median by preset, mode and head: columns race, lane, "median ms"."""
    rows = [
        (f"{_label(row)} {lane}", lane, ms)
        for row in report.summaries
        for lane, ms in ((PCD, row.pcd.median_ms), (AR, row.ar.median_ms))
    ]
    return _frame(rows, "race", "lane", "median ms")


def races(report: Report) -> pandas.DataFrame:
    """Both lanes of each race: columns race, lane, ms."""
    done = (trial for trial in report.trials if isinstance(trial, Trial))
    rows = [(_label(trial), lane, ms) for trial in done for lane, ms in ((PCD, trial.pcd_ms), (AR, trial.ar_ms))]
    return _frame(rows, "race", "lane", "ms")


def axis_end(frame: pandas.DataFrame) -> float:
    """Where the axis of a frame's milliseconds ends: at a tick, or the last number would be cut off."""
    most = max(frame.iloc[:, -1], default=1.0)
    size = 10 ** math.floor(math.log10(most))
    return next(step * size for step in AXIS_STEPS if step * size >= most * MARGIN)


def headline(report: Report) -> str:
    """What the figures were taken on, and how."""
    return "\n".join(map(escaped, (*report.setting.lines(), report.plan_line())))


def failures(report: Report) -> Note:
    return Note("\n".join(map(escaped, report.failed_lines())), "error" if report.failures else "plain")


def plan_note(benchmark: Benchmark) -> Note:
    """What a press of Start would do."""
    races, presets = len(benchmark.turns), len(benchmark.cases)
    factors = (_count(presets, "preset"), _count(len(benchmark.modes), "mode"), _count(len(benchmark.heads), "head"))
    warm_ups = "a warm-up race" if presets == 1 else f"{presets} warm-up races"
    return Note(f"{_count(races, 'race')}: {', '.join(factors)}, n = {benchmark.rounds}; and {warm_ups}")


def progress_note(step: Step) -> Note:
    """The race that runs, or how it ended."""
    done, turns = len(step.report.trials), step.report.benchmark.turns
    if not step.is_over:
        waits = f"; {step.ahead} run{'s are' if step.ahead > 1 else ' is'} ahead" if step.ahead else ""
        return Note(f"{_race(turns, done)}{waits}", "busy", done / len(turns))
    if step.error:
        return Note(f"{step.error}; {_count(done, 'race')} of {len(turns)} done", "error")
    if not step.report.is_whole:
        return Note(f"Cancelled after {_count(done, 'race')} of {len(turns)}")
    failed = len(step.report.failures)
    if failed:
        return Note(f"Done: {_count(done, 'race')}, {failed} of them failed", "error")
    return Note(f"Done: {_count(done, 'race')}", "good")


def _signs(row: Summary) -> list[str]:
    """The gravest of the notes, short enough to stand beside the speed-up where the notes are out of sight."""
    signs = {
        "(limit)": row.limit_hits,
        "(no JSON)": not row.limit_hits and not row.is_json,
        "(slower)": row.speed_up < 1,
    }
    return [sign for sign, is_so in signs.items() if is_so]


def _race(turns: tuple[Turn, ...], number: int) -> str:
    """A turn, from 0, in words; a preset's first comes after the warm-up."""
    number = min(number, len(turns) - 1)
    turn = turns[number]
    first = "PCD first" if turn.order[0] == "pcd" else "baseline first"
    is_new = number == 0 or turns[number - 1].preset != turn.preset
    warm_up = ", after a warm-up race" if is_new else ""
    return f"Race {number + 1} of {len(turns)}: {_kind(turn)}, {first}{warm_up}"


def _kind(row: Summary | Turn) -> str:
    return f"{escaped(row.preset)}, {row.mode}, {row.head}"


def _label(row: Summary | Turn) -> str:
    """Short: a plot cuts what is longer than some thirty letters."""
    return f"{escaped(row.preset)} {row.mode} {row.head}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _frame(rows: list[tuple[str, str, float]], *columns: str) -> pandas.DataFrame:
    types = dict(zip(columns, ("str", "str", "float"), strict=True))
    return pandas.DataFrame(rows, columns=columns).astype(types)
