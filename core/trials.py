"""Trials: planned races, one after the other, each measured from its own trace.

A trial is the lanes' time only: a race runs to its end before its events are read, so that nobody
who watches takes time from it. Knows nothing of command lines, tables or pages.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, get_args

from core.compare import Comparison, Flag, compare
from core.grammar import MODES, Mode
from core.prompt import Style
from core.request import Request
from core.schema import Choice, StructuredSchema, choice_key
from core.trace import Event, FieldDecided, Lane, LaneEnded, PhaseEnded, RunEnded, RunStarted

if TYPE_CHECKING:
    from core.engine import Engine
    from core.presets import Preset
    from core.race import Race

#: cold: schema compiled and prompt read anew by both lanes; warm: both start after the cached head.
Head = Literal["cold", "warm"]
HEADS: tuple[Head, ...] = get_args(Head)
STYLES: tuple[Style, ...] = get_args(Style)

#: The lanes take turns in going first, round by round.
ORDERS: tuple[tuple[Lane, Lane], ...] = (("pcd", "ar"), ("ar", "pcd"))

MOST_ROUNDS = 999


@dataclass(frozen=True)
class Case:
    """A text and a schema that are raced again and again. Raises `ValueError` for what no engine could race."""

    name: str
    context: str
    schema: StructuredSchema
    expected: Mapping[str, Choice] = field(default_factory=dict)  # where the right answer is known
    size: int | None = None  # in a sweep: of what is larger in one case than in another

    def __post_init__(self) -> None:
        try:
            Request(self.context, self.schema)
            self._check_expected()
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None

    def _check_expected(self) -> None:
        if not isinstance(self.expected, Mapping):
            raise ValueError("'expected' must be an object of field names and values")
        for name, value in self.expected.items():
            if name not in self.schema:
                raise ValueError(f"'expected' names {name!r}, which is no field of the schema")
            if choice_key(value) not in map(choice_key, self.schema[name].choices):
                raise ValueError(f"'expected' has {value!r} for {name!r}, which is none of its choices")

    @classmethod
    def of(cls, preset: Preset, name: str) -> Case:
        return cls(name, preset.context, preset.schema, preset.expected)


@dataclass(frozen=True)
class Turn:
    """One planned race."""

    preset: str
    mode: Mode  # of the baseline
    style: Style  # of the JSON that the prompt asks both lanes for
    head: Head
    order: tuple[Lane, Lane]
    round: int  # from 1
    size: int | None = field(default=None, kw_only=True)  # the case's


@dataclass(frozen=True)
class Trial(Turn):
    """One race that was run to its end."""

    cache: str  # state of the head prefix that both lanes started from: hit, miss, off, fallback
    strategy: str  # how the pcd lane read: tree, rows
    reading: str  # and what: complete, best-first
    pcd_ms: float  # by the engine's clock or, on a server, by the client's, as all times here
    ar_ms: float
    pcd_passes: int  # requests on a server
    ar_passes: int
    prompt_tokens: int  # head + context + tail
    tree_tokens: int  # nodes that the pcd lane has read behind the prompt
    ar_tokens: int  # written, forced ones included
    ar_forced: int  # of them, those that the grammar left no choice about
    first_token_ms: float | None  # until the baseline's first token stood there
    tokens_per_s: float | None  # of the baseline, from its first token to its last
    how: str  # the baseline ended: closed, end_of_turn, limit
    outcome: str  # what it wrote is: parsed, truncated, not_parsable
    keeps_schema: bool  # it parses, and every field is there once with one of its choices, and nothing else
    fields: int
    agree: int  # fields for which both lanes say the same
    expected: int  # fields whose right answer is known
    pcd_right: int  # of them
    ar_right: int
    pcd_phases: Mapping[str, float]  # milliseconds by phase
    ar_phases: Mapping[str, float]
    pcd_sent_tokens: int | None = None  # of all prompts that a server was sent
    ar_sent_tokens: int | None = None
    pcd_queue_ms: float | None = None  # in the server's queue, where it says so
    ar_queue_ms: float | None = None

    @property
    def speed_up(self) -> float:
        return self.ar_ms / self.pcd_ms


@dataclass(frozen=True)
class Failure(Turn):
    """One race that came to no end of its own."""

    message: str


@dataclass(frozen=True)
class Benchmark:
    """What is to be measured. Raises `ValueError` for a plan that cannot be run."""

    cases: tuple[Case, ...]
    modes: tuple[Mode, ...] = MODES
    heads: tuple[Head, ...] = HEADS
    rounds: int = 5
    style: Style = "pretty"
    is_interleaved: bool = False  # rounds go round the cases too, which are compared with one another

    def __post_init__(self) -> None:
        check_names("baseline mode", self.modes, MODES)
        check_names("head", self.heads, HEADS)
        check_names("style", (self.style,), STYLES)
        check_names("preset", [case.name for case in self.cases])
        check_rounds(self.rounds)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All races in their order. Rounds go round modes and heads, so that a drifting machine treats these alike."""
        numbers, places = range(1, self.rounds + 1), range(len(self.cases))
        case_by_case = ((number, place) for place in places for number in numbers)
        return tuple(
            self._turn(number, place, mode, head)
            for number, place in (product(numbers, places) if self.is_interleaved else case_by_case)
            for mode, head in product(self.modes, self.heads)
        )

    def _turn(self, number: int, place: int, mode: Mode, head: Head) -> Turn:
        case = self.cases[place]
        # Each lane goes first in every second race of a case; interleaved, in half of the races of a round too.
        order = ORDERS[(number - 1 + (place if self.is_interleaved else 0)) % 2]
        return Turn(case.name, mode, self.style, head, order, number, size=case.size)


