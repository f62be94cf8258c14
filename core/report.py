"""A benchmark's report: for people as a table, for a README, and as JSON and CSV files.

Every text that came from outside is hostile: a terminal shows it and obeys none of it, a
spreadsheet computes nothing from it, Markdown makes nothing of it.
"""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from core.backend import CLOCKS, Clock
from core.figures import Summary, ms_text, ratio_text, summaries
from core.setting import Setting, rounded
from core.trials import Benchmark, Failure, Trial
from core.wording import escaped

if TYPE_CHECKING:
    pass

COLUMNS = 120

#: What Markdown, as code hosts read it, makes something of in the middle of a line.
MARKUP = frozenset("\\`*[]<>|&~$#@:!")

#: What columns mean; whose the times are and what is counted, the setting tells.
LEGEND = (
    "ms: {clock}, median of n races and 95th percentile (nearest rank). ratio: median AR / median PCD, and its "
    "range over single rounds; * see the notes. {counts}; reading: all of the trie (complete), or what proved the "
    "winners (best-first). AR tokens: written (of them forced). JSON: AR texts that parse."
)
RACE_LEGEND = (
    f"{LEGEND} valid: those that keep the schema. same: fields on which the lanes agree. right: fields as expected, "
    "PCD, AR."
)

#: What is counted of the two lanes, in the legend.
COUNTS: Mapping[Clock, str] = {
    "engine": "passes: PCD/AR. tree: tokens that PCD read behind the prompt",
    "client": "requests: to the server, PCD/AR. sent: tokens of all prompts in them, PCD/AR",
}
#: What stands of the setting beside each race in a table.
SETTING_COLUMNS = ("date", "machine", "model", "device", "dtype", "clock")

#: What a spreadsheet takes for a formula when a cell begins with it.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


@dataclass(frozen=True)
class Report:
    """A benchmark as far as it was run."""

    setting: Setting
    benchmark: Benchmark
    trials: tuple[Trial | Failure, ...]
    is_whole: bool  # False: stopped before its end

    legend: ClassVar[str] = RACE_LEGEND  # with gaps for what the setting says

    @property
    def summaries(self) -> tuple[Summary, ...]:
        return summaries(self.trials)

    @property
    def failures(self) -> tuple[Failure, ...]:
        return tuple(trial for trial in self.trials if isinstance(trial, Failure))

    def to_json(self, *, trials: bool = False) -> dict[str, Any]:
        """`trials`: with each race too."""
        plan = self.benchmark
        shape = {
            "benchmark": "race",
            **asdict(self.setting),
            "presets": [case.name for case in plan.cases],
            "modes": plan.modes,
            "heads": plan.heads,
            "rounds": plan.rounds,
            "style": plan.style,
            "is_whole": self.is_whole,
            "summaries": [asdict(each) | {"marks": each.marks} for each in self.summaries],
            "failures": [asdict(failure) for failure in self.failures],
        }
        if trials:
            shape["trials"] = [asdict(trial) for trial in self.trials if isinstance(trial, Trial)]
        return rounded(shape)

    def csv(self) -> str:
        """A line for each race, in the order in which they ran; those that failed have a message and no figures."""
        setting = {name: getattr(self.setting, name) for name in SETTING_COLUMNS}
        rows = [setting | _csv_row(trial) for trial in self.trials]
        known = [*setting, *(each.name for each in fields(Trial) if not each.name.endswith("_phases"))]
        phases = sorted({name: 0 for row in rows for name in row if name not in (*known, "message")}, key=_is_of_ar)
        file = io.StringIO()
        writer = csv.DictWriter(file, [*known, *phases, "message"], restval="")
        writer.writeheader()
        writer.writerows({name: csv_cell(value) for name, value in row.items()} for row in rows)
        return file.getvalue()

    def plain(self) -> str:
        lines = [wrapped(escaped(line)) for line in self.setting.lines()]
        lines += [self.plan_line(), "", *self.plain_tables()]
        if self.summaries:
            lines += [wrapped(self.legend_here)]
        lines += [wrapped(escaped(line)) for line in self.failed_lines()]
        return "\n".join(lines + self._unfinished())

    def markdown(self) -> str:
        """The README's table, with what it was measured on above it."""
        lines = [*map(markdown_text, self.setting.lines()), self.plan_line()]
        columns = columns_of(MARKDOWN, self.setting.clock)
        headings = [column.heading for column in columns]
        table = [[column.cell(row) for column in columns] for row in self.summaries]
        rows = [headings, ["---"] * len(headings), *table]
        lines = ["; ".join(lines) + ".", "", *(f"| {' | '.join(row)} |" for row in rows)]
        if self.summaries:
            lines.append("\n" + self.legend_here.replace("*", "\\*"))
        lines += [f"\n{markdown_text(line)}" for line in (*self.failed_lines(), *self._unfinished())]
        return "\n".join(lines)

    @property
    def legend_here(self) -> str:
        clock = self.setting.clock
        return self.legend.format(clock=CLOCKS[clock], counts=COUNTS[clock])

    def plan_line(self) -> str:
        plan = self.benchmark
        turns = "the lanes take turns in going first" if plan.rounds > 1 else "PCD first"
        rounds = f"n = {plan.rounds} round{'s' * (plan.rounds > 1)} after a warm-up race"
        return f"{rounds}, {turns}; baseline modes {', '.join(plan.modes)}; style {plan.style}"

    def plain_tables(self) -> Iterator[str]:
        """A table for each preset, with the columns of all of them equally wide."""
        rows = self.summaries
        heading, *lines = aligned(rows, columns_of(PLAIN, self.setting.clock))
        for case in self.benchmark.cases:
            mine = [(row, line) for row, line in zip(rows, lines, strict=True) if row.preset == case.name]
            if mine:
                ours = [row for row, _ in mine]
                yield from (wrapped(_preset_line(ours)), heading, *(line for _, line in mine), *notes(ours), "")

    def failed_lines(self) -> Iterator[str]:
        counted: dict[tuple[str, str], int] = {}
        for failure in self.failures:
            counted[failure.preset, failure.message] = counted.get((failure.preset, failure.message), 0) + 1
        for (preset, message), count in counted.items():
            yield f"failed: {preset}, {count} race{'s' * (count > 1)}: {message}"

    def _unfinished(self) -> list[str]:
        done, planned = len(self.trials), len(self.benchmark.turns)
        return [] if self.is_whole else [f"stopped after {done} of {planned} races"]


