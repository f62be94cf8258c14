"""Intake: a request's body, from bytes to JSON, and the route that answers for whatever goes wrong with it.

Measured while it is read, whatever its headers say. Knows nothing of what the JSON means.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect

from core.notation import unique_object
from core.origin import is_foreign
from core.refusal import Refusal, foreign
from core.schema import SchemaError
from core.wording import shown

MAX_BODY_BYTES = 2**20
#: Objects and lists in one another. A schema that people have is rarely deeper than 20.
MAX_DEPTH = 64

#: A text of JSON, closed or not, or one bracket. Possessive: each character is looked at once, whatever comes.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


def require_room(size: int) -> None:
    """Raises `Refusal` for a body of so many bytes where that is more than one may have."""
    if size > MAX_BODY_BYTES:
        raise Refusal(413, "payload_too_large", f"the body has more than {MAX_BODY_BYTES} bytes; send less")


class JsonRequest(Request):
    """A request whose body is JSON that was sent on purpose. Raises `Refusal`."""

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            _check_origin(self.headers)
            _check_type(self.headers)
            self._body = await self._read()
        return self._body

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            # A body of the full size takes up to 0.2 s, in which the page's events would wait.
            self._json = await asyncio.to_thread(read_json, await self.body())
        return self._json

    async def _read(self) -> bytes:
        body = bytearray()
        try:
            async for chunk in self.stream():
                body += chunk
                require_room(len(body))
        except ClientDisconnect:
            raise Refusal(400, "invalid_json", "the body has no end") from None
        if not body:
            raise Refusal(400, "invalid_json", "the body is empty; send a JSON object")
        return bytes(body)


class JsonRoute(APIRoute):
    """A route whose errors are refusals, in whatever application it is mounted."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await handle(JsonRequest(request.scope, request.receive))
            except RequestValidationError as error:
                return Refusal.unshaped(error.errors()).response()
            except Exception as error:  # the border: whoever asked gets one line, and the log the rest
                return Refusal.of(error).response()

        return handler


def read_json(body: bytes) -> Any:
    """Strict JSON in UTF-8, each name once, nested no deeper than `MAX_DEPTH`. Raises `Refusal`."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _no_json(f"byte {error.start} is not of UTF-8") from None
    if is_deeper(text, MAX_DEPTH):
        raise Refusal(400, "invalid_request", f"the body is nested more than {MAX_DEPTH} deep; send flatter JSON")
    try:
        return json.loads(text, object_pairs_hook=unique_object, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise _no_json(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except SchemaError as error:  # a name that is written twice
        raise Refusal(400, "invalid_request", str(error)) from None
    except ValueError:  # an integer past Python's digit limit
        raise _no_json("a number is too long") from None


def is_deeper(text: str, depth: int) -> bool:
    """Whether JSON nests its objects and lists deeper; read without parsing, whose own stack has an end."""
    now = 0
    for token in _TOKEN.finditer(text):
        match token[0]:
            case "[" | "{":
                now += 1
                if now > depth:
                    return True
            case "]" | "}":
                now -= 1
    return False


def _no_constant(name: str) -> None:
    raise _no_json(f"{name} is no JSON")


def _no_json(why: str) -> Refusal:
    return Refusal(400, "invalid_json", f"the body is not valid JSON: {why}")


def _check_type(headers: Headers) -> None:
    """A web page can send a form or plain text anywhere without asking; JSON only where it may."""
    given = headers.get("content-type")
    if given is None or given.partition(";")[0].strip().lower() != "application/json":
        named = "there is no Content-Type" if given is None else f"the Content-Type is {shown(given)}"
        raise Refusal(400, "invalid_request", f"{named}; send application/json")


def _check_origin(headers: Headers) -> None:
    """Only a page that this server itself has served may post here; what is no browser has no Origin."""
    if is_foreign(headers):
        raise foreign(headers)
