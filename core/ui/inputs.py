"""What a person typed or a caller sent, as a race takes it.

Knows nothing of gradio. What the engine checks itself (context, temperature, length) is left to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from core.schema import StructuredSchema
from core.trace import Lane
from core.ui.modes import MODES, STYLES


class InputError(ValueError):
    """An input that no run can start with; the message says what to change."""


@dataclass(frozen=True)
class Inputs:
    context: str
    schema: StructuredSchema
    temperature: float
    order: tuple[Lane, Lane]
    mode: str  # of the baseline
    style: str  # of the JSON that both lanes are asked for
    cache: bool  # whether both lanes may start from a stored prefix


def read_inputs(
    context: str, schema: str, temperature: float | None, first: Lane, mode: str, style: str, cache: bool
) -> Inputs:
    """Raises `InputError` or `SchemaError`."""
    if temperature is None:
        raise InputError("the temperature is empty; type a number above 0, such as 1")
    check_mode(mode)
    check_options(style, cache)
    order: tuple[Lane, Lane] = ("ar", "pcd") if first == "ar" else ("pcd", "ar")
    return Inputs(context, StructuredSchema.from_json(schema), float(temperature), order, mode, style, cache)


def check_mode(mode: str) -> None:
    """Raises `InputError` for what is no baseline mode."""
    _check_known("baseline mode", mode, MODES)


def check_options(style: str, cache: bool) -> None:
    """Raises `InputError` for what neither lane can be asked for."""
    _check_known("JSON style", style, STYLES)
    if not isinstance(cache, bool):
        raise InputError(f"prefix cache {cache!r} is unknown; use true or false")


def _check_known(what: str, value: object, known: Iterable[str]) -> None:
    names = tuple(known)
    if value not in names:
        raise InputError(f"{what} {value!r} is unknown; use one of: {', '.join(names)}")
