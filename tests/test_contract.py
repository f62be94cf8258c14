"""What the service takes and refuses, without a model: each body alone, in the order of the contract."""

from __future__ import annotations

import json
from typing import Any

import pytest
from httpx import Response

from core.contract import DecodeRequest
from core.schema import StructuredSchema
from tests.serving import GOOD, PRIORITY, REFUND, TICKET, client_of

CLIENT = client_of()


def post(body: Any, path: str = "/v1/pcd/decode") -> Response:
    # Escapes hold what UTF-8 does not.
    return CLIENT.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})


def field(**changes: Any) -> dict[str, Any]:
    """A body with one field, changed; None takes a key away."""
    given = {**PRIORITY, **changes}
    return {"context": TICKET, "fields": [{key: value for key, value in given.items() if value is not None}]}


def fields(count: int) -> dict[str, Any]:
    return {"context": TICKET, "fields": [{**PRIORITY, "name": f"f{i}"} for i in range(count)]}


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in GOOD.items() if name != key}


# --- what is taken ---

TAKEN = {
    "an enum and a boolean": GOOD,
    "true before false": field(choices=[True, False]),
    "the texts true and false": field(choices=["true", "false"]),
    "no description to speak of": field(description=""),
    "63 fields": fields(63),
    "256 choices": field(choices=[f"C{i}" for i in range(256)]),
    "a context of 65,536 bytes": {**GOOD, "context": "ä" * 32_768},
    "a name of 128 bytes": field(name="n" * 128),
    "a choice of 256 bytes": field(choices=["A", "b" * 256]),
    "a description of 1,024 bytes": field(description="d" * 1024),
    "keys that nobody knows": {
        **GOOD,
        **{"trace_id": "t-1", "document": {}, "options": 1},
        "fields": [{**PRIORITY, "colour": ["red"]}],
    },
    "choices that share their first byte": field(choices=["低", "中"]),
    "a JSON Schema": {"context": TICKET, "schema": {"type": "object", "properties": {"n": {"enum": [1, 2, None]}}}},
    "fields by name": {"context": TICKET, "schema": {"ok": {"type": "boolean"}}},
    "the text of a schema": {"context": TICKET, "schema": "ok: {type: boolean}"},
    "what can be decided of a schema": {
        "context": TICKET,
        "schema": {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "string"}}},
        "onUnsupported": "skip",
    },
    "the same in the words of the message": {
        "context": TICKET,
        "schema": {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "string"}}},
        "on_unsupported": "skip",
    },
    "every option": {
        **GOOD, "temperature": 2, "style": "compact", "cache": False, "scoring": "full", "prior": "content_free",
        "complete": None,
    },
}  # fmt: skip


@pytest.mark.parametrize("body", TAKEN.values(), ids=TAKEN)
def test_a_good_request_comes_as_far_as_the_model_that_is_not_there(body: dict[str, Any]) -> None:
    answer = post(body)
    assert (answer.status_code, answer.json()["code"]) == (503, "no_model")
    assert "--model NAME" in answer.json()["message"] and answer.headers["Retry-After"]


# --- what is refused, in the order of the contract ---

REFUSED: list[tuple[Any, str]] = [
    ([], "the request body must be a JSON object, got []"),
    ("fields", "the request body must be a JSON object"),
    (without("context"), "context is missing"),
    ({"fields": []}, "context is missing"),
    ({**GOOD, "context": ""}, "the context is empty"),
    ({**GOOD, "context": ["a"]}, "context must be a string, got ['a']"),
    ({**GOOD, "context": None}, "context must be a string, got None"),
    ({**GOOD, "context": "ä" * 32_768 + "a"}, "the context has 65537 bytes; at most 65536"),
    (without("fields"), "fields is missing; give a list of fields, or a JSON Schema under 'schema'"),
    ({**GOOD, "fields": {}}, "fields must be a list, got {}"),
    ({**GOOD, "fields": None}, "fields must be a list, got None"),
    ({**GOOD, "fields": []}, "the schema has no fields"),
    (fields(129), "the schema has 129 fields; at most 128"),
    ({**GOOD, "fields": [PRIORITY, "refund"]}, "fields[1] must be a JSON object, got 'refund'"),
    ({**GOOD, "fields": [PRIORITY, {**PRIORITY, "choices": ["A", "B"]}]}, "field 'priority' appears twice"),
    (field(name=None), "fields[0].name is missing"),
    (field(name=7), "field name 7 must be a string"),
    (field(name=""), "a field has an empty name"),
    (field(name="n" * 129), "has 129 bytes; at most 128"),
    (field(description=None), "fields[0].description is missing"),
    (field(description=["d"]), "field 'priority': the description must be a string"),
    (field(description="d" * 1025), "field 'priority': the description has 1025 bytes; at most 1024"),
    (field(choices=None), "fields[0].choices is missing"),
    (field(choices="LOW"), "field 'priority': choices must be a list, got 'LOW'"),
    (field(choices=[]), "field 'priority': 0 choices; 2 to 256"),
    (field(choices=["ONLY"]), "field 'priority': 1 choice; 2 to 256"),
    (field(choices=[True]), "field 'priority': 1 choice; 2 to 256"),
    (field(choices=[f"C{i}" for i in range(257)]), "field 'priority': 257 choices; 2 to 256"),
    (field(choices=[1, 2]), "field 'priority': choices must be all texts, or false and true, got [1, 2]"),
    (field(choices=["A", None]), "choices must be all texts"),
    (field(choices=[["A"], ["B"]]), "choices must be all texts"),
    (field(choices=["A", True]), "choices must be all texts"),
    (field(choices=["A", ""]), "field 'priority': a choice is empty"),
    (field(choices=["A", "\udc00"]), "holds half a character"),
    ({**GOOD, "context": "a\ud83d"}, "holds half a character"),
    ({"context": TICKET, "schema": {"\ud83d": {"type": "boolean"}}}, "holds half a character"),
    (field(choices=["A", "c" * 257]), "has 257 bytes; at most 256"),
    (field(choices=["A", "B", "A"]), "field 'priority': choice 'A' appears twice"),
    (field(choices=[True, True]), "field 'priority': choice True appears twice"),
    (field(choices=[True, False, True]), "field 'priority': choice True appears twice"),
    ({**GOOD, "schema": {"ok": {"type": "boolean"}}}, "the schema is there twice"),
    ({"context": TICKET, "schema": 7}, "a schema is an object of fields, got 7"),
    ({"context": TICKET, "schema": [1]}, "a schema is an object of fields, got [1]"),
    ({"context": TICKET, "schema": {"type": "object", "properties": {"a": {"type": "string"}}}}, "cannot be decided"),
    ({"context": TICKET, "schema": {"n": {"type": "enum", "choices": list(range(257))}}}, "field 'n': 257 choices"),
    ({"context": TICKET, "schema": '{"a": {"type": "boolean"}, "a": {"type": "boolean"}}'}, "'a' appears twice"),
    ({"context": TICKET, "schema": "{" * 2000}, "the schema is not"),
    ({**GOOD, "onUnsupported": "guess", "fields": None}, "fields must be a list"),
    ({"context": TICKET, "schema": {"ok": {"type": "boolean"}}, "onUnsupported": 1}, "on_unsupported 1 is unknown"),
    ({**GOOD, "temperature": 0}, "temperature 0 must be a finite number above 0"),
    ({**GOOD, "temperature": "warm" * 9999}, "must be a finite number above 0"),
    ({**GOOD, "style": "wide"}, "style 'wide' is unknown; use one of: pretty, compact"),
    ({**GOOD, "cache": 1}, "cache 1 is unknown"),
    ({**GOOD, "scoring": ["full"]}, "scoring ['full'] is unknown"),
    ({**GOOD, "prior": "flat"}, "prior 'flat' is unknown"),
    ({**GOOD, "complete": "no"}, "complete 'no' is unknown"),
]


