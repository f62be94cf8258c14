"""The service with a model: its answers against those of Python, many texts, races, and who waits for whom."""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from core.catalog import Catalog
from core.contract import DecodeRequest
from core.engine import Engine
from core.engine_torch import TorchBackend
from core.owner import Closing, QueueFull, TimedOut
from core.race import Race
from core.refusal import Refusal
from core.replies import Decoded, labels
from core.resident import Busy, Resident, Status
from core.schema import StructuredSchema
from core.server import routes, service
from core.trace import from_line, to_lines
from tests.fakes import HashBackend, lexicon
from tests.serving import GOOD, PRIORITY, REFUND, TICKET, GatedBackend, app_of, client_of, listening, resident_of, until

PATH = "/srv/private models/tiny-llama"
TIERS = {"name": "tier", "description": "", "choices": ["TIER_3_HIGH", "TIER_1_LOW", "TIER_2_MEDIUM"]}
BILLS = {"name": "category", "description": "", "choices": ["BILLING", "BILLING_DISPUTE", "FRAUD"]}


@pytest.fixture(scope="module")
def engine(tiny: Callable[..., TorchBackend]) -> Engine:
    return Engine(tiny("llama", "qwen"), PATH, "its path was given")


@pytest.fixture
def client(engine: Engine) -> TestClient:
    return client_of(engine)


def decoded(client: TestClient, **changes: Any) -> dict[str, Any]:
    answer = client.post("/v1/pcd/decode", json={**GOOD, **changes})
    assert answer.status_code == 200, answer.text
    return answer.json()


def numbers(answer: dict[str, Any]) -> list[float]:
    return [share for field in answer["fields"] for share in field["probabilities"].values()]


# --- one text ---


def test_an_answer_has_the_contracts_keys_and_the_engines_numbers(client: TestClient, engine: Engine) -> None:
    answer = decoded(client, cache=False)
    result = engine.run_parallel(
        TICKET,
        StructuredSchema(
            {
                "priority": {"type": "enum", "choices": PRIORITY["choices"], "description": PRIORITY["description"]},
                "refund": {"type": "boolean", "description": REFUND["description"]},
            }
        ),
        cache=False,
    )
    assert answer["model"] == "tiny-llama"
    assert answer["values"] == result.values and list(answer["values"]) == ["priority", "refund"]
    for field, decision in zip(answer["fields"], result.decisions, strict=True):
        assert (field["name"], field["value"], field["probability"]) == (
            decision.name, decision.value, decision.probability,
        )  # fmt: skip
        assert (field["levels"], field["candidateMass"]) == (decision.levels[decision.winner], decision.candidate_mass)
        assert field["levels"] >= 1 and field["unreadMass"] == 0.0
    assert list(answer["fields"][0]["probabilities"].values()) == list(result.decisions[0].probabilities)
    metrics = answer["metrics"]
    assert metrics["elapsedMs"] == pytest.approx(math.fsum(metrics["phasesMs"].values()))
    assert set(metrics["phasesMs"]) == set(result.phases) and metrics["forwardPasses"] == result.passes
    assert (metrics["schemaCacheStatus"], metrics["checkpointBytes"]) == ("off", 0) and metrics["waitedMs"] >= 0
    assert (answer["strategy"], answer["reading"], answer["prior"]) == ("tree", "complete", "none")
    assert (answer["promptTokens"], answer["treeTokens"]) == (result.prompt_tokens, result.tree_tokens)


@pytest.mark.parametrize(
    "choices", [["LOW", "HIGH"], ["HIGH", "LOW"], ["10", "9", "a", "1"], [False, True], [True, False]]
)
def test_choices_come_back_in_the_order_in_which_they_were_sent(client: TestClient, choices: list[Any]) -> None:
    answer = decoded(client, fields=[{**PRIORITY, "choices": choices}, {**REFUND, "name": "also"}])
    assert list(answer["fields"][0]["probabilities"]) == labels(choices)
    assert list(answer["values"]) == ["priority", "also"]


