"""Runs in progress: from a press of Run to the run's last event.

Knows the resident model and its races, nothing of the page's components. Each run belongs
to one session and is known under it only while it lasts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator

from core.engine import Engine
from core.owner import Unavailable
from core.public import named_model, pathless, public_event
from core.race import Race
from core.resident import Resident
from core.trace import Alive, Event, Loading, RunEnded
from core.ui.inputs import Inputs
from core.ui.log import Log, failure

#: One drain, and at most one message to the browser, in this time.
DRAIN_S = 0.03
#: The same where the engine computes on the processor that a local browser needs too. On two cores 33 messages a second
#: and a clock drawn for each frame doubled the baseline's time; 5 messages cost nothing where one core is free.
DRAIN_BESIDE_CPU_S = 0.2
#: A run that has nothing to tell says so after this time: gradio notices a closed tab only when something is yielded,
#: and a page that hears nothing for some seconds asks whether the server is still there.
HEARTBEAT_S = 1.0


class Runs:
    """All runs in progress, by session."""

    def __init__(self, resident: Resident) -> None:
        self._resident = resident
        self._runs: dict[str | None, _Run] = {}

    def __contains__(self, session: str | None) -> bool:
        return session in self._runs

    async def start(self, session: str | None, inputs: Inputs) -> AsyncGenerator[Log, None]:
        """The log of a new run as it grows; closing it stops the run. Does nothing while the session has one."""
        if session in self._runs:
            return
        run = self._runs[session] = _Run(self._resident, inputs)
        log = Log.prepared(inputs.schema)
        try:
            yield log
            async for events in run.events():
                log = log.extended(events)
                yield log
        finally:
            run.cancel()
            del self._runs[session]

    def stop(self, session: str | None) -> None:
        """Ends the session's run within one token; its last event then says so."""
        if session in self._runs:
            self._runs[session].cancel()


class _Run:
    def __init__(self, resident: Resident, inputs: Inputs) -> None:
        self._resident = resident
        self._inputs = inputs
        self._race: Race | None = None
        self._cancelled = False
        self._asked = time.perf_counter()

    async def events(self) -> AsyncIterator[list[Event]]:
        async for event in self._loading():
            yield [event]
        if end := self._obstacle():
            yield [end]
            return
        engine = self._resident.engine
        assert engine, "or there is an obstacle"
        try:
            self._race = self._started(engine)
        except (ValueError, Unavailable) as error:  # an empty context, an option that is none, a full queue
            yield [failure(named_model(str(error), engine.model))]
            return
        is_on_cpu = engine.backend.identity.device.startswith("cpu")
        pause_s, silent_s = DRAIN_BESIDE_CPU_S if is_on_cpu else DRAIN_S, 0.0
        while not self._race.finished:
            events = [public_event(event, engine.model) for event in self._race.drain()]
            if not events and silent_s > HEARTBEAT_S:
                events = [Alive(self._waited_ms())]
            if events:
                yield events
            silent_s = 0.0 if events else silent_s + pause_s
            await asyncio.sleep(pause_s)

    def cancel(self) -> None:
        self._cancelled = True
        if self._race:
            self._race.cancel()

    async def _loading(self) -> AsyncIterator[Loading]:
        shown, silent_s = None, 0.0
        while (status := self._resident.status).state == "loading" and not self._cancelled:
            is_news = status != shown or silent_s > HEARTBEAT_S
            if is_news:
                yield Loading(self._waited_ms(), pathless(status.stage), status.fraction)
            shown, silent_s = status, 0.0 if is_news else silent_s + DRAIN_S
            await asyncio.sleep(DRAIN_S)

    def _obstacle(self) -> RunEnded | None:
        """The end of a run that cannot reach the engine."""
        if self._cancelled:
            return RunEnded(self._waited_ms(), "stopped", "", None, ())
        if self._resident.engine is None:
            return failure(pathless(self._resident.status.message))
        return None

    def _started(self, engine: Engine) -> Race:
        given = self._inputs
        return engine.race(
            given.context,
            given.schema,
            temperature=given.temperature,
            order=given.order,
            mode=given.mode,
            style=given.style,
            cache=given.cache,
            asked=self._asked,
        )

    def _waited_ms(self) -> float:
        return (time.perf_counter() - self._asked) * 1000
