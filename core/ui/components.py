"""The components of our own: the board, the schema's table, and a line of plain text.

Each is a static template, filled by JavaScript through `textContent` and `dataset` only:
gradio's templates would run what they are given (see `assets/`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gradio as gr

from core.presets import Preset, with_changed
from core.ui import modes, scenarios
from core.ui.log import Log
from core.ui.note import Note
from core.ui.sheet import Sheet

ASSETS = Path(__file__).parents[2] / "assets"

# One function body for the browser. A part's functions may use those of any other; what it does at once, those before.
BOARD_PARTS = (
    "board/text.js",
    "board/wire.js",
    "board/fold.js",
    "board/stage.js",
    "board/lost.js",
    "board/clock.js",
    "board/phases.js",
    "board/tape.js",
    "board/captions.js",
    "board/player.js",
    "board/inspector.js",
    "board/scenario.js",
    "board/method.js",
    "board/csv.js",
    "board/report.js",
    "board/card.js",
    "board/take.js",
    "board/code.js",
    "board/threshold.js",
    "board/conditions.js",
    "board/changes.js",
    "board/rows.js",
    "board/raw.js",
    "board/highlight.js",
    "board/panels.js",
    "board/shapes.js",
    "board/shelf.js",
    "board/comparison.js",
    "board/history.js",
    "board/keys.js",
    "board/visit.js",
    "board/presenter.js",
    "board/bets.js",
    "board/scale.js",
    "board/steps.js",
    "board/tour.js",
    "board/strip.js",
    "board/summary.js",
    "board/screen.js",
    "board/reading.js",
    "board.js",
)
SHEET_PARTS = (
    "board/text.js",
    "editor/choice.js",
    "editor/column.js",
    "editor/draft.js",
    "editor/chips.js",
    "editor/card.js",
    "editor/cards.js",
    "editor/file.js",
    "editor.js",
)
_MOUNT = "const shown = {}; watch('value', () => shown.show(props.value)); shown.show(props.value);"
# Sets the value and tells of it, as an input of gradio's own does.
_SEND = "(text) => { props.value = { text }; trigger('input'); }"
# A function of its own, so that the browser can put the same script into a report.
_BOARD = "const boardScript = function () {\n%s\nreturn createBoard;\n};\nconst createBoard = boardScript();\n"
# The page alone can read its inputs, and knows what a tour tells: `link` is answered by `core/ui/sharing.py`.
_MOUNTED = (
    "createBoard(element, "
    "{ askForLink: () => trigger('link'), loadTour: server.tour_text && (() => server.tour_text()) })"
)


# The values have defaults because gradio makes a component anew, without its value, when an event skips it.


class Board(gr.HTML):
    """Draws a `Log`: both lanes' clocks and where their time goes, a row per field, the JSON of both.

    `presets`: those whose runs it can name.
    """

    #: Not set, gradio takes the word in the script for an event, and copies the whole page for whoever opens it.
    inputs = None

    def __init__(self, value: Log = Log(), presets: Sequence[Preset] = (), **options: Any) -> None:
        super().__init__(
            value=value,
            html_template=asset("board.html"),
            js_on_load=_BOARD % board_script(presets) + _MOUNT.format(_MOUNTED),
            apply_default_css=False,
            **options,
        )

    def postprocess(self, value: Log) -> dict[str, str]:
        return {"run": value.run, "log": value.lines, "recorded": value.recorded}

    def api_info(self) -> dict[str, Any]:
        return {"type": "object"}


class SchemaTable(gr.HTML):
    """Draws a `Sheet`; an edit there is an `input`, its value `{"text"}` the new text of the schema."""

    def __init__(self, value: Sheet = Sheet(), **options: Any) -> None:
        super().__init__(
            value=value,
            html_template=asset("editor.html"),
            js_on_load="".join(map(asset, SHEET_PARTS)) + _MOUNT.format(f"createSheet(element, {_SEND})"),
            apply_default_css=False,
            **options,
        )

    def postprocess(self, value: Sheet) -> dict[str, Any]:
        return {"sheet": value.to_json()}  # as one text: gradio watches each part of a value

    def api_info(self) -> dict[str, Any]:
        return {"type": "object"}


class Notice(gr.HTML):
    """Shows a `Note`."""

    def __init__(self, value: Note = Note(), **options: Any) -> None:
        super().__init__(
            value=value,
            html_template='<p class="notice"><span></span><progress max="1" hidden></progress></p>',
            js_on_load=asset("notice.js") + _MOUNT.format("createNotice(element)"),
            apply_default_css=False,
            **options,
        )

    def postprocess(self, value: Note) -> dict[str, Any]:
        return asdict(value)

    def api_info(self) -> dict[str, Any]:
        return {"type": "object"}


def board_script(presets: Iterable[Preset]) -> str:
    """The board's functions, with the words that they take from Python."""
    return modes.script() + scenarios.script(with_changed(presets)) + "".join(map(asset, BOARD_PARTS))


def asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