@pytest.mark.parametrize("context", [TICKET, "a", "Where is my parcel?", "ß " * 300, "<|im_end|>\n{}"])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_the_value_is_the_likeliest_choice_and_the_shares_sum_to_one(
    client: TestClient, context: str, temperature: float
) -> None:
    answer = decoded(client, context=context, temperature=temperature, fields=[PRIORITY, REFUND, TIERS, BILLS])
    for field in answer["fields"]:
        shares = field["probabilities"]
        likeliest = max(shares, key=shares.get)
        assert field["value"] == {"true": True, "false": False}.get(likeliest, likeliest)
        assert field["probability"] == shares[likeliest] and math.fsum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert answer["values"][field["name"]] == field["value"]
    assert isinstance(answer["values"]["refund"], bool)


def test_cold_and_cached_answers_are_alike_and_say_what_they_are(tiny: Callable[..., TorchBackend]) -> None:
    client = client_of(Engine(tiny("llama", "qwen"), "tiny"))
    other = [TIERS, BILLS]
    runs = [
        decoded(client),
        decoded(client),
        decoded(client, fields=other),
        decoded(client),
        decoded(client, fields=other),
    ]
    metrics = [run["metrics"] for run in runs]
    assert [one["schemaCacheStatus"] for one in metrics] == ["miss", "hit", "miss", "hit", "hit"]
    sizes = [one["checkpointBytes"] for one in metrics]
    assert sizes[0] == sizes[1] == sizes[3] > 0 and sizes[2] == sizes[4] > 0
    assert metrics[0]["forwardPasses"] == 2 and metrics[1]["forwardPasses"] == 1
    assert numbers(runs[0]) == pytest.approx(numbers(runs[1]), abs=1e-5) and runs[0]["values"] == runs[3]["values"]
    assert numbers(runs[1]) == numbers(runs[3])
    active = client.get("/v1/models").json()["activeModel"]
    assert (active["cacheEntries"], active["cacheBytes"]) == (2, sizes[0] + sizes[2])


def test_texts_take_turns_on_one_schema(client: TestClient) -> None:
    first, second, third = (decoded(client, context=text) for text in ("one text", "another", "one text"))
    assert numbers(first) == pytest.approx(numbers(third), abs=1e-5)
    assert max(abs(a - b) for a, b in zip(numbers(first), numbers(second), strict=True)) > 1e-9


def test_a_damaged_entry_is_made_again_and_said_to_be() -> None:
    engine = Engine(HashBackend(lexicon("qwen")), "hash")
    client = client_of(engine)
    before = decoded(client)
    head, _ = engine._plans.head(DecodeRequest.model_validate(GOOD).request())
    object.__setattr__(head, "ids", head.ids[:-1])
    runs = [decoded(client), decoded(client)]
    assert [run["metrics"]["schemaCacheStatus"] for run in runs] == ["fallback", "hit"]
    assert [numbers(run) for run in runs] == [numbers(before)] * 2


def test_a_json_schema_comes_back_in_its_own_shape(client: TestClient) -> None:
    document = {
        "type": "object",
        "properties": {
            "who": {"type": "object", "properties": {"tier": {"enum": [1, 2, "1", None]}}, "required": ["tier"]},
            "big": {"enum": [10**40, 0]},
            "name": {"type": "string"},
        },
        "required": ["who", "big"],
    }
    answer = client.post("/v1/pcd/decode", json={"context": TICKET, "schema": document, "onUnsupported": "skip"}).json()
    assert set(answer["values"]) == {"who", "big"} and answer["values"]["who"]["tier"] in (1, 2, "1", None)
    assert answer["values"]["big"] in (10**40, 0)
    assert [remark["name"] for remark in answer["unsupported"]] == ["name"]
    tier = next(field for field in answer["fields"] if field["name"] == "who.tier")
    assert list(tier["probabilities"]) == ["1", "2", '"1"', "null"]


