"""The one resident model of a process: absent, loading, ready or failed, and what takes its place.

Pages and services ask it for the engine and tell people what it says. A model loads in a
thread of its own, so that whoever serves is up at once; another one is loaded and proved
beside the old one, which serves until then and stays if the new one fails. A server that does
not answer is tried again until it is there, or until something else has taken its place.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from core.address import AddressError, without_login
from core.backend import BackendMissing, ModelUnsupported
from core.engine import Engine
from core.faults import is_out_of_memory
from core.models import ModelError, ModelNotFound
from core.owner import Closing, Owner, Unavailable
from core.public import public_name

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Status:
    state: Literal["absent", "loading", "ready", "failed"]
    stage: str = ""  # what goes on while loading
    fraction: float | None = None  # of the stage, 0..1 where it is known
    message: str = ""  # one line: which model runs and why, or what to do
    waits: bool = False  # between two tries of a server that is away: another model may be chosen


class Busy(RuntimeError):
    """A model is being loaded already; the message says which."""


#: What a load raises, each with a message of one line.
REFUSALS = (ModelNotFound, ModelError, BackendMissing, ModelUnsupported, AddressError)

#: Patience with a running pass when the process ends.
CLOSE_S = 5.0
#: From the end of a job until whoever waited for it has told its answer.
ANSWERED_S = 1.0
#: Between two tries of a server that is away, each of which has its own patience: the first pause, and the longest.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 15.0

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
        self._closing = threading.Event()

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

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
            self._persist(None)
        else:
            threading.Thread(target=self._persist, args=(None,), name="pcd-load", daemon=True).start()

    def switch(self, name: str | Path) -> Engine:
        """Loads and proves another model, then puts it in the old one's place; returns its engine.

        Requests that have the old one finish there; its thread and memory go with the last of them. Raises
        `ModelNotFound`, `ModelError`, `BackendMissing`, `ModelUnsupported`, or of a server what is `Unavailable`, where
        the old one stays; `Busy` during another load, `Closing` at the end of the process.
        """
        self._begin(str(name.absolute()) if isinstance(name, Path) else name)
        try:
            return self._loaded()
        except Closing:
            raise
        except (*REFUSALS, Unavailable) as error:
            self._failed(str(error))
            raise
        finally:
            self._end(None)

    def drain(self, patience_s: float) -> None:
        """Takes no more requests and waits for those that there are, of every engine in use."""
        self._closing.set()
        owners, deadline = list(self._owners), time.perf_counter() + patience_s
        for owner in owners:
            owner.refuse()
        for owner in owners:
            owner.drain(max(0.0, deadline - time.perf_counter()))

    def close(self, patience_s: float = CLOSE_S) -> None:
        """Stops what the engines do, as far as they can within a few seconds."""
        self._closing.set()
        deadline = time.perf_counter() + patience_s
        for owner in list(self._owners):
            owner.close(max(0.0, deadline - time.perf_counter()))

    def __deepcopy__(self, memo: dict[int, object]) -> Resident:
        """There is one: gradio copies what a component was made with for each page that it sends, here the weights."""
        return self

    def _persist(self, place: Engine | None) -> None:
        """Loads what was begun, again and again while its server is away, until another engine is in `place`'s place.

        In an engine's place whatever refuses it: its server has changed, and may change back. Raises nothing: what
        comes of it is told by the status.
        """
        name = self._wanted
        for pause_s in _pauses():
            news = None
            try:
                self._loaded()
                return
            except Closing:
                return
            except (*REFUSALS, Unavailable) as error:
                if place is None and not (isinstance(error, Unavailable) and error.is_passing):
                    self._failed(str(error))
                    return
                news = self._away(error)
            finally:
                self._end(news)
            if self._closing.wait(pause_s) or not self._begin_again(name, place):
                return

    def _begin_again(self, name: str, place: Engine | None) -> bool:
        """Waits for the end of another load; False where there is nothing left to be done."""
        self._one_at_a_time.acquire()
        if self.is_closing or self.engine is not place:
            self._one_at_a_time.release()
            return False
        self._wanted = name
        return True

    def _renew(self, name: str, old: Engine) -> None:
        """The same name once more, for an engine whose server runs another model now; returns at once."""

        def work() -> None:
            if self._begin_again(name, old):
                self._tell("the vLLM server runs another model; loading it", None)
                self._persist(old)

        threading.Thread(target=work, name="pcd-renew", daemon=True).start()

    def _begin(self, name: str) -> None:
        if self.is_closing:
            raise Closing("the service is shutting down; no other model is loaded")
        if not self._one_at_a_time.acquire(blocking=False):
            raise Busy(f"{without_login(self._wanted)} is being loaded already; wait until it is there")
        self._wanted = name
        self._tell("choosing a model" if name == "auto" else f"finding {name}", None)

    def _end(self, news: Status | None) -> None:
        """Of a load; `news`: what is to be told until the next one."""
        self.switching = news
        self._one_at_a_time.release()

    def _loaded(self) -> Engine:
        """The engine of the wanted model, in its place."""
        try:
            return self._swapped(self._load(self._wanted, progress=self._tell))
        except (*REFUSALS, Unavailable):
            raise
        except Exception as error:  # of any framework: people must learn that it will not come
            name = without_login(self._wanted)
            log.exception("loading %s failed", name)
            raise ModelError(_reason(name, error)) from None

    def _swapped(self, engine: Engine) -> Engine:
        self._owners.add(engine.owner)
        if self.is_closing:
            raise Closing("the service is shutting down; no other model is loaded")
        name, its = self._wanted, weakref.ref(engine)
        engine.renew = lambda: self._renew(name, its())
        old, self.engine = self.engine, engine
        identity = engine.backend.identity
        reason = f" ({engine.why})" if engine.why else ""
        message = f"{engine.model}{reason}"
        if identity.clock == "engine":  # of a server the reason says it
            message += f" on {identity.backend}, {identity.device}, {identity.dtype}"
        self.status = Status("ready", message=message)
        log.info("ready: %s", message)
        if old is not None:
            log.info("%s ends with its last request", old.model)
            threading.Thread(target=_collect_after, args=(old.owner,), name="pcd-retire", daemon=True).start()
        return engine

    def _tell(self, stage: str, fraction: float | None) -> None:
        news = Status("loading", stage.replace(self._wanted, public_name(self._wanted)), fraction)
        if self.switching is None or news.stage != self.switching.stage:
            log.info(without_login(stage))
        self._show(news)

    def _away(self, error: Exception) -> Status:
        """What is told until the next try."""
        log.warning("%s", error)
        news = Status("loading", f"{str(error).partition(';')[0]}; trying again", waits=True)
        self._show(news)
        return news

    def _show(self, news: Status) -> None:
        self.switching = news
        if self.engine is None:
            self.status = news

    def _failed(self, message: str) -> None:
        log.error(without_login(message))
        if self.engine is None:
            self.status = Status("failed", message=message)


def _pauses() -> Iterator[float]:
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)


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
