"""What figures were taken on, and their JSON: the same for every kind of measurement."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from core.backend import CLOCKS, Clock
from core.machine import machine_of, versions

if TYPE_CHECKING:
    from core.engine import Engine


@dataclass(frozen=True)
class Setting:
    """What the figures were taken on."""

    model: str
    why: str  # why this model ran
    backend: str
    device: str
    dtype: str
    machine: str
    date: str  # ISO 8601, UTC
    versions: Mapping[str, str]
    pass_overhead: float | None  # what a pass costs beside its tokens, in tokens; None: not measured
    clock: Clock = "engine"  # whose the times are

    @classmethod
    def here(cls, engine: Engine) -> Setting:
        identity = engine.backend.identity
        return cls(
            model=engine.model,
            why=engine.why,
            backend=identity.backend,
            device=identity.device,
            dtype=identity.dtype,
            machine=machine_of(identity.clock),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=versions(identity.backend),
            pass_overhead=engine.pass_overhead if math.isfinite(engine.pass_overhead) else None,
            clock=identity.clock,
        )

    def lines(self) -> Iterator[str]:
        why = f" ({self.why})" if self.why else ""
        clock = f", {CLOCKS[self.clock]}" if self.clock != "engine" else ""
        yield f"{self.model}{why}, {self.backend} on {self.device}, {self.dtype}{clock}"
        packages = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        yield f"{self.machine}; {self.date[:10]}; {packages}"


def json_line(shape: Mapping[str, Any]) -> str:
    """ASCII, so that a terminal obeys nothing in it."""
    return json.dumps(shape, allow_nan=False)


def rounded(value: Any) -> Any:
    """Four digits after the point: a ten-thousandth of a millisecond, of a ratio, of a share."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, Mapping):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list | tuple) else value
