"""`python -m core.benchmark`: every figure is what the traces say, and none is printed without what belongs to it."""

import csv
import errno
import inspect
import io
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from core import benchmark, micro, page_overhead
from core.benchmark import main
from core.engine import Engine
from core.figures import Spread, ms_text, percentile, ratio_text, summaries, summary_of
from core.interruption import interrupted_by_sigterm, interruptible
from core.lane_clock import LaneClock
from core.models import ModelNotFound
from core.presets import FOLDER, Preset
from core.report import Report, csv_cell, markdown_text
from core.request import Request
from core.schema import StructuredSchema
from core.setting import Setting
from core.trials import Benchmark, Case, Failure, Series, Trial
from core.whole_file import write_whole
from tests.fakes import HashBackend, PreferringBackend, lexicon

FIELDS = {
    "risk": {"type": "enum", "choices": ["HIGH", "LOW"]},
    "is_fraud": {"type": "boolean"},
    "tier": {"type": "enum", "choices": [1, 10, "1"]},
    "team": {"type": "enum", "choices": ["BILLING", "BILLING_DISPUTE"]},
}
VALUES = {"risk": "HIGH", "is_fraud": True, "tier": 1, "team": "BILLING_DISPUTE"}
CLEAN = json.dumps(VALUES, indent=2)
#: One of each: same, differs, not allowed, omitted, invented.
MIXED = '{\n  "risk": "HIGH",\n  "is_fraud": false,\n  "tier": 100,\n  "mood": "high"\n}'
ENDLESS = '{\n  "risk": "' + "A" * 9000
CONTEXT = "A text about nothing."
HOSTILE = '=cmd|\x1b[2J\u202egnp`<img src=x>`,"\n@x'


