"""The engine, for whoever asks on the page or from a client: it, or in words why there is none yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.public import pathless

if TYPE_CHECKING:
    from core.engine import Engine
    from core.resident import Resident


class NotReady(ValueError):
    """There is no engine now; the message says why and what to do."""


def ready_engine(resident: Resident) -> Engine:
    """Raises `NotReady`."""
    if resident.status.state == "loading":
        raise NotReady(f"the model is still loading ({pathless(resident.status.stage)}); try again in a moment")
    if resident.engine is None:
        raise NotReady(pathless(resident.status.message))
    return resident.engine
