"""A scripted engine: the events of a race with real sleeps, and no model.

Speaks the protocol of `core.engine`, `core.race` and `core.resident` that the page relies on.
By hand: `python -m tests.scripted` opens the page on it.
"""

from __future__ import annotations

import math
import queue
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import gradio as gr
from starlette.routing import BaseRoute

from core.api_key import ApiKey
from core.backend import Clock, Identity
from core.compare import compare
from core.grammar import MODES
from core.owner import Job, Owner
from core.parallel import Path, decided
from core.presets import Preset
from core.prompt import LAYOUTS, Layout, Style, literal
from core.race import returned
from core.request import Request, check_one_of
from core.resident import Status
from core.result import CacheReport, Decision, Result
from core.schema import Choice, FieldDefinition, StructuredSchema
from core.trace import (
    Event,
    Judged,
    Lane,
    LaneEnded,
    LaneStarted,
    Loading,
    PassEnded,
    PhaseEnded,
    RowCompared,
    RunEnded,
    RunStarted,
    Tick,
    TokenWritten,
    Waiting,
    WarmedUp,
)  # fmt: skip
from core.ui.launch import launch
from core.ui.page import build

HOSTILE = "<img src=x onerror=window.__pwned=1> ${window.__pwned=2} {{x}} \\u0041 C:\\new 👩‍🚀 שלום"
INVENTED = ("__proto__", HOSTILE)
MODEL, WHY = "scripted-1b", "no model: a script"
SERVER = {"backend": "vllm", "device": "vLLM 0.32.0", "dtype": "as served"}
AWAY = "the vLLM server does not answer; trying again"
READY = Status("ready", message=f"{MODEL} ({WHY})")


@dataclass
class ScriptedResident:
    engine: ScriptedEngine | None
    status: Status = READY
    switching: Status | None = None
    switch: Callable[..., object] | None = None


