"""What the tour tells, counted from recordings.

Pure: knows presets and events, nothing of the page that words them. Each number is an event's or a
count of events.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from core.presets import Preset
from core.schema import Choice
from core.trace import Event, FieldDecided, LaneEnded, RowCompared, RunEnded, RunStarted
from core.ui.log import Log

#: What a guess is offered.
MOST_OPTIONS = 4
#: Of each kind in a question about fields: a page has no room for more.
MOST_CHANGED = 2

Recorded = Mapping[str, Sequence[Event]]


@dataclass(frozen=True)
class Point:
    """One recorded race: how much was asked, and the ratio inside this run."""

    id: str
    title: str
    fields: int
    choices: int  # of all fields
    longest: int  # choices of the field that has most
    mode: str  # of the baseline
    model: str
    device: str
    clock: str
    pcd_ms: float
    ar_ms: float
    speed_up: float
    marks: tuple[str, ...]  # what must stand beside the ratio


@dataclass(frozen=True)
class Bet:
    """At how many fields the baseline does not write PCD's value."""

    fields: int
    answer: int
    options: tuple[int, ...]
    counts: Mapping[str, int]  # rows by flag
    sure: int  # fields of whose value a careful reader is sure
    pcd_right: int  # of these
    ar_right: int


@dataclass(frozen=True)
class Turn:
    """A field that PCD decides otherwise after the change; values as JSON."""

    name: str
    was: str
    now: str


@dataclass(frozen=True)
class Change:
    """A second recording, of the same fields and a text in which one fact is another."""

    id: str
    label: str  # the new fact, in a few words
    was: str  # what the text says of it
    now: str
    turns: tuple[Turn, ...]
    options: tuple[str, ...]  # names of fields, changed and unchanged ones
    ar_turns: int  # fields that the baseline writes otherwise


@dataclass(frozen=True)
class Tour:
    main: str  # id of the recording that most of it is shown on
    points: tuple[Point, ...]  # fewest fields last
    bet: Bet
    change: Change | None
    logs: Mapping[str, Mapping[str, Any]]  # by id, as a board takes them

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def tour_of(presets: Iterable[Preset], recordings: Recorded) -> Tour | None:
    """The tour on what is recorded: most of it on the preset with most fields. None where nothing is."""
    shown = [preset for preset in presets if preset.id in recordings]
    if not shown:
        return None
    main = max(shown, key=lambda preset: len(preset.schema))
    change = _change(main, recordings)
    points = [_point(preset, recordings[preset.id]) for preset in shown]
    told = [preset.id for preset in shown] + ([change.id] if change else [])
    logs = {name: Log.of(recordings[name]) for name in told}
    return Tour(
        main=main.id,
        points=tuple(sorted(points, key=lambda point: (-point.fields, point.longest))),
        bet=_bet(main, recordings[main.id]),
        change=change,
        logs={name: {"run": log.run, "log": log.lines, "recorded": True} for name, log in logs.items()},
    )


def teller(tour: Tour | None) -> list[Callable[[object], str]]:
    """The tour as what a page can ask its server for; nothing where there is no tour."""
    # One text: gradio looks for files in an answer that has keys.
    text = json.dumps(tour.to_json(), ensure_ascii=False) if tour else ""

    def tour_text(_asked: object) -> str:
        return text

    return [tour_text] if tour else []


def _point(preset: Preset, events: Sequence[Event]) -> Point:
    ends = {event.lane: event.ms for event in events if isinstance(event, LaneEnded)}
    sizes = [len(field.choices) for field in preset.schema]
    run = _run(events)
    end = next(event for event in events if isinstance(event, RunEnded))
    assert end.speed_up is not None, "both lanes of a recording are finished"
    return Point(
        id=preset.id,
        title=preset.title,
        fields=len(sizes),
        choices=sum(sizes),
        longest=max(sizes),
        mode=run.mode,
        model=run.model,
        device=run.device,
        clock=run.clock,
        pcd_ms=ends["pcd"],
        ar_ms=ends["ar"],
        speed_up=end.speed_up,
        marks=end.marks,
    )


def _bet(preset: Preset, events: Sequence[Event]) -> Bet:
    rows = {event.name: event for event in events if isinstance(event, RowCompared)}
    counts = Counter(flag for row in rows.values() for flag in row.flags)
    expected = {name: _literal(value) for name, value in preset.expected.items()}
    decided, written = _decided(events), _written(events)
    fields = len(decided)
    answer = fields - counts["same"]
    return Bet(
        fields=fields,
        answer=answer,
        options=_options(answer, fields),
        counts=dict(counts),
        sure=len(expected),
        pcd_right=sum(decided.get(name) == value for name, value in expected.items()),
        ar_right=sum(written.get(name) == value for name, value in expected.items()),
    )


def _options(answer: int, most: int) -> tuple[int, ...]:
    """A ladder from none to all in which the answer takes the place of the rung that is nearest to it."""
    rungs = sorted({0, most // 9, most // 4, most // 2, most})
    rungs[min(range(len(rungs)), key=lambda i: abs(rungs[i] - answer))] = answer
    while len(rungs) > MOST_OPTIONS:
        rungs.remove(max(rungs, key=lambda rung: abs(rung - answer)))
    return tuple(sorted(rungs))


def _change(preset: Preset, recordings: Recorded) -> Change | None:
    changed = preset.changed
    if not preset.change or not changed or changed.id not in recordings:
        return None
    before, after = recordings[preset.id], recordings[changed.id]
    values, others = _decided(before), _decided(after)
    turns = tuple(Turn(name, value, others[name]) for name, value in values.items() if others[name] != value)
    moved = [turn.name for turn in turns][:MOST_CHANGED]
    still = [name for name in values if others[name] == values[name]]
    # From all over the schema, so that the list does not end where the changed ones begin.
    step = max(1, len(still) // (MOST_OPTIONS - len(moved)))
    asked = {*moved, *still[::step][: MOST_OPTIONS - len(moved)]}
    texts, other_texts = _written(before), _written(after)
    return Change(
        id=changed.id,
        label=preset.change.label,
        was=preset.change.before,
        now=preset.change.after,
        turns=turns,
        options=tuple(name for name in values if name in asked),
        ar_turns=sum(texts.get(name) != other_texts.get(name) for name in values),
    )


def _run(events: Sequence[Event]) -> RunStarted:
    return next(event for event in events if isinstance(event, RunStarted))


def _decided(events: Iterable[Event]) -> dict[str, str]:
    return {event.name: _literal(event.value) for event in events if isinstance(event, FieldDecided)}


def _written(events: Iterable[Event]) -> dict[str, str]:
    """What the baseline has written for the fields at the end, as JSON where it is JSON."""
    rows = {event.name: event for event in events if isinstance(event, RowCompared) and not event.invented}
    return {name: _canonical(row.text) for name, row in rows.items()}


def _canonical(text: str) -> str:
    try:
        return _literal(json.loads(text))
    except ValueError:
        return text


def _literal(value: Choice) -> str:
    return json.dumps(value, ensure_ascii=False)
