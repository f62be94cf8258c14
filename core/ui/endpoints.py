"""The two operations for `gradio_client`, without the page.

Answers travel as JSON text: gradio takes any object with a key "path" for a file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING

import gradio as gr

from core.faults import told
from core.owner import Unavailable
from core.public import named_model, pathless, public_event, public_name
from core.schema import StructuredSchema
from core.trace import RunEnded, to_lines
from core.ui.readiness import ready_engine

if TYPE_CHECKING:
    from core.resident import Resident

#: How often a waiting call looks whether the engine has come further. Waiting takes no worker thread.
POLL_S = 0.02


def add_endpoints(resident: Resident) -> None:
    """Adds `/parallel` and `/autoregressive` to the Blocks being built."""

    async def parallel(
        context: str,
        schema: str,
        temperature: float = 1.0,
        style: str = "pretty",
        cache: bool = True,
        on_unsupported: str = "error",
        request: gr.Request | None = None,
    ) -> str:
        """Reads a text and decides every field of a schema: one of its allowed choices for each, with its share.

        For classifying, routing and flags. No value is ever outside the choices. Free text, open lists and open
        numbers cannot be decided. A schema is, for instance,
        {"priority": {"type": "enum", "choices": ["LOW", "HIGH"], "description": "how urgent it is"},
        "refund": {"type": "boolean", "description": "a refund is asked for"}}.

        Args:
            context: the text that the fields are about.
            schema: JSON text: fields by name, or a JSON Schema of an object; at most 128 fields.
            temperature: above 0; spreads or sharpens the shares and never changes a value.
            style: pretty or compact, of the JSON that the model is asked for.
            cache: whether what was read of the same schema before is used again.
            on_unsupported: error, or skip to leave out the parts of a JSON Schema that cannot be decided.

        Returns:
            JSON text: values holds the value of each field; field_telemetry its confidence and the other choices.
        """
        try:
            spec = await asyncio.to_thread(StructuredSchema.from_text, schema, on_unsupported=on_unsupported)
            engine = ready_engine(resident)
            job = engine.submit(context, spec, temperature, style=style, cache=cache)
        except (ValueError, Unavailable) as error:
            raise _refusal(str(error)) from None
        try:
            while not job.done:
                if await _has_gone(request):
                    job.cancel()
                await asyncio.sleep(POLL_S)
            if job.error:  # not raised: its traceback would hold the job, which holds it
                raise _refusal(named_model(told(job.error, "a request"), engine.model))
            result = replace(job.result(), model=public_name(engine.model), why=pathless(engine.why))
            return json.dumps(result.to_json(), ensure_ascii=False, allow_nan=False)
        finally:
            job.cancel()

    async def autoregressive(
        context: str,
        schema: str,
        mode: str = "json",
        style: str = "pretty",
        cache: bool = True,
        on_unsupported: str = "error",
    ) -> AsyncIterator[str]:
        """Lets the model write the JSON token by token, to compare with; one event as JSON text at a time.

        A caller that hears only the last event hears no JSON, but whether it came to its end: use parallel.

        Args:
            context: the text that the fields are about.
            schema: JSON text: fields by name, or a JSON Schema of an object.
            mode: what holds the model: free (the prompt alone), json (any JSON object) or schema.
            style: pretty or compact, of the JSON that the model is asked for.
            cache: whether what was read of the same schema before is used again.
            on_unsupported: error, or skip to leave out the parts of a JSON Schema that cannot be decided.

        Returns:
            Events of a race as JSON text; lane_end has the JSON that was written, end is the last.
        """
        try:
            spec = await asyncio.to_thread(StructuredSchema.from_text, schema, on_unsupported=on_unsupported)
            engine = ready_engine(resident)
            race = engine.race(context, spec, order=("ar",), mode=mode, style=style, cache=cache)
        except (ValueError, Unavailable) as error:
            raise _refusal(str(error)) from None
        try:
            while not race.finished:
                for event in (public_event(event, engine.model) for event in race.drain()):
                    if isinstance(event, RunEnded) and event.state == "failed":
                        raise _refusal(event.message)
                    if not event.live:
                        yield to_lines([event]).rstrip("\n")
                await asyncio.sleep(POLL_S)
        finally:
            race.cancel()

    # The engine has a queue of its own. What is not in gradio's, a call over MCP runs as it is; what is, gradio then
    # asks of itself over HTTP, as a client that has no key.
    gr.api(parallel, api_name="parallel", queue=False, concurrency_limit=None)
    gr.api(autoregressive, api_name="autoregressive", concurrency_limit=None)


async def _has_gone(request: gr.Request | None) -> bool:
    """Whether the caller waits no more; of one over MCP, or that gradio answers later, nothing is known."""
    asked = getattr(request, "request", None)
    return asked is not None and "/run/" in asked.url.path and await asked.is_disconnected()


def _refusal(message: str) -> gr.Error:
    """One line for the caller; nothing for the log, where it would be a traceback."""
    return gr.Error(message, print_exception=False)
