"""The Benchmark tab: what `python -m core.benchmark` measures, chosen and shown on the page.

The engine queues its races like any other work. Nothing here is shared between users but the
table of measurements in progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from core.backend import CLOCKS
from core.presets import Preset
from core.report import Report
from core.resident import Resident
from core.ui.components import Notice
from core.ui.downloads import Downloads
from core.ui.inputs import MOST_ROUNDS, read_benchmark
from core.ui.listeners import AT_ONCE, QUIET
from core.ui.measurements import Measurements, Step
from core.ui.modes import MODES, STYLES
from core.ui.note import Note
from core.ui.readiness import ready_engine
from core.ui.results import (
    AR,
    HEADINGS,
    PCD,
    axis_end,
    failures,
    headline,
    medians,
    plan_note,
    progress_note,
    races,
    table,
)

ROUNDS = 5
HEADS = [
    ("cold: schema compiled and whole prompt read anew", "cold"),
    ("warm: both lanes start after the cached head", "warm"),
]
INTRODUCTION = """\
Both lanes race on every ticked preset, mode and state of the head, n times, the lanes taking turns in going first
from round to round. A warm-up race for each preset is thrown away. **Times are the engine's own**, or the client's
around the wire to a server, read when a race is over; this page is drawn only between races. A live run waits for the
race in hand, and is none of the figures. **The machine should be idle**: figures of a shared Space are noisy, and a
browser beside the engine costs it a little. The same from a terminal: `python -m core.benchmark`."""
LEGEND = """\
AR: the baseline. ms: median of n races, and 95th percentile (nearest rank). AR ÷ PCD: of the medians; its range is
that of single rounds. Passes: calls of the model, or requests to a server. Tree tokens: read by PCD behind the prompt.
Reading: all of the trie (complete), or what proved the winners (best-first). Forced: tokens that the grammar left no
choice about. Same: fields on which the lanes agree. Right: fields as expected. JSON: texts that parse. Valid: those
that keep the schema."""

# Readable on light and on dark; the board has a pair of each.
COLORS = {PCD: "#3b82f6", AR: "#d97706"}

#: Of the table's columns, in pixels: on a phone, those up to the speed-up are seen at once.
WIDTHS = (128, 58, 72, 104, 100, 230, 70, 130, 100, 130, 130, 50, 130, 110, 110, 160, 70)


@dataclass(frozen=True)
class Choices:
    """What is to be measured."""

    presets: gr.CheckboxGroup
    modes: gr.CheckboxGroup
    heads: gr.CheckboxGroup
    style: gr.Radio
    rounds: gr.Number

    @property
    def all(self) -> list[Any]:
        return [self.presets, self.modes, self.heads, self.style, self.rounds]


@dataclass(frozen=True)
class Parts:
    """The components that take part in an event."""

    choices: Choices
    plan: Notice
    start: gr.Button
    cancel: gr.Button
    progress: Notice
    table: gr.Dataframe
    headline: Notice
    failures: Notice
    medians: gr.BarPlot
    races: gr.ScatterPlot
    json_file: gr.DownloadButton
    csv_file: gr.DownloadButton


def add_benchmark(page: gr.Blocks, resident: Resident, presets: Sequence[Preset]) -> None:
    """Adds the tab's parts and their events to the Blocks being built."""
    parts = _layout(presets)
    downloads = Downloads(Path(parts.json_file.GRADIO_CACHE))  # a file anywhere else would be copied there, for good
    _wire(parts, resident, downloads, presets)

    async def leave(request: gr.Request) -> None:
        await asyncio.to_thread(downloads.remove, request.session_hash)

    page.unload(leave)


def _layout(presets: Sequence[Preset]) -> Parts:
    with gr.Row(elem_id="benchmark"):
        with gr.Column(elem_id="benchmark-controls"):
            choices = _choices(presets)
            plan = Notice(_plan(presets, *(choice.value for choice in choices.all)), elem_id="benchmark-plan")
            with gr.Row(elem_id="benchmark-buttons"):
                start = gr.Button("Start", variant="primary", elem_id="benchmark-start")
                cancel = gr.Button("Cancel", interactive=False, elem_id="benchmark-cancel")
            progress = Notice(elem_id="benchmark-progress")
        with gr.Column(elem_id="benchmark-result"):
            gr.Markdown(INTRODUCTION, elem_id="benchmark-introduction")
            rows = gr.Dataframe(
                [],
                headers=list(HEADINGS),
                datatype="str",
                interactive=False,
                wrap=True,
                column_widths=[f"{width}px" for width in WIDTHS],
                elem_id="benchmark-table",
            )
            told = Notice(elem_id="benchmark-headline")
            failed = Notice(elem_id="benchmark-failures")
            gr.Markdown(LEGEND, elem_id="benchmark-legend")
            bars, points = _plots()
            with gr.Row(elem_id="benchmark-downloads"):
                json_file, csv_file = (
                    gr.DownloadButton(f"Download {kind}", size="sm", interactive=False, elem_id=f"benchmark-{kind}")
                    for kind in ("JSON", "CSV")
                )
    return Parts(choices, plan, start, cancel, progress, rows, told, failed, bars, points, json_file, csv_file)