class Series:
    """One execution of a benchmark: iterating runs it, with a `Trial` or `Failure` for each of its turns, in order.

    A race that runs while the iteration is left, by an exception such as Ctrl-C too, is cancelled.
    """

    def __init__(self, engine: Engine, benchmark: Benchmark) -> None:
        self.benchmark = benchmark
        self._engine = engine
        self._cancelled = threading.Event()
        self._race: Race | None = None
        self._turns = self._run()

    def __iter__(self) -> Iterator[Trial | Failure]:
        return self._turns

    @property
    def ahead(self) -> int:
        """Other work that the engine does before the next race."""
        race = self._race
        return race.ahead if race else 0

    def cancel(self) -> None:
        """Ends the series within one pass or token, from any thread; what was yielded stays good."""
        self._cancelled.set()
        if race := self._race:
            race.cancel()

    def _run(self) -> Iterator[Trial | Failure]:
        cold = {case.name: case for case in self.benchmark.cases}
        cases = dict(cold)
        for turn in self.benchmark.turns:
            case = cases[turn.preset]
            if cold.pop(case.name, None):
                # Fills the caches of head, plan and grammar, of which schema mode has the most, and the device's own
                # for shapes like these. It counts for nothing: what is wrong with the case comes again in the races
                # that do.
                self._raced(case, mode=max(self.benchmark.modes, key=MODES.index))
            events = self._turned(turn, case)
            if _end(events).state == "stopped":
                return
            yield self._measured(turn, case, events)

    def _turned(self, turn: Turn, case: Case) -> list[Event]:
        """The events of a planned race; of a second one where other cases have driven out the head meanwhile."""
        options = {"mode": turn.mode, "order": turn.order, "cache": turn.head == "warm"}
        events = self._raced(case, **options)
        is_missed = any(isinstance(event, RunStarted) and event.cache == "miss" for event in events)
        return self._raced(case, **options) if is_missed else events

    def _raced(self, case: Case, **options: Any) -> list[Event]:
        """The events of one race, which is cancelled if this is left before its end."""
        race = self._engine.race(case.context, case.schema, style=self.benchmark.style, **options)
        self._race = race
        try:
            if self._cancelled.is_set():  # between the last race and this one
                race.cancel()
            return race.wait()
        finally:
            self._race = None
            race.cancel()

    def _measured(self, turn: Turn, case: Case, events: list[Event]) -> Trial | Failure:
        end = _end(events)
        if end.state != "done":
            return Failure(**vars(turn), message=end.message)
        return measured(turn, case, events)


