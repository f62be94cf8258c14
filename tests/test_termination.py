"""SIGTERM to the app as a program: what was taken is finished, what comes is refused, and it ends in time."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from tests.test_app import ROOT, page

SHORT = json.dumps({"risk": {"type": "boolean"}})
LONG = json.dumps({f"field_{n}": {"type": "enum", "choices": ["HIGH", "LOW"]} for n in range(12)})
ENDLESS = json.dumps({f"field_{n}": {"type": "enum", "choices": ["HIGH", "LOW"]} for n in range(110)})


@contextmanager
def app(model: str) -> Iterator[tuple[subprocess.Popen, Client]]:
    """The program with its model there, and a client of its page."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "app.py", "--model", model, "--dtype", "float32", "--port", str(port), "--offline"]
    app = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        page(port, app)
        client = Client(f"http://127.0.0.1:{port}/", verbose=False, download_files=False)
        for _ in range(300):  # while the model loads
            try:
                client.predict("text", SHORT, api_name="/parallel")
                break
            except AppError as error:
                assert "still loading" in str(error)
                time.sleep(0.1)
        yield app, client
    finally:
        app.kill()
        app.wait(10)


def started(client: Client, schema: str, races: int) -> list:
    """Races of which one is under way."""
    jobs = [client.submit(f"text {n}", schema, api_name="/autoregressive") for n in range(races)]
    for _ in range(1000):
        if any(job.outputs() for job in jobs):
            return jobs
        time.sleep(0.01)
    raise AssertionError("no race has begun")


@pytest.mark.slow
def test_accepted_requests_finish_and_new_ones_are_refused(checkpoint: Callable[[str, str], Path]) -> None:
    with app(str(checkpoint("llama", "qwen"))) as (program, client):
        jobs = started(client, LONG, 3)
        os.kill(program.pid, signal.SIGTERM)
        time.sleep(0.1)
        with pytest.raises(AppError, match="the service is shutting down and takes no new requests"):
            client.predict("text", SHORT, api_name="/parallel")
        ends = [json.loads(job.result(timeout=10)) for job in jobs]
        assert [(end["kind"], end["state"]) for end in ends] == [("end", "done")] * 3
        assert program.wait(10) == 0


@pytest.mark.slow
def test_a_second_signal_cuts_nobody_off(checkpoint: Callable[[str, str], Path]) -> None:
    with app(str(checkpoint("llama", "qwen"))) as (program, client):
        jobs = started(client, LONG, 3)
        for _ in range(2):
            os.kill(program.pid, signal.SIGTERM)
            time.sleep(0.2)
        ends = [json.loads(job.result(timeout=10)) for job in jobs]
        assert [(end["kind"], end["state"]) for end in ends] == [("end", "done")] * 3
        assert program.wait(10) == 0


@pytest.mark.slow
@pytest.mark.model
def test_what_does_not_finish_in_time_is_cancelled_and_the_program_ends() -> None:
    with app("smollm2-135m") as (program, client):
        jobs = started(client, ENDLESS, 3)
        before = time.monotonic()
        os.kill(program.pid, signal.SIGTERM)
        assert program.wait(15) == 0
        took = time.monotonic() - before
    ends = [json.loads(job.outputs()[-1]) for job in jobs if job.outputs()]
    print(f"ended after {took:.1f} s", [(end["kind"], end.get("state")) for end in ends])
    states = [end.get("state") for end in ends]
    assert states.count("stopped") >= 2 and took <= 10  # the one that runs may sit in a pass