@pytest.mark.parametrize(
    ("choices", "names"),
    [
        ((True, False), ["true", "false"]),
        (("true", True), ['"true"', "true"]),
        (("a", '"a"', 1, "1"), ['"a"', '"\\"a\\""', "1", '"1"']),
        (("ä", None), ["ä", "null"]),
    ],
)
def test_no_two_choices_have_one_name(choices: tuple[Any, ...], names: list[str]) -> None:
    assert labels(choices) == names


def test_options_reach_the_engine_and_are_told(client: TestClient) -> None:
    answer = decoded(client, scoring="full", prior="content_free", style="compact", fields=[PRIORITY])
    assert (answer["scoring"], answer["prior"], answer["reading"]) == ("full", "content_free", "complete")
    assert answer["cache"]["prior"] == "miss"
    sharp, flat = (decoded(client, temperature=t)["fields"][0]["probability"] for t in (0.1, 10))
    assert sharp > flat


def test_what_was_not_read_is_null_and_only_where_that_was_asked_for() -> None:
    client = client_of(Engine(HashBackend(lexicon("qwen")), "hash"))
    codes = {
        "name": "code",
        "description": "",
        "choices": [f"{i * 7919 % 100_003:06d}" for i in range(256)],
    }
    whole, quick = (decoded(client, fields=[codes], complete=complete) for complete in (True, False))
    assert None not in numbers(whole) and whole["reading"] == "complete"
    assert quick["reading"] == "best-first" and quick["values"] == whole["values"]
    assert numbers(quick).count(None) > 0 and quick["fields"][0]["unreadMass"] > 0


def test_a_text_past_the_window_is_400_and_names_no_path(client: TestClient) -> None:
    answer = client.post("/v1/pcd/decode", json={**GOOD, "context": "a b " * 16_000})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert "the window of tiny-llama holds" in answer.json()["message"] and "/srv" not in answer.text


def test_choices_that_become_the_same_tokens_are_422() -> None:
    twins = {**PRIORITY, "choices": ["caf\u00e9", "cafe\u0301"]}
    answer = client_of(Engine(HashBackend(lexicon("nfc")), "hash")).post(
        "/v1/pcd/decode", json={"context": TICKET, "fields": [twins]}
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "schema_error"), answer.text
    assert "become the same tokens" in answer.json()["message"]


# --- many texts ---


def test_a_batch_answers_each_text_as_it_would_alone(client: TestClient) -> None:
    texts = [TICKET, "Where is my parcel?", "", "a b " * 16_000, "x" * 65_537, "Thanks!"]
    body = {"fields": GOOD["fields"], "contexts": texts}
    answer = client.post("/v1/pcd/batch", json=body)
    assert answer.status_code == 200 and answer.json()["model"] == "tiny-llama"
    results = answer.json()["results"]
    words = {2: "the context is empty", 3: "the window of tiny-llama holds", 4: "has 65537 bytes"}
    for i, (text, result) in enumerate(zip(texts, results, strict=True)):
        if i in words:
            assert result["error"]["code"] == "invalid_request" and words[i] in result["error"]["message"]
        else:
            alone = decoded(client, context=text)
            assert result["values"] == alone["values"] and numbers(result) == pytest.approx(numbers(alone), abs=1e-4)
            assert list(result["fields"][1]["probabilities"]) == ["false", "true"]
    assert "/srv" not in answer.text


def test_a_batch_of_nothing_that_can_be_decided_asks_no_model() -> None:
    backend = GatedBackend()
    answer = client_of(Engine(backend, "hash")).post(
        "/v1/pcd/batch", json={"fields": [PRIORITY], "contexts": ["", " "]}
    )
    assert [set(one) for one in answer.json()["results"]] == [{"error"}] * 2 and not backend.entered.is_set()