class FilmTime:
    """A clock that goes by what the script waits for, and a tenth of a millisecond a look, whatever the machine does."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 1e-4
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class ScriptedEngine:
    token_ms: float = 10.0
    pass_ms: float = 350.0
    limit: int = 1000  # tokens after which the baseline is cut off
    failing: str = ""  # a mode in which no race comes to its end
    races: list[ScriptedRace] = field(default_factory=list)
    device: threading.Lock = field(default_factory=threading.Lock)
    owner: Owner = field(default_factory=Owner)
    model: str = MODEL
    why: str = WHY
    pass_overhead: float = 40.0
    trouble: str = ""
    time: Any = time
    clock: Clock = "engine"  # client: as if its model were on a server
    queue_ms: float | None = None  # in the server's queue, of each lane
    away: threading.Event = field(default_factory=threading.Event)  # while set, the server does not answer

    @property
    def backend(self) -> SimpleNamespace:
        identity = Identity("script", "a script", "float32", 4096, 50_000, frozenset(), "tree", "script")
        if self.clock == "client":
            identity = replace(identity, clock=self.clock, strategy="prompts", **SERVER)
        return SimpleNamespace(identity=identity)

    def prepare(self, request: Request) -> SimpleNamespace:
        return SimpleNamespace(prompt_tokens=len(request.context))

    def race(
        self,
        context: str,
        schema: StructuredSchema,
        *,
        temperature: float = 1.0,
        order: tuple[Lane, ...] = ("pcd", "ar"),
        mode: str = "json",
        asked: float | None = None,
        **options: Any,
    ) -> ScriptedRace:
        check_one_of("baseline mode", mode, MODES)
        race = ScriptedRace(self, Request(context, schema, temperature, **options), order, mode)
        self.races.append(race)
        race.start()
        return race

    def submit(self, context: str, schema: StructuredSchema, temperature: float = 1.0, **options: Any) -> Job:
        request = Request(context, schema, temperature, **options)
        result = Result(
            schema=schema,
            decisions=tuple(map(decide, request.schema)),
            text=canonical(schema, request.style),
            phases={"context + tree": self.pass_ms},
            passes=1,
            prompt_tokens=len(context),
            tree_tokens=3 * len(schema),
            caches=CacheReport("hit" if request.cache else "off", "hit" if request.cache else "off", "off"),
            strategy=self.backend.identity.strategy,
            scoring="identify",
            reading="complete",
            prior="none",
            shared=1,
            model=MODEL,
            why=WHY,
            backend="script",
            device="cpu",
            dtype="float32",
            clock=self.clock,
        )
        return Owner().submit(lambda job: result)


class Stopped(Exception):
    """The race was cancelled."""


class Failed(Exception):
    """The race comes to no end of its own."""


class ScriptedRace:
    """Emits its events from a thread of its own, alone on the engine's device."""

    def __init__(self, engine: ScriptedEngine, request: Request, order: tuple[Lane, ...], mode: str) -> None:
        self.engine, self.request, self.order, self.mode = engine, request, order, mode
        self.time = engine.time
        self.schema, self.style = request.schema, request.style
        self.cache = "hit" if request.cache else "off"
        self.is_served = engine.clock == "client"
        self.opening = "" if self.is_served and mode != "free" else "{"  # a server enforces the whole object
        self.finished = False
        self.cancelled = threading.Event()
        self.over = threading.Event()
        self.events: list[Event] = []  # all of them, as a saved trace would hold them
        self._new: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._asked = self._lane_started = self.time.perf_counter()
        self._values: dict[str, Choice] = {}
        self._rows: dict[str, RowCompared] = {}
        self._written_ms = 0.0  # when the last token stood there
        self._engine_ms: dict[str, float] = {}
        self._told_ms = 0.0  # of the running lane, by its phases

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def drain(self) -> list[Event]:
        drained = [self._new.get() for _ in range(self._new.qsize())]
        self.finished = self.finished or any(event.kind == "end" for event in drained)
        return drained

    def wait(self) -> list[Event]:
        self.over.wait()
        return self.drain()

    def cancel(self) -> None:
        self.cancelled.set()

    @property
    def ahead(self) -> int:
        before = self.engine.races[: self.engine.races.index(self)]
        return sum(not race.over.is_set() for race in before)

    def trace(self, kind: str, lane: Lane | None = None) -> list[Event]:
        return [e for e in self.events if e.kind == kind and (lane is None or e.lane == lane)]

    def _run(self) -> None:
        try:
            self._wait()
            try:
                self._race()
            finally:
                self.engine.device.release()
        except Stopped:
            self._emit(RunEnded(self._since_asked(), "stopped", "stopped", None, ()))
        except Failed as error:
            self._emit(RunEnded(self._since_asked(), "failed", str(error), None, ()))
        finally:
            self.over.set()

    def _wait(self) -> None:
        """Until it is this race's turn, first come, first served."""
        while self.ahead or not self.engine.device.acquire(timeout=0.05):
            if not self.trace("waiting"):
                self._emit(Waiting(self._since_asked(), ahead=self.ahead or 1))
            if self.cancelled.is_set():
                raise Stopped
            self.time.sleep(0.01)

    def _race(self) -> None:
        request = self.request
        self._emit(
            started(
                self.schema,
                ms=self._since_asked(),
                mode=self.mode,
                order=self.order,
                cache=self.cache,
                temperature=request.temperature,
                context=request.context,
                style=request.style,
                **self._served(),
            )
        )
        self._emit(WarmedUp(self._since_asked(), took_ms=12.5, when="load"))
        if self.mode == self.engine.failing:
            raise Failed(f"out of memory: {HOSTILE}")
        lanes: Mapping[Lane, Callable[[], None]] = {"pcd": self._parallel, "ar": self._baseline}
        for lane in self.order:
            self._lane_started, self._told_ms = self.time.perf_counter(), 0.0
            self._emit(LaneStarted(0.0, lane))
            lanes[lane]()
        if self.order[0] == "ar":
            self._compare(self.trace("lane_end", "ar")[0].text, finished=True)
        speed_up = self._engine_ms["ar"] / self._engine_ms["pcd"] if len(self.order) == 2 else None
        marks = ("limit", "truncated") if self.trace("lane_end", "ar")[0].how == "limit" else ()
        self._emit(RunEnded(self._since_asked(), "done", "", speed_up, marks))

    def _parallel(self) -> None:
        self._phases("pcd", plan=1)
        passes = {"context + tree": 3 * len(self.schema)}
        if self.cache == "off":
            passes = {"head + context": len(self.request.context), "tree": 3 * len(self.schema)}
        for number, (name, tokens) in enumerate(passes.items(), start=1):
            self._work("pcd", self.engine.pass_ms / len(passes))
            self._emit(PassEnded(self._lane_ms(), "pcd", passes=number, tokens=tokens))
            self._phases("pcd", **{name: 1})
        self._phases("pcd", scoring=1)
        self._phases("pcd", scoring=1)  # as where fields depend on others
        decisions = list(map(decide, self.schema))
        if self.is_served:
            decisions[0] = replace(decisions[0], unasked=1234, unasked_mass=0.0123)
        for decision, span in zip(decisions, layout(self.style).spans(members(decisions)), strict=True):
            self._values[decision.name] = decision.value
            self._emit(decided(decision, self._lane_ms(), span, path_of(decision, self.style)))
        self._phases("pcd", assembly=1)
        self._end_lane(
            "pcd",
            "assembled",
            passes=len(passes),
            tokens=3 * len(self.schema),
            text=canonical(self.schema, self.style),
            returned=returned(self.schema, decisions),
            **self._sent(len(passes) * len(self.request.context)),
        )

    def _baseline(self) -> None:
        self._work("ar", self.engine.pass_ms / 2)
        self._emit(PassEnded(self._lane_ms(), "ar", passes=1, tokens=len(self.request.context)))
        self._phases("ar", prefill=1)
        written, how, times = self.opening, "closed", []
        passes, forced = 1, 0
        whole = canonical(self.schema, self.style) if self.mode == "schema" else baseline(self.schema, self.style)
        for tokens, text in enumerate(pieces(whole[len(written) :]), start=1):
            is_forced = self.mode == "schema" and tokens % 3 != 0 and not self.is_served
            if not is_forced:
                self._work("ar", self.engine.token_ms)
            passes, forced = passes + (not is_forced and not self.is_served), forced + is_forced
            written += text
            times.append(self._lane_ms())
            self._written_ms = times[-1]
            self._emit(TokenWritten(times[-1], "ar", tokens, text, tokens, passes, forced=is_forced))
            self._compare(written, finished=False)
            if tokens == self.engine.limit:
                how = "limit"
                break
        self._phases("ar", decode=0.9, mask=0.08, detokenise=0.02)
        rate = (len(times) - 1) / (times[-1] - times[0]) * 1000
        counts = {"passes": passes, "tokens": len(times), "forced": forced}
        counts |= self._sent(len(self.request.context))
        self._end_lane("ar", how, text=written, first_token_ms=times[0], tokens_per_s=rate, **counts)
        self._compare(written, finished=True)

    def _compare(self, text: str, *, finished: bool) -> None:
        cut = finished and self.trace("lane_end", "ar")[0].how == "limit"
        comparison = compare(self.schema, text, finished=finished, truncated=cut, values=self._values)
        spans = {member.name: (member.start, member.end) for member in comparison.members}
        for row in (*comparison.rows, *comparison.invented):
            start, end = spans.get(row.name, (-1, -1))
            flags, invented = tuple(map(str, row.flags)), row in comparison.invented
            event = RowCompared(
                self._written_ms, "ar", row.name, row.text, flags, row.partial, invented, start, end, row.lenient
            )
            before = self._rows.get(row.name)
            if (row.text or row.flags) and (before is None or replace(before, ms=event.ms) != event):
                self._rows[row.name] = event
                self._emit(event)
        if finished:
            counts = {str(flag): n for flag, n in comparison.counts.items()}
            self._emit(Judged(self._lane_ms(), "ar", comparison.outcome, counts))

    def _work(self, lane: Lane, ms: float) -> None:
        until = self.time.perf_counter() + ms / 1000
        while (left := until - self.time.perf_counter()) > 0:
            if self.cancelled.is_set():
                raise Stopped
            self.time.sleep(min(left, 0.05))
            self._emit(Tick(self._lane_ms(), lane))
            self._wait_for_server(lane)

    def _wait_for_server(self, lane: Lane) -> None:
        while self.engine.away.is_set():
            if self.cancelled.is_set():
                raise Stopped
            self._emit(Loading(self._since_asked(), AWAY, None))
            self.time.sleep(0.05)
            self._emit(Tick(self._lane_ms(), lane))

    def _served(self) -> dict[str, Any]:
        """What a run on a server says of itself."""
        given = {**SERVER, "clock": self.engine.clock, "strategy": "prompts", "opening": self.opening}
        return given if self.is_served else {}

    def _sent(self, tokens: int) -> dict[str, Any]:
        return {"sent_tokens": tokens, "server_queue_ms": self.engine.queue_ms} if self.is_served else {}

    def _phases(self, lane: Lane, **shares: float) -> None:
        """Tells the lane's time since the last phase, cut by these shares of it."""
        now = self._lane_ms()
        for name, share in shares.items():
            self._emit(PhaseEnded(now, lane, name, took_ms=share * (now - self._told_ms)))
        self._told_ms = now

    def _end_lane(self, lane: Lane, how: str, **ended: Any) -> None:
        self._engine_ms[lane] = self._told_ms
        self._emit(LaneEnded(self._told_ms, lane, how, cache=self.cache, **ended))

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        self._new.put(event)

    def _lane_ms(self) -> float:
        return (self.time.perf_counter() - self._lane_started) * 1000

    def _since_asked(self) -> float:
        return (self.time.perf_counter() - self._asked) * 1000


