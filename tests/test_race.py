"""The race: both lanes on one request, told as events that draw the same board live and later."""

import json
import threading
import time
from itertools import pairwise

import numpy as np
import pytest

from core.compare import compare
from core.engine import Engine, Request
from core.machine import machine_name
from core.schema import StructuredSchema
from core.trace import load, save
from tests.fakes import TWINS, HashBackend, HashPrefix, PreferringBackend, lexicon

SCHEMA = StructuredSchema(
    {
        "risk": {"type": "enum", "choices": ["HIGH", "LOW"]},
        "is_fraud": {"type": "boolean"},
        "tier": {"type": "enum", "choices": [1, 10, "1"]},
        "team": {"type": "enum", "choices": ["BILLING", "BILLING_DISPUTE"]},
        "code": {"type": "enum", "choices": ["CWE-79", "CWE-798"]},
    }
)
VALUES = {"risk": "HIGH", "is_fraud": True, "tier": 1, "team": "BILLING_DISPUTE", "code": "CWE-79"}
#: One of each: same, differs, not allowed, duplicate, invented, omitted.
ANSWER = (
    '{\n  "risk": "HIGH",\n  "is_fraud": false,\n  "tier": 100,\n'
    '  "team": "BILLING",\n  "mood": "生气 👩\u200d🚀",\n  "team": "BILLING_DISPUTE"\n}'
)
FLAGS = {
    "risk": ("same",),
    "is_fraud": ("differs",),
    "tier": ("not_allowed",),
    "team": ("duplicate", "same"),
    "code": ("omitted",),
    "mood": ("invented",),
}
CONTEXT = "A text about nothing."
ORDERS = [("pcd", "ar"), ("ar", "pcd")]


def engine_for(answer=ANSWER, backend=PreferringBackend, **options):
    """An engine whose model decides for VALUES and writes `answer`."""
    engine = Engine(backend(lexicon("qwen"), **options), "preferring", why="a test")
    lines = [f"  {json.dumps(name)}: {json.dumps(value)},\n" for name, value in VALUES.items()]
    engine.backend.intend(answer.removeprefix("{\n"), *lines, before="assistant\n{\n")
    return engine


def finished(race, pause_s=0.001):
    """All events of a race, drained as a page would."""
    events = []
    while not race.finished:
        events += race.drain()
        time.sleep(pause_s)
    assert race.drain() == []
    return events


class SteppedBackend(PreferringBackend):
    """Waits before each pass until the test has looked at all that happened before."""

    def __init__(self, lexicon):
        super().__init__(lexicon)
        self.reached, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def _pass(self):
        self.reached.release()
        self.go.acquire()
        super()._pass()


def stepped(order=("pcd", "ar")):
    """All events of a race that is drained before every pass, so after every token."""
    engine = engine_for(backend=SteppedBackend)
    race, events = engine.race(CONTEXT, SCHEMA, order=order), []
    while not race.finished:
        waits = engine.backend.reached.acquire(timeout=0.01)
        events += race.drain()
        if waits:
            engine.backend.go.release()
    return events


def of(events, kind, lane=None):
    return [event for event in events if event.kind == kind and (lane is None or event.lane == lane)]


def only(events, kind, lane=None):
    (event,) = of(events, kind, lane)
    return event


def final_rows(events):
    return {row.name: row for row in of(events, "row")}


# --- order ---


@pytest.mark.parametrize("order", ORDERS)
def test_events_come_lane_by_lane_in_the_order_that_was_asked_for(order):
    events = [event for event in finished(engine_for().race(CONTEXT, SCHEMA, order=order)) if not event.live]
    kinds = [event.kind for event in events]
    assert kinds[:2] == ["run", "warmup"] and kinds[-1] == "end"
    assert all(kinds.count(kind) == 1 for kind in ("run", "warmup", "end"))
    work = [event for event in events if event.kind in ("lane", "pass", "phase", "field", "token", "lane_end")]
    first = [event.lane for event in work].index(order[1])
    assert {event.lane for event in work[:first]} == {order[0]} and {event.lane for event in work[first:]} == {order[1]}
    for lane in order:
        mine = [event.kind for event in work if event.lane == lane]
        assert (mine[0], mine[-1]) == ("lane", "lane_end")
    assert [event.name for event in of(events, "field")] == list(VALUES)
    assert {event.name: event.value for event in of(events, "field")} == VALUES