# --- races ---


def test_a_race_is_the_trace_as_lines(client: TestClient) -> None:
    answer = client.post("/v1/race", json={**GOOD, "mode": "schema"})
    assert answer.headers["Content-Type"].startswith("application/x-ndjson")
    events = [from_line(line) for line in answer.text.splitlines()]
    assert (events[0].kind, events[-1].kind, events[-1].state) == ("run", "end", "done")
    assert {event.lane for event in events if event.kind == "lane"} == {"pcd", "ar"}
    assert events[0].model == "tiny-llama" and "/srv" not in answer.text
    assert to_lines(events) == answer.text and not any(event.live for event in events)
    fields = {event.name: event.value for event in events if event.kind == "field"}
    assert fields == decoded(client)["values"]


def test_a_race_of_one_lane_in_any_order(client: TestClient) -> None:
    for lanes in (["ar"], ["ar", "pcd"]):
        answer = client.post("/v1/race", json={**GOOD, "mode": "schema", "lanes": lanes})
        events = [from_line(line) for line in answer.text.splitlines()]
        assert [event.lane for event in events if event.kind == "lane"] == lanes


def test_a_race_past_the_window_ends_as_failed_without_a_path(client: TestClient) -> None:
    answer = client.post("/v1/race", json={**GOOD, "context": "a b " * 16_000})
    end = from_line(answer.text.splitlines()[-1])
    assert end.state == "failed" and "the window of tiny-llama holds" in end.message and "/srv" not in answer.text


# --- models ---


