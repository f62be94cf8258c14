"""The app as a Space on ZeroGPU runs it: the package `spaces` forks a worker for each request, and there is no GPU.

What is not here: a GPU, CUDA's emulation in the web process, and the platform, for which a stand-in answers.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from gradio_client import Client

from core import zero_gpu
from core.relay import Call
from core.zero_gpu import LEAST_S, MOST_S, duration_s
from tests.serving import GOOD, PRIORITY, REFUND, TICKET, until

ROOT = Path(__file__).parents[1]
TOKEN = "e30.e30.e30"  # a visitor's, as the platform puts it in a header: empty JSON, thrice
LONG = [{**PRIORITY, "name": f"priority_{number}"} for number in range(60)]

needs_spaces = pytest.mark.skipif(not importlib.util.find_spec("spaces"), reason="the package `spaces` is not here")


class Platform(ThreadingHTTPServer):
    """Lends the one GPU that there is not; `refusal` is answered instead, once it is set."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Asked)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.refusal: tuple[int, dict[str, Any], dict[str, str]] | None = None
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def all(self, what: str) -> list[dict[str, str]]:
        return [given for path, given in self.asked if path == what]


class _Asked(BaseHTTPRequestHandler):
    server: Platform

    def do_POST(self) -> None:
        url = urlsplit(self.path)
        self.server.asked.append((url.path, {key: value for key, (value,) in parse_qs(url.query).items()}))
        lent = {"idle": True, "nvidiaIndex": 0, "nvidiaUUID": "none", "allowToken": "token"}
        refused = self.server.refusal if url.path == "/schedule" else None
        status, body, headers = refused or (200, lent, {})
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class Space:
    def __init__(self, platform: Platform, url: str, log: Path) -> None:
        self.platform, self.url, self._log = platform, url, log
        self.http = httpx.Client(base_url=url, timeout=60, headers={"X-IP-Token": TOKEN})

    def decode(self, **more: Any) -> httpx.Response:
        return self.http.post("/v1/pcd/decode", json={**GOOD, **more})

    def race(self, **more: Any) -> list[dict[str, Any]]:
        answer = self.http.post("/v1/race", json={**GOOD, **more})
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    @property
    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture(scope="module")