@pytest.mark.parametrize(("body", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_a_bad_request_is_one_line_with_the_reason_even_without_a_model(body: Any, words: str) -> None:
    answer = post(body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request"), answer.text
    message = answer.json()["message"]
    assert words in message and "\n" not in message and len(message) < 400
    assert set(answer.json()) == {"code", "message"}


RACES = [
    ({"mode": "wild"}, "baseline mode 'wild' is unknown"),
    ({"lanes": []}, "lanes [] is unknown"),
    ({"lanes": ["pcd", "pcd"]}, "lanes ['pcd', 'pcd'] is unknown"),
    ({"lanes": "pcd"}, "lanes 'pcd' is unknown"),
    ({"lanes": {"pcd": 1}}, "lanes {'pcd': 1} is unknown"),
]


@pytest.mark.parametrize(("changes", "words"), RACES, ids=[words for _, words in RACES])
def test_a_race_that_cannot_start_is_refused_before_its_stream(changes: dict[str, Any], words: str) -> None:
    answer = post({**GOOD, **changes}, "/v1/race")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request") and words in answer.text
    assert post({**GOOD, "lanes": ["ar"], "mode": "schema"}, "/v1/race").status_code == 503


BATCHES = [
    (None, "contexts is missing"),
    ("one text", "contexts must be a list, got 'one text'"),
    ([], "0 contexts; a batch has 1 to 256"),
    (["a"] * 257, "257 contexts; a batch has 1 to 256"),
    (["a", 7], "contexts[1] must be a string, got 7"),
]


@pytest.mark.parametrize(("contexts", "words"), BATCHES, ids=[words for _, words in BATCHES])
def test_a_batch_without_a_list_of_texts_is_refused(contexts: Any, words: str) -> None:
    body = {"fields": [PRIORITY, REFUND]} | ({"contexts": contexts} if contexts is not None else {})
    answer = post(body, "/v1/pcd/batch")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request") and words in answer.text
    assert post({"fields": [PRIORITY], "contexts": [TICKET]}, "/v1/pcd/batch").status_code == 503


# --- paths and methods ---


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/nope", "/v1/models/", "/v1/pcd/decode/x", "/nope", "/docs/x"])
def test_a_path_that_is_not_there_is_404_in_the_same_envelope(path: str) -> None:
    answer = CLIENT.get(path)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("path", "right"),
    [("/health", "GET"), ("/v1/models", "GET"), ("/v1/models/select", "POST"), ("/v1/pcd/decode", "POST")]
    + [("/v1/pcd/batch", "POST"), ("/v1/race", "POST")],
)
def test_a_wrong_method_is_405_and_names_the_right_one(path: str, right: str) -> None:
    for method in {"GET", "POST", "PUT", "DELETE", "PATCH"} - {right}:
        wrong = CLIENT.request(method, path)
        assert (wrong.status_code, wrong.json()["code"], wrong.headers["Allow"]) == (405, "method_not_allowed", right)
        assert right in wrong.json()["message"] and method in wrong.json()["message"]


def test_the_schema_is_the_one_that_python_takes() -> None:
    asked = DecodeRequest.model_validate({**GOOD, "temperature": 3}).request()
    assert asked.schema == StructuredSchema(
        {
            "priority": {"type": "enum", "choices": PRIORITY["choices"], "description": PRIORITY["description"]},
            "refund": {"type": "boolean", "description": REFUND["description"]},
        }
    )
    assert (asked.context, asked.temperature, asked.complete) == (TICKET, 3, True)