class Told(Engine):
    """An engine that remembers its races: what was asked, and what their traces hold."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.told = []

    def race(self, *given, **options):
        race = super().race(*given, **options)
        wait = race.wait

        def waited():
            events = wait()
            self.told.append((options, events))
            return events

        race.wait = waited
        return race


def engine_for(answer=CLEAN, kind=PreferringBackend, style="pretty", cache_entries=32, **options):
    """An engine whose model decides for VALUES and writes `answer`."""
    engine = Told(kind(lexicon("qwen"), **options), "preferring", why="a test", cache_entries=cache_entries)
    opening, line = ("{\n", "  {}: {},\n") if style == "pretty" else ('{"', '{}:{},"')
    members = ((json.dumps(name), json.dumps(value)) for name, value in VALUES.items())
    lines = [line.format(name if style == "pretty" else name[1:], value) for name, value in members]
    engine.backend.intend(answer.removeprefix(opening), *lines, before=f"assistant\n{opening}")
    return engine


def case_of(name="mine", context=CONTEXT, fields=FIELDS, **expected):
    return Case(name, context, StructuredSchema(fields), expected)


def plan_of(*cases, **options):
    return Benchmark(cases or (case_of(),), **{"modes": ("json",), "heads": ("warm",), "rounds": 1} | options)


def of(events, kind, lane=None):
    return [event for event in events if event.kind == kind and (lane is None or event.lane == lane)]


def only(events, kind, lane=None):
    (event,) = of(events, kind, lane)
    return event


# --- the plan ---


def test_rounds_go_round_modes_and_heads_and_the_lanes_take_turns_in_going_first():
    plan = plan_of(case_of("a"), case_of("b"), modes=("free", "schema"), heads=("cold", "warm"), rounds=2)
    turns = [(t.preset, t.round, t.mode, t.head, t.order[0]) for t in plan.turns]
    assert turns[:5] == [
        ("a", 1, "free", "cold", "pcd"),
        ("a", 1, "free", "warm", "pcd"),
        ("a", 1, "schema", "cold", "pcd"),
        ("a", 1, "schema", "warm", "pcd"),
        ("a", 2, "free", "cold", "ar"),
    ]
    assert len(turns) == len(set(turns)) == 2 * 2 * 2 * 2
    assert [preset for preset, *_ in turns] == ["a"] * 8 + ["b"] * 8


def test_interleaved_rounds_go_round_the_cases_too_and_half_of_a_round_starts_with_the_other_lane():
    cases = case_of("a"), case_of("b"), case_of("c")
    plan = plan_of(*cases, modes=("free", "json"), rounds=2, is_interleaved=True)
    assert [(turn.round, turn.preset, turn.mode, turn.order[0]) for turn in plan.turns] == [
        (number, name, mode, first)
        for number, firsts in ((1, ("pcd", "ar", "pcd")), (2, ("ar", "pcd", "ar")))
        for name, first in zip("abc", firsts, strict=True)
        for mode in ("free", "json")
    ]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"modes": ("json", "fast")}, "baseline mode 'fast' is unknown; use one of: free, json, schema"),
        ({"modes": ()}, "there is no baseline mode"),
        ({"modes": ("json", "json")}, "baseline mode 'json' is given twice"),
        ({"heads": ("hot",)}, "head 'hot' is unknown; use one of: cold, warm"),
        ({"style": "loose"}, "style 'loose' is unknown; use one of: pretty, compact"),
        ({"rounds": 0}, "rounds 0: give a number from 1 to 999"),
        ({"rounds": 1000}, "rounds 1000"),
        ({"cases": ()}, "there is no preset"),
        ({"cases": (case_of("a"), case_of("a"))}, "preset 'a' is given twice"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(options, words):
    with pytest.raises(ValueError, match=f"^{words}"):
        Benchmark(**{"cases": (case_of(),)} | options)


@pytest.mark.parametrize(
    "context, expected, words",
    [
        (" ", {}, "the context is empty"),
        (CONTEXT, ["risk"], "'expected' must be an object"),
        (CONTEXT, {"mood": "HIGH"}, "'expected' names 'mood', which is no field"),
        (CONTEXT, {"risk": "high"}, "'expected' has 'high' for 'risk', which is none of its choices"),
        (CONTEXT, {"is_fraud": "true"}, "'expected' has 'true' for 'is_fraud'"),
        (CONTEXT, {"tier": "10"}, "'expected' has '10' for 'tier'"),
        (CONTEXT, {"tier": 1.0}, "'expected' has 1.0 for 'tier'"),
        (CONTEXT, {"tier": [1]}, r"'expected' has \[1\] for 'tier'"),
    ],
)
def test_a_case_that_no_engine_could_race_is_refused_by_name(context, expected, words):
    with pytest.raises(ValueError, match=f"^mine: {words}"):
        Case("mine", context, StructuredSchema(FIELDS), expected)


# --- a trial ---


@pytest.mark.parametrize("style", ["pretty", "compact"])
@pytest.mark.parametrize("mode", ["free", "json", "schema"])
def test_a_trials_figures_are_those_of_its_trace(mode, style):
    answer = CLEAN if style == "pretty" else json.dumps(VALUES, separators=(",", ":"))
    engine = engine_for(answer, style=style)
    plan = plan_of(modes=(mode,), heads=("cold", "warm"), rounds=2, style=style)
    trials = list(Series(engine, plan))
    assert len(engine.told) == 1 + len(trials) == 5, "a warm-up race, and one for each turn"
    for trial, turn, (asked, events) in zip(trials, plan.turns, engine.told[1:], strict=True):
        assert {name: getattr(trial, name) for name in vars(turn)} == vars(turn)
        assert (asked["order"], asked["mode"], asked["style"]) == (turn.order, mode, style)
        run, pcd, ar = only(events, "run"), only(events, "lane_end", "pcd"), only(events, "lane_end", "ar")
        assert (run.mode, run.style, run.order, run.cache) == (mode, style, turn.order, trial.cache)
        assert (trial.pcd_ms, trial.ar_ms, trial.speed_up) == (pcd.ms, ar.ms, ar.ms / pcd.ms)
        assert (trial.pcd_passes, trial.ar_passes) == (
            of(events, "pass", "pcd")[-1].passes,
            of(events, "token")[-1].passes,
        )
        tokens = of(events, "token")
        assert (trial.ar_tokens, trial.ar_forced) == (len(tokens), sum(token.forced for token in tokens))
        assert (trial.first_token_ms, trial.how) == (tokens[0].ms, ar.how)
        assert (trial.agree, trial.outcome, trial.keeps_schema) == (4, "parsed", True)
        assert trial.pcd_phases.keys() == {event.phase for event in of(events, "phase", "pcd")}
        assert trial.ar_phases.keys() == {"prefill", "decode", "mask", "detokenise"}
    cold = [(trial, events) for trial, (_, events) in zip(trials, engine.told[1:], strict=True) if trial.head == "cold"]
    for trial, events in cold:
        prompt, tree = (event.tokens for event in of(events, "pass", "pcd"))
        assert (trial.prompt_tokens, trial.tree_tokens) == (prompt, tree)
    assert {trial.prompt_tokens for trial in trials} == {cold[0][0].prompt_tokens}


@pytest.mark.parametrize(
    "answer, expected, found",
    [  # outcome, keeps_schema, agree, pcd_right, ar_right
        (CLEAN, VALUES, ("parsed", True, 4, 4, 4)),
        (CLEAN, {"risk": "LOW", "tier": "1"}, ("parsed", True, 4, 0, 0)),
        (MIXED, {"risk": "HIGH", "is_fraud": False}, ("parsed", False, 1, 1, 2)),
        (MIXED, {}, ("parsed", False, 1, 0, 0)),
        (CLEAN[:-2] + ',\n  "mood": 1\n}', {}, ("parsed", False, 4, 0, 0)),
        (ENDLESS, {"is_fraud": True}, ("truncated", False, 0, 1, 0)),
    ],
)
def test_what_was_written_is_compared_with_the_other_lane_and_with_what_is_expected(answer, expected, found):
    (trial,) = Series(engine_for(answer), plan_of(case_of(**expected)))
    assert found == (trial.outcome, trial.keeps_schema, trial.agree, trial.pcd_right, trial.ar_right)
    assert (trial.fields, trial.expected) == (4, len(expected))
    assert trial.how == ("limit" if answer == ENDLESS else "closed")


def test_a_text_that_is_no_json_is_said_to_be_none():
    (trial,) = Series(engine_for('{\n  "risk": HIGH\n}'), plan_of(modes=("free",)))
    assert (trial.outcome, trial.how, trial.keeps_schema) == ("not_parsable", "closed", False)


@pytest.mark.parametrize("cache, read", [(False, ("head + context", "tree")), (True, ("context + tree",))])
def test_every_phase_is_told_and_together_they_are_what_another_clock_says(cache, read):
    engine, told, took = engine_for(pass_s=0.2), {"pcd": [], "ar": []}, {}
    engine.run_parallel(CONTEXT, case_of().schema)

    def lanes(job):
        started = time.perf_counter()
        prepared = engine.prepare(Request(CONTEXT, case_of().schema, cache=cache))
        engine.parallel(prepared, LaneClock(lambda: None, plan=prepared.took_ms), job, told["pcd"].append)
        between = time.perf_counter()
        engine.write(prepared, "schema", LaneClock(lambda: None), job, told["ar"].append)
        took["pcd"], took["ar"] = (between - started) * 1e3, (time.perf_counter() - between) * 1e3

    engine.owner.submit(lanes).result()
    phases = {lane: {event.phase: event.took_ms for event in of(events, "phase")} for lane, events in told.items()}
    assert tuple(phases["pcd"]) == ("plan", *read, "scoring", "assembly")
    assert tuple(phases["ar"]) == ("prefill", "decode", "mask", "detokenise")
    for lane in ("pcd", "ar"):
        assert sum(phases[lane].values()) == pytest.approx(took[lane], rel=0.03)


def test_phases_that_come_several_times_are_summed():
    fields = FIELDS | {"team": FIELDS["team"] | {"depends_on": ["risk"]}}
    engine = engine_for()
    (trial,) = Series(engine, plan_of(case_of(fields=fields)))
    told = of(engine.told[-1][1], "phase", "pcd")
    scoring = [event.took_ms for event in told if event.phase == "scoring"]
    assert len(scoring) == 2 and trial.pcd_phases["scoring"] == sum(scoring)


def test_cold_lanes_use_no_cache_and_warm_ones_start_after_the_head_from_the_first_round_on():
    trials = list(Series(engine_for(), plan_of(heads=("cold", "warm"), rounds=2)))
    assert [(trial.head, trial.cache, trial.pcd_passes) for trial in trials] == 2 * [
        ("cold", "off", 2),
        ("warm", "hit", 1),
    ]
    assert [trial.round for trial in trials] == [1, 1, 2, 2]


@pytest.mark.parametrize("head, state", [("warm", "hit"), ("cold", "off")])
def test_a_head_that_other_cases_drive_out_is_made_again_before_the_race_that_counts(head, state):
    engine = engine_for(cache_entries=1)
    cases = [case_of(name, fields={name: {"type": "boolean"}}) for name in "abc"]
    trials = list(Series(engine, plan_of(*cases, heads=(head,), rounds=2, is_interleaved=True)))
    assert [(trial.preset, trial.cache) for trial in trials] == [(name, state) for name in "abcabc"]
    # A warm-up each, a race each in both rounds, and in the second round one that brings a warm head back.
    assert len(engine.told) == 3 + 6 + (3 if head == "warm" else 0)
    contexts = [only(events, "run").names for _, events in engine.told]
    assert contexts[:6] == [(name,) for name in "aabbcc"], "each warm-up comes just before the case's first race"


@pytest.mark.parametrize("modes", [("free", "schema"), ("schema", "free"), ("free",)])
def test_the_warm_up_is_in_the_mode_that_has_the_most_to_cache(modes):
    engine = engine_for()
    list(Series(engine, plan_of(modes=modes)))
    assert engine.told[0][0]["mode"] == ("schema" if "schema" in modes else "free")


def test_a_race_that_fails_is_told_as_such_and_the_rest_goes_on():
    engine = engine_for(window=600)
    cases = case_of("long", context="word " * 600), case_of("short")
    found = list(Series(engine, plan_of(*cases, rounds=2)))
    assert [type(one) for one in found] == [Failure, Failure, Trial, Trial]
    assert [one.preset for one in found] == ["long", "long", "short", "short"]
    assert "the window of preferring holds 600" in found[0].message


class Breaking(PreferringBackend):
    """A device that fails during a certain pass."""

    break_at = 0

    def _pass(self):
        super()._pass()
        if self.passes == self.break_at:
            raise RuntimeError("not a number")


def test_an_engine_that_breaks_once_costs_one_race():
    engine = engine_for(kind=Breaking)
    found = []
    for one in Series(engine, plan_of(rounds=3)):
        found.append(one)
        engine.backend.break_at = engine.backend.passes + 1 if len(found) == 1 else 0
    assert [type(one) for one in found] == [Trial, Failure, Trial]
    assert found[1].message == "the engine failed: RuntimeError; the log has more"


# --- stopping ---


class Gated(PreferringBackend):
    """Waits in each pass once it is closed, until it is opened again."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.open, self.reached = threading.Event(), threading.Event()
        self.open.set()

    def _pass(self):
        super()._pass()
        if not self.open.is_set():
            self.reached.set()
            self.open.wait()


