"""The one resident model of a process: absent, loading, ready or failed.

Pages and services ask it for the engine and tell people what it says. It loads in a
thread of its own, so that whoever serves is up at once.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Literal

from core.backend import BackendMissing, ModelUnsupported
from core.engine import Engine
from core.models import ModelError, ModelNotFound

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Status:
    state: Literal["absent", "loading", "ready", "failed"]
    stage: str = ""  # what goes on while loading
    fraction: float | None = None  # of the stage, 0..1 where it is known
    message: str = ""  # one line: which model runs and why, or what to do


#: Patience with a running pass when the process ends.
CLOSE_S = 5.0

ABSENT = Status("absent", message="no model is loaded: start with --model NAME (python -m core.models lists the names)")


class Resident:
    def __init__(self) -> None:
        self.status = ABSENT
        self.engine: Engine | None = None

    def start(self, name: str, *, backend: str, dtype: str, offline: bool) -> None:
        """Begins to load; returns at once. `none` loads nothing."""
        if name == "none":
            return
        self.status = Status("loading", "choosing a model" if name == "auto" else f"finding {name}")
        load = threading.Thread(target=self._load, args=(name, backend, dtype, offline), name="pcd-load", daemon=True)
        load.start()

    def close(self) -> None:
        """Stops what the engine does, as far as it can within a few seconds."""
        if self.engine is not None:
            self.engine.owner.close(CLOSE_S)

    def _load(self, name: str, backend: str, dtype: str, offline: bool) -> None:
        try:
            engine = Engine.load(name, backend=backend, dtype=dtype, offline=offline, progress=self._progressed)
        except (ModelNotFound, ModelError, BackendMissing, ModelUnsupported) as error:
            self._failed(str(error))
        except Exception as error:  # the thread's border: the page must not wait for ever
            log.exception("loading %s failed", name)
            reason = str(error).strip().partition("\n")[0][:200] or "no reason given"
            self._failed(f"{name} could not be loaded: {type(error).__name__}, {reason}; the log has more")
        else:
            identity = engine.backend.identity
            self.engine = engine
            reason = f" ({engine.why})" if engine.why else ""
            message = f"{engine.model}{reason} on {identity.backend}, {identity.device}, {identity.dtype}"
            self.status = Status("ready", message=message)
            log.info("ready: %s", message)

    def _progressed(self, stage: str, fraction: float | None) -> None:
        if stage != self.status.stage:
            log.info(stage)
        self.status = Status("loading", stage, fraction)

    def _failed(self, message: str) -> None:
        self.status = Status("failed", message=message)
        log.error(message)
