"""What a client reaches of the page's own server: two operations, and no file, address or path of the machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import httpx
import pytest
from gradio import processing_utils
from gradio_client import Client

from core.api_key import ApiKey
from core.catalog import Catalog
from core.engine import Engine
from core.intake import MAX_BODY_BYTES
from core.owner import Owner
from core.resident import Status
from core.server import routes, service
from core.ui.inputs import read_inputs
from core.ui.page import build
from core.ui.runs import Runs
from tests.fakes import HashBackend, lexicon
from tests.scripted import FOUR, PRESETS, ScriptedEngine, ScriptedResident, served
from tests.serving import GOOD, TICKET, GatedBackend, resident_of, until

KEY = "a-key-of-thirty-two-characters-x"
SCHEMA = json.dumps(FOUR.schema.to_json())
REST = [SCHEMA, 1.0, "pretty", True, "error"]  # what a client gives after the text
ENGINE = ScriptedEngine(token_ms=0.1, pass_ms=5)


@pytest.fixture(scope="module")
def page() -> gr.Blocks:
    return build(ScriptedResident(ENGINE), PRESETS)


@pytest.fixture(scope="module")
def url(page: gr.Blocks) -> Iterator[str]:
    with served(page, routes(service(resident_of(None), Catalog())), ApiKey(KEY)) as address:
        yield address


@pytest.fixture(scope="module")
def friend(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, headers={"X-API-Key": KEY}, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def stranger(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=30) as client:
        yield client


PATHS = [
    "/", "/config", "/theme.css", "/manifest.json", "/favicon.ico", "/docs", "/openapi.json", "/v1/models",
    "/gradio_api/info", "/gradio_api/openapi.json", "/gradio_api/heartbeat/me", "/gradio_api/app_id",
    "/gradio_api/queue/data?session_hash=me", "/gradio_api/call/parallel/some-event", "/gradio_api/file=/etc/passwd",
    "/gradio_api/upload", "/gradio_api/token", "/login", "/nothing", "//", "/%2e%2e/config", "/CONFIG", "/health/",
    "/gradio_api/startup-events/", "/gradio_api/startup-events/../info",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_nothing_of_the_page_answers_without_the_key(stranger: httpx.Client, url: str, path: str) -> None:
    for method in ("GET", "HEAD", "POST", "OPTIONS"):
        answer = stranger.request(method, url.rstrip("/") + path)
        assert answer.status_code == 401, method
        assert "content-security-policy" in answer.headers


def test_gradio_may_ask_itself_whether_it_has_started(url: str) -> None:
    assert httpx.get(f"{url}gradio_api/startup-events").json() is False, "it has, before"


def test_gradios_own_client_comes_in_with_the_header(url: str) -> None:
    for headers in ({"X-API-Key": KEY}, {"Authorization": f"Bearer {KEY}"}):
        client = Client(url, headers=headers, download_files=False, verbose=False)
        assert json.loads(client.predict("text", SCHEMA, api_name="/parallel"))["is_valid_json"]
    events = [json.loads(line)["kind"] for line in client.submit("text", SCHEMA, api_name="/autoregressive")]
    assert events[-1] == "end" and "token" in events
    with pytest.raises(Exception, match="401|403|[Aa]uth|Could not"):
        Client(url, headers={"X-API-Key": KEY[::-1]}, verbose=False)


def test_curl_comes_in_with_the_header(friend: httpx.Client) -> None:
    asked = friend.post("/gradio_api/call/parallel", json={"data": ["text", *REST]}).json()
    answer = friend.get(f"/gradio_api/call/parallel/{asked['event_id']}").text
    assert answer.startswith("event: complete") and "parallel_constrained" in answer


def test_the_page_is_served_under_names_of_this_machine_only(friend: httpx.Client) -> None:
    for host, status in (("evil.example", 400), ("localhost", 200), ("127.0.0.1:1", 200)):
        assert friend.get("/config", headers={"Host": host}).status_code == status


# --- what there is ---


def test_two_operations_are_listed_and_no_others(friend: httpx.Client) -> None:
    for query in ("", "?all_endpoints=True", "?serialize=False", "?page="):
        told = friend.get(f"/gradio_api/info{query}").json()
        assert list(told["named_endpoints"]) == ["/parallel", "/autoregressive"] and not told["unnamed_endpoints"]
    operations = {path.split("/")[-1] for path in friend.get("/gradio_api/openapi.json").json()["paths"]}
    assert operations - {"{event_id}"} == {"parallel", "autoregressive", "upload"}


def test_every_other_event_of_the_page_is_private(page: gr.Blocks) -> None:
    public = [it["api_name"] for it in page.get_config_file()["dependencies"] if it["api_visibility"] != "private"]
    assert public == ["parallel", "autoregressive"]


CLOSED = [
    "upload", "upload_progress?upload_id=x", "proxy=http://127.0.0.1", "file=http://127.0.0.1/", "file=HTTPS://a.example",
    "file=relative", "file/etc/passwd", "deep_link", "runs", "run-history/buckets", "token", "user", "login_check",
    "dev/reload", "custom_component/x/client/component/index.js", "process_recording", "vibe-edit", "vibe-code",
    "vibe-starter-queries", "undo-vibe-edit", "stream/x", "queue/status", "profiling/traces", "api/parallel",
    "call/parallel/x/y", "component_server/x", "mcp", "mcp/sse", "info/x",
]  # fmt: skip


@pytest.mark.parametrize(
    "path", [*(f"/gradio_api/{it}" for it in CLOSED), "/login", "/logout", "/monitoring", "/pwa_icon"]
)
def test_what_the_page_does_not_use_is_not_there(friend: httpx.Client, path: str) -> None:
    for method in ("GET", "POST"):
        answer = friend.request(method, path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), method


@pytest.mark.parametrize(
    "path",
    ["/", "/config", "/theme.css", "/manifest.json", "/favicon.ico", "/docs", "/openapi.json", "/v1/models", "/health"],
)
def test_what_the_page_and_the_service_use_is_there(friend: httpx.Client, path: str) -> None:
    assert friend.get(path).status_code == 200


# --- files, addresses, paths ---

FILES = [
    "/etc/passwd", "//etc/passwd", "/proc/self/environ", "/etc/../etc/passwd", "/etc/passwd%00.png",
    str(Path(__file__).parents[1] / "app.py"), str(Path(__file__).parents[1] / "presets"), str(Path.home()),
]  # fmt: skip


@pytest.mark.parametrize("path", FILES)
def test_no_file_of_the_machine_can_be_had(friend: httpx.Client, path: str) -> None:
    for opening in ("/gradio_api/file=", "/assets/", "/static/", "/static/../..", "/assets/%2e%2e/%2e%2e/%2e%2e"):
        answer = friend.get(opening + path)
        assert answer.status_code in (403, 404), opening
        assert "root:" not in answer.text and "import" not in answer.text


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that Gradio has asked for."""
    asked: list[str] = []
    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", lambda self, it: asked.append(str(it.url)))
    return asked


