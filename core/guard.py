"""The guard: what stands before the page and the service, and lets in whoever may come in.

ASGI, so that what is streamed passes through as it comes. Looks at a request's headers and its way in, and reads no
body but that of the form for the key.
"""

from __future__ import annotations

import math
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from core.api_key import COOKIE_DAYS, ApiKey, given_key
from core.login import MOST_BYTES, POLICY, form, key_of
from core.origin import SAFE_METHODS, is_foreign, is_loopback, named_host
from core.refusal import Refusal, foreign
from core.tries import Tries, place_of
from core.wording import shown

#: Whoever probes the service has no key, and is told nothing but that it is up and whether a model is ready.
HEALTH = "/health"
#: Gradio asks this of itself while it starts; it changes nothing later.
STARTED = "/gradio_api/startup-events"
#: What only programs ask for: its errors are JSON for a browser too.
_FOR_PROGRAMS = ("/v1", "/gradio_api", "/openapi.json", HEALTH)
_GUEST = "pcd.guest"

NO_KEY = "a key is needed: send it as X-API-Key, or as Authorization: Bearer KEY"
WRONG_KEY = "this is not the key; nothing was done"


class Guard:
    """`key`: without one everybody may come in. `only_loopback`: serve only who names this machine as loopback."""

    def __init__(self, app: ASGIApp, key: ApiKey | None = None, only_loopback: bool = False) -> None:
        self._app = app
        self._key = key
        self._only_loopback = only_loopback
        self._tries = Tries()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # nothing here speaks it
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check_place(scope)
            answer = await self._answer(scope, receive)
        except Refusal as refusal:
            answer = refusal.response()
        await (answer or self._app)(scope, receive, send)

    def _check_place(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._only_loopback and not is_loopback(named_host(host)):
            # A page of another name that is made to lead here (DNS rebinding) could read what the service answers.
            way_out = "ask for localhost or 127.0.0.1, or start the program with --host"
            raise Refusal(400, "unknown_host", f"{shown(host)} is not a name of this server; {way_out}")
        if scope["method"] not in SAFE_METHODS and is_foreign(headers):
            raise foreign(headers)

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        """None for whoever may come in."""
        if self._key is None or scope["path"] == STARTED:
            return None
        headers = Headers(scope=scope)
        if _is_form(scope, headers):
            return await self._logged_in(self._key, scope, receive)
        if self._key.has_cookie(headers):
            _check_reader(headers)
            return None
        if (given := given_key(headers)) is not None:
            self._check(self._key, given, scope)
            return None
        if scope["path"] == HEALTH:
            scope[_GUEST] = True
            return None
        if _is_for_people(scope, headers):
            return _form(scope, 401)
        raise Refusal(401, "unauthorized", NO_KEY, {"WWW-Authenticate": "Bearer"})

    def _check(self, key: ApiKey, given: str, scope: Scope) -> None:
        """Raises `Refusal` where this is not the key, or too many from there were not."""
        place = place_of(scope)
        if wait_s := math.ceil(self._tries.wait_s(place)):
            told = f"too many wrong keys came from your address; try again in {wait_s} s"
            raise Refusal(429, "too_many_tries", told, {"Retry-After": str(wait_s)})
        if not key.matches(given):
            self._tries.note(place)
            raise Refusal(401, "unauthorized", WRONG_KEY, {"WWW-Authenticate": "Bearer"})

    async def _logged_in(self, key: ApiKey, scope: Scope, receive: Receive) -> Response:
        try:
            given = key_of(await _body(Request(scope, receive)))
            self._check(key, given, scope)
        except Refusal as refusal:
            return _form(scope, refusal.status_code, refusal.detail)
        answer = RedirectResponse(_here(scope), 303)
        told = Headers(scope=scope).get("x-forwarded-proto", scope["scheme"])
        is_https = told.startswith("https")
        # In a Space's frame the page is another site's guest: there only such a cookie comes back, and where browsers
        # keep guests apart, only a partitioned one. Without https browsers take neither.
        where = "; SameSite=None; Secure; Partitioned" if is_https else "; SameSite=Lax"
        kept = f"; Path=/; Max-Age={COOKIE_DAYS * 86_400}; HttpOnly"
        answer.headers["Set-Cookie"] = f"{key.cookie_name}={key.cookie()}{kept}{where}"
        return answer


def is_guest(scope: Scope) -> bool:
    """Whether a request came in without the key where there is one."""
    return scope.get(_GUEST, False)


def exposure(host: str, key: ApiKey | None) -> str:
    """A warning for the log where anybody on the network may come in, or ""."""
    if key is not None or is_loopback(host):
        return ""
    return f"listening on {host} without a key: whoever reaches the port may use the model; give one with --api-key"


def _check_reader(headers: Headers) -> None:
    """A cookie also comes with what the page of another site asks for: that may show this page, and read nothing."""
    if is_foreign(headers) and headers.get("sec-fetch-mode") != "navigate":
        raise foreign(headers)


def _is_form(scope: Scope, headers: Headers) -> bool:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return scope["method"] == "POST" and kind == "application/x-www-form-urlencoded" and not _is_for_programs(scope)


def _is_for_programs(scope: Scope) -> bool:
    return any(scope["path"] == one or scope["path"].startswith(f"{one}/") for one in _FOR_PROGRAMS)


def _is_for_people(scope: Scope, headers: Headers) -> bool:
    is_read = scope["method"] in SAFE_METHODS and "text/html" in headers.get("accept", "")
    return is_read and not _is_for_programs(scope)


def _form(scope: Scope, status: int, wrong: str = "") -> Response:
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
    return HTMLResponse(form(scope["query_string"].decode("latin-1"), wrong), status, headers)


async def _body(request: Request) -> bytes:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BYTES:
                raise Refusal(413, "payload_too_large", "the form has more than a key")
    except ClientDisconnect:
        raise Refusal(400, "invalid_request", "the form has no end") from None
    return bytes(body)


def _here(scope: Scope) -> str:
    """The address that was asked for, as seen from itself: before a proxy it may have a longer path."""
    name = quote(scope["path"].rpartition("/")[2], safe="")
    query = scope["query_string"].decode("latin-1")
    return f"./{name}" + (f"?{query}" if query else "")