def test_a_series_is_cancelled_from_another_thread_in_the_middle_of_a_race():
    engine = engine_for(kind=Gated)
    series = Series(engine, plan_of(rounds=3))
    found = [next(iter(series))]
    engine.backend.open.clear()

    def stop():
        engine.backend.reached.wait()
        series.cancel()
        engine.backend.open.set()

    thread = threading.Thread(target=stop)
    thread.start()
    found += series
    thread.join()
    assert [(type(one), one.round) for one in found] == [(Trial, 1)]
    assert len(engine.told) == 3 and only(engine.told[-1][1], "end").state == "stopped"
    assert list(series) == []


@pytest.mark.parametrize("before", [0, 1])
def test_a_series_that_is_cancelled_between_races_asks_nothing_more_of_the_model(before):
    engine = engine_for()
    series = Series(engine, plan_of(rounds=3))
    found = [next(iter(series)) for _ in range(before)]
    passes = engine.backend.passes
    series.cancel()
    assert list(series) == [] and len(found) == before
    assert engine.backend.passes == passes


def test_a_series_that_is_left_by_an_exception_stops_the_engine(monkeypatch):
    engine = engine_for(kind=Gated)
    series = Series(engine, plan_of())
    races = []
    race_of = engine.race

    def race(*given, **options):
        races.append(race_of(*given, **options))
        engine.backend.open.clear()

        def interrupted():
            engine.backend.reached.wait()
            raise KeyboardInterrupt

        races[-1].wait = interrupted
        return races[-1]

    monkeypatch.setattr(engine, "race", race)
    with pytest.raises(KeyboardInterrupt):
        list(series)
    engine.backend.open.set()
    engine.owner.submit(lambda _: None).result()
    assert [only([event], "end").state for event in races[0].drain()[-1:]] == ["stopped"]
    assert engine.backend.passes == 1


# --- figures ---

TRIAL = Trial(
    preset="mine",
    mode="json",
    style="pretty",
    head="warm",
    order=("pcd", "ar"),
    round=1,
    cache="hit",
    strategy="tree",
    reading="complete",
    pcd_ms=10.0,
    ar_ms=40.0,
    pcd_passes=1,
    ar_passes=20,
    prompt_tokens=300,
    tree_tokens=30,
    ar_tokens=20,
    ar_forced=5,
    first_token_ms=8.0,
    tokens_per_s=50.0,
    how="closed",
    outcome="parsed",
    keeps_schema=True,
    fields=4,
    agree=4,
    expected=2,
    pcd_right=2,
    ar_right=1,
    pcd_phases={"plan": 1.0, "tree": 9.0},
    ar_phases={"prefill": 8.0, "decode": 32.0},
)


