"""The components of our own: the board, the schema's table, and a line of plain text.

Each is a static template, filled by JavaScript through `textContent` and `dataset` only:
gradio's templates would run what they are given (see `assets/`).
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import gradio as gr

from core.ui.log import Log
from core.ui.modes import script
from core.ui.note import Note
from core.ui.sheet import Sheet

ASSETS = Path(__file__).parents[2] / "assets"

# One function body for the browser: each part uses the ones before it.
_BOARD_PARTS = (
    "board/text.js",
    "board/fold.js",
    "board/clock.js",
    "board/phases.js",
    "board/tape.js",
    "board/captions.js",
    "board/player.js",
    "board/inspector.js",
    "board/rows.js",
    "board/raw.js",
    "board/highlight.js",
    "board/panels.js",
    "board.js",
)
_SHEET_PARTS = (
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
_MOUNT = "const shown = {}(element); watch('value', () => shown.show(props.value)); shown.show(props.value);"
# A function of its own, so that the browser can put the same script into a report.
# Sets the value and tells of it, as an input of gradio's own does.
_SEND = "(text) => { props.value = { text }; trigger('input'); }"
_BOARD = "const boardScript = function () {\n%s\nreturn createBoard;\n};\nconst createBoard = boardScript();\n"


# The values have defaults because gradio makes a component anew, without its value, when an event skips it.


class Board(gr.HTML):
    """Draws a `Log`: both lanes' clocks and where their time goes, a row per field, the JSON of both."""

    def __init__(self, value: Log = Log(), **options: Any) -> None:
        super().__init__(
            value=value,
            html_template=asset("board.html"),
            js_on_load=_BOARD % (script() + "".join(map(asset, _BOARD_PARTS))) + _MOUNT.format("createBoard"),
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
            js_on_load="".join(map(asset, _SHEET_PARTS)) + _MOUNT.format(f"((at) => createSheet(at, {_SEND}))"),
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
            js_on_load=asset("notice.js") + _MOUNT.format("createNotice"),
            apply_default_css=False,
            **options,
        )

    def postprocess(self, value: Note) -> dict[str, Any]:
        return asdict(value)

    def api_info(self) -> dict[str, Any]:
        return {"type": "object"}


def asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