def test_the_run_says_what_ran_and_under_which_conditions():
    run = finished(engine_for().race(CONTEXT, SCHEMA, temperature=0.5, order=ORDERS[1]))[0]
    assert (run.kind, run.model, run.why, run.backend, run.dtype) == ("run", "preferring", "a test", "hash", "float64")
    assert (run.mode, run.order, run.cache, run.temperature) == ("json", ("ar", "pcd"), "miss", 0.5)
    assert (run.context, StructuredSchema(run.schema), run.opening) == (CONTEXT, SCHEMA, "{\n")
    assert set(run.versions) == {"python", "transformers", "llguidance"} and run.date.endswith("+00:00")
    assert run.machine == machine_name()


# --- both lanes start from the same cache state ---


@pytest.mark.parametrize("order", ORDERS)
def test_the_first_lane_never_warms_the_head_of_the_second(order):
    engine = engine_for()
    prepared = engine.prepare(Request(CONTEXT, SCHEMA))
    prompt, tree = len(prepared.whole), len(prepared.plan.tree.tokens)
    cold, warm = (finished(engine.race(CONTEXT, SCHEMA, order=order)) for _ in range(2))
    for events, cache in ((cold, "miss"), (warm, "hit")):
        assert {event.cache for event in (*of(events, "run"), *of(events, "lane_end"))} == {cache}
    after_head = len(prepared.after_head)
    assert [event.tokens for event in of(cold, "pass", "pcd")] == [prompt, tree]
    assert [event.tokens for event in of(warm, "pass", "pcd")] == [after_head + tree]
    assert [event.tokens for event in of(cold, "pass", "ar")] == [prompt]
    assert [event.tokens for event in of(warm, "pass", "ar")] == [after_head]
    assert (only(cold, "lane_end", "pcd").passes, only(warm, "lane_end", "pcd").passes) == (2, 1)


def test_a_race_without_a_cache_leaves_none():
    engine = engine_for()
    events = finished(engine.race(CONTEXT, SCHEMA, cache=False))
    assert {event.cache for event in (*of(events, "run"), *of(events, "lane_end"))} == {"off"}
    assert engine.run_parallel(CONTEXT, SCHEMA).cache == "miss"


# --- clocks ---


@pytest.mark.parametrize("order", ORDERS)
def test_a_lanes_time_is_the_sum_of_its_phases(order):
    engine = engine_for(pass_s=0.01)
    for _ in range(2):
        events = finished(engine.race(CONTEXT, SCHEMA, order=order))
        for lane in order:
            took = sum(event.took_ms for event in of(events, "phase", lane))
            before = only(events, "lane", lane).ms
            assert took <= only(events, "lane_end", lane).ms + 1e-6 <= took + before + 1e-3
        end = only(events, "lane_end", "ar")
        assert end.ms >= 10 * end.passes
        assert 10 * only(events, "lane_end", "pcd").passes <= only(events, "lane_end", "pcd").ms < end.ms
        assert only(events, "end").speed_up == end.ms / only(events, "lane_end", "pcd").ms


@pytest.mark.parametrize("order", ORDERS)
def test_a_lanes_events_never_run_backwards_and_never_past_its_end(order):
    events = finished(engine_for(pass_s=0.005).race(CONTEXT, SCHEMA, order=order))
    for lane in order:
        times = [
            e.ms for e in events if e.kind in ("lane", "pass", "phase", "field", "token", "lane_end") and e.lane == lane
        ]
        assert times == sorted(times)
        end = only(events, "lane_end", lane)
        assert all(row.ms <= end.ms for row in (*of(events, "row", lane), *of(events, "judged", lane)))


@pytest.mark.parametrize("order", ORDERS)
def test_ticks_come_in_the_middle_of_a_pass_within_their_lane_and_forwards(order):
    events = finished(engine_for(answer="{\n}", pass_s=0.3).race(CONTEXT, SCHEMA, order=order))
    for lane in order:
        ticks = [event.ms for event in of(events, "tick", lane)]
        assert len(ticks) >= 3 and ticks == sorted(ticks)
        start, end = events.index(only(events, "lane", lane)), events.index(only(events, "lane_end", lane))
        assert all(start < events.index(event) < end for event in of(events, "tick", lane))
        assert only(events, "lane", lane).ms < ticks[0] and ticks[-1] <= only(events, "lane_end", lane).ms