def timed(pcd_ms, ar_ms, **changed):
    return replace(
        TRIAL, pcd_ms=pcd_ms, ar_ms=ar_ms, pcd_phases={"tree": pcd_ms}, ar_phases={"decode": ar_ms}, **changed
    )


@pytest.mark.parametrize(
    "values, percent, expected",
    [([7.0], 95, 7.0), ([3.0, 1.0, 2.0], 50, 2.0), ([1.0, 2.0, 3.0, 4.0], 50, 2.0), (list(range(1, 101)), 95, 95)],
)
def test_a_percentile_is_the_nearest_rank(values, percent, expected):
    assert percentile(values, percent) == expected


@pytest.mark.parametrize("seed", range(30))
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(seed):
    chance = random.Random(seed)
    values = [chance.choice([chance.random(), 0.5]) for _ in range(chance.randrange(1, 60))]
    percent = chance.choice([1, 50, 90, 95, 99, 100])
    enough = [v for v in values if sum(other <= v for other in values) * 100 >= percent * len(values)]
    assert percentile(values, percent) == min(enough)
    if len(values) < 20:
        assert percentile(values, 95) == max(values)


def test_a_summary_compares_medians_and_gives_the_range_of_single_rounds():
    row = summary_of([timed(10.0, 20.0), timed(20.0, 60.0), timed(40.0, 70.0)])
    assert (row.pcd, row.ar) == (Spread(20.0, 40.0, 10.0), Spread(60.0, 70.0, 20.0))
    assert row.speed_up == 3.0
    assert (row.least_speed_up, row.largest_speed_up) == (1.75, 3.0)
    assert (row.n, row.pcd_phases, row.ar_phases) == (3, {"tree": 20.0}, {"decode": 60.0})


def test_counts_of_a_summary_are_those_of_the_median_trial_and_verdicts_are_counted():
    names = ("pcd_passes", "ar_passes", "tree_tokens", "ar_tokens", "ar_forced", "agree", "pcd_right", "ar_right")
    trials = [replace(TRIAL, **{name: 10 * i + n for i, name in enumerate(names)}) for n in (3, 1, 2)]
    trials[1] = replace(trials[1], keeps_schema=False, first_token_ms=6.0, tokens_per_s=None)
    trials[2] = replace(trials[2], keeps_schema=False, outcome="not_parsable", first_token_ms=7.0)
    row = summary_of(trials)
    assert [getattr(row, name) for name in names] == [10 * i + 2 for i in range(len(names))]
    assert (row.parsed, row.keeps_schema, row.limit_hits) == (2, 1, 0)
    assert (row.first_token_ms, row.tokens_per_s) == (7.0, 50.0)
    assert (row.prompt_tokens, row.fields, row.expected, row.caches) == (300, 4, 2, ("hit",))
    assert row.readings == ("complete",)
    assert summary_of(trials[:2]).ar_forced == 41, "of an even number the lower, so that it is one that occurred"


def test_a_phase_that_a_trial_does_not_have_took_no_time_there():
    trials = [replace(TRIAL, pcd_phases={"plan": 1.0}), replace(TRIAL, pcd_phases={"tree": 4.0}), TRIAL]
    assert summary_of(trials).pcd_phases == {"plan": 1.0, "tree": 4.0}


def test_each_preset_mode_and_head_has_a_row_and_a_failed_race_is_in_no_figure():
    failed = Failure("mine", "json", "pretty", "warm", ("ar", "pcd"), 2, "no memory")
    gone = replace(failed, preset="gone")
    trials = [TRIAL, failed, replace(TRIAL, head="cold", cache="off"), replace(TRIAL, mode="free"), TRIAL, gone]
    rows = summaries(trials)
    assert [(row.mode, row.head, row.n, row.failures) for row in rows] == [
        ("json", "warm", 2, 1),
        ("json", "cold", 1, 0),
        ("free", "warm", 1, 0),
    ]


@pytest.mark.parametrize(
    "trials, failures, marks",
    [
        ([TRIAL], 0, ()),
        ([replace(TRIAL, head="cold", cache="off")], 0, ()),
        ([timed(10.0, 9.9999)], 0, ("PCD is slower (0.99x)",)),
        ([timed(10.0, 10.0)], 0, ()),
        (
            [TRIAL, replace(TRIAL, how="limit", outcome="truncated")],
            0,
            ("1 of 2 baseline texts ran into the token limit",),
        ),
        ([TRIAL, replace(TRIAL, outcome="not_parsable")], 0, ("1 of 2 baseline texts are no whole JSON",)),
        ([replace(TRIAL, how="end_of_turn", outcome="truncated")], 0, ("1 of 1 baseline texts are no whole JSON",)),
        ([TRIAL, replace(TRIAL, cache="miss")], 0, ("not warm: the head was hit, miss",)),
        ([TRIAL], 2, ("2 races failed",)),
    ],
)
def test_what_must_stand_beside_a_ratio_is_said_in_words(trials, failures, marks):
    assert summary_of(trials, failures).marks == marks


@pytest.mark.parametrize(
    "ms, text", [(4.214, "4.21"), (9.996, "10.0"), (42.14, "42.1"), (99.96, "100"), (4210.4, "4,210"), (0.0, "0.00")]
)
def test_milliseconds_have_three_digits_that_count(ms, text):
    assert ms_text(ms) == text


@pytest.mark.parametrize(
    "ratio, text", [(0.4, "0.40x"), (0.9999, "0.99x"), (1.0, "1.0x"), (4.21, "4.2x"), (19.26, "19.3x"), (99.7, "100x")]
)
def test_a_ratio_below_1_never_looks_like_1(ratio, text):
    assert ratio_text(ratio) == text


# --- the report ---

SETTING = Setting(
    "some-model",
    "a test",
    "torch",
    "cpu (2 threads)",
    "bfloat16",
    "A CPU, 2 cores",
    "2026-11-30T10:00:00+00:00",
    {},
    40.0,
)