@pytest.mark.parametrize("path", ["/etc/passwd", __file__, "http://a.example/x.txt", "https://127.0.0.1/x"])
@pytest.mark.parametrize("meta", [{"meta": {"_type": "gradio.FileData"}}, {}])
def test_a_file_in_the_place_of_a_text_is_neither_read_nor_fetched(
    friend: httpx.Client, fetched: list[str], path: str, meta: dict[str, Any]
) -> None:
    file = {"path": path, "url": path, **meta}
    asked = friend.post("/gradio_api/call/parallel", json={"data": [file, *REST]}).json()
    answer = friend.get(f"/gradio_api/call/parallel/{asked['event_id']}").text
    assert answer.startswith("event: error") and "root:" not in answer and "import" not in answer
    # Without Gradio's mark it is a dictionary, which is no text.
    assert ("fetches nothing" in answer) == (path.startswith("http") and bool(meta))
    assert fetched == []


@pytest.mark.parametrize("has_length", [True, False])
def test_a_body_that_is_too_long_is_refused_on_gradios_paths_too(friend: httpx.Client, has_length: bool) -> None:
    body = json.dumps({"data": ["x" * MAX_BODY_BYTES, *REST]}).encode()
    content = body if has_length else iter([body[: len(body) // 2], body[len(body) // 2 :]])
    headers = {"Content-Type": "application/json"}
    answer = friend.post("/gradio_api/call/parallel", content=content, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")


def test_gradio_has_no_other_way_to_fetch(page: gr.Blocks, url: str) -> None:
    assert processing_utils.async_ssrf_protected_download.__module__ == "core.ui.openings"


def test_only_the_pages_own_functions_are_called_and_an_id_is_no_path(page: gr.Blocks, friend: httpx.Client) -> None:
    functions = {
        (number, name)
        for number, block in page.blocks.items()
        for name in dir(block)
        if getattr(getattr(block, name, None), "_is_server_fn", False)
    }
    assert {name for _, name in functions} == {"look", "here", "choose"}
    for number, name in functions:
        for data in ("/etc/passwd", "../../x", {"path": "/etc/passwd"}, None):
            body = {"component_id": number, "fn_name": name, "data": data, "session_hash": "me"}
            told = friend.post("/gradio_api/component_server", json=body)
            assert told.status_code == 200 and "root:" not in told.text
            assert name != "choose" or "is not here" in told.text
        for other in ("preprocess", "__init__", "move_resource_to_block_cache", "get_config"):
            body = {"component_id": number, "fn_name": other, "data": "/etc/passwd", "session_hash": "me"}
            assert friend.post("/gradio_api/component_server", json=body).status_code == 404
    kept = friend.post("/gradio_api/component_server", files={"file": b"x" * 9}, data={"component_id": "1"})
    assert kept.status_code == 413


def test_no_path_of_the_server_is_told_on_the_page() -> None:
    private = "/srv/private models/tiny-llama"
    engine = Engine(HashBackend(lexicon("qwen")), private, f"its path '{private}' was given")
    broken = Status("failed", message=f"{private} could not be loaded: no file '{private}/model.safetensors'")
    for resident in (ScriptedResident(None, broken), resident_of(engine)):
        page = build(resident, PRESETS)
        with served(page) as url:
            picker = next(number for number, block in page.blocks.items() if block.elem_id == "model")
            body = {"component_id": picker, "fn_name": "look", "data": None, "session_hash": "me"}
            told = [httpx.post(f"{url}gradio_api/component_server", json=body).json()]
            for name, given in (("parallel", REST), ("autoregressive", [SCHEMA, "json", "pretty", True, "error"])):
                asked = httpx.post(f"{url}gradio_api/call/{name}", json={"data": ["text", *given]}).json()
                told.append(httpx.get(f"{url}gradio_api/call/{name}/{asked['event_id']}", timeout=30).text)
        told.append(asyncio.run(_run(resident)))
        for said in told:
            assert "tiny-llama" in said and "/srv" not in said and "private models" not in said
        page.close(verbose=False)


async def _run(resident: Any) -> str:
    """What the board is given of a run."""
    inputs = read_inputs("text", SCHEMA, 1.0, "pcd", "json", "pretty", True)
    return [log.lines async for log in Runs(resident).start("me", inputs)][-1]


def test_the_pages_endpoints_and_rest_wait_in_one_bounded_queue() -> None:
    backend = GatedBackend()
    resident = resident_of(Engine(backend, "gated", owner=Owner(1)))
    try:
        with served(build(resident, PRESETS), routes(service(resident, Catalog()))) as url:
            client = Client(url, verbose=False)
            jobs = [client.submit(TICKET, *REST, api_name="/parallel") for _ in range(4)]
            until(lambda: sum(job.done() for job in jobs) == 2)
            refused = [str(job.exception()) for job in jobs if job.done()]
            assert all("the queue is full: 1 requests wait" in words for words in refused)
            answer = httpx.post(f"{url}v1/pcd/decode", json=GOOD)
            assert (answer.status_code, answer.json()["code"]) == (503, "queue_full") and answer.headers["Retry-After"]
            backend.permits.release(1_000_000)
            assert sum(job.exception(timeout=20) is None for job in jobs) == 2
    finally:
        backend.permits.release(1_000_000)


def test_a_caller_that_leaves_frees_its_place() -> None:
    backend = GatedBackend()
    engine = Engine(backend, "gated", owner=Owner(1))
    try:
        with served(build(resident_of(engine), PRESETS)) as url:
            for _ in range(2):  # one that is begun, and one that waits
                with pytest.raises(httpx.ReadTimeout):
                    httpx.post(f"{url}gradio_api/run/parallel", json={"data": [TICKET, *REST]}, timeout=0.5)
            until(lambda: engine.owner.waiting == 0)
            backend.permits.release(1_000_000)
            answer = httpx.post(f"{url}gradio_api/run/parallel", json={"data": [TICKET, *REST]}, timeout=20)
            assert json.loads(answer.json()["data"][0])["schema_match"]
    finally:
        backend.permits.release(1_000_000)
