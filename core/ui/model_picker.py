"""The model at the top of the page: which one runs, and the choice of another that is here.

A switch is everybody's, like the model itself: the page only asks for it, and looks now and then how things
stand, because it may be made over REST too. Ids are matched with those that are here and never used as paths.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from core.catalog import is_of
from core.owner import Unavailable
from core.public import pathless, public_name, public_text
from core.resident import REFUSALS, Busy
from core.ui.components import asset
from core.ui.views import model_note

if TYPE_CHECKING:
    from core.resident import Resident

#: The models of this machine by id, as `Resident.switch` takes them.
Models = Callable[[], Mapping[str, str | Path]]


class ModelPicker(gr.HTML):
    """Draws what its own server functions say; has no value."""

    def __init__(self, resident: Resident, models: Models, **options: Any) -> None:
        # Coroutines: gradio's few worker threads may all be waiting for the engine. Answers are text, see `endpoints`.

        def active() -> str:
            """The id of the model that runs, or its name where it is none of those that can be chosen."""
            if resident.engine is None:
                return ""
            model, listed = resident.engine.model, known or {}
            name = public_name(model)
            return next((id for id, target in listed.items() if is_of(target, model)), "" if name in listed else name)

        async def look(_asked: object) -> str:
            if known is None:
                await here(None)
            # In this order: news come after the end of a switch.
            switching, status = resident.switching, resident.status
            note = model_note(status, switching, resident.engine.trouble if resident.engine else "")
            note = replace(note, text=public_text(note.text, resident.engine and resident.engine.model))
            is_busy = any(one and one.state == "loading" and not one.waits for one in (status, switching))
            return json.dumps({"note": asdict(note), "active": active(), "busy": is_busy})

        async def here(_asked: object) -> str:
            nonlocal known
            known = dict(await asyncio.to_thread(models))
            return json.dumps(list(known))

        async def choose(id: object) -> str:
            """Comes back when the switch is over."""
            target = (await asyncio.to_thread(models)).get(id) if isinstance(id, str) else None
            if target is None:
                return json.dumps({"refused": f"model {str(id)[:100]!r} is not here; choose another one"})
            try:
                await asyncio.to_thread(resident.switch, target)
            except (*REFUSALS, Busy, Unavailable) as error:
                return json.dumps({"refused": pathless(str(error))})
            return json.dumps({})

        known: dict[str, str | Path] | None = None
        super().__init__(
            html_template=asset("models.html"),
            js_on_load=asset("notice.js") + asset("models.js") + "createModels(element, server);",
            apply_default_css=False,
            server_functions=[look, here, choose],
            **options,
        )

    def api_info(self) -> dict[str, Any]:
        return {"type": "object"}