def report_of(*trials, is_whole=True, cases=(), **options):
    plan = plan_of(*(cases or (case_of(),)), modes=("free", "json", "schema"), heads=("cold", "warm"), **options)
    return Report(SETTING, plan, trials, is_whole)


def test_a_table_says_where_it_was_measured_and_fits_a_terminal():
    large = timed(1234.5, 98765.4, how="limit", outcome="truncated", ar_tokens=1234, ar_passes=1234, agree=2)
    lines = report_of(large, replace(large, mode="schema", head="cold", ar_forced=999)).plain().splitlines()
    assert max(map(len, lines)) <= 120
    assert lines[0] == "some-model (a test), torch on cpu (2 threads), bfloat16"
    assert "A CPU, 2 cores; 2026-11-30" in lines[1]
    assert lines[2].startswith("n = 1 round after a warm-up race, PCD first") and lines[2].endswith("style pretty")
    (row,) = [line for line in lines if line.startswith("json ")]
    assert row.split()[:9] == ["json", "warm", "1", "1,234", "1,234", "98,765", "98,765", "80.0x*", "-"]
    assert "* json, warm: 1 of 1 baseline texts ran into the token limit" in lines
    assert "mine: fields 4, 2 with a known answer; prompt 300 tokens; reading complete" in lines


def test_a_markdown_table_has_a_row_for_each_summary_and_says_where_it_was_measured():
    trials = [TRIAL, timed(10.0, 5.0, head="cold", cache="off", reading="best-first")]
    caption, _, heading, rule, *rows, _, legend = report_of(*trials).markdown().splitlines()
    assert caption.startswith("some-model (a test), torch on cpu (2 threads), bfloat16; A CPU, 2 cores; 2026-11-30")
    assert "n = 1 round after" in caption and "free, json, schema" in caption and caption.endswith("style pretty.")
    assert {line.count("|") for line in (heading, rule, *rows)} == {heading.count("|")}
    assert [row.split(" | ")[6] for row in rows] == ["4.0x (-)", "0.50x\\* (-)"]
    assert rows[1].endswith("| best-first | PCD is slower (0.50x) |") and rows[0].endswith("| complete |  |")
    assert legend.startswith("ms: engine time")


def test_files_hold_every_race_and_the_last_line_only_the_summaries():
    failed = Failure("mine", "free", "pretty", "warm", ("ar", "pcd"), 2, "no memory")
    found = report_of(TRIAL, failed, replace(TRIAL, round=3))
    shape = json.loads(json.dumps(found.to_json(trials=True), allow_nan=False))
    assert [trial["round"] for trial in shape["trials"]] == [1, 3]
    assert [failure["message"] for failure in shape["failures"]] == ["no memory"]
    assert shape["trials"][0]["pcd_phases"] == TRIAL.pcd_phases
    assert "trials" not in found.to_json() and found.to_json()["summaries"] == shape["summaries"]
    rows = list(csv.DictReader(io.StringIO(found.csv())))
    assert [(row["round"], row["pcd_ms"], row["message"]) for row in rows] == [
        ("1", "10.0", ""),
        ("2", "", "no memory"),
        ("3", "10.0", ""),
    ]
    assert (rows[0]["order"], rows[0]["pcd_tree_ms"], rows[0]["ar_decode_ms"]) == ("pcd then ar", "9.0", "32.0")
    assert (rows[1]["model"], rows[1]["dtype"]) == ("some-model", "bfloat16")


def test_a_phase_called_head_and_context_has_a_column_of_its_own():
    trial = replace(TRIAL, pcd_phases={"head + context": 4.0, "context + tree": 6.0})
    (row,) = csv.DictReader(io.StringIO(report_of(trial).csv()))
    assert (row["pcd_head_context_ms"], row["pcd_context_tree_ms"]) == ("4.0", "6.0")


def test_a_report_that_was_stopped_says_how_far_it_came():
    text = report_of(TRIAL, is_whole=False)
    assert "stopped after 1 of 6 races" in text.plain() and "stopped after 1 of 6 races" in text.markdown()
    assert text.to_json()["is_whole"] is False
    empty = report_of(is_whole=False)
    assert "stopped after 0 of 6 races" in empty.plain() and empty.to_json()["summaries"] == []
    assert list(csv.DictReader(io.StringIO(empty.csv()))) == []


def test_failed_races_are_counted_by_what_went_wrong():
    failed = Failure("mine", "free", "pretty", "warm", ("ar", "pcd"), 2, "no memory")
    lines = report_of(TRIAL, failed, replace(failed, mode="json"), replace(failed, message="other")).plain()
    assert "failed: mine, 2 races: no memory" in lines and "failed: mine, 1 race: other" in lines


@pytest.mark.parametrize("overhead, tokens", [(math.inf, None), (36.5, 36.5)])
def test_what_a_pass_costs_stands_beside_the_figures_where_it_was_measured(overhead, tokens):
    engine = engine_for()
    engine.pass_overhead = overhead
    found = replace(report_of(TRIAL, replace(TRIAL, reading="best-first")), setting=Setting.here(engine))
    shape = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert shape["pass_overhead"] == tokens and shape["summaries"][0]["readings"] == ["best-first", "complete"]


def test_hostile_names_and_messages_are_only_shown():
    failed = Failure(HOSTILE, "free", "pretty", "warm", ("ar", "pcd"), 2, HOSTILE)
    found = report_of(replace(TRIAL, preset=HOSTILE), failed, cases=(case_of(HOSTILE),))
    for text in (found.plain(), found.markdown(), found.csv(), json.dumps(found.to_json(trials=True))):
        assert all(c.isprintable() or c in "\r\n" for c in text)
    rows = list(csv.DictReader(io.StringIO(found.csv())))
    assert len(rows) == 2 and all(row["preset"].startswith("'=cmd|\\x1b[2J\\u202egnp") for row in rows)
    assert json.loads(json.dumps(found.to_json()))["summaries"][0]["preset"] == HOSTILE
    _, _, heading, _, row, *_ = found.markdown().splitlines()
    assert row.count("|") == heading.count("|") and "cmd" in row and not set(row) & set("<`@")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", " =1", "＝1", "\n-1"])
