"""Where the service differs from PCD Server on purpose: what it does there, why not here, and a test that it does not.

All else that its tests assert is asserted of us in `test_contract`, `test_intake`, `test_catalog`, `test_server`
and `test_scoring`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from core.engine import Engine
from core.result import Decision
from tests.fakes import HashBackend, lexicon
from tests.serving import GOOD, PRIORITY, TICKET, client_of
from tests.test_scoring import decide, fork, trie_of


@pytest.fixture(scope="module")
def client() -> TestClient:
    return client_of(Engine(HashBackend(lexicon("qwen")), "hash"))


def field(**changes: Any) -> dict[str, Any]:
    return {"context": TICKET, "fields": [{**PRIORITY, **changes}]}


def fields(count: int, choices: int = 2) -> dict[str, Any]:
    names = [f"CODE_{i}" for i in range(choices)]
    return {"context": TICKET, "fields": [{**PRIORITY, "name": f"f{i}", "choices": names} for i in range(count)]}


#: A body, its status there and here, and why.
ANSWERED: dict[str, tuple[Any, int, int, str]] = {
    "64 to 128 fields": (
        fields(100), 400, 200, "its limit is that of its sequences in one batch; all our fields are in one sequence",
    ),
    "more than 4,096 tokens of choices": (
        fields(17, 256), 422, 200, "the model's window is the limit, and choices that start alike share their tokens",
    ),
    "choices whose first byte is a part of one character": (
        field(choices=["Да", "Нет"]), 500, 200, "we cut where tokens end, never within a character",
    ),
    "a text of white space": (
        {**GOOD, "context": " \n"}, 200, 400, "there is nothing that the fields could be about",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ANSWERED)
def test_a_body_that_is_answered_otherwise(client: TestClient, case: str) -> None:
    body, there, here, why = ANSWERED[case]
    answer = client.post("/v1/pcd/decode", json=body)
    assert answer.status_code == here != there and why, answer.text


def raw(client: TestClient, body: str, **headers: str) -> int:
    named = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return client.post("/v1/pcd/decode", content=body, headers=named).status_code


Check = Callable[[TestClient], bool]
#: What the service does there, why not here, and that it does not.
SERVED: dict[str, tuple[str, Check]] = {
    "a wrong method is 404": (
        "405 tells a wrong verb from a path that is not there",
        lambda client: client.get("/v1/pcd/decode").status_code == 405,
    ),
    "a POST of any Content-Type is read": (
        "a page of another site can send plain text here without asking, and so load the queue or switch the model",
        lambda client: raw(client, json.dumps(GOOD), Content_Type="text/plain") == 400,
    ),
    "a POST of any Origin is answered": (
        "as above; a browser names the page that posts",
        lambda client: raw(client, json.dumps(GOOD), Origin="https://elsewhere.example") == 400,
    ),
    "of a name written twice the last one counts": (
        "what was meant is not known, and a choice or a field would be lost without a word",
        lambda client: raw(client, json.dumps(GOOD)[:-1] + ', "context": "another"}') == 400,
    ),
    "JSON may be nested as deep as it likes": (
        "a parser's stack has an end",
        lambda client: raw(client, json.dumps(GOOD)[:-1] + ', "x": ' + "[" * 80 + "]" * 80 + "}") == 400,
    ),
    "values and probabilities come sorted by name": (
        "its documents promise the order of the request, and so do we",
        lambda client: list(decoded(client, field(choices=["b", "c", "a"]))["fields"][0]["probabilities"]) == [*"bca"],
    ),
    "phases are tokenize, restoreOrPrefill, dynamicContext, broadcast, suffix, tree": (
        "they are steps of its algorithm, and one pass of ours holds several; ours have our names and sum to elapsedMs",
        lambda client: set(decoded(client)["metrics"]["phasesMs"]) <= OUR_PHASES,
    ),
    "backend is the first GPU's name, used or not": (
        "it is what runs: the framework here, and the device in a key of its own",
        lambda client: client.get("/health").json()["backend"] == "hash" == decoded(client)["backend"],
    ),
    "/presets.json, /app.js and /style.css are its page": (
        "ours is gradio's, at the same address; the service has no files but those of /docs",
        lambda client: {client.get(path).status_code for path in ("/presets.json", "/app.js", "/style.css")} == {404},
    ),
    "/docs loads Swagger UI from a content network": (
        "it works behind a wall too",
        lambda client: "https:" not in client.get("/docs").text,
    ),
}

OUR_PHASES = {"plan", "head", "context", "tree", "head + context", "context + tree", "scoring", "assembly"}


def decoded(client: TestClient, body: dict[str, Any] = GOOD) -> dict[str, Any]:
    return client.post("/v1/pcd/decode", json=body).json()


@pytest.mark.parametrize("case", SERVED)
def test_what_it_does_there_it_does_not_here(client: TestClient, case: str) -> None:
    why, holds = SERVED[case]
    assert holds(client) and why


# --- the scores ---


def shares(*logits: float) -> np.ndarray:
    return np.array(logits) - np.logaddexp.reduce(logits)


def tree(first: np.ndarray, second: np.ndarray) -> Decision:
    """A1 and A2 share their first token, B has its own: the log-probabilities at the two forks."""
    forms = [(0, [(0, 0), (1, 0)]), (1, [(0, 0), (1, 1)]), (2, [(0, 1)])]
    return decide(trie_of(["A1", "A2", "B"], [fork(1, 1), fork(1, 1)], forms), [first, second], 1.0)


EVEN = decide(trie_of(["x", "y"], [fork(1, 1)], [(0, [(0, 1)]), (1, [(0, 0)])]), [shares(3.0, 3.0)], 1.0)
#: What it does with the same logits; then our decision, its value and its probabilities.
SCORED: dict[str, tuple[Decision, str, list[float]]] = {
    "its walk takes the larger group and answers A1, which is not the likeliest": (
        tree(shares(1.0, 0.9), shares(0.0, 0.0)), "B", [0.2625, 0.2625, 0.4750],
    ),
    "a group that loses is shared out evenly, unread": (
        tree(shares(0.0, 1.0), shares(2.0, 0.0)), "B", [0.2369, 0.0321, 0.7311],
    ),
    "of equals the lower token id wins, and not the first choice": (EVEN, "x", [0.5, 0.5]),
}  # fmt: skip


@pytest.mark.parametrize(("decision", "value", "expected"), SCORED.values(), ids=SCORED)
def test_the_value_is_the_argmax_of_what_was_read(decision: Decision, value: str, expected: list[float]) -> None:
    assert decision.value == value
    assert decision.probabilities == pytest.approx(expected, abs=1e-4)