def test_without_a_model_the_service_says_so() -> None:
    client = client_of()
    health = client.get("/health")
    assert health.headers["Content-Type"] == "application/json" and health.status_code == 200
    assert health.json() | {"message": ""} == {
        "status": "ok", "apiVersion": "v1", "ready": False, "model": None, "description": None, "backend": None,
        "state": "absent", "message": "", "switching": None,
    }  # fmt: skip
    models = client.get("/v1/models").json()
    assert (models["active"], models["activeModel"]) == (None, None) and not any(m["active"] for m in models["models"])
    for id in ("missing.gguf", "../x", "\ud83d"):
        body = json.dumps({"id": id})
        answer = client.post("/v1/models/select", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_model")
    for bad, words in (({"id": 12}, "id must be a string, got 12"), ({}, "id is missing")):
        answer = client.post("/v1/models/select", json=bad)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request") and words in answer.text


def test_a_loading_model_is_503_with_its_stage_and_no_path() -> None:
    resident = resident_of(None)
    resident.status = Status("loading", f"reading {PATH}", 0.5)
    client = TestClient(service(resident, Catalog()))
    answer = client.post("/v1/pcd/decode", json=GOOD)
    assert (answer.status_code, answer.json()["code"]) == (503, "no_model")
    assert "still loading (reading tiny-llama)" in answer.json()["message"]
    assert client.get("/health").json()["message"] == "reading tiny-llama"


def test_a_ready_model_describes_itself_by_name(client: TestClient) -> None:
    health, active = client.get("/health").json(), client.get("/v1/models").json()["activeModel"]
    assert health["ready"] and health["model"] == active["id"] == "tiny-llama"
    assert health["description"] == active["description"]
    assert health["description"].startswith("tiny-llama (its path was given) on torch, cpu")
    assert (active["architecture"], active["contextSize"], health["backend"]) == ("llama", 8192, "torch")


@pytest.fixture
def models(tmp_path: Path, checkpoint: Callable[[str, str], Path]) -> Path:
    shutil.copytree(checkpoint("llama", "qwen"), tmp_path / "tiny-a")
    shutil.copytree(checkpoint("qwen2", "qwen"), tmp_path / "tiny-b")
    (tmp_path / "CORRUPT.GGUF").write_bytes(b"x" * 4096)
    return tmp_path


def test_a_model_is_selected_by_its_id_and_a_bad_one_changes_nothing(models: Path) -> None:
    client = client_of(None, models)
    chosen = client.post("/v1/models/select", json={"id": "tiny-a"})
    assert chosen.status_code == 200 and chosen.json()["active"] == "tiny-a", chosen.text
    assert chosen.json()["activeModel"]["architecture"] == "llama"
    before = decoded(client)
    assert before["metrics"]["schemaCacheStatus"] == "miss"
    failed = client.post("/v1/models/select", json={"id": "CORRUPT.GGUF"})
    assert (failed.status_code, failed.json()["code"]) == (500, "native_error")
    assert str(models) not in failed.text and "Traceback" not in failed.text
    after = decoded(client)
    assert (after["model"], after["metrics"]["schemaCacheStatus"]) == ("tiny-a", "hit")
    assert client.post("/v1/models/select", json={"id": "tiny-b"}).json()["activeModel"]["architecture"] == "qwen2"
    assert decoded(client)["metrics"]["schemaCacheStatus"] == "miss"
    listed = client.get("/v1/models").json()
    flags = {one["id"]: one["active"] for one in listed["models"] if one["id"] in ("tiny-a", "tiny-b", "CORRUPT.GGUF")}
    assert (listed["active"], flags) == ("tiny-b", {"CORRUPT.GGUF": False, "tiny-a": False, "tiny-b": True})


def test_the_caches_bounds_reach_the_engine(models: Path) -> None:
    resident = Resident()
    resident.start(
        str(models / "tiny-a"), backend="torch", dtype="float32", offline=True, cache_entries=1, cache_bytes=10**6
    )
    until(lambda: resident.status.state == "ready")
    client = TestClient(service(resident, Catalog(models)))
    for fields, told in (([PRIORITY], "miss"), ([REFUND], "miss"), ([PRIORITY], "miss"), ([PRIORITY], "hit")):
        assert decoded(client, fields=fields)["metrics"]["schemaCacheStatus"] == told
    assert client.get("/v1/models").json()["activeModel"]["cacheEntries"] == 1
    client.post("/v1/models/select", json={"id": "tiny-b"})
    answers = [decoded(client, fields=fields) for fields in ([PRIORITY], [REFUND], [PRIORITY])]
    assert [answer["cache"]["evicted"] for answer in answers] == [0, 1, 2], "a switch keeps the bounds"


@pytest.mark.parametrize(
    ("error", "status", "code", "words"),
    [
        (Busy("another model is being loaded"), 503, "busy", "another model"),
        (QueueFull("32 requests wait"), 503, "queue_full", "32 requests wait"),
        (TimedOut(""), 503, "timed_out", "took longer"),
        (Closing(""), 503, "shutting_down", "shutting down"),
        (MemoryError("no room at /srv/x"), 500, "native_error", "out of memory"),
        (RuntimeError("CUDA error\nat /srv/x"), 500, "native_error", "the engine failed: RuntimeError"),
        (KeyError(PATH), 500, "internal_error", "the service failed: KeyError"),
        (ValueError(PATH), 500, "internal_error", "the service failed: ValueError"),
        (ArithmeticError("field 'f': no finite scores"), 500, "native_error", "no finite scores"),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Exception) else None,
)
def test_what_goes_wrong_behind_a_route_is_one_line(error: Exception, status: int, code: str, words: str) -> None:
    engine = Engine(HashBackend(lexicon("qwen")), PATH)

    def fails(*args: Any, **options: Any) -> None:
        raise error

    client = client_of(engine)
    engine.backend.read = fails  # type: ignore[method-assign]
    for path, body in (("/v1/pcd/decode", GOOD), ("/v1/pcd/batch", {"fields": [PRIORITY], "contexts": ["a"]})):
        answer = client.post(path, json=body)
        shape = answer.json()
        if "results" in shape:  # what a single text is at fault for stands in its place
            shape, answer.status_code = shape["results"][0]["error"], status
        assert (answer.status_code, shape["code"]) == (status, code) and words in shape["message"]
        assert "/srv" not in answer.text and "\\n" not in answer.text
        assert ("Retry-After" in answer.headers) == (status == 503)


def test_a_race_tells_no_words_of_a_framework() -> None:
    engine = Engine(HashBackend(lexicon("qwen")), "tiny")

    def fails(*args: Any, **options: Any) -> None:
        raise ValueError("cannot read '/srv/private/x': what somebody wrote")

    engine.backend.read = fails  # type: ignore[method-assign]
    end = json.loads(client_of(engine).post("/v1/race", json=GOOD).text.splitlines()[-1])
    assert (end["state"], end["message"]) == ("failed", "the engine failed: ValueError; the log has more")


def test_whoever_waits_for_a_pass_that_outlives_the_service_is_told() -> None:
    backend = GatedBackend()
    engine = Engine(backend, "gated")
    try:
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(client_of(engine).post, "/v1/pcd/decode", json=GOOD)
            assert backend.entered.wait(10)
            engine.owner.close(0.1)
            assert answer.result(10).status_code == 503 and answer.result().json()["code"] == "shutting_down"
    finally:
        backend.permits.release(1_000_000)


# --- who waits for whom ---


@pytest.fixture
def gated() -> Iterator[tuple[GatedBackend, Engine]]:
    backend = GatedBackend()
    yield backend, Engine(backend, "gated")
    backend.permits.release(1_000_000)


def test_while_a_decode_runs_others_are_told_of_the_models(gated: tuple[GatedBackend, Engine]) -> None:
    backend, engine = gated

    async def talk() -> None:
        transport = httpx.ASGITransport(app=app_of(engine))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            running = asyncio.create_task(client.post("/v1/pcd/decode", json=GOOD))
            await asyncio.to_thread(backend.entered.wait, 10)
            for path in ("/health", "/v1/models", "/openapi.json"):
                assert (await asyncio.wait_for(client.get(path), 10)).status_code == 200
            refused = await asyncio.wait_for(client.post("/v1/pcd/decode", json={}), 10)
            assert refused.status_code == 400 and not running.done()
            backend.permits.release(100)
            assert (await running).status_code == 200

    asyncio.run(talk())


def test_many_clients_get_their_own_answers(engine: Engine) -> None:
    texts = [f"Ticket {i}: {'late ' * (i % 7)}" for i in range(48)]
    schemas = [[PRIORITY], [REFUND, PRIORITY], [TIERS, BILLS]]

    async def talk() -> list[dict[str, Any]]:
        transport = httpx.ASGITransport(app=app_of(engine))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            bodies = [{"context": text, "fields": schemas[i % 3]} for i, text in enumerate(texts)]
            answers = await asyncio.gather(*(client.post("/v1/pcd/decode", json=body, timeout=60) for body in bodies))
            return [answer.json() for answer in answers]

    client = client_of(engine)
    for i, answer in enumerate(asyncio.run(talk())):
        alone = decoded(client, context=texts[i], fields=schemas[i % 3])
        assert answer["values"] == alone["values"] and numbers(answer) == pytest.approx(numbers(alone), abs=1e-4)


def test_time_in_the_queue_is_told_apart(gated: tuple[GatedBackend, Engine]) -> None:
    backend, engine = gated

    async def talk() -> tuple[float, float]:
        transport = httpx.ASGITransport(app=app_of(engine))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            first = asyncio.create_task(client.post("/v1/pcd/decode", json=GOOD))
            await asyncio.to_thread(backend.entered.wait, 10)
            second = asyncio.create_task(client.post("/v1/pcd/decode", json=GOOD))
            await asyncio.sleep(0.3)
            backend.permits.release(100)
            metrics = (await second).json()["metrics"]
            await first
            return metrics["waitedMs"], metrics["elapsedMs"]

    waited, elapsed = asyncio.run(talk())
    assert waited > 200 > elapsed


def post_and_leave(port: int, path: str, body: dict[str, Any]) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    return connection


def ahead_of_a_new_job(engine: Engine) -> int:
    job = engine.owner.submit(lambda job: None)
    ahead = job.ahead
    job.cancel()
    return ahead


@pytest.mark.parametrize("path", ["/v1/pcd/decode", "/v1/pcd/batch"])
def test_a_client_that_goes_away_frees_its_place_in_the_queue(gated: tuple[GatedBackend, Engine], path: str) -> None:
    backend, engine = gated
    body = {**GOOD, "contexts": [TICKET]}
    with listening(app_of(engine)) as port:
        running = post_and_leave(port, "/v1/pcd/decode", GOOD)
        assert backend.entered.wait(10)
        waiting = post_and_leave(port, path, body)
        until(lambda: ahead_of_a_new_job(engine) == 2)
        waiting.close()
        until(lambda: ahead_of_a_new_job(engine) == 1)
        backend.permits.release(100)
        assert running.getresponse().status == 200


class WatchedEngine(Engine):
    """Keeps the races that it began."""

    races: list[Race]

    def race(self, *args: Any, **options: Any) -> Race:
        self.races = [*getattr(self, "races", []), super().race(*args, **options)]
        return self.races[-1]


def test_a_race_that_nobody_listens_to_any_more_is_stopped(gated: tuple[GatedBackend, Engine]) -> None:
    backend, _ = gated
    engine = WatchedEngine(backend, "gated")
    with listening(app_of(engine)) as port:
        race = post_and_leave(port, "/v1/race", {**GOOD, "mode": "free"})
        backend.permits.release(10)
        answer = race.getresponse()
        assert json.loads(answer.readline())["kind"] == "run"
        until(lambda: backend.passes == 10)
        answer.close()
        race.close()
        until(lambda: any(event.kind == "stopping" for event in engine.races[0].drain()))
        backend.permits.release(1_000)
        engine.owner.submit(lambda job: None).wait()
        assert backend.passes <= 12


# --- in other applications ---


def test_the_routes_stand_before_those_of_whatever_serves_them(engine: Engine) -> None:
    host = FastAPI(routes=routes(app_of(engine)), title="another", openapi_url=None)

    @host.get("/v1/{rest:path}")
    def other(rest: str) -> str:
        return "other"

    @host.get("/")
    def page() -> str:
        return "page"

    client = TestClient(host)
    assert client.get("/health").json()["model"] == "tiny-llama" and client.get("/").json() == "page"
    assert client.get("/v1/nope").json()["code"] == "not_found" == client.get("/v1").json()["code"]
    assert client.get("/v1/pcd/decode").status_code == 405
    assert decoded(client)["values"] and client.get("/openapi.json").json()["info"]["title"] != "another"


def test_words_that_hold_half_a_character_can_be_sent(client: TestClient) -> None:
    assert json.loads(Refusal(400, "invalid_request", "no \ud83d here").response().body)["message"] == "no \\ud83d here"
    halves = {"type": "object", "properties": {"ok": {"type": "boolean"}, "\ud83d": {"type": "string"}}}
    body = json.dumps({"context": TICKET, "schema": halves, "onUnsupported": "skip"})
    answer = client.post("/v1/pcd/decode", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200 and "ud83d" in answer.json()["unsupported"][0]["name"]


def test_a_fault_of_ours_is_logged_and_500_without_its_words(caplog: pytest.LogCaptureFixture) -> None:
    resident = resident_of(None)
    del resident.status
    answer = TestClient(service(resident, Catalog())).get("/health")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert "status" not in answer.text and "AttributeError" in caplog.text


def test_a_reply_is_what_its_model_says(client: TestClient) -> None:
    answer = decoded(client)
    assert json.loads(Decoded.model_validate(answer).line()) == answer