def test_a_page_that_drains_late_gets_one_tick_and_every_other_event():
    engine = engine_for(pass_s=0.03)
    race = engine.race(CONTEXT, SCHEMA)
    engine.owner.submit(lambda job: None).result()
    events = finished(race)
    assert len(of(events, "tick")) == 1
    assert len(of(events, "token")) == only(events, "lane_end", "ar").tokens


@pytest.mark.parametrize("order", ORDERS)
def test_the_end_counts_from_the_moment_the_run_was_asked_for(order):
    events = finished(engine_for(pass_s=0.01).race(CONTEXT, SCHEMA, order=order))
    lanes = sum(event.ms for event in of(events, "lane_end"))
    assert only(events, "end").ms >= only(events, "run").ms + lanes


# --- rows ---


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("pause_s", [0.0, 0.05, 0.5])
def test_the_last_rows_are_the_verdicts_on_the_whole_text(order, pause_s):
    events = finished(engine_for().race(CONTEXT, SCHEMA, order=order), pause_s)
    text = only(events, "lane_end", "ar").text
    assert text == ANSWER
    rows = final_rows(events)
    assert {name: row.flags for name, row in rows.items()} == FLAGS
    assert not any(row.partial for row in rows.values())
    assert [name for name, row in rows.items() if row.invented] == ["mood"]
    judged = of(events, "judged")[-1]
    expected = compare(SCHEMA, text, finished=True, values=VALUES)
    assert (judged.outcome, judged.counts) == ("parsed", dict(expected.counts))
    assert rows["mood"].text == '"生气 👩\u200d🚀"'


def test_rows_get_their_verdict_once_the_parallel_values_are_known():
    events = stepped(order=("ar", "pcd"))
    known = events.index(only(events, "lane_end", "pcd"))
    before, after = final_rows(events[:known]), final_rows(events[known:])
    assert before["risk"].flags == before["is_fraud"].flags == ()
    assert (before["tier"].flags, before["mood"].flags) == (("not_allowed",), ("invented",))
    assert (before["code"].flags, before["team"].flags) == (("omitted",), ("duplicate",))
    assert {name: row.flags for name, row in after.items()} == {
        name: FLAGS[name] for name in ("risk", "is_fraud", "team")
    }
    assert "differs" in of(events, "judged")[-1].counts and "differs" not in of(events[:known], "judged")[-1].counts


def test_rows_follow_the_text_as_it_is_written():
    events = stepped()
    seen = [(row.name, row.flags, row.partial) for row in of(events, "row")]
    assert ("risk", (), True) in seen  # half written
    assert seen.index(("risk", ("same",), False)) < seen.index(("is_fraud", ("differs",), False))
    written = "{\n"
    for event in events:
        if event.kind == "token":
            written += event.text
        elif event.kind == "row" and event.start >= 0:
            assert written[event.start : event.end].startswith(f'"{event.name}"')
    first = next(row for row in of(events, "row") if row.name == "risk" and row.flags == ("same",))
    assert ANSWER[first.start : first.end] == '"risk": "HIGH"'


def test_a_race_that_nobody_watches_can_tell_the_rows_as_they_stood_after_each_token():
    def told(events):
        return [(e.kind, getattr(e, "name", ""), getattr(e, "text", "")) for e in events if e.kind in ("token", "row")]

    events, watched = engine_for().race(CONTEXT, SCHEMA, cache=False).wait_for_each_row(), stepped()
    assert told(events) == told(watched)
    assert final_rows(events).keys() == FLAGS.keys() and events[-1].state == "done"
    token = None
    for event in events:
        token = event if event.kind == "token" else token
        if event.kind == "row":
            assert event.ms == token.ms, "a row is of the token that changed it"


def test_no_row_is_told_twice():
    events = stepped()
    for name in FLAGS:
        states = [
            (row.text, row.flags, row.partial, row.start, row.end) for row in of(events, "row") if row.name == name
        ]
        assert all(one != other for one, other in pairwise(states))


def test_a_lane_that_ran_into_its_limit_is_marked_beside_the_speed_up():
    events = finished(engine_for(answer='{\n  "risk": "' + "A" * 9000).race(CONTEXT, SCHEMA))
    assert only(events, "lane_end", "ar").how == "limit"
    assert only(events, "end").marks == ("limit", "truncated")
    assert of(events, "judged")[-1].outcome == "truncated"
    assert final_rows(events)["risk"].partial
    assert {row.flags for name, row in final_rows(events).items() if name != "risk"} == {("omitted",)}


