"""Links to the page's inputs: made when the board asks for one, read when the page opens on one.

A link fills in the inputs and says so. It never starts a run.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import gradio as gr

from core.presets import Preset
from core.schema import SchemaError
from core.trace import Lane
from core.ui.links import Link, LinkError, Shared, link_to, read_link, space_page
from core.ui.listeners import AT_ONCE
from core.ui.log import Drawn, Log
from core.ui.note import Note
from core.ui.views import edited_schema, preset_note, schema_note, schema_text

if TYPE_CHECKING:
    from core.ui.wiring import Parts, Shown

# Not over what somebody had typed before the connection was lost.
_READ_HASH = "() => kept.waiting ? '' : location.hash"
# The board listens for the event. A second link in the same tab changes nothing but the hash.
_GIVE = "(link) => dispatchEvent(new CustomEvent('sharelink', { detail: link }))"

FILLED = (
    "Filled in from a link, nothing was run: text, schema and settings are its sender's. Read them, then press Run."
)
SET = "Settings filled in from a link, nothing was run."


def wire_links(page: gr.Blocks, parts: Parts, presets: Sequence[Preset], shown: Shown, drawn: gr.State) -> None:
    # Between the browser and the handlers; a state would not reach the browser.
    opened, made = (gr.Textbox(visible="hidden", elem_id=name) for name in ("link-opened", "link-made"))
    settings = parts.settings
    how = [settings.mode, settings.style, settings.cache, settings.first_lane, settings.temperature]

    async def share(chosen: str | None, context: str, schema: str, *given: Any) -> str:
        try:
            link = await asyncio.to_thread(_link_of, presets, chosen, context, schema, given)
            return json.dumps({"link": link, "page": space_page(os.environ.get("SPACE_ID"))})
        except LinkError as error:
            return json.dumps({"refused": str(error)})

    async def fill(part: str) -> tuple[Any, ...]:
        try:
            link = read_link(part, presets)
        except LinkError as error:
            about = Note(f"{error}", "error")
            return gr.skip(), about, *(gr.skip(),) * (len(outputs) - 2)
        return await asyncio.to_thread(_filled, link, shown)

    outputs = [parts.preset, parts.about, parts.context, parts.schema, parts.verdict, parts.board, drawn, *how]
    asked = parts.board.link(share, [parts.preset, parts.context, parts.schema, *how], made, **AT_ONCE)
    asked.then(None, made, None, js=_GIVE, **AT_ONCE)
    # In two steps: an event of every page load that has the inputs as its outputs disturbs who uses them meanwhile.
    page.load(None, None, opened, js=_READ_HASH, **AT_ONCE)
    opened.change(fill, opened, outputs, **AT_ONCE)


def _link_of(presets: Sequence[Preset], chosen: str | None, context: str, schema: str, given: Sequence[Any]) -> str:
    mode, style, cache, first, temperature = given
    if temperature is None:
        raise LinkError("the temperature is empty; type a number above 0, such as 1")
    settings = Shared(mode, style, cache, first, float(temperature))
    preset = next((preset for preset in presets if preset.id == chosen), None)
    is_changed = preset is None or (context, schema) != (preset.context, schema_text(preset.schema))
    return link_to(Link(context, schema, settings, None if is_changed else preset))


def _filled(link: Link, shown: Shown) -> tuple[Any, ...]:
    """What stands on the page after a link was opened."""
    settings: tuple[str, str, bool, Lane, float] = astuple(link.settings)
    schema = edited_schema(link.schema)
    if preset := link.preset:
        about = preset_note(preset)
        log = shown(preset)
        about = Note(f"{SET}\n{about.text}", about.tone)
    else:
        about = Note(FILLED, "warn")
        log = gr.skip() if isinstance(schema, SchemaError) else Log.prepared(schema)
    drawn = Drawn() if isinstance(schema, SchemaError) else Drawn.of(schema, is_recorded=preset is not None)
    return preset and preset.id, about, link.context, link.schema, schema_note(schema), log, drawn, *settings
