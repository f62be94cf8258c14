"""The app as a program: its flags, and one line instead of a traceback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from core.flags import flags
from core.resident import Resident

KEY = "a-key-of-thirty-two-characters-x"
ROOT = Path(__file__).parents[1]


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | variables
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    "command, words",
    [
        (["app.py", "--model", "bogus"], "model 'bogus' is not known"),
        (["app.py", "--port", "99999"], "is no port"),
        (["app.py", "--dtype", "int8"], "invalid choice"),
        (["-m", "core.decode", "nowhere.json"], "No such file"),
        (["-m", "core.decode", "presets/fintech_fraud.json", "--model", "bogus"], "model 'bogus' is not known"),
        (["-m", "core.decode", "presets/fintech_fraud.json", "--backend", "abacus"], "invalid choice: 'abacus'"),
        (["-m", "core.models", "get", "bogus"], "model 'bogus' is not known"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_no_traceback(command: Sequence[str], words: str) -> None:
    ran = run(*command)
    assert ran.returncode and words in ran.stderr.splitlines()[-1]
    assert "Traceback" not in ran.stderr and ran.stdout == ""


@pytest.mark.parametrize(
    "given, words",
    [
        (["--queue=-1"], "'-1' is no count; use 0 or more"),
        (["--queue", "many"], "'many' is no count"),
        (["--timeout", "0"], "'0' is no time; use a number of seconds above 0, a day at most"),
        (["--timeout", "nan"], "'nan' is no time"),
        (["--timeout", "1e9"], "'1e9' is no time"),
        (["--timeout", "soon"], "'soon' is no time"),
    ],
)
def test_a_bound_that_is_none_is_refused(given: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        flags().parse_args(given)
    assert words in capsys.readouterr().err.splitlines()[-1]


def test_the_queue_of_the_app_is_bounded_and_its_requests_have_no_time_limit_unless_they_are_given_one() -> None:
    usual, given = flags().parse_args([]), flags().parse_args(["--queue", "0", "--timeout", "2.5"])
    assert (usual.queue, usual.timeout) == (32, None)
    assert (given.queue, given.timeout) == (0, 2.5)


def test_a_taken_port_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = run("app.py", "--model", "none", "--port", str(taken.getsockname()[1]))
    assert ran.returncode == 1 and "the port is in use" in ran.stderr and "Traceback" not in ran.stderr


def test_without_a_model_the_page_answers_to_who_has_the_key_and_the_log_keeps_quiet(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "app.py", "--model", "none", "--port", str(port)]
    log, word = tmp_path / "log", "xyzzy-of-a-text"
    with log.open("w") as stream:
        app = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PCD_API_KEY": KEY}, stdout=stream, stderr=stream)
    try:
        assert "Parallel constrained decoding" in page(port, app)
        body = {"fn_index": 0, "data": [{"path": word, "meta": {"_type": "gradio.FileData"}}], "session_hash": "me"}
        for headers, status in (({}, 401), ({"X-API-Key": KEY}, 500)):
            answer = httpx.post(f"http://127.0.0.1:{port}/gradio_api/run/predict", json=body, headers=headers)
            assert answer.status_code == status
    finally:
        app.terminate()
        app.wait(timeout=20)
    assert "an event of the page failed" in log.read_text() and word not in log.read_text()


def page(port: int, app: subprocess.Popen[bytes]) -> str:
    """The start page, as soon as it answers."""
    for _ in range(600):
        assert app.poll() is None, "the app has ended"
        try:
            return httpx.get(f"http://127.0.0.1:{port}/", headers={"X-API-Key": KEY}, timeout=10).text
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the page never answered")


@pytest.mark.parametrize(
    "error, words",
    [
        (MemoryError(), "out of memory; free some, or choose a smaller model"),
        (RuntimeError("first line\nsecond line"), "RuntimeError, first line; the log has more"),
    ],
)
def test_a_load_that_fails_in_any_way_ends_the_waiting(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def load(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("core.engine.Engine.load", load)
    resident = Resident()
    resident.start("smollm2-135m", backend="auto", dtype="auto", offline=True)
    for _ in range(200):
        if resident.status.state != "loading":
            break
        time.sleep(0.02)
    assert resident.status.state == "failed"
    assert resident.status.message == f"smollm2-135m could not be loaded: {words}"