@dataclass(frozen=True)
class Column:
    title: str
    cell: Callable[[Summary], str]
    long_title: str = ""  # where there is room

    @property
    def heading(self) -> str:
        return self.long_title or self.title


def _preset_line(rows: Sequence[Summary]) -> str:
    """What all rows of a preset share: whether PCD reads all of its trie hangs on the preset and the engine alone."""
    row, readings = rows[0], sorted({reading for row in rows for reading in row.readings})
    known = f", {row.expected} with a known answer" if row.expected else ""
    about = f"fields {row.fields}{known}; prompt {row.prompt_tokens:,} tokens; reading {', '.join(readings)}"
    return f"{escaped(row.preset)}: {about}"


def _mark(row: Summary) -> str:
    return "*" if row.marks else ""


def _right(row: Summary) -> str:
    return f"{row.pcd_right}, {row.ar_right} of {row.expected}" if row.expected else "-"


def range_text(row: Summary) -> str:
    """Of the speed-ups of single rounds; one round has none."""
    if row.n == 1:
        return "-"
    return f"{ratio_text(row.least_speed_up)[:-1]}-{ratio_text(row.largest_speed_up)[:-1]}"


_MODE, _HEAD, _N = (Column(name, lambda row, name=name: str(getattr(row, name))) for name in ("mode", "head", "n"))
_READING = Column("reading", lambda row: ", ".join(row.readings))
_NAMES = (_MODE, _HEAD, _READING)
_PASSES = Column("passes", lambda row: f"{row.pcd_passes}/{row.ar_passes}", "passes PCD/AR")
_TREE = Column("tree", lambda row: str(row.tree_tokens), "tree tokens")
#: What is counted on a server, where each fork is a prompt of its own, in the place of passes and of the tree.
_SERVED = {
    _PASSES: replace(_PASSES, title="requests", long_title="requests PCD/AR"),
    _TREE: Column(
        "sent", lambda row: f"{_known(row.pcd_sent_tokens)}/{_known(row.ar_sent_tokens)}", "tokens sent PCD/AR"
    ),
}
_WRITTEN = Column("AR tokens", lambda row: f"{row.ar_tokens} ({row.ar_forced})", "AR tokens (forced)")
_JSON = Column("JSON", lambda row: f"{row.parsed}/{row.n}")
_COUNTED = (
    _PASSES,
    _TREE,
    _WRITTEN,
    Column("same", lambda row: f"{row.agree}/{row.fields}", "same fields"),
    Column("right", _right, "right PCD, AR"),
    _JSON,
    Column("valid", lambda row: f"{row.keeps_schema}/{row.n}"),
)
_TIMES = (
    Column("PCD ms", lambda row: ms_text(row.pcd.median_ms)),
    Column("p95", lambda row: ms_text(row.pcd.p95_ms)),
    Column("AR ms", lambda row: ms_text(row.ar.median_ms)),
    Column("p95", lambda row: ms_text(row.ar.p95_ms)),
    Column("ratio", lambda row: ratio_text(row.speed_up) + _mark(row)),
    Column("range", range_text),
)
PLAIN = (_MODE, _HEAD, _N, *_TIMES, *_COUNTED)
#: Of a sweep, whose rows differ in size.
SWEPT = (
    Column("size", lambda row: f"{row.size:,}"),
    _MODE,
    _N,
    *_TIMES,
    _PASSES,
    Column("prompt", lambda row: str(row.prompt_tokens)),
    _TREE,
    _READING,
    _WRITTEN,
    _JSON,
)
MARKDOWN = (
    Column("preset", lambda row: markdown_text(row.preset)),
    _MODE,
    _HEAD,
    _N,
    Column("PCD ms (p95)", lambda row: f"{ms_text(row.pcd.median_ms)} ({ms_text(row.pcd.p95_ms)})"),
    Column("AR ms (p95)", lambda row: f"{ms_text(row.ar.median_ms)} ({ms_text(row.ar.p95_ms)})"),
    Column(
        "AR / PCD (range)",
        lambda row: f"{ratio_text(row.speed_up)}{_mark(row)} ({range_text(row)})".replace("*", "\\*"),
    ),
    *_COUNTED,
    _READING,
    Column("notes", lambda row: "; ".join(row.marks)),
)


