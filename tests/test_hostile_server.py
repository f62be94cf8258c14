"""A server that answers nonsense, hangs, or says what nobody is to read."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from core.address import AddressError, servers
from core.engine import Engine
from core.engine_served import ServedEngine
from core.lane_clock import LaneClock
from core.owner import Cancelled, Unavailable
from core.public import public_name
from core.request import Request
from core.schema import StructuredSchema
from core.vllm_server import Served, ServerRefused, VllmServer
from tests.serving import until
from tests.vllm_faults import HANG, Fault
from tests.vllm_server import TinyServer

SCHEMA = StructuredSchema({"urgent": {"type": "boolean"}, "grade": {"type": "enum", "choices": ["AA", "AB", "B"]}})
ROOT = Path(__file__).parent.parent
NO_IDS = "does not stream token ids"


class Hostile(TinyServer):
    """Says something else in the place of what it would."""

    says: dict[str, Any] = {}  # by path: an answer's body, or what makes one of the true one

    async def _answered(self, fault: Fault, scope: Any, receive: Any, send: Any) -> None:
        said = self.says.get(scope["path"])
        if isinstance(said, Response):
            await said(scope, receive, send)
        elif callable(said):
            sent: list[Any] = []
            await super()._answered(fault, scope, receive, _kept(sent))
            body = b"".join(each["body"] for each in sent if each["type"] == "http.response.body")
            await Response(json.dumps(said(json.loads(body))), media_type="application/json")(scope, receive, send)
        else:
            await super()._answered(fault, scope, receive, send)


def _kept(sent: list[Any]) -> Any:
    class Kept:
        """uvicorn's cycle is the owner of its `send`; the small server asks it for the transport."""

        transport = None

        async def send(self, message: Any) -> None:
            sent.append(message)

    return Kept().send


def body(text: str | bytes, status: int = 200, kind: str = "application/json") -> Response:
    return Response(text, status, media_type=kind)


@pytest.fixture(scope="module")
def server(checkpoint) -> Iterator[Hostile]:
    with Hostile(checkpoint("llama", "qwen"), window=8192) as server:
        yield server


@pytest.fixture(scope="module")
def loaded(server: Hostile) -> ServedEngine:
    return Engine.load(server.url, patience_s=0.3)


@pytest.fixture
def engine(loaded: ServedEngine, server: Hostile) -> Iterator[ServedEngine]:
    yield loaded
    server.says, server.pace_s = {}, 0.0
    server.forgive()


def card(**changed: Any) -> Response:
    return body(json.dumps({"data": [{"id": "m", "root": "m", "max_model_len": 64} | changed]}))


@pytest.mark.parametrize(
    "said",
    [
        *(body(json.dumps({"data": data})) for data in (5, "abc", None, [], [5], {"a": 1})),
        *(card(max_model_len=window) for window in (0, -5, 1e999, None, "x")),
        body("<html>", kind="text/html"),
        body("[" * 100_000),
    ],
)
def test_what_names_no_model_with_a_window_is_no_vllm(server: Hostile, engine: ServedEngine, said: Response) -> None:
    server.says = {"/v1/models": said}
    with pytest.raises(ServerRefused, match="is no vLLM|is there a vLLM"):
        VllmServer(server.url).served()


@pytest.mark.parametrize(
    "given, name",
    [
        ("", "a model without a name"),
        ("/", "a model without a name"),
        ("/srv/secret/llama", "llama"),
        ("~nobody-here/llama", "llama"),
        ("x" * 3_000, "x" * 100),
        ("a\x1b[31m\n\u202eb", "a\\x1b[31m\\n\\u202eb"),
        ("org/model", "org/model"),
    ],
)
def test_a_models_name_is_for_people_on_one_line_and_short(given: str, name: str) -> None:
    assert Served(given, given, 64).name == name


def test_a_name_as_long_as_no_files_is_no_path() -> None:
    assert public_name("x" * 3_000) == "x" * 3_000


