"""The Benchmark tab without a browser: what was ticked, what is shown, measurements in progress, files."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import stat
import statistics
import threading
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from core.engine import Engine
from core.presets import Preset
from core.race import Race
from core.report import Report
from core.resident import Status
from core.setting import Setting
from core.trace import Event, from_line
from core.trials import Benchmark, Case, Failure, Series, Trial
from core.ui.benchmark import COLORS
from core.ui.downloads import Downloads
from core.ui.inputs import InputError, read_benchmark, read_inputs
from core.ui.measurements import Measurements, Step
from core.ui.page import build
from core.ui.readiness import NotReady, ready_engine
from core.ui.results import (
    HEADINGS,
    axis_end,
    failures,
    headline,
    medians,
    plan_note,
    progress_note,
    races,
    table,
)  # fmt: skip
from core.ui.runs import Runs
from tests.fakes import HashBackend, lexicon
from tests.scripted import FOUR, HOSTILE, MANY, PRESETS, READY, ScriptedEngine, ScriptedResident

SETTING = Setting(
    "a-model", "a test", "script", "cpu", "float32", "A CPU, 2 cores", "2026-01-02T03:04:05+00:00", {}, 40.0
)


def plan_of(*presets: Preset, **options: Any) -> Benchmark:
    cases = tuple(Case.of(preset, preset.id) for preset in presets or (FOUR,))
    return Benchmark(cases, **{"modes": ("json",), "heads": ("warm",), "rounds": 2} | options)


def trial_of(pcd_ms: float = 10.0, ar_ms: float = 45.0, **given: Any) -> Trial:
    usual: dict[str, Any] = {
        "preset": "four_fields",
        "mode": "json",
        "style": "pretty",
        "head": "warm",
        "order": ("pcd", "ar"),
        "round": 1,
        "cache": "hit",
        "strategy": "tree",
        "reading": "complete",
        "pcd_passes": 1,
        "ar_passes": 31,
        "prompt_tokens": 200,
        "tree_tokens": 12,
        "ar_tokens": 40,
        "ar_forced": 9,
        "first_token_ms": 5.0,
        "tokens_per_s": 900.0,
        "how": "closed",
        "outcome": "parsed",
        "keeps_schema": True,
        "fields": 4,
        "agree": 3,
        "expected": 2,
        "pcd_right": 2,
        "ar_right": 1,
        "pcd_phases": {"tree": pcd_ms},
        "ar_phases": {"decode": ar_ms},
    }
    return Trial(pcd_ms=pcd_ms, ar_ms=ar_ms, **usual | given)


def failure_of(message: str = "out of memory", **given: Any) -> Failure:
    turn = {"preset": "four_fields", "mode": "json", "style": "pretty", "head": "warm"} | given
    return Failure(order=("pcd", "ar"), round=1, message=message, **turn)


def report_of(*trials: Trial | Failure, is_whole: bool = True, **plan: Any) -> Report:
    return Report(SETTING, plan_of(**plan), trials, is_whole)


def row_of(*trials: Trial | Failure) -> dict[str, str]:
    [cells] = table(report_of(*trials))
    return dict(zip(HEADINGS, cells, strict=True))


# --- what was ticked ---


def read(**given: Any) -> Benchmark:
    usual = {"chosen": ["four_fields"], "modes": ["json"], "heads": ["warm"], "style": "pretty", "rounds": 5}
    return read_benchmark(PRESETS, **usual | given)


def test_what_is_ticked_is_measured_in_the_order_of_the_page() -> None:
    chosen = [MANY.id, FOUR.id]
    plan = read(chosen=chosen, modes=["schema", "free"], heads=["warm", "cold"], style="compact", rounds=2.0)
    assert plan == plan_of(FOUR, MANY, modes=("free", "schema"), heads=("cold", "warm"), style="compact", rounds=2)
    assert isinstance(plan.rounds, int)
    assert plan_note(plan).text == "16 races: 2 presets, 2 modes, 2 heads, n = 2; and 2 warm-up races"


def test_one_race_is_said_to_be_one() -> None:
    assert plan_note(read(rounds=1)).text == "1 race: 1 preset, 1 mode, 1 head, n = 1; and a warm-up race"


@pytest.mark.parametrize(
    "given, words",
    [
        ({"chosen": []}, "no preset is ticked; tick at least one"),
        ({"modes": []}, "no baseline mode is ticked"),
        ({"heads": []}, "no head is ticked"),
        ({"chosen": ["four_fields", "../etc"]}, "preset '../etc' is unknown"),
        ({"modes": ["strict"]}, "baseline mode 'strict' is unknown; use one of: free, json, schema"),
        ({"heads": ["hot"]}, "head 'hot' is unknown; use one of: cold, warm"),
        ({"style": "tabs"}, "JSON style 'tabs' is unknown"),
        ({"rounds": None}, "n is empty; type a whole number from 1 to 50"),
        ({"rounds": 0}, "n 0 is none; type a whole number from 1 to 50"),
        ({"rounds": 51}, "n 51 is none"),
        ({"rounds": -3}, "n -3 is none"),
        ({"rounds": 2.5}, "n 2.5 is none"),
        ({"rounds": float("nan")}, "n nan is none"),
        ({"rounds": float("inf")}, "n inf is none"),
        ({"rounds": True}, "n True is none"),
        ({"rounds": "7"}, "n '7' is none"),
        ({"rounds": [3]}, r"n [3] is none"),
    ],
)
def test_a_benchmark_that_cannot_be_run_is_refused_in_words(given: dict, words: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(words)}"):
        read(**given)


@pytest.mark.parametrize(
    "status, words",
    [
        (Status("loading", "converting", 0.5), r"the model is still loading \(converting\); try again in a moment"),
        (Status("absent", message="no model is loaded: start with --model NAME"), "no model is loaded: start with"),
        (Status("failed", message="no room on disk"), "no room on disk"),
    ],
)
def test_without_an_engine_it_is_said_why(status: Status, words: str) -> None:
    with pytest.raises(NotReady, match=words):
        ready_engine(ScriptedResident(None, status))


# --- the table ---


def test_a_row_has_the_mode_beside_the_speed_up_and_every_figure_of_its_trials() -> None:
    trials = [trial_of(10, 45), trial_of(11, 33), trial_of(12, 60)]
    assert row_of(*trials) == {
        "preset": "four_fields",
        "head": "warm",
        "mode": "json",
        "AR ÷ PCD": "4.1x",
        "range": "3.0-5.0",
        "notes": "–",
        "PCD ms (p95)": "11.0 (12.0)",
        "AR ms (p95)": "45.0 (60.0)",
        "n": "3",
        "passes PCD/AR": "1/31",
        "tree tokens": "12",
        "reading": "complete",
        "AR tokens (forced)": "40 (9)",
        "same fields": "3/4",
        "right PCD, AR": "2, 1 of 2",
        "JSON": "3/3",
        "valid": "3/3",
    }
    assert HEADINGS.index("AR ÷ PCD") == HEADINGS.index("mode") + 1
    assert HEADINGS.index("notes") < HEADINGS.index("PCD ms (p95)")


@pytest.mark.parametrize(
    "trials, notes",
    [
        ([trial_of(10, 8)], "PCD is slower (0.80x)"),
        ([trial_of(how="limit", outcome="truncated")], "1 of 1 baseline texts ran into the token limit"),
        ([trial_of(), trial_of(outcome="not_parsable")], "1 of 2 baseline texts are no whole JSON"),
        ([trial_of(cache="miss")], "not warm: the head was miss"),
        ([trial_of(pcd_right=0, ar_right=2)], "PCD is right less often (0 against 2 of 2)"),
        ([trial_of(), failure_of()], "1 races failed"),
        (
            [trial_of(10, 8, how="limit", outcome="truncated"), failure_of()],
            "PCD is slower (0.80x); 1 of 1 baseline texts ran into the token limit; 1 races failed",
        ),
    ],
)
def test_what_must_be_said_of_a_speed_up_stands_beside_it_in_words(trials: list, notes: str) -> None:
    assert row_of(*trials)["notes"] == notes


@pytest.mark.parametrize(
    "trial, sign",
    [
        (trial_of(10, 40), "4.0x"),
        (trial_of(10, 8), "0.80x (slower)"),
        (trial_of(10, 40, how="limit", outcome="truncated"), "4.0x (limit)"),
        (trial_of(10, 40, outcome="not_parsable"), "4.0x (no JSON)"),
    ],
)
def test_the_gravest_note_stands_in_the_cell_of_the_speed_up(trial, sign: str) -> None:
    assert row_of(trial)["AR ÷ PCD"] == sign and row_of(trial)["range"] == "-"


def test_each_preset_mode_and_head_has_a_row_of_texts() -> None:
    kinds = [("a", "json", "cold"), ("a", "schema", "cold"), ("b", "json", "warm")]
    trials = [trial_of(preset=preset, mode=mode, head=head) for preset, mode, head in kinds for _ in range(2)]
    rows = table(report_of(*trials))
    assert [(row[0], row[2], row[1]) for row in rows] == kinds
    assert {type(cell) for row in rows for cell in row} == {str}
    assert table(report_of()) == table(report_of(failure_of())) == []


def test_a_name_that_steers_a_terminal_or_turns_text_round_is_shown_escaped() -> None:
    trial = trial_of(preset="\u202egnp\x1b[2J" + HOSTILE)
    assert row_of(trial)["preset"].startswith("\\u202egnp\\x1b[2J<img src=x")
    for frame in (medians(report_of(trial)), races(report_of(trial))):
        assert frame["race"].str.startswith("\\u202egnp\\x1b[2J<img").all()


# --- the plots ---


def test_bars_are_each_lanes_median_and_no_two_share_a_name() -> None:
    kinds = [("a", "json", "cold"), ("a", "json", "warm"), ("a", "schema", "warm"), ("b", "json", "warm")]
    trials = [
        trial_of(10.0 + i * j, 40.0 + i + j, preset=preset, mode=mode, head=head)
        for i, (preset, mode, head) in enumerate(kinds)
        for j in range(4)
    ]
    frame = medians(report_of(*trials))
    expected = []
    for kind in kinds:
        mine = [trial for trial in trials if (trial.preset, trial.mode, trial.head) == kind]
        for lane, ms in (("PCD", [t.pcd_ms for t in mine]), ("AR", [t.ar_ms for t in mine])):
            expected.append([f"{' '.join(kind)} {lane}", lane, statistics.median(ms)])
    assert frame.values.tolist() == expected
    assert frame["race"].is_unique
    assert set(frame["lane"]) == set(COLORS)


def test_points_are_both_lanes_of_each_race_and_none_of_a_failed_one() -> None:
    frame = races(report_of(trial_of(10, 45), failure_of(), trial_of(9, 44, head="cold")))
    assert frame.values.tolist() == [
        ["four_fields json warm", "PCD", 10.0],
        ["four_fields json warm", "AR", 45.0],
        ["four_fields json cold", "PCD", 9.0],
        ["four_fields json cold", "AR", 44.0],
    ]


def test_gradio_takes_names_for_names_and_milliseconds_for_numbers() -> None:
    with gr.Blocks():
        plots = gr.BarPlot(), gr.ScatterPlot()
    for plot, frame in zip(plots, (medians(report_of(trial_of())), races(report_of(trial_of()))), strict=True):
        assert list(plot.postprocess(frame).datatypes.values()) == ["nominal", "nominal", "quantitative"]


@pytest.mark.parametrize(
    "most, end",
    [(0.07, 0.08), (0.99, 1.2), (1, 1.2), (119, 150), (197, 250), (480, 500), (981, 1200), (21_000, 25_000)],
)
def test_an_axis_ends_at_a_tick_that_no_point_touches(most: float, end: float) -> None:
    assert axis_end(races(report_of(trial_of(most / 2, most)))) == pytest.approx(end)


# --- what is said ---


def test_the_headline_names_machine_model_dtype_n_and_date() -> None:
    said = headline(report_of(trial_of(), rounds=7))
    for words in ("a-model (a test), script on cpu, float32", "A CPU, 2 cores; 2026-01-02", "n = 7 rounds", "json"):
        assert words in said


def test_failures_are_counted_and_said_in_an_error() -> None:
    note = failures(report_of(failure_of("\x1b[2Jout"), trial_of(), failure_of("\x1b[2Jout"), failure_of("late")))
    assert note.tone == "error"
    assert note.text.splitlines() == [
        "failed: four_fields, 2 races: \\x1b[2Jout",
        "failed: four_fields, 1 race: late",
    ]
    assert failures(report_of(trial_of())).text == ""


LONG = {"modes": ("json", "schema"), "heads": ("cold", "warm"), "rounds": 6}


@pytest.mark.parametrize(
    "done, ahead, text, fraction",
    [
        (0, 0, "Race 1 of 24: four_fields, json, cold, PCD first, after a warm-up race", 0.0),
        (6, 0, "Race 7 of 24: four_fields, schema, cold, baseline first", 0.25),
        (6, 1, "Race 7 of 24: four_fields, schema, cold, baseline first; 1 run is ahead", 0.25),
        (1, 2, "Race 2 of 24: four_fields, json, warm, PCD first; 2 runs are ahead", 1 / 24),
        (24, 0, "Race 24 of 24: four_fields, schema, warm, baseline first", 1.0),
    ],
)
def test_progress_names_the_race_that_runs(done: int, ahead: int, text: str, fraction: float) -> None:
    note = progress_note(Step(report_of(*[trial_of()] * done, is_whole=False, **LONG), ahead=ahead))
    assert (note.text, note.tone, note.fraction) == (text, "busy", pytest.approx(fraction))


@pytest.mark.parametrize(
    "trials, is_whole, error, text, tone",
    [
        ([trial_of()] * 2, True, "", "Done: 2 races", "good"),
        ([trial_of(), failure_of()], True, "", "Done: 2 races, 1 of them failed", "error"),
        ([trial_of()], False, "", "Cancelled after 1 race of 2", "plain"),
        ([], False, "", "Cancelled after 0 races of 2", "plain"),
        ([trial_of()], False, "the engine failed: X", "the engine failed: X; 1 race of 2 done", "error"),
    ],
)
def test_the_end_is_told_as_what_it_was(trials: list, is_whole: bool, error: str, text: str, tone: str) -> None:
    note = progress_note(Step(report_of(*trials, is_whole=is_whole), is_over=True, error=error))
    assert (note.text, note.tone) == (text, tone)


# --- measurements in progress ---


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.ui.measurements.SETTLE_S", 0.0)


def quick() -> ScriptedEngine:
    return ScriptedEngine(token_ms=0.2, pass_ms=4)


async def steps_of(
    measurements: Measurements, session: str, engine: Engine | ScriptedEngine, plan: Benchmark
) -> list[Step]:
    return [step async for step in measurements.start(session, engine, plan)]


def test_a_step_follows_each_race_and_holds_what_its_trace_says() -> None:
    engine, plan = quick(), plan_of(modes=("free", "json"), heads=("cold", "warm"))
    steps = asyncio.run(steps_of(Measurements(), "me", engine, plan))
    assert [len(step.report.trials) for step in steps] == [*range(9), 8]
    assert [(step.is_over, step.report.is_whole) for step in steps[-2:]] == [(False, False), (True, True)]
    assert len(engine.races) == 1 + 8, "a warm-up race, and one for each turn"
    for trial, turn, race in zip(steps[-1].report.trials, plan.turns, engine.races[1:], strict=True):
        assert {name: getattr(trial, name) for name in vars(turn)} == vars(turn)
        assert (race.mode, race.order, race.request.cache) == (turn.mode, turn.order, turn.head == "warm")
        assert (trial.pcd_ms, trial.ar_ms) == tuple(race.trace("lane_end", lane)[0].ms for lane in ("pcd", "ar"))
        assert (trial.ar_tokens, trial.ar_forced) == (len(race.trace("token")), 0)


def test_it_measures_what_the_command_measures() -> None:
    plan = plan_of(FOUR, MANY, modes=("json", "schema"), rounds=1)
    mine = asyncio.run(steps_of(Measurements(), "me", quick(), plan))[-1].report.trials
    counts = [(t.preset, t.mode, t.pcd_passes, t.ar_tokens, t.ar_forced, t.agree, t.outcome) for t in mine]
    assert counts == [
        (t.preset, t.mode, t.pcd_passes, t.ar_tokens, t.ar_forced, t.agree, t.outcome) for t in Series(quick(), plan)
    ]


def test_a_second_start_of_the_same_session_does_nothing() -> None:
    engine, measurements, plan = quick(), Measurements(), plan_of()

    async def both() -> list[list[Step]]:
        return await asyncio.gather(*(steps_of(measurements, "me", engine, plan) for _ in range(2)))

    first, second = asyncio.run(both())
    assert first[-1].report.is_whole and second == []
    assert len(engine.races) == 1 + len(plan.turns)
    assert "me" not in measurements


def test_two_sessions_have_tables_of_their_own_and_share_the_device() -> None:
    engine, measurements = quick(), Measurements()

    async def both() -> list[list[Step]]:
        return await asyncio.gather(
            steps_of(measurements, "me", engine, plan_of(FOUR)), steps_of(measurements, "you", engine, plan_of(MANY))
        )

    for steps, preset in zip(asyncio.run(both()), (FOUR, MANY), strict=True):
        assert {trial.preset for step in steps for trial in step.report.trials} == {preset.id}
        assert steps[-1].report.is_whole


def test_cancel_ends_the_own_races_only_and_keeps_what_was_finished() -> None:
    engine, measurements = quick(), Measurements()

    async def cancelled() -> list[Step]:
        steps = []
        async for step in measurements.start("me", engine, plan_of(rounds=50)):
            steps.append(step)
            if len(step.report.trials) == 2:
                measurements.cancel("you")
            if len(step.report.trials) == 3:
                measurements.cancel("me")
        return steps

    *_, before, last = asyncio.run(cancelled())
    assert (last.is_over, last.report.is_whole, last.error) == (True, False, "")
    assert last.report.trials == before.report.trials and len(last.report.trials) == 3
    assert "me" not in measurements


def test_cancel_reaches_the_race_in_hand() -> None:
    engine, measurements = ScriptedEngine(token_ms=1, pass_ms=60_000), Measurements()

    async def cancelled() -> list[Step]:
        steps = asyncio.create_task(steps_of(measurements, "me", engine, plan_of()))
        while not engine.races:
            await asyncio.sleep(0.01)
        measurements.cancel("me")
        return await steps

    assert asyncio.run(cancelled())[-1].report.trials == ()
    assert engine.races[0].trace("end")[0].state == "stopped"


def test_a_measurement_that_is_dropped_stops_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.ui.measurements.HEARTBEAT_S", 0.02)
    engine, measurements = ScriptedEngine(token_ms=1, pass_ms=60_000), Measurements()

    async def drop() -> None:
        async with aclosing(measurements.start("me", engine, plan_of())) as steps:
            async for _ in steps:
                if engine.races:
                    break

    asyncio.run(drop())
    assert engine.races[0].over.wait(timeout=10)
    assert engine.races[0].trace("end")[0].state == "stopped"
    assert "me" not in measurements


def test_a_long_race_is_heard_of_now_and_then_so_that_a_closed_tab_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.ui.measurements.HEARTBEAT_S", 0.02)
    engine = quick()
    other = engine.race(FOUR.context, FOUR.schema)

    async def hear() -> list[Step]:
        heard = []
        with engine.device:  # nobody's race goes on
            async with aclosing(Measurements().start("me", engine, plan_of())) as steps:
                async for step in steps:
                    heard.append(step)
                    if len(heard) == 6:
                        return heard
        return []

    first, *beats = asyncio.run(asyncio.wait_for(hear(), 10))
    other.cancel()
    assert all(beat.report == first.report and not beat.is_over for beat in beats)


def test_races_that_fail_are_told_as_such_and_the_rest_goes_on() -> None:
    engine = quick()
    engine.failing = "schema"
    report = asyncio.run(steps_of(Measurements(), "me", engine, plan_of(modes=("json", "schema"))))[-1].report
    assert report.is_whole
    assert [type(trial) for trial in report.trials] == [Trial, Failure] * 2
    assert [row.mode for row in report.summaries] == ["json"]
    assert "2 races: out of memory: <img src=x" in failures(report).text


def test_an_engine_that_breaks_ends_the_measurement_in_words(caplog: pytest.LogCaptureFixture) -> None:
    engine = quick()

    def race(*given: Any, **options: Any) -> None:
        raise RuntimeError("no such device")

    engine.race = race
    last = asyncio.run(steps_of(Measurements(), "me", engine, plan_of()))[-1]
    assert last.is_over and last.error == "the engine failed: RuntimeError; the log has more"
    assert "no such device" in caplog.text


# --- never at the same time as a race ---


class Gated(HashBackend):
    """Waits in each pass until it may go on."""

    def __init__(self) -> None:
        super().__init__(lexicon("qwen"))
        self.gate, self.reached = threading.Event(), threading.Event()
        self.threads: set[str] = set()

    def _pass(self) -> None:
        super()._pass()
        self.threads.add(threading.current_thread().name)
        self.reached.set()
        self.gate.wait(10)


class Asked(Engine):
    """Remembers the contexts of its races, in the order in which they were queued."""

    def __init__(self, backend: HashBackend) -> None:
        super().__init__(backend, "hash", why="a test")
        self.contexts: list[str] = []

    def race(self, context: str, *given: Any, **options: Any) -> Race:
        self.contexts.append(context)
        return super().race(context, *given, **options)


def test_a_live_run_waits_for_the_race_in_hand_says_so_and_comes_before_the_next_one() -> None:
    backend = Gated()
    engine = Asked(backend)
    live = read_inputs("A live text.", '{"a": {"type": "boolean"}}', 1.0, "pcd", "schema", "pretty", True)
    plan = plan_of(Preset("A text.", live.schema, id="mine"), modes=("schema",))

    async def run() -> list[Event]:
        await asyncio.to_thread(backend.reached.wait, 10)  # the warm-up race is on the device
        async for log in Runs(ScriptedResident(engine)).start("me", live):
            if '"waiting"' in log.lines:
                backend.gate.set()
        return [from_line(line) for line in log.lines.splitlines()[1:]]

    async def both() -> tuple[list[Step], list[Event]]:
        return await asyncio.gather(steps_of(Measurements(), "me", engine, plan), run())

    steps, events = asyncio.run(asyncio.wait_for(both(), 60))
    assert (events[0].kind, events[0].ahead) == ("waiting", 1)
    assert (events[-1].kind, events[-1].state) == ("end", "done")
    assert [type(trial) for trial in steps[-1].report.trials] == [Trial, Trial]
    assert engine.contexts == ["A text.", "A live text.", "A text.", "A text."]
    assert backend.threads == {"pcd-owner"}


def test_a_measurement_says_that_others_are_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.ui.measurements.HEARTBEAT_S", 0.02)
    backend = Gated()
    engine = Asked(backend)
    others = [engine.race("A text.", FOUR.schema) for _ in range(2)]

    async def hear() -> Step:
        async with aclosing(Measurements().start("me", engine, plan_of())) as steps:
            async for step in steps:
                if step.ahead:
                    return step
        raise AssertionError("it never waited")

    backend.reached.wait(10)
    step = asyncio.run(asyncio.wait_for(hear(), 20))
    for other in others:
        other.cancel()
    backend.gate.set()
    assert step.ahead == 2
    assert progress_note(step).text.endswith("; 2 runs are ahead")


# --- files ---


def test_both_files_hold_the_report_and_are_the_sessions_own(tmp_path: Path) -> None:
    downloads, report = Downloads(tmp_path / "cache"), report_of(trial_of(preset="=cmd|x"), failure_of())
    json_file, csv_file = downloads.write("me", report)
    assert [file.name for file in (json_file, csv_file)] == ["benchmark-2026-01-02.json", "benchmark-2026-01-02.csv"]
    told = json.loads(json_file.read_text())
    assert told == json.loads(json.dumps(report.to_json(trials=True)))
    assert len(told["trials"]) == 1 and told["failures"][0]["message"] == "out of memory"
    rows = list(csv.DictReader(io.StringIO(csv_file.read_text())))
    assert [(row["preset"], row["pcd_ms"], row["message"]) for row in rows] == [
        ("'=cmd|x", "10.0", ""),
        ("four_fields", "", "out of memory"),
    ]
    assert stat.S_IMODE(json_file.parent.stat().st_mode) == 0o700
    other, _ = downloads.write("you", report)
    assert other.parent != json_file.parent


def test_files_go_with_the_next_report_and_with_the_session(tmp_path: Path) -> None:
    downloads = Downloads(tmp_path)
    first, _ = downloads.write("me", report_of(trial_of()))
    second, _ = downloads.write("me", report_of(trial_of()))
    mine, _ = downloads.write("you", report_of(trial_of()))
    assert (first.exists(), second.exists(), mine.exists()) == (False, True, True)
    downloads.remove("me")
    downloads.remove("nobody")
    assert list(tmp_path.iterdir()) == [mine.parent]
    downloads.remove("you")
    assert list(tmp_path.iterdir()) == []


# --- wiring ---


@pytest.fixture(scope="module")
def dependency() -> Callable[[str, str], dict]:
    config = build(ScriptedResident(quick(), READY), PRESETS).get_config_file()
    ids = {component["props"].get("elem_id"): component["id"] for component in config["components"]}

    def found(elem_id: str, event: str) -> dict:
        [one] = [d for d in config["dependencies"] if [ids[elem_id], event] in [list(t) for t in d["targets"]]]
        return one

    return found


def test_start_is_queued_once_and_cancel_is_not(dependency: Callable[[str, str], dict]) -> None:
    start, cancel = dependency("benchmark-start", "click"), dependency("benchmark-cancel", "click")
    assert (start["queue"] is not False, start["trigger_mode"], cancel["queue"]) == (True, "once", False)
    assert {start["api_visibility"], cancel["api_visibility"]} == {"private"}


@pytest.mark.parametrize("choice", ["presets", "modes", "heads", "style", "rounds"])
def test_every_choice_changes_the_plan_line(dependency: Callable[[str, str], dict], choice: str) -> None:
    assert dependency(f"benchmark-{choice}", "change")["trigger_mode"] == "always_last"
