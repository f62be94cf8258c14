"""What a person typed or a caller sent, as a race or a benchmark takes it.

Knows nothing of gradio. What the engine checks itself (context, temperature, length, options) is left to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.presets import Preset
from core.schema import StructuredSchema
from core.trace import Lane
from core.trials import HEADS, Benchmark, Case
from core.ui.modes import MODES, STYLES

#: Rounds of a benchmark on the page, where others may wait for the same engine.
MOST_ROUNDS = 50


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
    order: tuple[Lane, Lane] = ("ar", "pcd") if first == "ar" else ("pcd", "ar")
    spec = StructuredSchema.from_text(schema, on_unsupported="skip")  # what is left out stands under the editor
    return Inputs(context, spec, float(temperature), order, mode, style, cache)


def read_benchmark(
    presets: Sequence[Preset],
    chosen: Sequence[str],
    modes: Sequence[str],
    heads: Sequence[str],
    style: str,
    rounds: float | None,
) -> Benchmark:
    """The ticked presets, by id, modes and heads, in the order of the page. Raises `InputError` or `ValueError`."""
    _check_known("JSON style", style, STYLES)
    ids = [preset.id for preset in presets]
    ticked = {
        what: _ticked(what, names, known)
        for what, names, known in (("preset", chosen, ids), ("baseline mode", modes, MODES), ("head", heads, HEADS))
    }
    if isinstance(rounds, bool) or not isinstance(rounds, int | float) or rounds not in range(1, MOST_ROUNDS + 1):
        given = "is empty" if rounds is None else f"{rounds!r} is none"
        raise InputError(f"n {given}; type a whole number from 1 to {MOST_ROUNDS}")
    return Benchmark(
        cases=tuple(Case.of(preset, preset.id) for preset in presets if preset.id in ticked["preset"]),
        modes=ticked["baseline mode"],
        heads=ticked["head"],
        rounds=int(rounds),
        style=style,
    )


def _check_known(what: str, value: object, known: Iterable[str]) -> None:
    names = tuple(known)
    if value not in names:
        raise InputError(f"{what} {value!r} is unknown; use one of: {', '.join(names)}")


def _ticked(what: str, names: Sequence[str], known: Iterable[str]) -> tuple[str, ...]:
    for name in names:
        _check_known(what, name, known)
    if not names:
        raise InputError(f"no {what} is ticked; tick at least one")
    return tuple(name for name in known if name in names)