@pytest.mark.parametrize("tokens", [5, ["x\x1b"], [None], [True]])
def test_a_tokeniser_that_says_no_ids_is_refused(server: Hostile, engine: ServedEngine, tokens: Any) -> None:
    server.says = {"/tokenize": body(json.dumps({"tokens": tokens}))}
    with pytest.raises(ServerRefused, match="does not say how it tokenises"):
        VllmServer(server.url).tokens("tiny", "a")


def scored(value: Any) -> Callable[[Any], Any]:
    def change(answer: Any) -> Any:
        for choice in answer["choices"]:
            for row in (choice["logprobs"] or {}).get("top_logprobs", ()):
                row.update(dict.fromkeys(row, value))
        return answer

    return change


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), -1e300, 10**400, None, "-1.5", True, 3.5])
def test_what_is_no_log_probability_is_refused_in_words(server: Hostile, engine: ServedEngine, value: Any) -> None:
    server.says = {"/v1/completions": scored(value)}
    with pytest.raises(ServerRefused, match="where a log-probability should be; start it with --logprobs-mode raw"):
        engine.run_parallel("text", SCHEMA, cache=False)


def numbered(answer: Any) -> Any:
    return answer | {"choices": [choice | {"index": 0} for choice in answer["choices"]]}


def test_answers_that_cannot_be_told_apart_are_refused(server: Hostile, engine: ServedEngine) -> None:
    server.says = {"/v1/completions": numbered}
    with pytest.raises(ServerRefused, match="prompts; update it"):
        engine.run_parallel("text", SCHEMA, complete=True, cache=False)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -5, True, "x"])
def test_a_queue_time_that_is_none_is_left_out(server: Hostile, engine: ServedEngine, value: Any) -> None:
    server.says = {"/v1/completions": lambda answer: answer | {"metrics": {"queue_time_ms": value}}}
    assert engine.run_parallel("text", SCHEMA, cache=False).server_queue_ms is None


def streamed(*parts: str) -> Response:
    return body("".join(f"data: {part}\n\n" for part in parts), kind="text/event-stream")


@pytest.mark.parametrize(
    "part, said",
    [
        ('{"choices": "abc"}', NO_IDS),
        ('{"choices": [1]}', NO_IDS),
        ('{"choices": 3}', NO_IDS),
        ('{"choices": [{"token_ids": [[1]]}]}', NO_IDS),
        ('{"choices": [{"token_ids": [-1]}]}', NO_IDS),
        ('{"choices": [{"token_ids": ["5"]}]}', NO_IDS),
        ('{"a": ' + "[" * 100_000, "no JSON object"),
    ],
)
def test_a_stream_of_nonsense_ends_the_lane_in_words(
    server: Hostile, engine: ServedEngine, part: str, said: str
) -> None:
    server.says = {"/v1/completions": streamed(part)}
    prepared = engine.owner.submit(lambda job: engine.prepare(_request())).result()
    with pytest.raises(Unavailable, match=said):
        engine.owner.submit(lambda job: engine.write(prepared, "free", _clock(engine), job, _nobody)).result()


def test_a_server_that_writes_more_than_it_was_asked_for_is_cut(server: Hostile, engine: ServedEngine) -> None:
    part = json.dumps({"choices": [{"token_ids": [5] * 5_000}]})
    server.says = {"/v1/completions": streamed(part)}
    prepared = engine.owner.submit(lambda job: engine.prepare(_request())).result()
    ended, _ = engine.owner.submit(lambda job: engine.write(prepared, "free", _clock(engine), job, _nobody)).result()
    assert ended.how == "limit" and ended.tokens < 500


def _request() -> Any:
    return Request("text", SCHEMA)


def _clock(engine: ServedEngine) -> Any:
    return LaneClock(engine.backend.synchronize)


def _nobody(event: Any) -> None:
    pass


# --- what is said of it ---


