"""The engine on a real vLLM with the embedded model: its answers against PyTorch's, a race, a batch, a killed server.

`tests/vllm/run` runs them. PyTorch reads in float32. A second server
does so too, and must agree; the other one reads in bf16, as people run it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.engine import Engine
from core.grammar import MODES
from core.presets import load_presets
from core.result import Decision, Result
from core.schema import StructuredSchema
from core.vllm_server import ServerAway
from tests.serving import until
from tests.vllm.conftest import RealServer
from tests.vllm.record import recorded

pytestmark = pytest.mark.vllm

CLOSE = 0.02  # in probability; what is further apart is told
#: bf16 moves a log-probability by about 0.2, and a half by 0.05. Seen: 0.064.
WIDEST = 0.1
EXACT = 1e-3  # in float32 on both sides
PATIENCE_S = 300.0  # longer than a server needs to start
PRESETS = {preset.id: preset for preset in load_presets()}
SCHEMA = StructuredSchema(
    {
        "priority": {"type": "enum", "choices": ["LOW", "NORMAL", "HIGH"], "description": "How urgent is it?"},
        "refund": {"type": "boolean", "description": "Is a refund asked for?"},
    }
)
ROWS = [
    f"{what} since {day}. {wish}"
    for what in ("The checkout is down for everybody", "My parcel is wet", "I was charged twice", "A page has a typo")
    for day in ("Monday", "last week", "09:10", "the update", "yesterday")
    for wish in ("Please give me my money back.", "Just so that you know.")
]


@pytest.fixture(scope="module")
def served(server: RealServer) -> Engine:
    return Engine.load(server.url, patience_s=PATIENCE_S)


@pytest.fixture(scope="module")
def local(folder: Path) -> Engine:
    """In float32, of which both servers' answers are read."""
    return Engine.load(str(folder), backend="torch", dtype="float32")


