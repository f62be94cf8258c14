"""What a person typed, as a race takes it.

Knows nothing of gradio. What the engine checks itself (context, temperature, length) is left to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.schema import StructuredSchema
from core.trace import Lane


class InputError(ValueError):
    """An input that no run can start with; the message says what to change."""


@dataclass(frozen=True)
class Inputs:
    context: str
    schema: StructuredSchema
    temperature: float
    order: tuple[Lane, Lane]


def read_inputs(context: str, schema: str, temperature: float | None, first: Lane) -> Inputs:
    """Raises `InputError` or `SchemaError`."""
    if temperature is None:
        raise InputError("the temperature is empty; type a number above 0, such as 1")
    order: tuple[Lane, Lane] = ("ar", "pcd") if first == "ar" else ("pcd", "ar")
    return Inputs(context, StructuredSchema.from_json(schema), float(temperature), order)