def _choices(presets: Sequence[Preset]) -> Choices:
    modes = [(f"{name}: {mode.explained}", name) for name, mode in MODES.items()]
    styles = [(name.capitalize(), name) for name in STYLES]
    titles = [(preset.title, preset.id) for preset in presets]
    quick = min(presets, key=lambda preset: sum(len(field.choices) for field in preset.schema))
    with gr.Column(elem_id="benchmark-choices"):
        return Choices(
            gr.CheckboxGroup(titles, value=[quick.id], label="Presets", elem_id="benchmark-presets"),
            gr.CheckboxGroup(modes, value=["json"], label="Baseline modes", elem_id="benchmark-modes"),
            gr.CheckboxGroup(HEADS, value=["warm"], label="Head", elem_id="benchmark-heads"),
            gr.Radio(styles, value="pretty", label="JSON style", elem_id="benchmark-style"),
            gr.Number(ROUNDS, label=f"n (1 to {MOST_ROUNDS})", step=1, elem_id="benchmark-rounds"),
        )


def _plots() -> tuple[gr.BarPlot, gr.ScatterPlot]:
    """Times from left to right, so that names of any length can be read."""
    look: dict[str, Any] = {"y": "race", "color": "lane", "color_map": COLORS, "y_title": " ", "color_title": " "}
    look["visible"] = False
    with gr.Row(elem_id="benchmark-plots"):
        bars = gr.BarPlot(x="median ms", label="Median times", elem_id="benchmark-medians", **look)
        points = gr.ScatterPlot(x="ms", label="Times of each race", elem_id="benchmark-races", **look)
    return bars, points


def _wire(parts: Parts, resident: Resident, downloads: Downloads, presets: Sequence[Preset]) -> None:
    measurements = Measurements()

    async def plan(chosen: list[str], modes: list[str], heads: list[str], style: str, rounds: float | None) -> Note:
        return _plan(presets, chosen, modes, heads, style, rounds)

    async def start(
        chosen: list[str],
        modes: list[str],
        heads: list[str],
        style: str,
        rounds: float | None,
        request: gr.Request,
    ) -> AsyncIterator[dict[Any, Any]]:
        try:
            benchmark = read_benchmark(presets, chosen, modes, heads, style, rounds)
            engine = ready_engine(resident)
        except ValueError as error:
            yield {parts.progress: Note(str(error), "error")}
            return
        session, shown = request.session_hash, None
        async with aclosing(measurements.start(session, engine, benchmark)) as steps:
            async for step in steps:
                yield _changed(parts, step, shown)
                shown = step
                if step.is_over and step.report.trials:
                    yield await asyncio.to_thread(_files, parts, downloads, session, step.report)

    async def cancel(request: gr.Request) -> gr.Button:
        """The pass or the token that runs comes first."""
        if request.session_hash not in measurements:
            return gr.skip()
        measurements.cancel(request.session_hash)
        return gr.Button("Cancelling …", interactive=False)

    async def ready() -> tuple[gr.Button, gr.Button]:
        return gr.Button(interactive=True), gr.Button("Cancel", interactive=False)

    everything = [part for name, part in vars(parts).items() if name not in ("choices", "plan")]
    choices = parts.choices.all
    gr.on([choice.change for choice in choices], plan, choices, parts.plan, trigger_mode="always_last", **AT_ONCE)
    # Without a limit on concurrency, as for runs: the engine has a queue of its own.
    ended = parts.start.click(start, choices, everything, concurrency_limit=None, **QUIET)
    ended.then(ready, None, [parts.start, parts.cancel], **AT_ONCE)
    parts.cancel.click(cancel, None, parts.cancel, **AT_ONCE)


def _plan(presets: Sequence[Preset], *given: Any) -> Note:
    try:
        return plan_note(read_benchmark(presets, *given))
    except ValueError as error:
        return Note(str(error), "error")


def _changed(parts: Parts, step: Step, shown: Step | None) -> dict[Any, Any]:
    """What the page must draw anew. A step that only says that a race goes on changes next to nothing."""
    changed: dict[Any, Any] = {parts.progress: progress_note(step)}
    if shown is None:
        changed |= {parts.start: gr.Button(interactive=False), parts.cancel: gr.Button(interactive=True)}
        changed |= {parts.headline: Note(headline(step.report))}
        # Not without a value: gradio's plots fail in the browser when theirs is taken away.
        changed |= {parts.medians: gr.BarPlot(visible=False), parts.races: gr.ScatterPlot(visible=False)}
        changed |= dict.fromkeys((parts.json_file, parts.csv_file), gr.DownloadButton(value=None, interactive=False))
    if shown is None or step.report.trials != shown.report.trials:
        changed |= {parts.table: table(step.report), parts.failures: failures(step.report)}
    if step.is_over and step.report.summaries:
        bars, points, clock = medians(step.report), races(step.report), CLOCKS[step.report.setting.clock]
        looks = {"label": f"Median {clock}"}, {"label": f"{clock.capitalize()} of each race"}
        changed[parts.medians] = gr.BarPlot(bars, x_lim=[0, axis_end(bars)], visible=True, **looks[0])
        changed[parts.races] = gr.ScatterPlot(points, x_lim=[0, axis_end(points)], visible=True, **looks[1])
    return changed


def _files(parts: Parts, downloads: Downloads, session: str | None, report: Report) -> dict[Any, Any]:
    try:
        files = downloads.write(session, report)
    except OSError as error:
        return {parts.failures: Note(f"the report cannot be downloaded: {error.strerror or error}", "error")}
    buttons = (gr.DownloadButton(value=file, interactive=True) for file in files)
    return dict(zip((parts.json_file, parts.csv_file), buttons, strict=True))
