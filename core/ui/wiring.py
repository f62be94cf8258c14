"""The page's events: which input reaches which output, and when.

Nothing here is shared between users but the table of runs in progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import gradio as gr

from core.presets import Preset
from core.resident import Resident
from core.schema import SchemaError
from core.trace import Lane
from core.ui.components import Board, Notice, SchemaTable
from core.ui.inputs import read_inputs
from core.ui.listeners import AT_ONCE, QUIET
from core.ui.log import Drawn, Log
from core.ui.note import Note
from core.ui.runs import Runs
from core.ui.sharing import wire_links
from core.ui.sheet import Sheet
from core.ui.views import change_words, edited_schema, preset_note, schema_note, schema_text


@dataclass(frozen=True)
class Settings:
    """How a race is run."""

    mode: gr.Radio
    style: gr.Radio
    cache: gr.Checkbox
    first_lane: gr.Radio
    temperature: gr.Number


@dataclass(frozen=True)
class Parts:
    """The components that take part in an event."""

    preset: gr.Dropdown
    about: Notice
    run: gr.Button
    stop: gr.Button
    settings: Settings
    context: gr.Textbox
    change: gr.Button
    table: SchemaTable
    schema: gr.Code
    verdict: Notice
    board: Board


#: What the board shows of a preset before anything was run.
Shown = Callable[[Preset], Log]


# Handlers are coroutines: gradio's few worker threads may all be waiting for the engine.


def wire(page: gr.Blocks, parts: Parts, resident: Resident, presets: Sequence[Preset], shown: Shown) -> None:
    runs = Runs(resident)
    drawn = gr.State(Drawn.of(presets[0].schema, is_recorded=True))
    _wire_kept(
        page, parts, presets, drawn
    )  # first: listeners of one event wait for one another, and the server may be away
    _wire_presets(parts, presets, runs, drawn, shown)
    _wire_change(parts, presets, drawn, shown)
    _wire_schema(parts, runs, drawn)
    _wire_table(parts)
    _wire_runs(parts, runs, drawn)
    wire_links(page, parts, presets, shown, drawn)


def _wire_presets(parts: Parts, presets: Sequence[Preset], runs: Runs, drawn: gr.State, shown: Shown) -> None:
    """A preset comes with what is shown of it: its recording, or its rows."""
    by_id = {preset.id: preset for preset in presets}

    async def fill(chosen: str, request: gr.Request) -> tuple[Any, ...]:
        preset = by_id[chosen]
        texts = preset.context, schema_text(preset.schema)
        inputs = preset_note(preset), *texts, schema_note(preset.schema)
        if request.session_hash in runs:  # a run is never disturbed
            return *inputs, gr.skip(), gr.skip()
        return *inputs, shown(preset), Drawn.of(preset.schema, is_recorded=True)

    outputs = [parts.about, parts.context, parts.schema, parts.verdict, parts.board, drawn]
    parts.preset.input(fill, parts.preset, outputs, **AT_ONCE)


def _wire_change(parts: Parts, presets: Sequence[Preset], drawn: gr.State, shown: Shown) -> None:
    """Changes one fact of the text, and shows the recording of that where a recording is what is shown."""
    by_id = {preset.id: preset for preset in presets}

    async def change(chosen: str | None, context: str, drawn: Drawn) -> tuple[Any, Any]:
        preset = by_id.get(chosen)
        if not preset or not preset.change or (other := preset.change.flipped(context)) is None:
            return gr.skip(), gr.skip()
        scenario = next((p for p in (preset, preset.changed) if p.context == other), None)
        fits = scenario and drawn == Drawn.of(scenario.schema, is_recorded=True)
        return other, shown(scenario) if scenario and fits else gr.skip()

    async def label(chosen: str | None, context: str) -> gr.Button:
        return change_button(by_id.get(chosen), context)

    parts.change.click(change, [parts.preset, parts.context, drawn], [parts.context, parts.board], **AT_ONCE)
    parts.context.change(label, [parts.preset, parts.context], parts.change, trigger_mode="always_last", **AT_ONCE)


def change_button(preset: Preset | None, context: str, **options: Any) -> gr.Button:
    """Not to be seen where there is no fact to change; a link may have put away the scenario itself."""
    if not preset or not preset.change:
        return gr.Button(visible=False, **options)
    can = preset.change.flipped(context) is not None
    return gr.Button(change_words(preset, context), visible=True, interactive=can, **options)


def _wire_schema(parts: Parts, runs: Runs, drawn: gr.State) -> None:
    """Checks the schema as it is typed, and gives the board its rows before a run needs them."""

    async def check(text: str, drawn: Drawn, request: gr.Request) -> tuple[Note, Any, Any]:
        schema = await asyncio.to_thread(edited_schema, text)  # a long one would hold up the pages of others
        # A result stays on the board until its rows no longer fit; a run is never disturbed.
        if isinstance(schema, SchemaError) or Drawn.of(schema).names == drawn.names or request.session_hash in runs:
            return schema_note(schema), gr.skip(), gr.skip()
        return schema_note(schema), Log.prepared(schema), Drawn.of(schema)

    outputs = [parts.verdict, parts.board, drawn]
    # What is typed, not what a preset puts there: a late check of the one before would take the board from it.
    parts.schema.input(check, [parts.schema, drawn], outputs, trigger_mode="always_last", **AT_ONCE)
    # An edit in the table is typed too; the text has it before the server is asked.
    parts.table.input(None, parts.table, parts.schema, js="(sheet) => sheet.text", **AT_ONCE)
    parts.table.input(check, [parts.schema, drawn], outputs, trigger_mode="always_last", **AT_ONCE)


def _wire_table(parts: Parts) -> None:
    """The table follows the text, whoever puts it there; it knows the text before the server has read it."""

    async def read(text: str) -> Sheet:
        return await asyncio.to_thread(Sheet.of, text)

    parts.schema.change(None, parts.schema, parts.table, js="(text) => ({ now: text })", **AT_ONCE)
    parts.schema.change(read, parts.schema, parts.table, trigger_mode="always_last", **AT_ONCE)


def _wire_runs(parts: Parts, runs: Runs, drawn: gr.State) -> None:
    async def run(
        context: str,
        schema: str,
        temperature: float | None,
        first_lane: Lane,
        mode: str,
        style: str,
        cache: bool,
        request: gr.Request,
    ) -> AsyncIterator[tuple[Any, ...]]:
        try:
            inputs = await asyncio.to_thread(read_inputs, context, schema, temperature, first_lane, mode, style, cache)
        except ValueError as error:
            yield Log.refused(str(error)), gr.skip(), gr.skip(), Drawn()
            return
        others = gr.Button(interactive=False), gr.Button(interactive=True), Drawn.of(inputs.schema)
        async with aclosing(runs.start(request.session_hash, inputs)) as logs:
            async for log in logs:
                yield log, *others
                others = gr.skip(), gr.skip(), gr.skip()

    async def stop(request: gr.Request) -> None:
        runs.stop(request.session_hash)

    async def ready() -> tuple[gr.Button, gr.Button]:
        return gr.Button(interactive=True), gr.Button(interactive=False)

    settings = parts.settings
    how = [settings.temperature, settings.first_lane, settings.mode, settings.style, settings.cache]
    inputs = [parts.context, parts.schema, *how]
    buttons = [parts.run, parts.stop]
    # Without a limit on concurrency, so that a second user's run starts and shows that it waits for the engine.
    ended = parts.run.click(run, inputs, [parts.board, *buttons, drawn], concurrency_limit=None, **QUIET)
    ended.then(ready, None, buttons, **AT_ONCE)
    parts.stop.click(stop, None, None, **AT_ONCE)


def _wire_kept(page: gr.Blocks, parts: Parts, presets: Sequence[Preset], drawn: gr.State) -> None:
    """Gradio loads the page anew after a lost connection, and nothing typed may be lost: the browser keeps it."""
    settings = list(vars(parts.settings).values())
    inputs = [parts.preset, parts.context, parts.schema, *settings]
    gr.on([part.change for part in inputs], None, inputs, None, js="(...values) => kept.note(values)", **AT_ONCE)
    page.load(None, inputs, None, js="(...values) => kept.note(values)", **AT_ONCE)
    shown = [*inputs, parts.board]
    # In two steps, as for links: a load that has the inputs as its outputs disturbs who uses them meanwhile.
    waiting = gr.Textbox(visible="hidden", elem_id="kept-waiting")
    page.load(None, None, waiting, js="() => kept.waiting", **AT_ONCE)
    restored = waiting.change(None, shown, shown, js="(...values) => kept.restored(values)", **AT_ONCE)

    async def settle(chosen: str | None, text: str) -> tuple[Any, Note, Drawn]:
        schema = await asyncio.to_thread(edited_schema, text)
        about = next((preset_note(preset) for preset in presets if preset.id == chosen), gr.skip())
        return about, schema_note(schema), Drawn() if isinstance(schema, SchemaError) else Drawn.of(schema)

    restored.then(settle, [parts.preset, parts.schema], [parts.about, parts.verdict, drawn], **AT_ONCE)
