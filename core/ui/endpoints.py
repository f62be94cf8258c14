"""The two operations for `gradio_client`, without the page.

Answers travel as JSON text: gradio takes any object with a key "path" for a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import gradio as gr

from core.engine import Engine
from core.resident import Resident
from core.schema import StructuredSchema


def add_endpoints(resident: Resident) -> None:
    """Adds `/parallel` and `/autoregressive` to the Blocks being built."""

    def parallel(context: str, schema: str, temperature: float = 1.0) -> str:
        """Decides every field of a schema (JSON text) in one pass; returns the result as JSON text."""
        try:
            result = _engine(resident).run_parallel(context, StructuredSchema.from_json(schema), temperature)
        except ValueError as error:
            raise gr.Error(str(error)) from None
        return _text(result.to_json())

    def autoregressive(context: str, schema: str, mode: str = "json") -> Iterator[str]:
        """Lets the model write the JSON; one event as JSON text at a time, the last one of kind `end`."""
        try:
            events = _engine(resident).stream_baseline(context, StructuredSchema.from_json(schema), mode)
        except ValueError as error:
            raise gr.Error(str(error)) from None
        for event in events:
            if event["kind"] == "end" and event["state"] == "failed":
                raise gr.Error(event["message"])
            yield _text(event)

    # The engine has a queue of its own.
    gr.api(parallel, api_name="parallel", concurrency_limit=None)
    gr.api(autoregressive, api_name="autoregressive", concurrency_limit=None)


def _engine(resident: Resident) -> Engine:
    """The engine, if it is there; raises `gr.Error`."""
    if resident.status.state == "loading":
        raise gr.Error(f"the model is still loading ({resident.status.stage}); try again in a moment")
    if resident.engine is None:
        raise gr.Error(resident.status.message)
    return resident.engine


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
