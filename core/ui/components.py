"""The two components of our own: the board, and a line of plain text.

Both are a static template, filled by JavaScript through `textContent` and `dataset` only:
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
    "board/keys.js",
    "board/visit.js",
    "board/presenter.js",
    "board/bets.js",
    "board/scale.js",
    "board/steps.js",
    "board/tour.js",
    "board.js",
)
_MOUNT = "const shown = {}; watch('value', () => shown.show(props.value)); shown.show(props.value);"
_CREATE_BOARD = "createBoard(element, server.tour_text && (() => server.tour_text()))"
# A function of its own, so that the browser can put the same script into a report.
_BOARD = "const boardScript = function () {\n%s\nreturn createBoard;\n};\nconst createBoard = boardScript();\n"


# The values have defaults because gradio makes a component anew, without its value, when an event skips it.


class Board(gr.HTML):
    """Draws a `Log`: both lanes' clocks and where their time goes, a row per field, the JSON of both."""

    def __init__(self, value: Log = Log(), **options: Any) -> None:
        super().__init__(
            value=value,
            html_template=asset("board.html"),
            js_on_load=_BOARD % (script() + "".join(map(asset, _BOARD_PARTS))) + _MOUNT.format(_CREATE_BOARD),
            apply_default_css=False,
            **options,
        )

    def postprocess(self, value: Log) -> dict[str, str]:
        return {"run": value.run, "log": value.lines, "recorded": value.recorded}

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


def asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