def started(schema: StructuredSchema | None = None, **given: Any) -> RunStarted:
    """The first event of a run, with what is not given as it mostly is."""
    schema = schema or FOUR.schema
    usual = {
        "ms": 0.0,
        "date": "2026-01-02T03:04:05Z",
        "model": MODEL,
        "why": WHY,
        "backend": "script",
        "device": "cpu",
        "dtype": "float32",
        "mode": "json",
        "order": ("pcd", "ar"),
        "cache": "hit",
        "temperature": 1.0,
        "versions": {},
        "context": "text",
        "schema": schema.to_json(),
        "names": tuple(definition.name for definition in schema),
        "opening": "{",
        "source": schema.source,
        "unsupported": tuple(remark.to_json() for remark in schema.unsupported),
    }
    return RunStarted(**(usual | given))


#: A JSON Schema: a fixed value, a nested object, an array, a title, an optional field, and free text.
TICKET = {
    "type": "object",
    "required": ["kind", "priority", "topics", "sender", "summary"],
    "properties": {
        "kind": {"const": "ticket"},
        "priority": {"oneOf": [{"const": "P0", "title": "Everything is down"}, {"const": "P1"}]},
        "topics": {"type": "array", "uniqueItems": True, "items": {"enum": ["billing", "login"]}},
        "sender": {"type": "object", "properties": {"plan": {"enum": ["free", None]}, "name": {"type": "string"}}},
        "escalate": {"type": "boolean"},
        "summary": {"type": "string"},
    },
}
TICKET_LEFT_OUT = {
    "/properties/sender/properties/name": "sender.name",
    "/properties/summary": "summary",
}


