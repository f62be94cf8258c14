"""The trace: an append-only list of timed events, and its file.

An event is a frozen dataclass; its JSON is one line `{"kind": ..., ...}`. The same
lines are what a live page receives, what a saved trace holds and what a replay draws.
`ms` counts from the start of the event's lane by the run's clock; events without a lane
count from the moment the run was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from core.schema import Choice
from core.whole_file import write_whole

Lane = Literal["pcd", "ar"]

#: Choices that a `field` event lists. Lists that people have (countries, time zones, tariff codes) come whole; the
#: 1,024 that a field may have would outweigh the rest of a trace.
LISTED_CHOICES = 256


@dataclass(frozen=True)
class Event:
    kind: ClassVar[str]
    #: Live events tell a waiting page what goes on; a saved trace leaves them out.
    live: ClassVar[bool] = False

    ms: float

    def to_json(self) -> dict[str, Any]:
        data = {"kind": self.kind, **asdict(self)}
        # Microseconds are enough, and half as long on the wire.
        return {
            key: round(value, 3) if isinstance(value, float) and key.endswith("ms") else value
            for key, value in data.items()
        }


@dataclass(frozen=True)
class Loading(Event):
    """The model is not there yet, or in the middle of a run no longer: it is waited for."""

    kind = "loading"
    live = True
    stage: str
    fraction: float | None  # 0..1 where it is known


@dataclass(frozen=True)
class Waiting(Event):
    kind = "waiting"
    live = True
    ahead: int  # runs that come first


@dataclass(frozen=True)
class Stopping(Event):
    """Somebody has asked for the end; the running pass or token comes first."""

    kind = "stopping"
    live = True


@dataclass(frozen=True)
class Tick(Event):
    """The running lane's clock, also in the middle of a long pass."""

    kind = "tick"
    live = True
    lane: Lane


@dataclass(frozen=True)
class Alive(Event):
    """Nothing has happened; the run still waits for something."""

    kind = "alive"
    live = True


@dataclass(frozen=True)
class RunStarted(Event):
    """`ms` is how long the run waited: queue, loading, warm-up of the model."""

    kind = "run"
    date: str  # ISO 8601, UTC
    model: str
    why: str  # why this model runs
    backend: str
    device: str
    dtype: str
    mode: str  # baseline mode
    order: tuple[Lane, ...]
    cache: str  # state of the head prefix that both lanes start from: hit, miss, off, fallback
    temperature: float
    versions: Mapping[str, str]
    context: str
    schema: Mapping[str, Any]
    names: tuple[str, ...]  # of the fields: JavaScript puts keys such as "10" and "2" in an order of its own
    opening: str  # the JSON's beginning, which is part of the prompt
    strategy: str = "tree"  # how the pcd lane reads: tree, rows
    reading: str = "complete"  # and what: complete, best-first
    scoring: str = "identify"  # how far a line is scored: identify, full
    prior: str = "none"  # what is subtracted from the scores: none, content_free
    style: str = "pretty"  # of the JSON that the prompt asks for: pretty, compact
    prompt_tokens: int | None = None  # head + context + tail
    source: str = "fields"  # what the schema was made from: fields, json_schema, pydantic
    unsupported: tuple[Mapping[str, str], ...] = ()  # its parts that are left out: pointer, name, reason
    machine: str = ""  # the processor, and the cores that the process may use
    clock: str = "engine"  # whose the lanes' times are: engine, or client, which are taken around the wire


@dataclass(frozen=True)
class WarmedUp(Event):
    kind = "warmup"
    took_ms: float
    when: Literal["load", "run"]


@dataclass(frozen=True)
class LaneStarted(Event):
    """`ms` is the work done for the lane beforehand."""

    kind = "lane"
    lane: Lane


@dataclass(frozen=True)
class PassEnded(Event):
    kind = "pass"
    lane: Lane
    passes: int  # of this lane so far
    tokens: int  # read in this pass


@dataclass(frozen=True)
class PhaseEnded(Event):
    kind = "phase"
    lane: Lane
    phase: str
    took_ms: float


@dataclass(frozen=True)
class FieldDecided(Event):
    kind = "field"
    lane: Lane
    name: str
    value: Choice
    probability: float  # share among the allowed choices
    candidate_mass: float
    levels: int
    top: tuple[tuple[Choice, float], ...]  # choices that were read with their shares, likeliest first
    cardinality: int
    unread: int = 0  # choices that were proved to lose and not read
    unread_mass: float = 0.0  # their share is at most this
    unasked: int = 0  # vocabulary tokens of its forks that a server was not asked for
    unasked_mass: float = 0.0  # their probability is at most this
    start: int = -1  # characters of the member in the assembled text; -1 where it is not known
    end: int = -1
    #: The tokens of the value's line as it would be written, each as text; parts of a character as escapes. Beside a
    #: token the probability that the model goes on into its branch, where that was read; None elsewhere.
    path: tuple[tuple[str, float | None], ...] = ()