def test_a_clean_run_carries_no_mark():
    clean = json.dumps(VALUES, indent=2)
    end = only(finished(engine_for(answer=clean).race(CONTEXT, SCHEMA)), "end")
    assert (end.state, end.message, end.marks) == ("done", "", ()) and end.speed_up > 0


@pytest.mark.parametrize("lane", ["pcd", "ar"])
def test_one_lane_alone_has_no_speed_up(lane):
    events = finished(engine_for().race(CONTEXT, SCHEMA, order=(lane,)))
    assert {event.lane for event in of(events, "lane_end")} == {lane}
    assert only(events, "end").state == "done" and only(events, "end").speed_up is None


# --- waiting ---


def test_a_run_that_waits_says_so_and_its_engine_time_does_not_include_it():
    engine = engine_for(answer="{\n}", pass_s=0.2)
    first, second = (engine.race(CONTEXT, SCHEMA, order=("pcd",)) for _ in range(2))
    events = finished(second)
    assert first.drain()[-1].kind == "end"
    assert [event.ahead for event in of(events, "waiting")] == [1]
    assert events[0].kind == "waiting"
    assert (
        only(events, "run").ms >= 2 * 200 > only(events, "lane_end", "pcd").ms
    )  # two passes of the first, one of its own
    assert only(events, "run").cache == "hit"


def test_neither_of_two_runs_sees_the_others_text():
    engine = engine_for(pass_s=0.001)
    races = [engine.race(f"text of user {user}", SCHEMA) for user in range(2)]
    for user, events in enumerate(map(finished, races)):
        assert only(events, "run").context == f"text of user {user}"
        assert only(events, "lane_end", "ar").text == ANSWER and only(events, "end").state == "done"


# --- stopping and failing ---


def test_stopping_ends_the_run_within_one_token_and_keeps_what_was_written():
    engine = engine_for(answer='{\n  "risk": "HIGH",\n  "x": "' + "A" * 9000, pass_s=0.01)
    race, events = engine.race(CONTEXT, SCHEMA), []
    while len(of(events, "token")) < 20:
        events += race.drain()
    passes = engine.backend.passes
    race.cancel()
    events += finished(race)
    assert engine.backend.passes <= passes + 1
    assert (only(events, "end").state, only(events, "end").speed_up) == ("stopped", None)
    assert events.index(only(events, "stopping")) < events.index(only(events, "end"))
    # What was not written yet is not held against the baseline.
    assert final_rows(events)["risk"].text == '"HIGH"' and not of(events, "judged")
    assert not any("omitted" in row.flags for row in of(events, "row"))
    assert engine.run_parallel(CONTEXT, SCHEMA).values == VALUES


def test_a_run_that_is_stopped_while_it_waits_is_over_at_once():
    engine = engine_for(pass_s=0.3)
    first, second = (engine.race(CONTEXT, SCHEMA, order=("pcd",)) for _ in range(2))
    second.cancel()
    events = second.drain()
    assert [event.kind for event in events] == ["end"] and events[0].state == "stopped" and second.finished
    assert not first.finished
    assert only(finished(first), "end").state == "done"
    assert engine.backend.passes == 2


class BreakingBackend(PreferringBackend):
    """Fails at a given pass."""

    def __init__(self, lexicon, breaks_at, error):
        super().__init__(lexicon)
        self.breaks_at, self.error = breaks_at, error

    def _pass(self):
        super()._pass()
        if self.passes == self.breaks_at:
            raise self.error


@pytest.mark.parametrize("breaks_at, lanes", [(1, []), (2, []), (3, ["pcd"]), (9, ["pcd"])])
def test_a_failure_ends_the_run_in_one_line_and_the_engine_lives_on(breaks_at, lanes):
    engine = engine_for(backend=BreakingBackend, breaks_at=breaks_at, error=RuntimeError("not a number\nat layer 3"))
    events = finished(engine.race(CONTEXT, SCHEMA))
    end = only(events, "end")
    assert (end.state, end.message, end.speed_up) == (
        "failed",
        "the engine failed: RuntimeError; the log has more",
        None,
    )
    assert [event.lane for event in of(events, "lane_end")] == lanes
    assert only(finished(engine.race(CONTEXT, SCHEMA)), "end").state == "done"


def test_a_failure_after_both_lanes_gives_no_speed_up(monkeypatch):
    def fail(prefix, length):
        raise MemoryError

    monkeypatch.setattr(HashPrefix, "head", fail)
    events = finished(engine_for().race(CONTEXT, SCHEMA))
    assert len(of(events, "lane_end")) == 2
    assert (only(events, "end").state, only(events, "end").speed_up) == ("failed", None)


