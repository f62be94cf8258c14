"""A race: both lanes on one request, one after the other, told as trace events.

The owner thread runs the lanes and only appends events; whoever watches drains them and
pays for reading what the baseline wrote. Knows nothing of pages.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from core.backend import Prefix
from core.compare import Comparison, Row, compare
from core.faults import told
from core.lane_clock import LaneClock, ticking
from core.machine import machine_of, versions
from core.owner import Cancelled, Job
from core.plans import PriorScores
from core.result import Decision
from core.schema import Choice, StructuredSchema
from core.trace import (
    Event,
    FieldDecided,
    Judged,
    Lane,
    LaneEnded,
    Loading,
    RowCompared,
    RunEnded,
    RunStarted,
    Stopping,
    Tick,
    TokenWritten,
    Waiting,
    WarmedUp,
)

if TYPE_CHECKING:
    from core.engine import Engine
    from core.grammar import Mode
    from core.parallel import Outcome
    from core.request import Prepared, Request

#: What a lane leaves for later requests: the prefix of its prompt or head, and a prior.
Found = tuple[Prefix, PriorScores | None]

#: Seconds between two looks at what has happened, where a caller wants a plain iterator.
DRAIN_EVERY_S = 0.03


class Race:
    """One run. `drain` until `finished`; every event of the trace comes out once and in order.

    Raises `QueueFull` or `Closing` where it is not taken.
    """

    def __init__(
        self, engine: Engine, request: Request, order: tuple[Lane, ...], mode: Mode, asked: float | None
    ) -> None:
        self._engine = engine
        self._request = request
        self._order = order
        self._mode = mode
        now = time.perf_counter()
        self._asked = now if asked is None else asked
        self._waited_before_ms = (now - self._asked) * 1e3  # for a model, before the job was in the queue
        self._events: deque[Event] = deque()
        self._reading = Reading(request)
        self._ahead = 0
        self.finished = False
        self.job = engine.owner.submit(self._run)

    @property
    def ahead(self) -> int:
        """Other work that the engine does first."""
        return self.job.ahead

    @property
    def waited_ms(self) -> float:
        """Time in the queue."""
        return self.job.waited_ms

    def cancel(self) -> None:
        """Stops the engine within one token; the race then ends as `stopped`."""
        self.job.cancel()
        if not self.job.done:
            self._events.append(Stopping(self._waited_ms()))

    def drain(self) -> list[Event]:
        """What has happened since the last call, without waiting for anything.

        Leave `DRAIN_EVERY_S` between two calls: a loop without a pause takes the interpreter from the engine.
        """
        return self._drained(self._reading.follow)

    def news(self) -> list[Event]:
        """What the lanes have told since the last call, unread: for whoever passes it on."""
        batch = [self._events.popleft() for _ in range(len(self._events))]
        ticks = [event for event in batch if event.kind == Tick.kind]
        return [event for event in batch if event.kind != Tick.kind or event is ticks[-1]]

    def _drained(self, follow: Callable[[list[Event]], list[Event]]) -> list[Event]:
        done = self.job.done
        batch = self._place() + follow(self.news())
        if done and not self.finished:
            self.finished = True
            batch += self._reading.end(self._waited_ms(), *self._outcome())
        return batch

    def wait(self) -> list[Event]:
        """All events of a race that nobody watches: read when it is over, so that nothing disturbs the engine."""
        self.job.wait()
        return self.drain()

    def wait_for_each_row(self) -> list[Event]:
        """As `wait`, with the rows as they stood after each token: what a replay needs."""
        self.job.wait()
        return self._drained(self._reading.follow_each)

    def dicts(self) -> Iterator[dict[str, Any]]:
        """The trace as dicts, as it happens; closing the iterator cancels the race."""
        try:
            while not self.finished:
                yield from (event.to_json() for event in self.drain() if not event.live)
                time.sleep(DRAIN_EVERY_S)
        finally:
            self.cancel()

    def _place(self) -> list[Event]:
        before, self._ahead = self._ahead, self.job.ahead
        return [Waiting(self._waited_ms(), self._ahead)] if self._ahead not in (0, before) else []

    def _waited_ms(self) -> float:
        return (time.perf_counter() - self._asked) * 1e3

    def _outcome(self) -> tuple[str, str]:
        """State and one line for people."""
        error = self.job.error  # not raised: its traceback would hold this race, and with it the engine
        if error is None:
            return "done", ""
        return "stopped" if isinstance(error, Cancelled) else "failed", told(error, "a race")

    # What follows runs on the owner thread.

    def _run(self, job: Job) -> None:
        waited = self._waited_before_ms + job.waited_ms
        prepared = self._engine.prepare(self._request)
        self._events.append(self._started(prepared, waited))
        self._events.append(WarmedUp(waited, self._engine.warm_up_ms, "load"))
        lanes = {"pcd": self._parallel, "ar": self._baseline}
        found: list[Found] = []
        try:
            for lane in self._order:
                job.check()
                found.append(lanes[lane](prepared, job))
        finally:
            # Only now: the first lane must not warm the head of the second.
            prefix = next((prefix for prefix, _ in found), None)
            prior = next((prior for _, prior in found if prior is not None), None)
            self._engine.keep(prepared, prefix, prior)

    def _parallel(self, prepared: Prepared, job: Job) -> Found:
        clock = LaneClock(self._engine.backend.synchronize, plan=prepared.took_ms)
        with ticking(lambda: self._tick(clock, "pcd")):
            outcome = self._engine.parallel(prepared, clock, job, self._events.append)
        self._events.append(_assembled(outcome, clock.elapsed_ms, prepared))
        return outcome.prefix, outcome.prior

    def _baseline(self, prepared: Prepared, job: Job) -> Found:
        clock = LaneClock(self._engine.backend.synchronize)
        with ticking(lambda: self._tick(clock, "ar")):
            ended, prefix = self._engine.write(prepared, self._mode, clock, job, self._events.append)
        self._events.append(ended)
        return prefix, None

    def _tick(self, clock: LaneClock, lane: Lane) -> None:
        if (ms := clock.tick_ms()) is not None:
            self._events.append(Tick(ms, lane))

    def _started(self, prepared: Prepared, waited_ms: float) -> RunStarted:
        identity = self._engine.backend.identity
        return RunStarted(
            ms=waited_ms,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            model=self._engine.model,
            why=self._engine.why,
            backend=identity.backend,
            device=identity.device,
            dtype=identity.dtype,
            mode=self._mode,
            order=self._order,
            cache=prepared.cache,
            temperature=self._request.temperature,
            versions=versions(identity.backend),
            context=self._request.context,
            schema=self._request.schema.to_json(),
            names=tuple(field.name for field in self._request.schema),
            opening=prepared.plan.prompt.layout.opening,
            strategy=prepared.strategy,
            reading=prepared.reading,
            scoring=prepared.request.scoring,
            prior=prepared.request.prior,
            style=prepared.request.style,
            prompt_tokens=prepared.prompt_tokens,
            source=self._request.schema.source,
            unsupported=tuple(remark.to_json() for remark in self._request.schema.unsupported),
            machine=machine_of(identity.clock),
            clock=identity.clock,
        )


class Reading:
    """What the baseline has written so far, read against the schema as it grows."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._parts: list[str] = []
        self._values: dict[str, Choice] = {}
        self._ended: dict[str, LaneEnded] = {}
        self._shown: dict[tuple[bool, str], RowCompared] = {}
        self._ms = 0.0
        self._outcome = ""
        self._opening = ""
        self._is_held_up = False  # since it began

    def follow(self, batch: list[Event]) -> list[Event]:
        """The batch, and behind it the rows that it changed."""
        for event in batch:
            self._take(event)
        news = (TokenWritten.kind, LaneEnded.kind)
        if not self._parts or not any(event.kind in news for event in batch):
            return batch
        return batch + self._compared()

    def follow_each(self, batch: list[Event]) -> list[Event]:
        """`follow`, as if every event had come alone."""
        return [told for event in batch for told in self.follow([event])]

    def end(self, ms: float, state: str, message: str) -> list[Event]:
        """The last events of the run."""
        rows = self._compared(finished=True) if self._parts and state == "done" else []
        marks = [self._outcome] if self._outcome in ("truncated", "not_parsable") else []
        pcd, ar = self._ended.get("pcd"), self._ended.get("ar")
        if ar and ar.how == "limit":
            marks.insert(0, "limit")
        if self._is_held_up:
            marks.append("retried")
        speed_up = ar.ms / pcd.ms if state == "done" and pcd and ar else None
        return [*rows, RunEnded(ms, state, message, speed_up, tuple(marks))]

    def _take(self, event: Event) -> None:
        match event:
            case RunStarted(opening=opening):
                self._opening, self._is_held_up = opening, False
            case Loading():
                self._is_held_up = True
            case TokenWritten(ms=ms, text=text):
                self._ms = ms
                self._parts = self._parts or [self._opening]
                self._parts.append(text)
            case FieldDecided(name=name, value=value):
                self._values[name] = value
            case LaneEnded(lane=lane):
                self._ended[lane] = event

    def _compared(self, finished: bool = False) -> list[Event]:
        ended = self._ended.get("ar")
        comparison = compare(
            self._request.schema,
            "".join(self._parts),
            finished=finished or ended is not None,
            truncated=ended is None or ended.how == "limit",
            values=self._values,
        )
        rows = [row for row in self._rows(comparison) if row != self._shown.get((row.invented, row.name))]
        self._shown |= {(row.invented, row.name): row for row in rows}
        if comparison.outcome != "writing" and (comparison.outcome != self._outcome or rows):
            self._outcome = comparison.outcome
            counts = {str(flag): n for flag, n in comparison.counts.items()}
            return [*rows, Judged(self._ms, "ar", comparison.outcome, counts)]
        return rows

    def _rows(self, comparison: Comparison) -> list[RowCompared]:
        spans = {member.name: (member.start, member.end) for member in comparison.members}
        rows = [self._row(row, False, spans) for row in comparison.rows]
        rows += [self._row(row, True, spans) for row in comparison.invented]
        # A draft that a closing thinking tag withdrew: its fields are blank again, its invented keys are none.
        gone = self._shown.keys() - {(row.invented, row.name) for row in rows}
        rows += [self._row(Row(name, "", (), False), True, {}) for _, name in gone]
        shown = self._shown
        return [self._kept_time(row) for row in rows if row.text or row.flags or (row.invented, row.name) in shown]

    def _row(self, row: Row, invented: bool, spans: dict[str, tuple[int, int]]) -> RowCompared:
        start, end = spans.get(row.name, (-1, -1))
        flags = tuple(map(str, row.flags))
        return RowCompared(self._ms, "ar", row.name, row.text, flags, row.partial, invented, start, end, row.lenient)

    def _kept_time(self, row: RowCompared) -> RowCompared:
        """A row that has not changed keeps the time at which it did."""
        before = self._shown.get((row.invented, row.name))
        return before if before and replace(row, ms=before.ms) == before else row


def _assembled(outcome: Outcome, ms: float, prepared: Prepared) -> LaneEnded:
    schema = prepared.request.schema
    return LaneEnded(
        ms=ms,
        lane="pcd",
        how="assembled",
        passes=outcome.passes,
        tokens=outcome.tree_tokens,
        text=outcome.text,
        cache=prepared.cache,
        returned=returned(schema, outcome.decisions),
        sent_tokens=outcome.sent_tokens,
        server_queue_ms=outcome.server_queue_ms,
    )


def returned(schema: StructuredSchema, decisions: Iterable[Decision]) -> str:
    """The values as JSON text, if their shape is another than that of the assembled text."""
    return "" if schema.is_flat else json.dumps(schema.values(decisions), ensure_ascii=False, indent=2)