def test_a_servers_own_words_carry_no_folder_address_key_or_escape(server: Hostile, engine: ServedEngine) -> None:
    words = "\x1b[31m /srv/secret/m at http://10.0.0.1:1/x or 10.0.0.9:800, Bearer sk-12345\n\u202e end"
    server.says = {"/v1/completions": body(json.dumps({"error": {"message": words}}), 400)}
    with pytest.raises(ServerRefused) as refused:
        VllmServer(server.url, "sk-12345").completions({})
    told = str(refused.value)
    assert told.endswith("\\x1b[31m m at a vLLM server or its address, Bearer *** \\u202e end")
    assert told.isprintable()


def test_a_model_whose_name_fills_the_words_is_still_another_one(server: Hostile, engine: ServedEngine) -> None:
    with pytest.raises(Unavailable, match="runs another model than before"):
        VllmServer(server.url).completions({"model": "x" * 500, "prompt": [1]})


@pytest.mark.parametrize("key", ["\u00e9", "sk-1\n", "\x00"])
def test_a_key_that_no_header_carries_is_refused_without_it(key: str) -> None:
    with pytest.raises(ServerRefused, match="no header carries") as refused:
        VllmServer("http://127.0.0.1:1", key)
    assert key not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["http://ho st:80", "http://a\x1b:80", "http://a..b:1", f"http://{'a' * 64}:1", "http://*:1"]
)
def test_what_no_host_is_called_is_no_address(url: str) -> None:
    with pytest.raises(AddressError, match="is no server's address"):
        servers(url)


@pytest.mark.parametrize(
    "url", ["http://[::1]:80", "http://[fe80::1%25eth0]:80", "http://a_b.example.:80", "http://\u00e9.example"]
)
def test_addresses_of_all_kinds_are_taken(url: str) -> None:
    assert servers(url) == (url,)


@pytest.mark.parametrize("url", ["http://me:hunter2@h:1", "http://me:hunter2/x@h:1", "http://me:hunter2 @h"])
def test_a_password_in_an_address_is_not_repeated(url: str) -> None:
    with pytest.raises(AddressError, match="a user's name in it") as refused:
        servers(url)
    assert "hunter2" not in str(refused.value)


def test_a_server_without_tls_behind_https_is_told_and_not_tried_again(server: Hostile, engine: ServedEngine) -> None:
    with pytest.raises(ServerRefused, match="SSL_CERT_FILE, or http:// where it speaks no TLS"):
        VllmServer(server.url.replace("http:", "https:")).served()


# --- one that hangs ---


def test_a_stream_that_hangs_in_its_middle_is_stopped_and_hung_up_on(server: Hostile, engine: ServedEngine) -> None:
    server.pace_s = HANG
    begun = threading.Event()
    prepared = engine.owner.submit(lambda job: engine.prepare(_request())).result()

    def emit(event: Any) -> None:
        if type(event).__name__ == "TokenWritten":
            begun.set()

    writing = engine.owner.submit(lambda job: engine.write(prepared, "free", _clock(engine), job, emit))
    assert begun.wait(30)
    writing.cancel()
    with pytest.raises(Cancelled):
        writing.result()
    until(lambda: server.in_flight == 0)


def test_requests_that_nobody_waits_for_hold_no_place_among_those_in_flight(
    server: Hostile, engine: ServedEngine
) -> None:
    for _ in range(2 * engine.in_flight):
        server.meet(Fault(wait_s=HANG))
        before = len(server.received)
        asked = engine.submit("text", SCHEMA, cache=False)
        until(lambda before=before: len(server.received) > before)
        asked.cancel()
        with pytest.raises(Cancelled):
            asked.result()
    assert engine.run_parallel("text", SCHEMA, cache=False).values


def test_ctrl_c_ends_a_command_whose_server_hangs(server: Hostile, engine: ServedEngine) -> None:
    server.meet(Fault(wait_s=HANG), times=50)
    before = len(server.completions)
    options = ["--url", server.url, "--tokenizer", str(server.folder)]
    command = [sys.executable, "-m", "core.decode", "presets/time_zone.json", *options]
    asked = subprocess.Popen(
        command,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        until(lambda: len(server.completions) > before, 60)
        asked.send_signal(signal.SIGINT)
        assert asked.wait(30) == 130
        assert b"does not answer" not in asked.stderr.read()
    finally:
        asked.kill()
        asked.wait()