def columns_of(columns: Sequence[Column], clock: Clock) -> tuple[Column, ...]:
    """The columns, on a server with what is counted there."""
    return tuple(_SERVED.get(column, column) if clock == "client" else column for column in columns)


def _known(count: int | None) -> str:
    return "-" if count is None else str(count)


def csv_cell(value: object) -> object:
    """Numbers as they are; texts without what steers a terminal, and marked where a spreadsheet would compute."""
    if not isinstance(value, str):
        return value
    return f"'{escaped(value)}" if value.lstrip(" ").startswith(FORMULA) else escaped(value)


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is, in a table too."""
    marked = "".join(f"&#{ord(c)};" if c in MARKUP else c for c in escaped(text))
    # An underscore within a word is only that; `www.` would become a link.
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", "&#95;", marked).replace("www.", "www&#46;")


def _is_of_ar(column: str) -> bool:
    return not column.startswith("pcd_")


def _csv_row(trial: Trial | Failure) -> dict[str, object]:
    row: dict[str, object] = {}
    for name, value in asdict(trial).items():
        if name.endswith("_phases"):
            lane = name.removesuffix("phases")
            row |= {f"{lane}{re.sub(r'[^a-z]+', '_', phase)}_ms": round(ms, 4) for phase, ms in value.items()}
        else:
            row[name] = " then ".join(value) if name == "order" else rounded(value)
    return row


def aligned(rows: Sequence[Summary], columns: Sequence[Column]) -> list[str]:
    """The heading, and a line for each row: names to the left, figures to the right, p95 close to its median."""
    table = [[column.title for column in columns], *([column.cell(row) for column in columns] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    gaps = ["" if i == 0 else " " if column.title == "p95" else "  " for i, column in enumerate(columns)]
    sides = [str.ljust if column in _NAMES else str.rjust for column in columns]
    layout = list(zip(gaps, sides, widths, strict=True))
    return [
        "".join(gap + side(cell, width) for (gap, side, width), cell in zip(layout, cells, strict=True)).rstrip()
        for cells in table
    ]


def notes(rows: Sequence[Summary]) -> Iterator[str]:
    """What must be said of rows, for below their table."""
    for row in rows:
        names = (row.mode, row.head) if row.size is None else (escaped(row.preset), row.mode)
        if row.marks:
            yield wrapped(f"* {', '.join(names)}: {'; '.join(row.marks)}", "  ")


def wrapped(text: str, indent: str = "") -> str:
    """The text in lines that fit a terminal."""
    lines = textwrap.wrap(text, COLUMNS, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent)
    return "\n".join(lines)
