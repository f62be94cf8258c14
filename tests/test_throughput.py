"""Rows a second by requests in flight, on an engine that counts what it is asked."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from core import throughput
from core.benchmark import main
from core.engine import Engine
from core.owner import Unavailable
from core.throughput import rows_of
from tests.fakes import HashBackend, lexicon

URL = "http://127.0.0.1:8000"
TEXT = "The parcel is wet.\nI was charged twice."


class Served(Engine):
    """Takes a second of a clock of its own for each wave of what is in flight."""

    def __init__(self) -> None:
        super().__init__(HashBackend(lexicon("qwen")), "served-1b", "served by vLLM 0.32.0")
        self.in_flight = 8
        self.now = 0.0
        self.asked: list[tuple[int, list[str]]] = []
        self.before_call: Callable[[int], None] = lambda number: None

    def decode_many(self, contexts: Any, schema: Any, *given: Any, **options: Any) -> list[Any]:
        self.before_call(len(self.asked))
        self.asked.append((self.in_flight, list(contexts)))
        self.now += -(-len(contexts) // self.in_flight)
        return []


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Served:
    engine = Served()
    monkeypatch.setattr(Engine, "load", lambda *_, **__: engine)
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: engine.now)
    monkeypatch.chdir(tmp_path)
    preset = {"context": TEXT, "schema": {"risk": {"type": "enum", "choices": ["HIGH", "LOW"]}}}
    (tmp_path / "mine.json").write_text(json.dumps(preset))
    return engine


def measured(*arguments: str) -> int:
    return main(["--throughput", "1,8,64", "--preset", "mine.json", "--url", URL, *arguments])


def test_rates_are_of_whole_rounds_and_their_ratios_to_the_first(engine: Served, capsys) -> None:
    assert measured("--rounds", "3") == 0
    *table, line = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["benchmark"], found["preset"], found["rounds"], found["whole"]) == ("throughput", "mine", 3, True)
    assert (found["model"], found["clock"]) == ("served-1b", "client")
    assert [[f["in_flight"], f["rows"], f["seconds"], f["rows_per_s"], f["ratio"]] for f in found["throughput"]] == [
        [1, 8, [8, 8, 8], 1, 1],
        [8, 32, [4, 4, 4], 8, 8],
        [64, 256, [4, 4, 4], 64, 64],
    ]
    assert table[-4].split() == ["in", "flight", "rows", "rows/s", "range", "ratio", "n"]
    assert table[-1].split() == ["64", "256", "64.00", "64.00-64.00", "64.00x", "3"]


def test_the_numbers_take_turns_behind_one_row_that_is_not_timed(engine: Served) -> None:
    measured("--rounds", "2")
    (_, first), *rounds = engine.asked
    assert len(first) == 1
    assert [(number, len(rows)) for number, rows in rounds] == [
        (1, 8), (8, 32), (64, 256), (64, 256), (8, 32), (1, 8),
    ]  # fmt: skip


def test_no_two_rows_begin_alike_and_each_ends_with_the_preset_s_own_text(engine: Served) -> None:
    measured("--rounds", "2")
    rows = [row for _, some in engine.asked for row in some]
    firsts = {row.partition("\n")[0] for row in rows}
    assert len(firsts) == len(rows) == 1 + 2 * 296 and {row.partition("\n")[2] for row in rows} == {TEXT}
    assert not firsts & {next(rows_of(TEXT, "another-run")).partition("\n")[0]}
    engine.asked.clear()
    measured("--rounds", "1")
    assert not firsts & {row.partition("\n")[0] for _, some in engine.asked for row in some}, "nor of two runs"


def test_what_was_finished_is_printed_when_it_is_interrupted(engine: Served, capsys) -> None:
    def press(number: int) -> None:
        if number == 3:  # the first round's last
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    engine.before_call = press
    assert measured("--rounds", "2") == 130
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(f["in_flight"], len(f["seconds"])) for f in found["throughput"]] == [(1, 1), (8, 1)]
    assert found["whole"] is False


def test_a_server_that_goes_away_is_one_line(engine: Served, capsys) -> None:
    def leave(number: int) -> None:
        if number == 2:
            raise Unavailable("the vLLM server does not answer (ConnectError); try again when it is back")

    engine.before_call = leave
    assert measured() == 1
    out, err = capsys.readouterr()
    assert err.splitlines()[-1] == ("error: the vLLM server does not answer (ConnectError); try again when it is back")
    assert [f["in_flight"] for f in json.loads(out.splitlines()[-1])["throughput"]] == [1]
