"""The page: what stands where. Its events are in `wiring`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import gradio as gr

from core.presets import Preset
from core.resident import Resident
from core.trace import Event
from core.ui.benchmark import add_benchmark
from core.ui.components import Board, Notice, SchemaTable
from core.ui.endpoints import add_endpoints
from core.ui.log import Log
from core.ui.model_picker import ModelPicker, Models
from core.ui.modes import MODES, STYLES
from core.ui.sheet import Sheet
from core.ui.tour import teller, tour_of
from core.ui.views import preset_note, schema_note, schema_text
from core.ui.wiring import Parts, Settings, Shown, change_button, wire

TITLE = "Parallel constrained decoding beside streamed JSON"
LEDE = (
    "One model, one schema, one text. The left lane scores every allowed choice and assembles the JSON in code; "
    "the right lane writes JSON token by token. Same prompt for both."
)
ORDERS = [("PCD first", "pcd"), ("Baseline first", "ar")]


def build(
    resident: Resident,
    presets: Sequence[Preset],
    recordings: Mapping[str, Sequence[Event]] = MappingProxyType({}),
    models: Models = dict,
) -> gr.Blocks:
    """`recordings`: by preset id, the events of a run that the page shows before any model is there.

    That of a changed fact has the id of the changed preset. `models`: those that the page offers.
    """

    def shown(preset: Preset) -> Log:
        events = recordings.get(preset.id)
        return Log.of(events) if events else Log.prepared(preset.schema)

    with gr.Blocks(title=TITLE, fill_width=True) as page:
        _masthead(resident, models)
        with gr.Tabs(elem_id="tabs"):
            with gr.Tab("Race", id="race"):
                parts = _race(presets, shown, teller(tour_of(presets, recordings)))
            with gr.Tab("Benchmark", id="benchmark"):
                add_benchmark(page, resident, presets)
        wire(page, parts, resident, presets, shown)
        add_endpoints(resident)
    return page


def _masthead(resident: Resident, models: Models) -> None:
    with gr.Row(elem_id="masthead"):
        gr.Markdown(f"# {TITLE}\n{LEDE}", elem_id="title")
        ModelPicker(resident, models, elem_id="model")


def _race(presets: Sequence[Preset], shown: Shown, tellers: list[Callable[[object], str]]) -> Parts:
    """Controls and editors, and the board beside them."""
    first = presets[0]
    with gr.Row(elem_id="bench"):
        with gr.Column(elem_id="controls"):
            preset = gr.Dropdown([(p.title, p.id) for p in presets], value=first.id, label="Scenario", elem_id="preset")
            with gr.Row(elem_id="buttons"):
                run = gr.Button("Run", variant="primary", elem_id="run")
                stop = gr.Button("Stop", interactive=False, elem_id="stop")
            gr.HTML('<p id="click-to-screen" title="waiting, both lanes, network and drawing"></p>')
            settings = _settings()
        with gr.Column(elem_id="editors"):
            about = Notice(preset_note(first), elem_id="about")
            context = gr.Textbox(first.context, label="Context", lines=9, max_lines=9, elem_id="context")
            change = change_button(first, first.context, size="sm", elem_id="change")
            text = schema_text(first.schema)
            table = SchemaTable(Sheet.of(text), elem_id="table")
            schema = gr.Code(
                text,
                language="json",
                label="Schema: fields, or a JSON Schema",
                lines=12,
                max_lines=12,
                elem_id="schema",
            )
            verdict = Notice(schema_note(first.schema), elem_id="verdict")
        with gr.Column(elem_id="result"):
            board = Board(shown(first), presets, server_functions=tellers, elem_id="board")
    return Parts(preset, about, run, stop, settings, context, change, table, schema, verdict, board)


def _settings() -> Settings:
    """How the race is run: one panel, the baseline's mode above what both lanes share."""
    modes = [(f"{name}: {mode.explained}", name) for name, mode in MODES.items()]
    styles = [(name.capitalize(), name) for name in STYLES]
    with gr.Column(elem_id="settings"):
        mode = gr.Radio(modes, value="json", label="Baseline mode", elem_id="mode")
        style = gr.Radio(styles, value="pretty", label="JSON style", elem_id="style")
        first_lane = gr.Radio(ORDERS, value="pcd", label="Order", elem_id="order")
        temperature = gr.Number(1.0, label="Temperature", step=0.1, elem_id="temperature")
        cache = gr.Checkbox(True, label="Prefix cache", elem_id="cache")
    return Settings(mode, style, cache, first_lane, temperature)