def test_a_spreadsheet_computes_nothing_from_a_text(text):
    assert csv_cell(text).startswith("'")


@pytest.mark.parametrize("value", ["fintech_fraud", "", 1, 2.5, None, True, "a=b"])
def test_other_cells_are_what_they_are(value):
    assert csv_cell(value) == value


def test_markdown_makes_nothing_of_a_text():
    assert markdown_text("fintech_fraud (2 cores), 5%") == "fintech_fraud (2 cores), 5%"
    shown = markdown_text(r"a|b `c` <i> *d* [e](http://f) &amp; \ @g #1 ~h~ $i$")
    assert not set(shown) & set("|`<>*[]\\@~$:") and "&amp;" not in shown
    assert markdown_text("__init__ www.x") == "&#95;&#95;init&#95;&#95; www&#46;x"


def test_a_file_is_written_whole_or_left_as_it_was(tmp_path, monkeypatch):
    file, link = tmp_path / "report.json", tmp_path / "link.json"
    file.write_text("old")
    link.symlink_to(file)

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            write_whole(file, "new")
    assert file.read_text() == "old" and len(list(tmp_path.iterdir())) == 2
    write_whole(link, "new")
    assert file.read_text() == "new" and link.is_symlink()
    write_whole(file, b"\x89PNG\r\n")
    assert file.read_bytes() == b"\x89PNG\r\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.json", "report.json"]