# --- what the two lanes say ---


#: A field of more choices is told as one that was not read to its end.
ALL_READ = 50


def decide(definition: FieldDefinition) -> Decision:
    n = len(definition.choices)
    if n == 1:
        return Decision(definition.name, definition.choices, (0.0,), (1.0,), (0,), 0, 1.0)
    winner = zlib.crc32(definition.name.encode()) % n
    share = 0.5 + (zlib.crc32(definition.name.encode()) >> 8) % 500 / 1001
    read = [i for i in range(n) if n <= ALL_READ or i in (winner, 0, 1)]
    rest = 0.0 if n <= ALL_READ else (1 - share) / 2
    others = (1 - share - rest) / (len(read) - 1)
    return Decision(
        definition.name,
        definition.choices,
        scores=tuple((-0.1 if i == winner else -9.0) if i in read else None for i in range(n)),
        probabilities=tuple((share if i == winner else others) if i in read else None for i in range(n)),
        levels=(1,) * n,
        winner=winner,
        candidate_mass=0.9,
        unread_mass=rest,
    )


def path_of(decision: Decision, style: Style) -> Path:
    """The line in three tokens, decided at its value."""
    line, value = layout(style).line(decision.name, literal(decision.value)), literal(decision.value)
    before, _, after = line.rpartition(value)
    share = math.exp(decision.scores[decision.winner] or 0.0) if len(decision.choices) > 1 else None
    return ((before, None), (value, share), (after, None))


