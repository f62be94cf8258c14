"""A resident whose model runs on a server: away at the start, back, gone, or with another model."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from core import resident as of_resident
from core.backend import ModelUnsupported
from core.catalog import Catalog
from core.engine import Engine
from core.models import ModelNotFound
from core.owner import Unavailable
from core.resident import Resident, Status
from core.schema import StructuredSchema
from core.server import service
from core.ui.model_picker import ModelPicker
from tests.fakes import HashBackend, lexicon
from tests.serving import GOOD
from tests.test_owner import settled

URL = "http://me:hunter2@10.0.0.7:8000/v1"
AWAY = Unavailable("the vLLM server does not answer (ConnectError); try again when it is back")
TRYING = Status("loading", "the vLLM server does not answer (ConnectError); trying again", waits=True)
SCHEMA = StructuredSchema({"ready": {"type": "boolean"}})


class Refused(Unavailable):
    is_passing = False


class Loads:
    """Stands for `Engine.load`: what it has in store for each call, the last for all that follow."""

    def __init__(self, *outcomes: Engine | Exception) -> None:
        self.outcomes = list(outcomes)
        self.names: list[str] = []
        self.options: dict[str, object] = {}
        self.go = threading.Event()
        self.go.set()

    def __call__(self, name: str, *, progress: Any, **options: object) -> Engine:
        self.names.append(name)
        self.options = options
        progress(f"asking {name}", None)
        assert self.go.wait(30)
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_resident, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(of_resident, "LONGEST_PAUSE_S", 0.05)


@pytest.fixture
def resident(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made: list[Resident] = []

    def of(*outcomes: Engine | Exception) -> tuple[Resident, Loads]:
        loads = Loads(*outcomes)
        monkeypatch.setattr(Engine, "load", loads)
        made.append(Resident())
        return made[-1], loads

    yield of
    for one in made:
        one.close()


def engine(name: str = "served-1b") -> Engine:
    return Engine(HashBackend(lexicon("qwen")), name, "served by vLLM 0.32.0")


def local(name: str) -> Engine:
    return Engine(HashBackend(lexicon("qwen")), name)


def test_a_server_that_is_away_at_the_start_is_tried_until_it_is_there(resident: Any) -> None:
    one, loads = resident(AWAY, AWAY, AWAY, served := engine())
    one.start(URL, backend="auto", key="sk-1", in_flight=4)
    assert settled(lambda: one.status.state == "ready")
    assert one.engine is served and one.switching is None
    assert one.status.message.startswith("served-1b (served by vLLM 0.32.0) on ")
    assert loads.names == [URL] * 4 and loads.options == {"backend": "auto", "key": "sk-1", "in_flight": 4}


def test_until_then_the_status_says_so_and_rest_answers_as_for_a_model_that_loads(resident: Any, caplog) -> None:
    caplog.set_level(logging.INFO)
    one, loads = resident(AWAY)
    one.start(URL)
    client = TestClient(service(one, Catalog()))
    assert settled(lambda: len(loads.names) > 2 and one.status == TRYING)
    for _ in range(50):  # whatever it does just then
        answer = client.post("/v1/pcd/decode", json=GOOD)
        assert answer.status_code == 503 and answer.headers["Retry-After"] == "1"
        assert answer.json()["code"] == "no_model" and "the model is still loading (" in answer.json()["message"]
        health = client.get("/health").json()
        assert (health["ready"], health["state"]) == (False, "loading")
        told = answer.text + json.dumps(health) + client.get("/v1/models").text
        assert "10.0.0.7" not in told and "hunter2" not in told
    assert "asking http://10.0.0.7:8000/v1" in caplog.text and "hunter2" not in caplog.text


def test_between_two_tries_the_page_offers_the_other_models_and_during_one_it_does_not(resident: Any) -> None:
    one, loads = resident(AWAY)
    picker = ModelPicker(one, lambda: {"other": "other"})
    look = picker.look

    def note() -> dict[str, Any]:
        return json.loads(asyncio.run(look(None)))

    one.status = one.switching = TRYING
    assert note()["busy"] is False and note()["note"]["text"] == f"Loading the model: {TRYING.stage}"
    loads.go.clear()
    one.start(URL)
    assert settled(lambda: len(loads.names) == 1 and one.status.stage.startswith("asking"))
    assert note()["busy"] is True and note()["note"]["text"] == "Loading the model: asking a vLLM server"
    loads.go.set()


def test_another_model_that_is_chosen_meanwhile_ends_the_tries(resident: Any, monkeypatch) -> None:
    monkeypatch.setattr(of_resident, "FIRST_PAUSE_S", 0.2)
    one, loads = resident(AWAY, other := local("other"))
    one.start(URL)
    assert settled(lambda: one.status == TRYING)
    assert one.switch("other") is other
    assert not settled(lambda: len(loads.names) > 2, 0.5) and loads.names == [URL, "other"]
    assert (one.engine, one.status.state, one.switching) == (other, "ready", None)


def test_another_model_that_fails_meanwhile_does_not(resident: Any) -> None:
    one, loads = resident(AWAY, ModelNotFound("model 'bogus' is not known; use another"), AWAY, served := engine())
    one.start(URL)
    assert settled(lambda: one.status == TRYING)
    with pytest.raises(ModelNotFound):
        one.switch("bogus")
    assert settled(lambda: one.engine is served)
    assert loads.names == [URL, "bogus", URL, URL]


def test_the_end_of_the_process_ends_the_tries(resident: Any) -> None:
    one, loads = resident(AWAY)
    one.start(URL)
    assert settled(lambda: one.status == TRYING)
    before = threading.active_count()
    one.close()
    assert settled(lambda: threading.active_count() < before)
    count = len(loads.names)
    assert not settled(lambda: len(loads.names) > count, 0.2)


@pytest.mark.parametrize(
    "error", [Refused("the vLLM server refuses the key; give its own"), ModelUnsupported("the tokenizers differ; give")]
)
def test_what_waiting_does_not_mend_is_not_tried_again(resident: Any, error: Exception) -> None:
    one, loads = resident(error)
    one.start(URL)
    assert settled(lambda: one.status.state == "failed") and one.status.message == str(error)
    assert not settled(lambda: len(loads.names) > 1, 0.2) and one.switching is None


def test_pauses_grow_up_to_a_longest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    pauses = of_resident._pauses()
    assert [next(pauses) for _ in range(6)] == [2, 4, 8, 15, 15, 15]


def test_a_switch_to_a_server_that_is_away_is_refused_and_the_old_one_stays(resident: Any) -> None:
    old = local("old")
    one, loads = resident(old, AWAY)
    one.start("old")
    assert settled(lambda: one.engine is old)
    before = one.status
    with pytest.raises(Unavailable, match="does not answer"):
        one.switch(URL)
    assert (one.engine, one.status, one.switching) == (old, before, None)


# --- a server that runs another model now ---


def test_an_engine_whose_server_has_changed_is_loaded_again_and_serves_until_then(resident: Any) -> None:
    old, new = engine("old-1b"), engine("new-3b")
    one, loads = resident(old, AWAY, new)
    one.start(URL)
    assert settled(lambda: one.engine is old)
    loads.go.clear()
    old.renew()
    assert settled(lambda: one.switching is not None) and one.switching.state == "loading"
    assert one.engine is old and old.run_parallel("a text", SCHEMA).model == "old-1b"
    assert one.status.state == "ready", "the page and REST go on: each request tells for itself"
    loads.go.set()
    assert settled(lambda: one.engine is new and one.switching is None)
    assert loads.names == [URL] * 3 and one.status.message.startswith("new-3b ")
    new.renew()
    assert settled(lambda: len(loads.names) == 4), "and what came has a way to be renewed too"


def test_an_engine_that_nobody_uses_any_more_renews_nothing(resident: Any) -> None:
    old, new = engine("old-1b"), local("other")
    one, loads = resident(old, new)
    one.start(URL)
    assert settled(lambda: one.engine is old)
    one.switch("other")
    old.renew()
    assert not settled(lambda: len(loads.names) > 2, 0.2) and one.engine is new


def test_a_renewal_that_is_refused_is_told_and_tried_again_because_a_server_may_change_back(resident: Any) -> None:
    old, back = engine("old-1b"), engine("old-1b")
    differs = ModelUnsupported("the tokenizer here and the vLLM server's differ; give its folder")
    one, loads = resident(old, differs, differs, back)
    one.start(URL)
    assert settled(lambda: one.engine is old)
    old.renew()
    assert settled(lambda: one.engine is back and one.switching is None)
    assert loads.names == [URL] * 4 and one.status.state == "ready"


# --- a server that is away during a request ---


class Gone(HashBackend):
    def _pass(self) -> None:
        raise AWAY


def test_a_request_whose_server_is_away_may_come_again(resident: Any) -> None:
    one, _ = resident(Engine(Gone(lexicon("qwen")), "served-1b"))
    one.start(URL)
    assert settled(lambda: one.engine is not None)
    answer = TestClient(service(one, Catalog())).post("/v1/pcd/decode", json=GOOD)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert answer.json() == {"code": "server_away", "message": str(AWAY)}
