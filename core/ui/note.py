"""A note: a line of plain text on the page, such as what is wrong with a schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Note:
    text: str = ""
    tone: Literal["plain", "good", "warn", "busy", "error"] = "plain"
    fraction: float | None = None  # of something that takes long, 0..1
