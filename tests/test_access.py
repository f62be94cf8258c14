"""Who may come in: the key by header and by cookie, names of this machine, pages of other places, wrong tries."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from functools import cache
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect

from core import api_key, tries
from core.api_key import LEAST_CHARACTERS, MOST_CHARACTERS, ApiKey
from core.engine import Engine
from core.engine_torch import TorchBackend
from core.flags import flags
from core.guard import Guard, exposure
from core.login import MOST_BYTES
from core.origin import is_loopback, named_host
from core.response_headers import FRAMES, HEADERS, ResponseHeaders
from core.tries import MOST_PLACES, MOST_WRONG, Tries, place_of
from tests.serving import app_of, listening

KEY = "a-key-of-thirty-two-characters-x"
WRONG = "another-key-of-thirty-two-charac"
HERE = "http://localhost:7860"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PAGE = {"Accept": "text/html,*/*"}


made = cache(ApiKey)  # 50 ms each


async def inside(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"inside {request.url.path}")


def guarded(key: str | None = KEY, app: Any = None, only_loopback: bool = False, **options: Any) -> TestClient:
    app = app or Starlette(routes=[Route("/{rest:path}", inside, methods=["GET", "POST", "PUT"])])
    guard = Guard(app, made(key) if key else None, only_loopback)
    return TestClient(ResponseHeaders(guard), base_url=HERE, follow_redirects=False, **options)


def logged_in(client: TestClient) -> str:
    """The cookie that the form gives, as a browser sends it back."""
    given = client.post("/", content=f"key={KEY}", headers=FORM).headers["set-cookie"].partition(";")[0]
    client.cookies.clear()
    return given


# --- the key ---

CREDENTIALS = {
    "none": ({}, 401),
    "bearer": ({"Authorization": f"Bearer {KEY}"}, 200),
    "bearer in small letters": ({"Authorization": f"bearer  {KEY}"}, 200),
    "a header of its own": ({"X-API-Key": KEY}, 200),
    "its own header, and a proxy's": ({"X-API-Key": KEY, "Authorization": "Bearer hf_other"}, 200),
    "a wrong one of its own, and the right one": ({"X-API-Key": WRONG, "Authorization": f"Bearer {KEY}"}, 401),
    "wrong": ({"Authorization": f"Bearer {WRONG}"}, 401),
    "empty": ({"X-API-Key": ""}, 401),
    "no key after the scheme": ({"Authorization": "Bearer"}, 401),
    "another scheme": ({"Authorization": f"Basic {KEY}"}, 401),
    "the start of it": ({"X-API-Key": KEY[:-1]}, 401),
    "more than it": ({"X-API-Key": KEY + "x"}, 401),
    "in capitals": ({"X-API-Key": KEY.upper()}, 401),
    "bytes that are no text": ({"X-API-Key": b"\xff\xfe" * 16}, 401),
    "a cookie that is the key": ({"Cookie": f"{made(KEY).cookie_name}={KEY}"}, 401),
    "a cookie without a signature": ({"Cookie": f"{made(KEY).cookie_name}=99999999999."}, 401),
    "a cookie signed with another key": (
        {"Cookie": f"{made(KEY).cookie_name}={made(WRONG).cookie()}"}, 401,
    ),
    "a cookie of another name": ({"Cookie": f"pcd={made(KEY).cookie()}"}, 401),
    "a cookie": ({"Cookie": f"a=b; {made(KEY).cookie_name}={made(KEY).cookie()}"}, 200),
}  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/models", "/", "/gradio_api/queue/join"])
@pytest.mark.parametrize("given", CREDENTIALS)
def test_only_the_key_opens_the_service_and_the_page(given: str, path: str) -> None:
    headers, status = CREDENTIALS[given]
    client = guarded()
    for method in ("GET", "POST"):
        answer = client.request(method, path, headers=headers)
        assert answer.status_code == status, method
        assert (answer.text == f"inside {path}") == (status == 200)
        if status == 401:
            assert set(answer.json()) == {"code", "message"} and answer.json()["code"] == "unauthorized"
            assert answer.headers["WWW-Authenticate"] == "Bearer" and KEY not in answer.text


def test_without_a_key_everybody_may_come_in() -> None:
    assert guarded(None).get("/v1/models").status_code == 200


@pytest.mark.parametrize("change", [lambda until: until + 1, lambda until: 10 * until, lambda until: f"{until} "])
def test_a_cookie_cannot_be_made_to_hold_longer(change: Callable[[int], object]) -> None:
    until, _, signature = made(KEY).cookie().partition(".")
    headers = {"Cookie": f"{made(KEY).cookie_name}={change(int(until))}.{signature}"}
    assert guarded().get("/", headers=headers).status_code == 401


def test_a_cookie_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    client = guarded()
    cookie = logged_in(client)
    assert client.get("/", headers={"Cookie": cookie}).status_code == 200
    later = api_key.time.time() + api_key.COOKIE_DAYS * 86_400 + 1
    monkeypatch.setattr(api_key.time, "time", lambda: later)
    assert client.get("/", headers={"Cookie": cookie}).status_code == 401


def test_a_cookie_says_nothing_of_the_key_and_outlives_the_process() -> None:
    cookie = logged_in(guarded())
    assert KEY not in cookie and guarded().get("/", headers={"Cookie": cookie}).status_code == 200


@pytest.mark.parametrize(
    "key, words",
    [
        ("", "has 0 characters, and must have 16 to 256"),
        ("mellon", "has 6 characters"),
        ("k" * (LEAST_CHARACTERS - 1), "has 15 characters"),
        ("k" * (MOST_CHARACTERS + 1), "has 257 characters"),
        ("sixteen letters or more", "has a space"),
        ("schlüssel-mit-umlaut", "a character that is not ASCII"),
        ("a-long-enough-key\n", "has a space"),
    ],
)
def test_a_text_that_is_no_good_as_a_key_is_refused_without_being_shown(
    key: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match="2"):
        flags().parse_args([f"--api-key={key}"])
    said = capsys.readouterr().err
    assert words in said and "secrets.token_urlsafe" in said and (not key or key not in said)
    monkeypatch.setenv("PCD_API_KEY", key)
    if key:
        with pytest.raises(SystemExit, match="2"):
            flags().parse_args([])
        assert key not in capsys.readouterr().err


def test_the_key_of_the_environment_is_taken_and_an_empty_one_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCD_API_KEY", KEY)
    assert flags().parse_args([]).api_key.matches(KEY) and KEY not in repr(flags().parse_args([]))
    assert flags().parse_args(["--api-key", WRONG]).api_key.matches(WRONG)
    monkeypatch.setenv("PCD_API_KEY", "")
    assert flags().parse_args([]).api_key is None


@pytest.mark.parametrize(
    "host, key, words",
    [
        ("0.0.0.0", None, "listening on 0.0.0.0 without a key"),
        ("::", None, "without a key"),
        ("192.168.0.7", None, "without a key"),
        ("box.lan", None, "without a key"),
        ("0.0.0.0", KEY, ""),
        ("127.0.0.1", None, ""),
        ("localhost", None, ""),
        ("::1", None, ""),
    ],
)
def test_a_port_that_is_open_to_all_is_warned_of(host: str, key: str | None, words: str) -> None:
    said = exposure(host, made(key) if key else None)
    assert (words in said) if words else said == ""


def test_a_probe_needs_no_key_and_is_told_nothing_but_that(tiny: Callable[..., TorchBackend]) -> None:
    app: FastAPI = app_of(Engine(tiny("llama", "qwen"), "/srv/private models/tiny-llama", "its path was given"))
    client = guarded(app=app)
    stranger, friend = client.get("/health"), client.get("/health", headers={"X-API-Key": KEY})
    told = {name: value for name, value in stranger.json().items() if value is not None}
    assert (stranger.status_code, told) == (
        200, {"status": "ok", "apiVersion": "v1", "ready": True, "state": "ready", "message": "the key shows more"},
    )  # fmt: skip
    assert friend.json()["model"] == "tiny-llama"
    assert client.get("/health", headers={"X-API-Key": WRONG}).status_code == 401
    assert guarded(None, app).get("/health").json()["model"] == "tiny-llama"


# --- the form ---


def test_a_browser_is_shown_a_form_and_a_program_is_told_in_json() -> None:
    client = guarded()
    shown = client.get("/", headers=PAGE)
    assert shown.status_code == 401 and shown.headers["content-type"].startswith("text/html")
    assert "<form" in shown.text and "<script" not in shown.text and "://" not in shown.text
    assert shown.headers["cache-control"] == "no-store" and shown.headers["content-security-policy"].endswith(FRAMES)
    assert "default-src 'none'" in shown.headers["content-security-policy"]
    for path in ("/v1/models", "/gradio_api/info", "/openapi.json"):
        assert client.get(path, headers=PAGE).json()["code"] == "unauthorized"


@pytest.mark.parametrize("theme", ["light", "dark", '"><script>alert(1)</script>', "{title}", "purple"])
def test_the_form_takes_a_theme_from_its_address_and_nothing_else(theme: str) -> None:
    shown = guarded().get("/", params={"__theme": theme}, headers=PAGE).text
    assert (f'data-theme="{theme}"' in shown) == (theme in ("light", "dark"))
    assert "alert" not in shown and "{title}" not in shown


@pytest.mark.parametrize(
    "body, status, words",
    [
        (f"key={WRONG}", 401, "this is not the key"),
        ("", 401, "this is not the key"),
        ("key=", 401, "this is not the key"),
        (f"password={KEY}", 401, "this is not the key"),
        (f"key={KEY}&key={WRONG}", 401, "this is not the key"),
        (b"key=\xff%ff%00", 401, "this is not the key"),
        ("key=<script>alert(1)</script>", 401, "this is not the key"),
        ("key=" + "x" * MOST_BYTES, 413, "more than a key"),
    ],
)
def test_a_wrong_key_shows_the_form_again_with_a_message(body: str | bytes, status: int, words: str) -> None:
    answer = guarded().post("/", content=body, headers=FORM)
    assert answer.status_code == status and "set-cookie" not in answer.headers
    assert words in answer.text and "<form" in answer.text and "alert(1)" not in answer.text


@pytest.mark.parametrize(
    "path, where",
    [
        ("/", "./"),
        ("/?__theme=dark", "./?__theme=dark"),
        ("/docs", "./docs"),
        ("//evil.example/", "./"),
        ("//evil.example/x", "./x"),
        ("/javascript:alert(1)", "./javascript%3Aalert%281%29"),
        ("/%0d%0aSet-Cookie:a=b", "./%0D%0ASet-Cookie%3Aa%3Db"),
    ],
)
def test_the_right_key_leads_to_where_it_was_asked_for_and_never_elsewhere(path: str, where: str) -> None:
    answer = guarded().post(HERE + path, content=f"key={KEY}+", headers=FORM)
    assert (answer.status_code, answer.headers["location"]) == (303, where)


@pytest.mark.parametrize(
    "headers, marks",
    [
        ({}, ("SameSite=Lax",)),
        ({"X-Forwarded-Proto": "http"}, ("SameSite=Lax",)),
        ({"X-Forwarded-Proto": "https"}, ("SameSite=None", "Secure", "Partitioned")),
        ({"X-Forwarded-Proto": "https,http"}, ("SameSite=None", "Secure", "Partitioned")),
    ],
)
def test_the_cookie_is_kept_from_scripts_and_comes_back_in_a_spaces_frame(
    headers: dict[str, str], marks: tuple[str, ...]
) -> None:
    client = guarded()
    answer = client.post("/", content=f"key={KEY}", headers=FORM | headers)
    _, *kept = answer.headers["set-cookie"].split("; ")
    assert set(kept) == {"Path=/", f"Max-Age={api_key.COOKIE_DAYS * 86_400}", "HttpOnly", *marks}


# --- names and places ---

HOSTS = {
    "localhost": True,
    "localhost:7860": True,
    "LOCALHOST:1": True,
    "127.0.0.1": True,
    "127.0.0.1:7860": True,
    "127.8.9.1": True,
    "[::1]": True,
    "[::1]:7860": True,
    "[::ffff:127.0.0.1]": True,
    "": False,
    "evil.example": False,
    "evil.example:7860": False,
    "localhost.evil.example": False,
    "127.0.0.1.evil.example": False,
    "evil.localhost": False,
    "localhost:x": False,
    "localhost:7860:1": False,
    "user@localhost": False,
    "localhost, evil.example": False,
    "0.0.0.0": False,
    "192.168.0.7": False,
    "[::2]": False,
    "2130706433": False,
    "127.1": False,
    "::1": False,
    "[localhost]": False,
    "[::1": False,
}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["/", "/v1/models", "/health"])
def test_bound_to_this_machine_only_its_own_names_are_served(host: str, path: str) -> None:
    answer = guarded(None, only_loopback=True).get(path, headers={"Host": host})
    assert answer.status_code == (200 if HOSTS[host] else 400)
    assert HOSTS[host] or answer.json()["code"] == "unknown_host"


def test_bound_to_all_addresses_every_name_is_served() -> None:
    assert guarded(None).get("/", headers={"Host": "my-space.hf.space"}).status_code == 200


def test_an_address_to_bind_to_is_told_from_one_of_this_machine() -> None:
    loopback = [
        host for host in ("127.0.0.1", "localhost", "::1", "[::1]", "0.0.0.0", "::", "box") if is_loopback(host)
    ]
    assert loopback == ["127.0.0.1", "localhost", "::1", "[::1]"] and named_host("a:1") == "a"


EVIL, OWN = "https://evil.example", HERE
#: What a browser says of a page that asks, and whether it may change anything, and whether it may read with a cookie.
PLACES: dict[str, tuple[dict[str, str], bool, bool]] = {
    "no browser": ({}, True, True),
    "our page": ({"Origin": OWN, "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, True, True),
    "our page, of an old browser": ({"Origin": OWN}, True, True),
    "our page behind a proxy that changes the Host": ({"Origin": EVIL, "Sec-Fetch-Site": "same-origin"}, True, True),
    "an address that was typed": ({"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, True, True),
    "another page": ({"Origin": EVIL, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, False, False),
    "another port of this machine": (
        {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, False, False,
    ),
    "another page without CORS": ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, False, False),
    "another page, of an old browser": ({"Origin": EVIL}, False, False),
    "a page without an origin": ({"Origin": "null"}, False, False),
    "a link or a frame on another page": (
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, False, True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_a_page_of_another_place_changes_nothing_and_reads_nothing_with_a_cookie(place: str) -> None:
    headers, may_post, may_read = PLACES[place]
    client = guarded()
    cookie = {"Cookie": logged_in(client)}
    for path in ("/gradio_api/queue/join", "/v1/pcd/decode"):
        posts = [client.request(method, path, headers=headers | cookie) for method in ("POST", "PUT")]
        open_posts = [guarded(None).post(path, headers=headers), *posts]
        assert [answer.status_code for answer in open_posts] == [200 if may_post else 400] * 3
        assert may_post or {answer.json()["code"] for answer in open_posts} == {"cross_origin"}
    assert client.get("/config", headers=headers | cookie).status_code == (200 if may_read else 400)


def test_a_page_of_another_place_cannot_log_a_visitor_in() -> None:
    answer = guarded().post("/", content=f"key={KEY}", headers=FORM | {"Origin": EVIL})
    assert answer.status_code == 400 and "set-cookie" not in answer.headers


# --- wrong tries ---


def test_wrong_keys_of_one_place_are_bounded_and_nobody_else_is_kept_out() -> None:
    guard = Guard(Starlette(routes=[Route("/", inside)]), made(KEY))
    near, far = (
        TestClient(guard, base_url=HERE, follow_redirects=False, client=(ip, 1)) for ip in ("9.9.9.9", "9.9.9.10")
    )
    cookie = {"Cookie": logged_in(near)}
    for _ in range(MOST_WRONG):
        assert near.get("/", headers={"X-API-Key": WRONG}).status_code == 401
    for headers in ({"X-API-Key": WRONG}, {"X-API-Key": KEY}, {"Authorization": f"Bearer {KEY}"}):
        answer = near.get("/", headers=headers)
        assert answer.json()["code"] == "too_many_tries" and 0 < int(answer.headers["retry-after"]) <= tries.WITHIN_S
    shown = near.post("/", content=f"key={KEY}", headers=FORM)
    assert shown.status_code == 429 and "too many wrong keys" in shown.text and "set-cookie" not in shown.headers
    assert near.get("/", headers=cookie).status_code == 200, "who is in stays in"
    assert near.get("/").status_code == 401, "no key is no try"
    assert far.get("/", headers={"X-API-Key": KEY}).status_code == 200


def test_right_keys_are_never_counted_and_wrong_ones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    client = guarded()
    for _ in range(3 * MOST_WRONG):
        assert client.get("/", headers={"X-API-Key": KEY}).status_code == 200
    for _ in range(MOST_WRONG):
        client.get("/", headers={"X-API-Key": WRONG})
    assert client.get("/", headers={"X-API-Key": KEY}).status_code == 429
    monkeypatch.setattr(tries, "WITHIN_S", 0.0)
    assert client.get("/", headers={"X-API-Key": KEY}).status_code == 200


def test_the_places_that_are_remembered_are_bounded() -> None:
    counted = Tries()
    for place in map(str, range(MOST_PLACES + 10)):
        for _ in range(2 if place == "5" else 1):
            counted.note(place)
    assert len(counted._wrong) == MOST_PLACES


@pytest.mark.parametrize(
    "peer, forwarded, place",
    [
        ("9.9.9.9", None, "9.9.9.9"),
        ("9.9.9.9", "198.51.100.1", "9.9.9.9"),  # it names itself another
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),  # a proxy
        ("10.0.0.1", "1.1.1.1, 198.51.100.1", "198.51.100.1"),  # and a client that names itself another
        ("127.0.0.1", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", None, "2001:db8:1:2::/64"),
        ("10.0.0.1", "no address", "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("testclient", "198.51.100.1", "testclient"),
    ],
)
def test_a_place_is_an_address_or_what_a_proxy_says_it_is(peer: str, forwarded: str | None, place: str) -> None:
    headers = [] if forwarded is None else [(b"x-forwarded-for", forwarded.encode())]
    assert place_of({"type": "http", "client": (peer, 1), "headers": headers}) == place


# --- what passes through ---


def test_every_answer_has_the_headers_and_one_that_has_its_own_keeps_it() -> None:
    async def own(request: Request) -> PlainTextResponse:
        return PlainTextResponse("", headers={"Referrer-Policy": "no-referrer"})

    client = guarded(app=Starlette(routes=[Route("/own", own), Route("/usual", inside)]))
    for headers in ({}, {"X-API-Key": KEY}):
        answer = client.get("/usual", headers=headers)
        for name in HEADERS:
            assert answer.headers[name].startswith(HEADERS[name])
        assert answer.headers["content-security-policy"].endswith(f"; {FRAMES}")
        assert "x-frame-options" not in answer.headers
    assert client.get("/own", headers={"X-API-Key": KEY}).headers["referrer-policy"] == "no-referrer"


def test_a_stream_comes_piece_by_piece() -> None:
    went_on = threading.Event()

    async def stream(request: Request) -> StreamingResponse:
        async def pieces() -> AsyncIterator[str]:
            yield "first\n"
            await asyncio.to_thread(went_on.wait, 20)
            yield "second\n"

        return StreamingResponse(pieces(), media_type="text/event-stream")

    app = ResponseHeaders(Guard(Starlette(routes=[Route("/", stream)]), made(KEY)))
    with listening(app) as port:
        with httpx.stream("GET", f"http://127.0.0.1:{port}/", headers={"X-API-Key": KEY}, timeout=30) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "first"  # or it waits for what is only said afterwards
            assert not went_on.is_set()
            went_on.set()
            assert next(lines) == "second"


def test_nobody_comes_in_by_a_websocket() -> None:
    client = guarded(None)
    with pytest.raises((WebSocketDisconnect, WebSocketDenialResponse)), client.websocket_connect("/"):
        pass
