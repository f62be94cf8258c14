"""Baseline modes and JSON styles in the words of the page: its controls, its board, its refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Mode:
    """What the baseline is held to."""

    enforced: str  # beside the lane's name
    explained: str  # beside the mode's name, where it is chosen


MODES: Mapping[str, Mode] = {
    "free": Mode("prompt alone", "the prompt alone"),
    "json": Mode("any JSON enforced", "any JSON object is enforced"),
    "schema": Mode("schema enforced", "the schema itself is enforced"),
}
#: What JSON the prompt asks both lanes for.
STYLES: Mapping[str, str] = {"pretty": "pretty JSON", "compact": "compact JSON"}


def script() -> str:
    """The same words as JavaScript, for a board that prints what a trace names."""
    modes = {name: mode.enforced for name, mode in MODES.items()}
    return "".join(
        f"const {name} = new Map(Object.entries({json.dumps(table)}));\n"
        for name, table in (("MODES", modes), ("STYLES", dict(STYLES)))
    )