def space(checkpoint: Callable[[str, str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Space]:
    platform, log = Platform(), tmp_path_factory.mktemp("space") / "log"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    model = checkpoint("llama", "qwen")
    variables = {
        "SYSTEM": "spaces",
        "SPACE_ID": "somebody/pcd",
        "SPACES_ZERO_GPU": "true",
        "SPACES_ZERO_DEVICE_API_URL": f"http://127.0.0.1:{platform.server_port}",
        "GRADIO_SERVER_NAME": "127.0.0.1",
        "PCD_MODEL": str(model),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        "OMP_NUM_THREADS": "1",
    }
    program = str(ROOT / "tests" / "zero_gpu_space.py")
    command = [sys.executable, program, "--port", str(port), "--models-dir", str(model.parent)]
    with log.open("w") as said:
        app = subprocess.Popen(command, cwd=ROOT, env=os.environ | variables, stdout=said, stderr=said)
    space = Space(platform, f"http://127.0.0.1:{port}", log)
    try:
        until(lambda: app.poll() is not None or _answers(space), 60)
        assert app.poll() is None, space.log
        yield space
    finally:
        app.terminate()
        app.wait(20)
        for worker in platform.all("/allow"):  # in a container they end with it
            with suppress(ProcessLookupError):
                os.kill(int(worker["pid"]), signal.SIGKILL)
        platform.shutdown()


def _answers(space: Space) -> bool:
    try:
        return space.http.get("/health").status_code == 200 and "Running on local URL" in space.log
    except httpx.TransportError:
        return False


# --- what is asked of the platform ---


@pytest.mark.parametrize(
    "read, written, seconds",
    [
        (0, 0, LEAST_S),
        (1_600, 0, LEAST_S + 1),  # a decode of the form with 28 fields
        (1_600, 706, 37),  # and a race, whose baseline may write twice its canonical text and 64
        (10_000_000, 0, MOST_S),
        (0, 10_000_000, MOST_S),
    ],
)
def test_a_gpu_is_asked_for_as_long_as_the_tokens_are_likely_to_take_within_bounds(
    read: int, written: int, seconds: int
) -> None:
    assert duration_s(Call("race", (), {}, read, written)) == seconds


def test_elsewhere_the_package_is_not_even_imported_and_the_work_is_as_it_was() -> None:
    assert not zero_gpu.IS_ON and not hasattr(zero_gpu, "spaces")
    assert zero_gpu._work.__module__ == "core.zero_gpu" and not hasattr(zero_gpu._work, "zerogpu")


def test_on_zero_gpu_spaces_comes_before_gradio_and_torch(tmp_path: Path) -> None:
    (tmp_path / "spaces.py").write_text(
        "import sys\n"
        "print('before', sorted({'torch', 'gradio', 'transformers'} & set(sys.modules)))\n"
        "GPU = lambda *, duration: lambda work: sys.exit(print('decorated', work.__name__, duration.__name__))\n"
    )
    variables = {"SPACES_ZERO_GPU": "1", "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    ran = subprocess.run(
        [sys.executable, "-c", "import app"],
        cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.stdout == "before []\ndecorated _work duration_s\n", ran.stderr


# --- the Space ---


@needs_spaces
def test_the_page_is_up_with_a_model_that_has_no_gpu_here(space: Space) -> None:
    health = space.http.get("/health").json()
    assert (health["ready"], health["state"]) == (True, "ready") and "cuda (ZeroGPU)" in health["description"]
    assert "Parallel constrained decoding" in space.http.get("/").text
    assert space.platform.all("/startup-report"), "or the platform takes the Space for one that uses no GPU"


@needs_spaces
def test_a_decode_is_done_in_a_worker_which_keeps_its_caches_while_it_is_warm(space: Space) -> None:
    before = len(space.platform.all("/allow"))
    fields = [PRIORITY, {**REFUND, "name": "refund_of_this_test"}]
    first, second = (space.decode(fields=fields).json() for _ in range(2))
    assert first["device"].startswith("cpu"), "what a worker finds, and not what the web process was told"
    assert [one["metrics"]["schemaCacheStatus"] for one in (first, second)] == ["miss", "hit"]
    assert first["values"].keys() == second["values"].keys() == {"priority", "refund_of_this_test"}
    assert len(space.platform.all("/allow")) - before <= 1, "the second one finds the worker warm"
    assert space.decode(cache=False).json()["metrics"]["schemaCacheStatus"] == "off"


@needs_spaces
def test_a_race_is_told_by_one_worker_and_names_what_it_ran_on(space: Space) -> None:
    before = len(space.platform.all("/schedule"))
    events = space.race(mode="schema")
    assert len(space.platform.all("/schedule")) == before + 1, "both lanes for one time on a GPU"
    started = next(event for event in events if event["kind"] == "run")
    assert started["device"].startswith("cpu") and started["versions"]["torch"]
    assert [event["lane"] for event in events if event["kind"] == "lane_end"] == ["pcd", "ar"]
    assert any(event["kind"] == "row" for event in events), "what the baseline wrote is read in the web process"
    assert events[-1]["kind"] == "end" and events[-1]["state"] == "done"
    assert started["ms"] >= 0 and events[-1]["ms"] > started["ms"]


@needs_spaces
def test_many_texts_are_one_call(space: Space) -> None:
    before = len(space.platform.all("/schedule"))
    answer = space.http.post(
        "/v1/pcd/batch", json={"contexts": [TICKET, "Nothing."], "fields": [PRIORITY, REFUND]}
    ).json()
    assert [set(one["values"]) for one in answer["results"]] == [{"priority", "refund"}] * 2
    assert len(space.platform.all("/schedule")) == before + 1


@needs_spaces
def test_gpu_time_is_asked_for_by_tokens_and_in_the_name_of_the_visitor(space: Space) -> None:
    space.decode()
    space.race(fields=LONG, mode="schema")
    short, long = space.platform.all("/schedule")[-2:]
    assert LEAST_S <= int(short["durationSeconds"]) < int(long["durationSeconds"]) <= MOST_S
    assert short["token"] == long["token"] == TOKEN


@needs_spaces
def test_the_endpoints_of_the_page_go_the_same_way(space: Space) -> None:
    client = Client(space.url, download_files=False, verbose=False, headers={"X-IP-Token": TOKEN})
    schema = json.dumps({"risk": {"type": "enum", "choices": ["HIGH", "LOW"]}})
    decided = json.loads(client.predict(TICKET, schema, 1.0, api_name="/parallel"))
    events = [json.loads(line) for line in client.submit(TICKET, schema, "schema", api_name="/autoregressive")]
    assert decided["values"]["risk"] in ("HIGH", "LOW") and events[-1]["state"] == "done"
    assert [given["token"] for given in space.platform.all("/schedule")[-2:]] == [TOKEN, TOKEN]


QUOTA = (429, {"left": 3, "wait": "PT10M"}, {"X-Approve-Result": "quota-exceeded"})


@needs_spaces
@pytest.mark.parametrize(
    "refusal, words",
    [
        (QUOTA, r"ZeroGPU quota exceeded: You have exceeded your ZeroGPU quota \(\d+s requested vs. 3s left\).+"),
        ((503, {}, {}), r"ZeroGPU client error: No GPU was available"),
        ((500, {}, {}), r"the worker could not be had or failed: RuntimeError; the log has more"),
    ],
)
def test_a_platform_that_lends_no_gpu_is_a_failed_run_in_its_words(space: Space, refusal: Any, words: str) -> None:
    space.platform.refusal = refusal
    try:
        end, decode = space.race()[-1], space.decode()
    finally:
        space.platform.refusal = None
    assert (end["kind"], end["state"]) == ("end", "failed") and re.fullmatch(words, end["message"])
    assert (decode.status_code, decode.json()["code"]) == (503, "no_gpu")
    assert re.fullmatch(words, decode.json()["message"])
    assert space.decode().status_code == 200, "the next one is done"


@needs_spaces
def test_a_request_that_cannot_be_done_asks_for_no_gpu(space: Space) -> None:
    before = len(space.platform.all("/schedule"))
    refused = space.decode(context="word " * 9_000)
    assert refused.status_code == 400 and "the window of" in refused.json()["message"]
    assert len(space.platform.all("/schedule")) == before


@needs_spaces
def test_whoever_leaves_stops_the_worker_and_it_stays_warm(space: Space) -> None:
    space.decode()
    before = len(space.platform.all("/release"))
    body = {"context": TICKET, "fields": LONG, "mode": "free"}
    with space.http.stream("POST", "/v1/race", json=body) as race:
        for line in race.iter_lines():
            if json.loads(line)["kind"] == "token":
                break
    until(lambda: len(space.platform.all("/release")) == before + 1)
    assert space.platform.all("/release")[-1]["fail"] == "false"
    allowed = len(space.platform.all("/allow"))
    assert space.decode().status_code == 200 and len(space.platform.all("/allow")) == allowed


@needs_spaces
def test_a_worker_that_is_killed_is_a_failed_run_and_the_next_one_gets_another(space: Space) -> None:
    space.decode()
    worker = int(space.platform.all("/allow")[-1]["pid"])
    os.kill(worker, signal.SIGSTOP)  # or a tiny model has written all before it can be killed
    killer = threading.Timer(0.5, os.kill, (worker, signal.SIGKILL))
    killer.start()
    events = space.race(fields=LONG, mode="free")
    killer.join()
    assert (events[-1]["state"], events[-1]["message"]) == ("failed", "ZeroGPU worker error: GPU task aborted")
    assert space.decode().status_code == 200


@needs_spaces
def test_no_other_model_can_be_chosen(space: Space) -> None:
    listed = space.http.get("/v1/models").json()
    assert listed["activeModel"]["device"] == "cuda (ZeroGPU)" and listed["activeModel"]["cacheEntries"] == 0
    refused = space.http.post("/v1/models/select", json={"id": listed["models"][-1]["id"]})
    assert refused.status_code == 404 and "set PCD_MODEL and restart the Space" in refused.json()["message"]
    assert space.http.get("/health").json()["ready"]
