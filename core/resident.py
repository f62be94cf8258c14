"""The one resident model of a process: absent, loading, ready or failed, and what takes its place.

Pages and services ask it for the engine and tell people what it says. A model loads in a
thread of its own, so that whoever serves is up at once; another one is loaded and proved
beside the old one, which serves until then and stays if the new one fails.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from core.backend import BackendMissing, ModelUnsupported
from core.engine import Engine
from core.faults import is_out_of_memory
from core.models import ModelError, ModelNotFound
from core.owner import Closing, Owner
from core.public import public_name

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Status:
    state: Literal["absent", "loading", "ready", "failed"]
    stage: str = ""  # what goes on while loading
    fraction: float | None = None  # of the stage, 0..1 where it is known
    message: str = ""  # one line: which model runs and why, or what to do


class Busy(RuntimeError):
    """A model is being loaded already; the message says which."""


#: What a load raises, each with a message of one line.
REFUSALS = (ModelNotFound, ModelError, BackendMissing, ModelUnsupported)

#: Patience with a running pass when the process ends.
CLOSE_S = 5.0
#: From the end of a job until whoever waited for it has told its answer.
ANSWERED_S = 1.0

ABSENT = Status("absent", message="no model is loaded: start with --model NAME (python -m core.models lists the names)")


class Resident:
    """`status` and `engine` are those that serve; `switching` is how far the one that takes their place has come."""

    def __init__(self) -> None:
        self.status = ABSENT
        self.engine: Engine | None = None
        self.switching: Status | None = None
        self._load: Callable[..., Engine] = Engine.load
        self._one_at_a_time = threading.Lock()
        self._wanted = ""  # the model that is being loaded
        self._owners: weakref.WeakSet[Owner] = weakref.WeakSet()  # of this engine, and of old ones still in use
        self.is_closing = False

    def start(self, name: str, *, here: Callable[..., Engine] | None = None, **options: Any) -> None:
        """Begins to load; returns at once. `none` loads nothing.

        `options` are those of `Engine.load`, and are kept for later switches. `here`: what loads in its place, and in
        the caller's own thread.
        """
        self._load = partial(here or Engine.load, **options)
        if name == "none":
            return
        self._begin(name)
        if here:
            self._start()
        else:
            threading.Thread(target=self._start, name="pcd-load", daemon=True).start()

    def switch(self, name: str | Path) -> Engine:
        """Loads and proves another model, then puts it in the old one's place; returns its engine.

        Requests that have the old one finish there; its thread and memory go with the last of them. Raises
        `ModelNotFound`, `ModelError`, `BackendMissing`, `ModelUnsupported`, where the old one stays; `Busy` during
        another load, `Closing` at the end of the process.
        """
        self._begin(str(name.absolute()) if isinstance(name, Path) else name)
        return self._loaded()

    def drain(self, patience_s: float) -> None:
        """Takes no more requests and waits for those that there are, of every engine in use."""
        self.is_closing = True
        owners, deadline = list(self._owners), time.perf_counter() + patience_s
        for owner in owners:
            owner.refuse()
        for owner in owners:
            owner.drain(max(0.0, deadline - time.perf_counter()))

    def close(self, patience_s: float = CLOSE_S) -> None:
        """Stops what the engines do, as far as they can within a few seconds."""
        self.is_closing = True
        deadline = time.perf_counter() + patience_s
        for owner in list(self._owners):
            owner.close(max(0.0, deadline - time.perf_counter()))

    def __deepcopy__(self, memo: dict[int, object]) -> Resident:
        """There is one: gradio copies what a component was made with for each page that it sends, here the weights."""
        return self

    def _start(self) -> None:
        try:
            self._loaded()
        except (*REFUSALS, Closing):
            pass  # told by the status

    def _begin(self, name: str) -> None:
        if self.is_closing:
            raise Closing("the service is shutting down; no other model is loaded")
        if not self._one_at_a_time.acquire(blocking=False):
            raise Busy(f"{self._wanted} is being loaded already; wait until it is there")
        self._wanted = name
        self._tell("choosing a model" if name == "auto" else f"finding {name}", None)

    def _loaded(self) -> Engine:
        """The engine of the wanted model, in its place."""
        try:
            return self._swapped(self._load(self._wanted, progress=self._tell))
        except REFUSALS as error:
            self._failed(str(error))
            raise
        except Closing:
            raise
        except Exception as error:  # of any framework: people must learn that it will not come
            log.exception("loading %s failed", self._wanted)
            self._failed(message := _reason(self._wanted, error))
            raise ModelError(message) from None
        finally:
            self.switching = None
            self._one_at_a_time.release()

    def _swapped(self, engine: Engine) -> Engine:
        self._owners.add(engine.owner)
        if self.is_closing:
            raise Closing("the service is shutting down; no other model is loaded")
        old, self.engine = self.engine, engine
        identity = engine.backend.identity
        reason = f" ({engine.why})" if engine.why else ""
        message = f"{engine.model}{reason} on {identity.backend}, {identity.device}, {identity.dtype}"
        self.status = Status("ready", message=message)
        log.info("ready: %s", message)
        if old is not None:
            log.info("%s ends with its last request", old.model)
            threading.Thread(target=_collect_after, args=(old.owner,), name="pcd-retire", daemon=True).start()
        return engine

    def _tell(self, stage: str, fraction: float | None) -> None:
        news = Status("loading", stage.replace(self._wanted, public_name(self._wanted)), fraction)
        if self.switching is None or news.stage != self.switching.stage:
            log.info(stage)
        self.switching = news
        if self.engine is None:
            self.status = news

    def _failed(self, message: str) -> None:
        log.error(message)
        if self.engine is None:
            self.status = Status("failed", message=message)


def _reason(name: str, error: Exception) -> str:
    if is_out_of_memory(error):
        return f"{name} could not be loaded: out of memory; free some, or choose a smaller model"
    reason = str(error).strip().partition("\n")[0][:200] or "no reason given"
    return f"{name} could not be loaded: {type(error).__name__}, {reason}; the log has more"


def _collect_after(owner: Owner) -> None:
    """What goes with the last request is freed by itself, unless an error of that request holds it in a cycle."""
    owner.wait_until_idle(None)
    later = threading.Timer(ANSWERED_S, gc.collect)  # a thread of its own: this one holds the owner
    later.daemon = True
    later.start()