def layout(style: Style) -> Layout:
    return LAYOUTS[style][0]


def members(decisions: Iterable[Decision]) -> list[tuple[str, str]]:
    return [(decision.name, literal(decision.value)) for decision in decisions]


def canonical(schema: StructuredSchema, style: Style = "pretty") -> str:
    return layout(style).text(members(map(decide, schema)))


def baseline(schema: StructuredSchema, style: Style = "pretty") -> str:
    """The parallel lane's answer with one fault of each kind, as far as there are fields for them."""
    written: list[tuple[str, object]] = []
    for i, decision in enumerate(map(decide, schema)):
        other = decision.choices[decision.winner - 1]
        values = {1: [other], 2: ["MAYBE"], 3: [], 5: [decision.value, other]}.get(i, [decision.value])
        written += [(decision.name, value) for value in values]
        if i < len(INVENTED):
            written.append((INVENTED[i], HOSTILE))
    return layout(style).text((name, literal(value)) for name, value in written)


def pieces(text: str) -> Iterator[str]:
    """Token-sized pieces: three to six characters."""
    start = 0
    while start < len(text):
        size = 3 + start % 4
        yield text[start : start + size]
        start += size


# --- scenarios ---


def scenario(title: str, schema: Mapping[str, Mapping[str, object]], context: str) -> Preset:
    return Preset(
        id=title.lower().replace(" ", "_"),
        title=title,
        description=f"{title}: a scripted scenario.",
        context=context,
        schema=StructuredSchema(schema),
        expected={},
        look_for="Watch the status column.",
    )


FOUR = scenario(
    "Four fields",
    {
        "risk_level": {"type": "enum", "choices": ["LOW", "MEDIUM", "HIGH"], "description": "How bad it is."},
        "is_fraud": {"type": "boolean"},
        "channel": {"type": "enum", "choices": ["wire", "card", "cash"]},
        "routing": {"type": "enum", "choices": ["HOLD_FOR_REVIEW", "HOLD_FOR_CALL", "RELEASE"]},
    },
    "A transfer of EUR 24,600 to a payee that was added two minutes ago.",
)
MANY = scenario(
    "Many fields",
    {f"field_{i:02}": {"type": "enum", "choices": ["YES", "NO", "UNKNOWN_" + "X" * i]} for i in range(28)},
    "A long mail about an outage.",
)
NASTY = scenario(
    "Hostile text",
    {
        "__proto__": {"type": "boolean", "description": HOSTILE},
        "constructor": {"type": "enum", "choices": [HOSTILE, "${7*7}", "{{x}}"]},
        HOSTILE: {"type": "boolean"},
        "n" * 128: {"type": "enum", "choices": ["v" * 256, "w" * 256]},
        "10": {"type": "enum", "choices": [12345678901234567890123, 1]},
        "2": {"type": "enum", "choices": [None, 0]},
    },
    HOSTILE + " " + "x" * 10_000,
)
PRESETS = (FOUR, MANY, NASTY)


def told_by(engine: ScriptedEngine, preset: Preset = FOUR) -> list[Event]:
    """The trace of a whole run, as it would be saved; its times are those of the script alone."""
    engine = replace(engine, time=FilmTime(), races=[])
    return [event for event in engine.race(preset.context, preset.schema).wait() if not event.live]


@contextmanager
def served(
    page: gr.Blocks, routes: Sequence[BaseRoute] = (), key: ApiKey | None = None, mcp: bool = False
) -> Iterator[str]:
    """The address of a page, served while the block lasts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    yield launch(page, "127.0.0.1", port, routes, key, mcp)
    page.close()


if __name__ == "__main__":
    by_hand = build(ScriptedResident(ScriptedEngine(token_ms=25, pass_ms=900)), PRESETS)
    launch(by_hand, "127.0.0.1", 7860)
    by_hand.block_thread()
