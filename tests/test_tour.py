"""What the tour tells is counted from presets and recordings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from core.presets import Change, load_presets
from core.recordings import load_recordings
from core.trace import Event, FieldDecided, Judged, LaneEnded, RowCompared, RunEnded, RunStarted
from core.ui.tour import Tour, teller, tour_of
from tests.scripted import FOUR, MANY, NASTY, ScriptedEngine, told_by

ENGINE = ScriptedEngine(token_ms=0, pass_ms=1)
PRESETS = load_presets()
RECORDED = {name: recording.events for name, recording in load_recordings(PRESETS).items()}


@pytest.fixture(scope="module")
def scripted() -> dict[str, Sequence[Event]]:
    return {preset.id: told_by(ENGINE, preset) for preset in (FOUR, MANY)}


def made(presets, recordings) -> Tour:
    tour = tour_of(presets, recordings)
    assert tour
    return tour


def changed(events: Sequence[Event], values: dict[str, object]) -> list[Event]:
    """The same run as if these fields had come out otherwise."""
    return [
        replace(event, value=values[event.name]) if isinstance(event, FieldDecided) and event.name in values else event
        for event in events
    ]


def test_without_a_recording_there_is_no_tour() -> None:
    assert tour_of(PRESETS, {}) is None
    assert teller(None) == []


def test_most_of_it_is_told_of_the_recorded_preset_with_most_fields(scripted) -> None:
    assert made((FOUR, MANY), scripted).main == MANY.id
    assert made((FOUR, MANY), {FOUR.id: scripted[FOUR.id]}).main == FOUR.id


def test_each_shipped_recording_is_a_point_with_the_numbers_of_its_events() -> None:
    tour = made(PRESETS, RECORDED)
    assert {point.id for point in tour.points} == {preset.id for preset in PRESETS}
    for point in tour.points:
        events = RECORDED[point.id]
        ends = {event.lane: event.ms for event in events if isinstance(event, LaneEnded)}
        assert (point.pcd_ms, point.ar_ms) == (ends["pcd"], ends["ar"])
        assert point.speed_up == pytest.approx(ends["ar"] / ends["pcd"], rel=1e-3)
        assert point.marks == next(event.marks for event in events if isinstance(event, RunEnded))
        run = next(event for event in events if isinstance(event, RunStarted))
        assert (point.mode, point.model, point.device) == (run.mode, run.model, run.device)
    fields = [point.fields for point in tour.points]
    assert fields == sorted(fields, reverse=True)
    assert (tour.points[-1].fields, tour.points[-1].longest) == (1, 255)


def test_the_bet_counts_what_the_baseline_wrote_otherwise(scripted) -> None:
    bet = made((FOUR,), scripted).bet
    counts = next(event.counts for event in scripted[FOUR.id] if isinstance(event, Judged))
    last = {e.name: e for e in scripted[FOUR.id] if isinstance(e, RowCompared) and not e.invented}
    assert bet.answer == sum("same" not in row.flags for row in last.values()) == 3
    assert bet.counts == counts
    assert (bet.fields, bet.sure) == (4, 0)


def test_what_a_careful_reader_is_sure_of_is_counted_for_both_lanes(scripted) -> None:
    decided = {e.name: e.value for e in scripted[FOUR.id] if isinstance(e, FieldDecided)}
    others = {"is_fraud": not decided["is_fraud"]}
    bet = made((replace(FOUR, expected={**decided, **others}),), scripted).bet
    # The script's baseline writes another value for the second field and misses the third and the fourth.
    assert (bet.sure, bet.pcd_right, bet.ar_right) == (4, 3, 2)


def test_true_is_not_one(scripted) -> None:
    decided = {e.name: e.value for e in scripted[FOUR.id] if isinstance(e, FieldDecided)}
    as_number = int(decided["is_fraud"])
    assert made((replace(FOUR, expected={"is_fraud": as_number}),), scripted).bet.pcd_right == 0


@pytest.mark.parametrize("same", range(0, 29))
def test_the_options_hold_the_answer_once_and_are_told_apart(scripted, same: int) -> None:
    names = [field.name for field in MANY.schema]
    events = [
        replace(event, flags=("same" if names.index(event.name) < same else "differs",))
        if isinstance(event, RowCompared) and not event.invented
        else event
        for event in scripted[MANY.id]
    ]
    bet = made((MANY,), {MANY.id: events}).bet
    assert bet.answer == 28 - same
    assert list(bet.options).count(bet.answer) == 1
    assert list(bet.options) == sorted(set(bet.options))
    assert 2 <= len(bet.options) <= 4
    assert all(0 <= option <= 28 for option in bet.options)


def test_the_changed_recording_is_told_by_its_fact_and_its_fields(scripted) -> None:
    values = {"field_03": "YES", "field_07": "NO", "field_20": "YES"}
    before = {e.name: e.value for e in scripted[MANY.id] if isinstance(e, FieldDecided)}
    really = {name: value for name, value in values.items() if before[name] != value}
    assert really, "the script decides something else"
    preset = replace(MANY, change=Change("no outage", "A long mail about an outage.", "A mail about nothing."))
    again = changed(scripted[MANY.id], values)
    change = made((preset,), {**scripted, f"{MANY.id}_changed": again}).change
    assert change
    assert (change.label, change.was, change.now) == ("no outage", MANY.context, "A mail about nothing.")
    assert [(t.name, t.was, t.now) for t in change.turns] == [
        (name, json.dumps(before[name]), json.dumps(value)) for name, value in sorted(really.items())
    ]
    assert change.ar_turns == 0
    assert len(change.options) == 4
    assert 0 < sum(name in really for name in change.options) <= 2


def test_without_a_changed_recording_there_is_no_change(scripted) -> None:
    assert made((FOUR, MANY), scripted).change is None
    preset = replace(MANY, change=Change("no outage", "A long mail about an outage.", "A mail about nothing."))
    assert made((preset,), scripted).change is None


def test_the_shipped_change_is_what_both_recordings_say() -> None:
    change = made(PRESETS, RECORDED).change
    assert change
    texts = [
        next(event.context for event in RECORDED[name] if isinstance(event, RunStarted))
        for name in (change.id.removesuffix("_changed"), change.id)
    ]
    assert texts[0].replace(change.was, change.now) == texts[1]
    assert {turn.was != turn.now for turn in change.turns} == {True}


def test_the_page_is_told_one_text_whatever_it_asks() -> None:
    hostile = replace(NASTY, title="<img src=x onerror=alert(1)> ${7*7} </script>")
    (tell,) = teller(tour_of((hostile,), {NASTY.id: told_by(ENGINE, NASTY)}))
    told = json.loads(tell({"path": "/etc/passwd"}))
    assert told["points"][0]["title"] == hostile.title
    assert told["logs"][NASTY.id]["recorded"] is True