@pytest.mark.parametrize(
    "options",
    [{"prior": "content_free"}, {"complete": False}, {"scoring": "full"}, {"complete": False, "cache": False}],
)
def test_a_race_takes_the_options_and_says_so(options):
    engine = engine_for()
    events = finished(engine.race(CONTEXT, SCHEMA, **options))
    run = only(events, "run")
    assert (run.prior, run.scoring) == (options.get("prior", "none"), options.get("scoring", "identify"))
    assert run.reading == ("best-first" if options.get("complete") is False else "complete")
    expected = engine_for().run_parallel(CONTEXT, SCHEMA, **options)
    assert {event.name: event.value for event in of(events, "field")} == expected.values
    assert [event.unread for event in of(events, "field")] == [d.unread for d in expected.decisions]
    after = engine.run_parallel(CONTEXT, SCHEMA, **options)
    states = (after.caches.head, after.caches.prior)
    assert states == ("off" if options.get("cache") is False else "hit", "hit" if "prior" in options else "off")


def test_a_race_on_fields_that_depend_on_others_tells_each_pass():
    schema = StructuredSchema({**SCHEMA.to_json(), "late": {"type": "boolean", "depends_on": ["risk"]}})
    events = finished(engine_for().race(CONTEXT, schema))
    ended = next(event for event in of(events, "lane_end") if event.lane == "pcd")
    passes = [event.passes for event in of(events, "pass") if event.lane == "pcd"]
    assert passes == [1, 2, 3] and ended.passes == 3
    assert only(events, "end").state == "done"


class SilentBackend(PreferringBackend):
    """Reads no numbers, as a float16 model does that overflows."""

    def read(self, *args):
        rows, prefix = super().read(*args)
        return [row * np.nan for row in rows], prefix


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_model_that_gives_no_numbers_ends_the_run_with_what_to_do():
    events = finished(engine_for(backend=SilentBackend).race(CONTEXT, SCHEMA))
    assert only(events, "end").state == "failed"
    assert only(events, "end").message.startswith(
        "field 'risk': the model gives no finite scores; load it with another dtype"
    )


def test_a_request_that_does_not_fit_ends_the_run_with_the_reason():
    head = len(engine_for().prepare(Request(CONTEXT, SCHEMA)).plan.prompt.head)
    engine = engine_for(window=head + 5)
    events = finished(engine.race(CONTEXT, SCHEMA))
    assert [event.kind for event in events] == ["end"] and events[0].state == "failed"
    assert events[0].message.startswith("the request needs ") and "\n" not in events[0].message
    assert engine.backend.passes == 0


def test_choices_that_a_tokenizer_cannot_tell_apart_end_the_run_with_the_reason():
    schema = StructuredSchema({"risk": {"type": "enum", "choices": TWINS}})
    (end,) = finished(Engine(HashBackend(lexicon("nfc")), "hash").race(CONTEXT, schema))
    assert end.state == "failed" and "become the same tokens" in end.message


# --- the trace ---


@pytest.mark.parametrize("order", ORDERS)
def test_a_saved_race_is_what_was_drained_without_its_live_events(tmp_path, order):
    engine = engine_for(pass_s=0.003)
    engine.owner.submit(lambda job: time.sleep(0.05))
    events = finished(engine.race(CONTEXT, SCHEMA, order=order))
    file = tmp_path / "race.jsonl"
    save(events, file)
    kept = [event for event in events if event.kind not in ("tick", "waiting")]
    assert len(kept) < len(events)
    assert [event.to_json() for event in load(file)] == [event.to_json() for event in kept]


def test_the_plain_iterator_gives_the_same_events_as_dicts():
    dicts = list(engine_for().race(CONTEXT, SCHEMA).dicts())
    events = [event for event in finished(engine_for().race(CONTEXT, SCHEMA)) if not event.live]
    untimed = [
        {key: value for key, value in one.items() if key != "ms"} for one in dicts if one["kind"] in ("field", "token")
    ]
    assert untimed == [
        {key: value for key, value in event.to_json().items() if key != "ms"}
        for event in events
        if event.kind in ("field", "token")
    ]
    assert (dicts[0]["kind"], dicts[-1]["kind"]) == ("run", "end")
    assert {one["kind"] for one in dicts} == {event.kind for event in events}
