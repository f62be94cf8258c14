"""What is said of runs on a server away from the page: over REST, in a benchmark's report and its files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from core import plot
from core.page_overhead import Lap, Overhead, Round, lines_of
from core.replies import Decoded
from core.report import Report
from core.result import Result
from core.scaling import Sweep
from core.setting import Setting
from core.trials import Benchmark, Case, Series, Trial
from core.ui.results import headline
from tests.scripted import FOUR, FilmTime, ScriptedEngine
from tests.serving import client_of

WIRE = "client time around the wire"
CASES = (Case.of(FOUR, FOUR.id),)


def scripted(clock: str = "client", queue_ms: float | None = 3.21) -> ScriptedEngine:
    return ScriptedEngine(pass_ms=20, token_ms=1, clock=clock, queue_ms=queue_ms, time=FilmTime())


def report_of(engine: ScriptedEngine, *trials: Trial, modes: Sequence[str] = ("json",)) -> Report:
    plan = Benchmark(CASES, modes, ("warm",), rounds=2)
    raced = [replace(trial, prompt_tokens=200) for trial in trials or Series(engine, plan)]  # the script tells none
    return Report(Setting.here(engine), plan, tuple(raced), is_whole=True)


# --- over REST ---


def reply(**changed: object) -> dict:
    result: Result = scripted().submit(FOUR.context, FOUR.schema).result()
    short = replace(result.decisions[0], unasked=1234, unasked_mass=0.0123)
    result = replace(result, decisions=(short, *result.decisions[1:]), **changed)
    return json.loads(Decoded.of(result, "m", 0.0, {}).line())


def test_a_reply_names_the_clock_and_what_a_server_was_sent() -> None:
    metrics = reply(clock="client", sent_tokens=900, server_queue_ms=1.5, passes=3)["metrics"]
    assert [metrics[name] for name in ("clock", "forwardPasses", "sentTokens", "serverQueueMs")] == [
        "client", 3, 900, 1.5
    ]  # fmt: skip
    metrics = reply(clock="engine")["metrics"]
    assert [metrics[name] for name in ("clock", "sentTokens", "serverQueueMs")] == ["engine", None, None]


def test_a_reply_says_of_each_field_what_was_not_asked_for() -> None:
    told = [(field["unaskedTokens"], field["unaskedMass"]) for field in reply()["fields"]]
    assert told == [(1234, 0.0123), (0, 0.0), (0, 0.0), (0, 0.0)]


def test_openapi_has_the_new_keys_with_their_meaning() -> None:
    schemas = client_of().get("/openapi.json").json()["components"]["schemas"]
    metrics, field = schemas["Metrics"]["properties"], schemas["DecidedField"]["properties"]
    assert metrics["clock"]["enum"] == ["engine", "client"] and "wire" in metrics["clock"]["description"]
    assert {"type": "null"} in metrics["serverQueueMs"]["anyOf"] and "requests" in metrics["forwardPasses"][
        "description"
    ]
    assert metrics["sentTokens"]["description"] and field["unaskedTokens"]["type"] == "integer"
    assert field["unaskedMass"]["type"] == "number"


# --- in a benchmark ---


@pytest.mark.parametrize("written", [Report.plain, Report.markdown])
def test_a_report_on_a_server_names_its_clock_and_counts_requests(written) -> None:
    told = written(report_of(scripted()))
    assert WIRE in told.splitlines()[0] and f"ms: {WIRE}, median" in told
    assert "requests" in told and "67/67" in told
    assert "engine time" not in told and "passes" not in told


@pytest.mark.parametrize("written", [Report.plain, Report.markdown])
def test_a_report_on_an_engine_is_as_it_was(written) -> None:
    told = written(report_of(scripted("engine")))
    assert "ms: engine time, median" in told and "passes" in told
    assert "wire" not in told and "requests" not in told and "{" not in told


def test_a_large_report_on_a_server_fits_a_terminal() -> None:
    engine = scripted()
    trial = next(iter(Series(engine, Benchmark(CASES, ("json",), ("warm",), rounds=1))))
    large = replace(trial, mode="schema", pcd_ms=1234.5, ar_ms=98765.4, ar_tokens=1234, pcd_passes=12)
    large = replace(large, pcd_sent_tokens=23_456, ar_sent_tokens=1234)
    lines = report_of(engine, large, modes=("schema",)).plain().splitlines()
    assert max(map(len, lines)) <= 120


def test_the_files_of_a_report_have_the_clock_and_what_was_sent() -> None:
    found = report_of(scripted())
    shape = found.to_json(trials=True)
    assert shape["clock"] == "client"
    [summary], trials = shape["summaries"], shape["trials"]
    for each in (summary, *trials):
        assert (each["pcd_passes"], each["pcd_sent_tokens"], each["ar_sent_tokens"]) == (1, 67, 67)
        assert (each["pcd_queue_ms"], each["ar_queue_ms"]) == (3.21, 3.21)
    rows = list(csv.DictReader(io.StringIO(found.csv())))
    told = [(row["clock"], row["pcd_sent_tokens"], row["ar_queue_ms"]) for row in rows]
    assert told == 2 * [("client", "67", "3.21")]


def test_what_a_server_or_an_engine_does_not_tell_is_left_empty() -> None:
    for engine in (scripted(queue_ms=None), scripted("engine")):
        found = report_of(engine)
        (summary,) = found.summaries
        assert (summary.pcd_queue_ms, summary.ar_queue_ms) == (None, None)
        assert {row["pcd_queue_ms"] for row in csv.DictReader(io.StringIO(found.csv()))} == {""}
    assert (summary.pcd_sent_tokens, summary.ar_sent_tokens) == (None, None)


def test_the_page_s_headline_of_a_benchmark_names_a_client_s_clock() -> None:
    assert WIRE in headline(report_of(scripted()))
    assert "time" not in headline(report_of(scripted("engine"))).splitlines()[0]


@pytest.mark.parametrize("clock, words", [("client", WIRE), ("engine", "engine time")])
def test_a_plot_and_the_page_s_cost_name_the_clock(clock: str, words: str) -> None:
    lap = Lap(ms=10.0, tokens=5, text="{}", cache="hit", mode="json", order=("pcd", "ar"))
    overhead = Overhead(Setting.here(scripted(clock)), FOUR.id, (Round(lap, lap, "10.0 ms"),))
    assert list(lines_of(overhead))[-1].startswith(f"{words} of the ar lane: ")
    pytest.importorskip("matplotlib")
    report = report_of(scripted(clock))
    trials = tuple(replace(trial, size=4) for trial in report.trials)
    sweep = Sweep(report.setting, report.benchmark, trials, True, axis="fields", left_out=())
    assert plot.figure_of(sweep).axes[0].get_ylabel().startswith(f"{words}, ms")