# --- the command ---


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs the command on a preset `mine.json` and a model that prefers: exit code, stdout and stderr."""
    engines = [engine_for()]

    def load(*_, **__):
        return engines[-1]

    monkeypatch.setattr(Engine, "load", load)
    monkeypatch.chdir(tmp_path)
    preset = {"context": CONTEXT, "schema": FIELDS, "expected": {"risk": "HIGH", "is_fraud": False}}
    (tmp_path / "mine.json").write_text(json.dumps(preset))

    def ran(*arguments):
        code = main(list(arguments))
        return code, *capsys.readouterr()

    ran.engines, ran.folder = engines, tmp_path
    return ran


def test_the_command_prints_a_table_and_ends_with_one_line_of_json(command):
    code, out, err = command("--preset", "mine.json", "--modes", "json,schema", "--rounds", "2")
    assert code == 0
    *table, last = out.splitlines()
    shape = json.loads(last)
    assert [(row["mode"], row["head"], row["n"]) for row in shape["summaries"]] == [
        ("json", "cold", 2),
        ("json", "warm", 2),
        ("schema", "cold", 2),
        ("schema", "warm", 2),
    ]
    assert (shape["model"], shape["dtype"], shape["style"], shape["is_whole"]) == (
        "preferring",
        "float64",
        "pretty",
        True,
    )
    assert "mine: fields 4, 2 with a known answer; prompt" in "\n".join(table)
    assert sum(line.startswith(("json", "schema")) for line in table) == 4
    assert err.splitlines()[0] == "8 races, and 1 to warm up"
    assert err.splitlines()[-1].startswith("8 of 8: mine, schema, warm, round 2: PCD ")


def test_the_command_writes_files_with_every_race(command):
    (command.folder / "races.csv").write_text("of yesterday")
    code, out, _ = command(
        "--request", "mine.json", "--modes", "json", "--rounds", "2", "--style", "compact", "--markdown",
        "--csv", "races.csv", "--json", "report.json",
    )  # fmt: skip
    assert code == 0 and "| mine | json | cold | 2 |" in out and "style compact" in out
    shape = json.loads((command.folder / "report.json").read_text())
    rows = list(csv.DictReader((command.folder / "races.csv").open(newline="")))
    assert len(rows) == len(shape["trials"]) == 4
    assert [float(row["pcd_ms"]) for row in rows] == [trial["pcd_ms"] for trial in shape["trials"]]
    assert {trial["style"] for trial in shape["trials"]} == {"compact"}
    assert sorted(path.name for path in command.folder.iterdir()) == ["mine.json", "races.csv", "report.json"]


def test_all_presets_are_raced_where_none_is_named(command, monkeypatch):
    asked = []
    monkeypatch.setattr(benchmark, "_races", lambda engine, plan, given: asked.append(plan) or 0)
    assert command()[0] == 0
    (plan,) = asked
    assert [case.name for case in plan.cases] == sorted(file.stem for file in FOLDER.glob("*.json"))
    assert (plan.modes, plan.heads, plan.rounds, plan.style) == (
        ("free", "json", "schema"),
        ("cold", "warm"),
        5,
        "pretty",
    )
    (fraud,) = (case for case in plan.cases if case.name == "fintech_fraud")
    assert fraud.expected == Preset.load(FOLDER / "fintech_fraud.json").expected and fraud.expected


def test_a_preset_of_ours_keeps_its_name_whatever_lies_in_the_folder(command, monkeypatch):
    (command.folder / "fintech_fraud").write_text("{}")
    asked = []
    monkeypatch.setattr(benchmark, "_races", lambda engine, plan, given: asked.append(plan) or 0)
    assert command("--preset", "fintech_fraud", "mine.json")[0] == 0
    assert command("--preset", "fintech_fraud,mine.json")[0] == 0
    assert command("--preset", "fintech_fraud", "--preset", "mine.json")[0] == 0
    for plan in asked:
        assert [(case.name, len(case.schema)) for case in plan.cases] == [("fintech_fraud", 4), ("mine", 4)]


def test_the_command_ends_with_3_where_races_failed(command):
    command.engines.append(engine_for(window=500))
    preset = {"context": "word " * 600, "schema": FIELDS}
    (command.folder / "long.json").write_text(json.dumps(preset))
    code, out, err = command(
        "--preset", "long.json", "mine.json", "--modes", "json", "--heads", "warm", "--rounds", "1"
    )
    assert code == 3
    assert "failed: long, 1 race: the request needs" in out and "mine: fields 4" in out
    assert [row["preset"] for row in json.loads(out.splitlines()[-1])["summaries"]] == ["mine"]
    assert "1 of 2: long, json, warm, round 1: failed: the request needs" in err


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--preset", "mine"], "preset 'mine' is unknown; use one of: code_audit, content_moderation"),
        (["--preset", "code_audit,"], "preset '' is unknown"),
        (["--preset", "\x1b[2J"], "preset '\\x1b[2J' is unknown"),
        (["--preset", "none.json"], "none.json: No such file or directory; give the path of a preset file"),
        (["--preset", "mine.json", "./mine.json"], "preset 'mine' is given twice"),
        (["--preset", "bad.json"], "bad.json: a preset is a JSON object with 'context' and 'schema'"),
        (["--preset", "wrong.json"], "wrong: 'expected' names 'mood', which is no field"),
        (["--request", "."], "Is a directory; give the path of a preset file"),
        (["--json", "none/report.json"], "none: is no folder; make it or give another --json"),
        (["--csv", "."], ".: is no file; give the path of one as --csv"),
        (["--csv", "/dev/null"], "/dev/null: is no file"),
        (["--csv", "a.txt", "--json", "./a.txt"], "a.txt: is --json already; give another --csv"),
        (["--preset", "mine.json", "--json", "mine.json"], "mine.json: is an input; give another --json"),
        (["--json", str(FOLDER / "code_audit.json")], "code_audit.json: is an input; give another --json"),
        (["--scaling", "fields", "--json", "none/x"], "none: is no folder"),
        (["--scaling", "fields", "--plot", "x.gif"], "x.gif"),
        (["--micro", "--preset", "none"], "preset 'none' is unknown"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line_before_a_model_is_loaded(command, monkeypatch, arguments, words):
    (command.folder / "bad.json").write_text("[]")
    (command.folder / "wrong.json").write_text(
        json.dumps({"context": CONTEXT, "schema": FIELDS, "expected": {"mood": "x"}})
    )
    monkeypatch.delattr(Engine, "load")
    before = {path.name: path.read_bytes() for path in command.folder.iterdir()}
    code, out, err = command(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith("error: ") and words in err and err.count("\n") == 1 and err.removesuffix("\n").isprintable()
    assert {path.name: path.read_bytes() for path in command.folder.iterdir()} == before


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--modes", "fast"], "baseline mode 'fast' is unknown; use one of: free, json, schema"),
        (["--modes", "json,"], "baseline mode '' is unknown"),
        (["--modes", "json,json"], "baseline mode 'json' is given twice"),
        (["--scaling", "fields", "--modes", "fast"], "baseline mode 'fast' is unknown"),
        (["--heads", "hot"], "head 'hot' is unknown; use one of: cold, warm"),
        (["--style", "loose"], "invalid choice: 'loose'"),
        (["--rounds", "0"], "rounds 0: give a number from 1 to 999"),
        (["--micro", "--rounds", "1000"], "rounds 1000: give a number from 1 to 999"),
        (["--rounds", "x"], "invalid int value: 'x'"),
        (["--preset", "a", "--request", "b"], "not allowed with argument"),
        (["--micro", "--ui-overhead"], "not allowed with argument"),
        (["--micro", "--csv", "x"], "--csv is not for --micro"),
        (["--micro", "--style", "compact"], "--style is not for --micro"),
        (["--micro", "--preset", "a", "b"], "--micro is for one of --preset"),
        (["--micro", "--preset", "a,b"], "--micro is for one of --preset"),
        (["--micro", "--backend", "mlx"], "--micro measures parts of the torch backend"),
        (["--plot", "x.png"], "--plot is not for races"),
        (["--scaling", "size"], "invalid choice: 'size'"),
        (["--scaling", "fields", "--markdown"], "--markdown is not for --scaling"),
        (["--scaling", "fields", "--heads", "cold,warm"], "--scaling is for one of --heads"),
        (["--ui-overhead", "--modes", "free,json"], "--ui-overhead is for one of --modes"),
    ],
)
def test_wrong_usage_ends_with_2_before_a_model_is_loaded(command, monkeypatch, capsys, arguments, words):
    monkeypatch.delattr(Engine, "load")
    with pytest.raises(SystemExit) as stopped:
        command(*arguments)
    assert stopped.value.code == 2 and words in capsys.readouterr().err


def test_a_model_that_is_not_there_is_one_error(command, monkeypatch):
    def load(*_, **__):
        raise ModelNotFound("model 'x' is not known;\nuse another")

    monkeypatch.setattr(Engine, "load", load)
    assert command("--preset", "mine.json") == (1, "", "error: model 'x' is not known; use another\n")


class Interrupted(PreferringBackend):
    """A signal comes during a certain pass, which goes on for longer than figures are printed."""

    stop_at, number, is_inside = 0, signal.SIGINT, False

    def _pass(self):
        super()._pass()
        if self.passes == self.stop_at:
            self.is_inside = True
            signal.pthread_kill(threading.main_thread().ident, self.number)
            time.sleep(0.5)
            self.is_inside = False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_prints_and_writes_what_is_finished_and_stops_the_engine(command, monkeypatch, number):
    engine = engine_for(kind=Interrupted)
    command.engines.append(engine)
    engine.backend.number = number
    race = engine.race

    def third(*given, **options):
        if len(engine.told) == 3:  # after the warm-up and two that count
            engine.backend.stop_at = engine.backend.passes + 3
        return race(*given, **options)

    monkeypatch.setattr(engine, "race", third)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    arguments = ["--preset", "mine.json", "--modes", "json", "--heads", "warm", "--rounds", "9"]
    code, out, err = command(*arguments, "--csv", "races.csv", "--json", "report.json")
    assert not engine.backend.is_inside, "a thread that dies inside a pass takes the process along"
    assert code == 130 and "stopped after 2 of 9 races" in out
    assert json.loads(out.splitlines()[-1])["summaries"][0]["n"] == 2
    assert len(list(csv.DictReader((command.folder / "races.csv").open(newline="")))) == 2
    shape = json.loads((command.folder / "report.json").read_text())
    assert len(shape["trials"]) == 2 and shape["is_whole"] is False
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    engine.owner.submit(lambda _: None).result()
    assert engine.backend.passes <= engine.backend.stop_at + 1, "the rest of the race is run for nobody"
    assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_ctrl_c_ends_the_wait_for_the_engine_and_spoils_nothing_that_is_told(monkeypatch, number):
    engine, told = engine_for(), []
    monkeypatch.setattr(engine.owner, "stop", lambda patience_s: signal.raise_signal(signal.SIGINT))

    def publish():
        told.append("half")
        signal.raise_signal(number)
        told.append("all")

    with interrupted_by_sigterm(), interruptible(engine, publish):
        signal.raise_signal(number)
        told.append("never reached")
    assert told == ["half", "all"]


def test_ctrl_c_while_the_model_loads_has_nothing_to_print(command, monkeypatch):
    def load(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "load", load)
    assert command("--preset", "mine.json") == (130, "", "stopped; nothing was measured\n")


def test_figures_are_printed_where_a_file_cannot_be_written(command, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    arguments = [
        "--preset",
        "mine.json",
        "--modes",
        "json",
        "--heads",
        "warm",
        "--rounds",
        "1",
        "--json",
        "report.json",
    ]
    code, out, err = command(*arguments)
    assert code == 1 and json.loads(out.splitlines()[-1])["is_whole"]
    assert err.splitlines()[-1] == "error: report.json: No space left on device; the figures are on stdout"
    assert not (command.folder / "report.json").exists()


def test_what_is_finished_is_printed_where_the_command_itself_breaks(command, monkeypatch):
    lines = iter(["first"])

    def broken(*_):
        with suppress(StopIteration):
            return next(lines)
        raise RuntimeError("a bug")

    monkeypatch.setattr(benchmark, "progress_line", broken)
    arguments = ["--preset", "mine.json", "--modes", "json", "--heads", "warm", "--rounds", "4"]
    code, out, err = command(*arguments)
    assert code == 1 and err.endswith("error: a bug\n")
    assert json.loads(out.splitlines()[-1])["summaries"][0]["n"] == 2 and "stopped after 2 of 4 races" in out


@pytest.mark.parametrize(
    "arguments, module, expected",
    [
        (["--micro", "--preset", "mine.json", "--rounds", "2"], micro, {"name": "mine", "rounds": 2}),
        (["--micro"], micro, {"name": "support_triage", "rounds": 5}),
        (["--ui-overhead", "--rounds", "2"], page_overhead, {"name": "support_triage", "count": 2}),
        (["--ui-overhead", "--modes", "free"], page_overhead, {"mode": "free"}),
    ],
)
def test_other_measurements_get_what_was_asked(command, monkeypatch, arguments, module, expected):
    name = "report_parts" if module is micro else "report_overhead"
    signature, asked = inspect.signature(getattr(module, name)), []

    def report(*given, **options):
        asked.append(signature.bind(*given, **options).arguments)
        return 0

    monkeypatch.setattr(module, name, report)
    assert command(*arguments)[0] == 0
    assert asked[0]["engine"] is command.engines[-1]
    assert {name: asked[0].get(name) for name in expected} == expected
    assert len(asked[0]["preset"].schema) == (28 if asked[0]["name"] == "support_triage" else 4)


def test_the_parts_are_measured_on_a_small_model(tiny, capsys):
    micro.report_parts(Engine(tiny("llama"), "tiny"), Preset(CONTEXT, StructuredSchema(FIELDS)), HOSTILE, 1)
    out = capsys.readouterr().out
    assert HOSTILE not in out and all(c.isprintable() or c == "\n" for c in out)
    shape = json.loads(out.splitlines()[-1])
    assert shape.keys() == {*Setting.__annotations__, "preset", "rounds", "ms", "ratios"}
    assert {"prefill", "tree", "pcd_warm", "decode_step"} <= set(shape["ms"]) and min(shape["ms"].values()) > 0
    assert shape["ratios"]["pcd cold / pcd warm"] == shape["ms"]["pcd_cold"] / shape["ms"]["pcd_warm"]


@pytest.mark.parametrize("strategy", ["tree", "rows"])
def test_a_hashed_model_is_raced_in_every_mode(strategy):
    engine = Told(HashBackend(lexicon("smol"), strategy=strategy), "hash")
    trials = list(Series(engine, plan_of(modes=("free", "json", "schema"), heads=("cold", "warm"))))
    assert [(trial.mode, trial.head, trial.cache, trial.strategy) for trial in trials] == [
        (mode, head, "off" if head == "cold" else "hit", strategy)
        for mode in ("free", "json", "schema")
        for head in ("cold", "warm")
    ]
    assert [trial.keeps_schema for trial in trials if trial.mode == "schema"] == [True, True]


def test_a_small_model_of_torch_is_raced_in_every_mode(tiny):
    engine = Engine(tiny("llama"), "tiny")
    trials = list(Series(engine, plan_of(modes=("free", "json", "schema"), heads=("cold", "warm"))))
    assert [type(trial) for trial in trials] == [Trial] * 6
    for trial in trials:
        assert (trial.ar_forced > 0, trial.keeps_schema) == (trial.mode == "schema", trial.mode == "schema")


def test_the_help_says_what_comes_out_and_how_it_ends_and_needs_no_torch():
    code = "import sys; from core.benchmark import main\ntry: main(['--help'])\nfinally: print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=FOLDER.parent)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "False"
    assert all(f"  {code} " in ran.stdout for code in (0, 1, 2, 3, 130))
    options = ("--micro", "--scaling", "--ui-overhead", "--modes", "--heads", "--request", "--markdown", "--csv")
    assert all(option in ran.stdout for option in options)