def measured(turn: Turn, case: Case, events: Iterable[Event]) -> Trial:
    """The figures of one race that was done, from its trace."""
    events = list(events)
    (started,) = (event for event in events if isinstance(event, RunStarted))
    ended = {event.lane: event for event in events if isinstance(event, LaneEnded)}
    pcd, ar = ended["pcd"], ended["ar"]
    values = {event.name: event.value for event in events if isinstance(event, FieldDecided)}
    against_pcd, against_expected = (_compared(case, ar, known) for known in (values, case.expected))
    return Trial(
        **vars(turn),
        cache=started.cache,
        strategy=started.strategy,
        reading=started.reading,
        pcd_ms=pcd.ms,
        ar_ms=ar.ms,
        pcd_passes=pcd.passes,
        ar_passes=ar.passes,
        prompt_tokens=started.prompt_tokens,
        tree_tokens=pcd.tokens,
        ar_tokens=ar.tokens,
        ar_forced=ar.forced,
        first_token_ms=ar.first_token_ms,
        tokens_per_s=ar.tokens_per_s,
        how=ar.how,
        outcome=against_pcd.outcome,
        keeps_schema=_keeps_schema(against_pcd),
        fields=len(case.schema),
        agree=against_pcd.counts[Flag.SAME],
        expected=len(case.expected),
        pcd_right=sum(choice_key(values[name]) == choice_key(value) for name, value in case.expected.items()),
        ar_right=against_expected.counts[Flag.SAME],
        pcd_phases=_phases(events, "pcd"),
        ar_phases=_phases(events, "ar"),
        pcd_sent_tokens=pcd.sent_tokens,
        ar_sent_tokens=ar.sent_tokens,
        pcd_queue_ms=pcd.server_queue_ms,
        ar_queue_ms=ar.server_queue_ms,
    )


def _compared(case: Case, ar: LaneEnded, values: Mapping[str, Choice]) -> Comparison:
    return compare(case.schema, ar.text, finished=True, truncated=ar.how == "limit", values=values)


def _keeps_schema(comparison: Comparison) -> bool:
    clean = ((Flag.SAME,), (Flag.DIFFERS,))
    return comparison.outcome == "parsed" and not comparison.invented and all(r.flags in clean for r in comparison.rows)


def _phases(events: Iterable[Event], lane: Lane) -> dict[str, float]:
    """Milliseconds by phase, in order; a phase that comes several times is summed."""
    phases: dict[str, float] = {}
    for event in events:
        if isinstance(event, PhaseEnded) and event.lane == lane:
            phases[event.phase] = phases.get(event.phase, 0.0) + event.took_ms
    return phases


def _end(events: list[Event]) -> RunEnded:
    end = events[-1]
    assert isinstance(end, RunEnded), "a race that is over ends with its end"
    return end


def check_names(what: str, names: Iterable[str], known: tuple[str, ...] = ()) -> None:
    """Raises `ValueError` for none, for one that is not `known`, and for one that is given twice."""
    seen: set[str] = set()
    for name in names:
        if known and name not in known:
            raise ValueError(f"{what} {name!r} is unknown; use one of: {', '.join(known)}")
        if name in seen:
            raise ValueError(f"{what} {name!r} is given twice; give it once")
        seen.add(name)
    if not seen:
        raise ValueError(f"there is no {what}; give at least one")


def check_rounds(rounds: int) -> None:
    """Raises `ValueError` for what is no number of rounds."""
    if not 1 <= rounds <= MOST_ROUNDS:
        raise ValueError(f"rounds {rounds}: give a number from 1 to {MOST_ROUNDS}")