@pytest.fixture(scope="module")
def exact(folder: Path, server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A second server, in float32."""
    other = RealServer(server.python, folder, tmp_path_factory.mktemp("exact") / "server.log", "--dtype", "float32")
    try:
        other.start()
        yield Engine.load(other.url, patience_s=PATIENCE_S)
    finally:
        other.kill()


@pytest.fixture(autouse=True)
def running(server: RealServer) -> Iterator[None]:
    """A test that fails while the server is away leaves it to the next one all the same."""
    yield
    if not server.runs:
        server.start()


# --- the same answers ---


def is_near_tie(decision: Decision) -> bool:
    best, second = sorted((p for p in decision.probabilities if p is not None), reverse=True)[:2]
    return best - second < 2 * CLOSE  # as much as one rises the other falls


def compared(name: str, read: Result, truth: Result, is_complete: bool) -> float:
    """The largest difference of a probability; near ties are told, other winners fail."""
    widest = 0.0
    for ours, theirs in zip(read.decisions, truth.decisions, strict=True):
        at = f"{name}.{ours.name}"
        if ours.value != theirs.value:
            assert is_near_tie(theirs), f"{at}: {ours.value!r} and not {theirs.value!r}, {theirs.top(3)}"
            print(f"near tie: {at}: vLLM {ours.top(2)}, PyTorch {theirs.top(2)}")
        if is_complete:
            pairs = zip(ours.probabilities, theirs.probabilities, strict=True)
            apart = max(abs(p - q) for p, q in pairs if p is not None and q is not None)
            assert apart <= WIDEST, f"{at}: {apart:.4f} apart"
            if apart > CLOSE:
                print(f"apart by {apart:.4f}: {at}")
            assert None not in ours.probabilities
            widest = max(widest, apart)
    return widest


@pytest.mark.parametrize("name", PRESETS)
def test_in_float32_a_preset_gets_the_scores_that_it_gets_in_this_process(
    exact: Engine, local: Engine, name: str
) -> None:
    preset = PRESETS[name]
    truth, read = (each.run_parallel(preset.context, preset.schema, complete=True) for each in (local, exact))
    apart = 0.0
    for ours, theirs in zip(read.decisions, truth.decisions, strict=True):
        assert ours.value == theirs.value, ours.name
        apart = max(apart, *(abs(p - q) for p, q in zip(ours.probabilities, theirs.probabilities, strict=True)))
    print(f"\n{name}, float32: probabilities at most {apart:.1e} apart")
    assert apart < EXACT


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_decided_as_in_this_process(served: Engine, local: Engine, name: str) -> None:
    preset = PRESETS[name]
    truth = local.run_parallel(preset.context, preset.schema, complete=True)
    read = served.run_parallel(preset.context, preset.schema, complete=True)
    widest = compared(name, read, truth, is_complete=True)
    unasked = max(decision.unasked_mass for decision in read.decisions)
    requests = f"{read.passes} requests, {read.sent_tokens} tokens sent"
    print(f"\n{name}: largest difference {widest:.4f}; unasked at most {unasked:.1e}; {requests}")
    assert (read.backend, read.clock, read.strategy) == ("vllm", "client", "prompts")
    bounded = served.run_parallel(preset.context, preset.schema)
    compared(f"{name}, best-first,", bounded, truth, is_complete=False)
    assert bounded.reading == "best-first" and bounded.sent_tokens <= read.sent_tokens


# --- a race ---


def last(events: list[Any], kind: str, lane: str = "") -> Any:
    return [event for event in events if event.kind == kind and (not lane or event.lane == lane)][-1]


@pytest.mark.parametrize("mode", MODES)
def test_a_race_is_run_on_one_server(served: Engine, mode: str) -> None:
    alone = served.run_parallel(ROWS[0], SCHEMA)
    events = served.race(ROWS[0], SCHEMA, mode=mode).wait()
    run, pcd, ar, end = (
        last(events, "run"), last(events, "lane_end", "pcd"), last(events, "lane_end", "ar"), last(events, "end"),
    )  # fmt: skip
    assert (end.state, end.message) == ("done", "")
    assert (run.backend, run.clock) == ("vllm", "client") and run.device.startswith("vLLM 0.")
    assert {event.name: event.value for event in events if event.kind == "field"} == alone.values
    assert json.loads(pcd.text) == alone.values and pcd.sent_tokens > 0
    tokens = [event for event in events if event.kind == "token"]
    assert tokens and [event.ms for event in tokens] == sorted(event.ms for event in tokens)
    assert 0 < ar.first_token_ms <= tokens[-1].ms <= ar.ms
    if mode != "free":  # which is hung up on when its object is closed, before the server has told
        assert ar.server_queue_ms is not None
    if not {"limit", "not_parsable", "truncated"} & set(end.marks):
        assert isinstance(json.loads(ar.text), dict)
    if mode == "schema":
        assert end.marks == () and list(json.loads(ar.text)) == ["priority", "refund"]


# --- many, and a server that is killed ---


def table(folder: Path, rows: list[str]) -> list[str]:
    """A table of the rows, and the arguments of the command that decides them."""
    (folder / "rows.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    (folder / "schema.json").write_text(json.dumps(SCHEMA.to_json()))
    return [
        "--schema", str(folder / "schema.json"), "--input", str(folder / "rows.jsonl"), "--text-column", "text",
        "--output", str(folder / "out.jsonl"), "--size", "4",
    ]  # fmt: skip


def batch(server: RealServer, arguments: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "core.batch", *arguments, "--model", server.url]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines(folder: Path) -> list[dict[str, Any]]:
    """Those that are whole: the last one may be in the making."""
    file = folder / "out.jsonl"
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def assert_each_row_once(folder: Path, rows: list[str]) -> None:
    found = lines(folder)
    assert [line["row"] for line in found] == list(range(len(rows)))
    assert not [line["error"] for line in found if "error" in line]


def test_a_batch_keeps_the_order_and_decides_as_one_by_one(server: RealServer, served: Engine, tmp_path: Path) -> None:
    process = batch(server, table(tmp_path, ROWS))
    _, told = process.communicate(timeout=900)
    assert process.returncode == 0, told
    assert_each_row_once(tmp_path, ROWS)
    apart = []
    for row, line in zip(ROWS, lines(tmp_path), strict=True):
        alone = served.run_parallel(row, SCHEMA, complete=True)
        apart += [
            f"{row!r}: {decision.name}"
            for decision in alone.decisions
            if line["values"][decision.name] != decision.value and not is_near_tie(decision)
        ]
    assert not apart
    print(f"\n{told.strip().splitlines()[-1]}")


def test_a_server_that_is_killed_in_the_middle_costs_no_row_and_doubles_none(
    server: RealServer, tmp_path: Path
) -> None:
    arguments = table(tmp_path, ROWS)
    process = batch(server, arguments)
    until(lambda: len(lines(tmp_path)) >= 8 or process.poll() is not None, 600)
    server.kill()
    assert process.poll() is None, "it was over before the server was gone"
    server.start()
    told = process.communicate(timeout=900)[1].strip()
    if process.returncode:  # it gave up, in one line, and is taken up
        print(f"\nstopped: {told}")
        assert told.splitlines()[-1].startswith("error: the vLLM server does not answer") and "Traceback" not in told
        assert 8 <= len(lines(tmp_path)) < len(ROWS)
        process = batch(server, arguments)
        told = process.communicate(timeout=900)[1]
        assert process.returncode == 0, told
    assert_each_row_once(tmp_path, ROWS)


def test_a_batch_in_this_process_waits_for_the_server(server: RealServer, served: Engine) -> None:
    """With patience that outlasts the start, nobody learns of it but by the time that it took."""
    whole = [result.values for result in served.decode_many(ROWS[:12], SCHEMA)]
    found: list[Any] = []
    work = threading.Thread(target=lambda: found.extend(served.decode_many(ROWS[:12], SCHEMA)))
    server.kill()
    work.start()
    time.sleep(1)
    assert work.is_alive() and not found
    server.start()
    work.join(PATIENCE_S)
    assert [result.values for result in found] == whole


def test_a_race_without_a_server_fails_in_one_line_and_the_next_one_runs(server: RealServer) -> None:
    engine = Engine.load(server.url, patience_s=2.0)
    server.kill()
    end = last(engine.race(ROWS[0], SCHEMA).wait(), "end")
    print(f"\n{end.message}")
    assert end.state == "failed" and end.message.startswith("the vLLM server does not answer")
    with pytest.raises(ServerAway, match="the vLLM server does not answer"):
        engine.run_parallel(ROWS[0], SCHEMA)
    server.start()
    assert last(engine.race(ROWS[0], SCHEMA).wait(), "end").state == "done"


def test_a_start_without_a_server_is_one_line(server: RealServer) -> None:
    server.kill()
    with pytest.raises(ServerAway, match="^the vLLM server does not answer .*; try again when it is back$"):
        Engine.load(server.url, patience_s=1.0)


def test_the_server_is_the_version_that_was_recorded(served: Engine) -> None:
    assert recorded()["version"] in served.backend.identity.device
