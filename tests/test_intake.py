"""A request's body, from bytes to JSON: its size as read, its encoding, its depth, and who may send it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping

import pytest

from core.intake import MAX_BODY_BYTES, MAX_DEPTH, is_deeper
from tests.serving import GOOD, app_of, client_of, listening

JSON = {"Content-Type": "application/json"}
CLIENT = client_of()
#: A good request, filled up with white space to the last byte that is taken.
FULL = json.dumps(GOOD).encode().ljust(MAX_BODY_BYTES)


def nested(depth: int) -> bytes:
    """A good request with a list of so many lists in a key that nobody knows; the request itself is one deep."""
    return json.dumps({**GOOD, "x": "[{"}).encode().replace(b'"[{"', b"[" * (depth - 1) + b"]" * (depth - 1))


def test_a_request_as_large_as_can_be_is_read() -> None:
    assert CLIENT.post("/v1/pcd/decode", content=FULL, headers=JSON).json()["code"] == "no_model"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with listening(app_of()) as port:
        yield port


@pytest.mark.parametrize(
    "headers", [{}, {"Content-Length": str(MAX_BODY_BYTES + 1)}], ids=["in pieces of no stated length", "of its length"]
)
def test_one_byte_more_is_refused_while_it_is_read(port: int, headers: Mapping[str, str]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    pieces = (FULL[start : start + 65_536] for start in range(0, MAX_BODY_BYTES, 65_536))
    is_chunked = "Content-Length" not in headers
    body = (piece for group in (pieces, [b" "]) for piece in group)
    connection.request("POST", "/v1/pcd/decode", body, {**JSON, **headers}, encode_chunked=is_chunked)
    answer = connection.getresponse()
    shape = json.loads(answer.read())
    assert (answer.status, shape["code"]) == (413, "payload_too_large")
    assert str(MAX_BODY_BYTES) in shape["message"]


def test_a_body_that_breaks_off_leaves_the_service_as_it_was(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.putrequest("POST", "/v1/pcd/decode")
    for name, value in {**JSON, "Content-Length": "1000"}.items():
        connection.putheader(name, value)
    connection.endheaders(b'{"context": ')
    connection.close()
    again = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    again.request("POST", "/v1/pcd/decode", json.dumps(GOOD), JSON)
    assert again.getresponse().status == 503


BROKEN: list[tuple[bytes, str, str]] = [
    (b"", "invalid_json", "the body is empty"),
    (b"{not json", "invalid_json", "Expecting property name enclosed in double quotes at line 1, column 2"),
    (b'{"context": "a"', "invalid_json", "at line 1, column 16"),
    (b"[1,]", "invalid_json", "the body is not valid JSON"),
    (b'{"context": "\xff"}', "invalid_json", "byte 13 is not of UTF-8"),
    (b'{"context": "\xed\xa0\xbd"}', "invalid_json", "byte 13 is not of UTF-8"),
    ('{"context": "ä"}'.encode("utf-16"), "invalid_json", "byte 0 is not of UTF-8"),
    (b'{"context": "a\nb"}', "invalid_json", "Invalid control character"),
    (b'{"temperature": NaN}', "invalid_json", "NaN is no JSON"),
    (b'{"temperature": -Infinity}', "invalid_json", "-Infinity is no JSON"),
    (b'{"temperature": ' + b"9" * 5000 + b"}", "invalid_json", "a number is too long"),
    (b'{"context": "a", "context": "b"}', "invalid_request", "'context' appears twice in one object"),
    (b'{"\\ud83d": 1, "\\ud83d": 2}', "invalid_request", "appears twice"),
    (nested(MAX_DEPTH + 1), "invalid_request", f"nested more than {MAX_DEPTH} deep"),
    (b"[" * 500_000, "invalid_request", f"nested more than {MAX_DEPTH} deep"),
    (b'{"a":' * 100_000, "invalid_request", f"nested more than {MAX_DEPTH} deep"),
    (b"[]" * 400_000, "invalid_json", "Extra data"),
]


@pytest.mark.parametrize(("body", "code", "words"), BROKEN, ids=[words for *_, words in BROKEN])
def test_what_is_no_json_of_ours_is_400_with_the_reason(body: bytes, code: str, words: str) -> None:
    answer = CLIENT.post("/v1/pcd/decode", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (400, code) and words in answer.json()["message"]


@pytest.mark.parametrize("body", [nested(MAX_DEPTH), b"\xef\xbb\xbf" + json.dumps(GOOD).encode()], ids=["deep", "mark"])
def test_json_that_is_just_so_is_read(body: bytes) -> None:
    assert CLIENT.post("/v1/pcd/decode", content=body, headers=JSON).json()["code"] == "no_model"


@pytest.mark.parametrize(
    ("text", "depth"),
    [("[]", 1), ("[[], [{}]]", 3), ('{"[[[": "]]{{"}', 1), ('["\\"[[["]', 1), ('["\\\\", [[]]]', 3)],
)
def test_depth_counts_brackets_outside_of_texts(text: str, depth: int) -> None:
    assert is_deeper(text, depth - 1) and not is_deeper(text, depth)


@pytest.mark.parametrize("text", ['"' + '\\"' * 500_000, '"' * 1_000_000, '"' + "\\" * 1_000_000, '"a' * 500_000])
def test_texts_without_an_end_are_looked_at_once(text: str) -> None:
    # Looked at again from each of their quotes, one of these would take hours.
    assert not is_deeper(text, MAX_DEPTH)


# --- who may send it ---

TYPES = [
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "text/plain;application/json",
    "",
]


@pytest.mark.parametrize("given", TYPES)
def test_what_a_form_of_any_page_could_send_is_refused(given: str) -> None:
    answer = CLIENT.post("/v1/pcd/decode", content=json.dumps(GOOD), headers={"Content-Type": given})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert "send application/json" in answer.json()["message"]


def test_the_type_may_name_its_encoding() -> None:
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert CLIENT.post("/v1/pcd/decode", content=json.dumps(GOOD), headers=headers).status_code == 503


ORIGINS = {
    "http://evil.example": False,
    "null": False,
    "": False,
    "http://[evil": False,
    "http://here:8080.evil.example": False,
    "http://here": False,
    "http://user@here:8080": False,
    "file://": False,
    "http://here:8080": True,
    "https://HERE:8080": True,
}


@pytest.mark.parametrize("origin", ORIGINS)
def test_only_a_page_of_this_server_may_post(origin: str) -> None:
    for path in ("/v1/pcd/decode", "/v1/pcd/batch", "/v1/race", "/v1/models/select"):
        answer = CLIENT.post(path, json={**GOOD, "id": "x"}, headers={"Origin": origin, "Host": "here:8080"})
        assert (answer.json()["code"] == "cross_origin") == (not ORIGINS[origin]), answer.text
        assert ORIGINS[origin] or answer.status_code == 400


def test_the_usual_port_need_not_be_named() -> None:
    for origin, host in (("https://a.example", "a.example:443"), ("http://a.example:80", "a.example")):
        headers = {"Origin": origin, "Host": host}
        assert CLIENT.post("/v1/pcd/decode", json=GOOD, headers=headers).status_code == 503