@dataclass(frozen=True)
class TokenWritten(Event):
    kind = "token"
    lane: Lane
    token: int
    text: str  # characters that became complete with this token
    tokens: int  # written so far
    passes: int  # of this lane so far
    forced: bool = False  # the grammar left no other; the model was not asked


@dataclass(frozen=True)
class RowCompared(Event):
    """The state of one row of the baseline has changed."""

    kind = "row"
    lane: Lane
    name: str
    text: str  # the JSON value as written
    flags: tuple[str, ...]
    partial: bool
    invented: bool
    start: int  # characters of the member in the baseline's text; -1 where there is none
    end: int
    lenient: str = ""  # the JSON that a lenient reader would take an invalid value for


@dataclass(frozen=True)
class Judged(Event):
    """The baseline's text as a whole."""

    kind = "judged"
    lane: Lane
    outcome: str
    counts: Mapping[str, int]


@dataclass(frozen=True)
class LaneEnded(Event):
    """`ms` is the lane's time by the run's clock."""

    kind = "lane_end"
    lane: Lane
    how: str  # pcd: "assembled"; ar: "closed", "end_of_turn", "limit"
    passes: int
    tokens: int  # pcd: of the tree batch; ar: written, forced ones included
    text: str
    cache: str
    forced: int = 0  # tokens that the grammar left no choice about
    first_token_ms: float | None = None  # the lane's time at which the first token stood there
    tokens_per_s: float | None = None  # from the first token to the last, forced ones included
    returned: str = ""  # pcd: the values as JSON in the shape of an import that was not flat
    sent_tokens: int | None = None  # of all prompts that a server was sent; a pass is then a request to it
    server_queue_ms: float | None = None  # in the server's queue, where it says so


@dataclass(frozen=True)
class RunEnded(Event):
    kind = "end"
    state: Literal["done", "stopped", "failed"]
    message: str
    speed_up: float | None  # ar / pcd, by the run's clock; only when both lanes are finished
    marks: tuple[str, ...]  # what must stand beside it: "limit", "not_parsable", ...


EVENTS: Mapping[str, type[Event]] = {
    cls.kind: cls
    for cls in (
        Loading, Waiting, Stopping, Tick, Alive, RunStarted, WarmedUp, LaneStarted, PassEnded, PhaseEnded,
        FieldDecided, TokenWritten, RowCompared, Judged, LaneEnded, RunEnded,
    )
}  # fmt: skip


class TraceError(ValueError):
    """A file that is not a trace."""


def to_lines(events: Iterable[Event]) -> str:
    """One JSON object a line; NaN never, characters as they are."""
    return "".join(json.dumps(event.to_json(), ensure_ascii=False, allow_nan=False) + "\n" for event in events)


def from_line(line: str) -> Event:
    """The event of one line; raises `TraceError`."""
    try:
        data = json.loads(line)
        cls = EVENTS[data.pop("kind")]
        return cls(**{key: _frozen(value) for key, value in data.items()})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise TraceError(f"not a trace event: {line[:60]!r} ({error})") from None


def save(events: Iterable[Event], file: Path) -> None:
    """Writes the trace whole, without its live events."""
    write_whole(file, to_lines(event for event in events if not event.live))


def load(file: Path | str) -> tuple[Event, ...]:
    """The events of a saved trace, or of one that was taken from the page; raises `TraceError`."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise TraceError(f"{file}: is no text in UTF-8") from None
    events = []
    for where, line in _lines(text):
        try:
            events.append(from_line(line))
        except TraceError as error:
            raise TraceError(f"{file}: {where}: {error}") from None
    if not events:
        raise TraceError(f"{file}: holds no events")
    return tuple(events)


def _lines(text: str) -> list[tuple[str, str]]:
    """Each event as a line, and where it stands: in a line of its own, or in the list of one document."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None  # several lines, or nothing that could be read
    events = document.get("events") if isinstance(document, dict) else None
    if isinstance(events, list):
        return [(f"event {number}", json.dumps(event)) for number, event in enumerate(events, start=1)]
    return [(f"line {number}", line) for number, line in enumerate(text.split("\n"), start=1) if line]


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
