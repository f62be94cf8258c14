"""Refusals: what the service answers where it has no result, always `{"code", "message"}`.

A message never has a path of the server in it, and never a traceback. Knows nothing of routes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from fastapi import HTTPException
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers

from core.backend import BackendMissing, ModelUnsupported
from core.faults import told
from core.grammar import GrammarError
from core.model_cache import ModelError
from core.models import ModelNotFound
from core.owner import Cancelled, Closing, NotAnswered, QueueFull, TimedOut, Unavailable
from core.prompt import PromptTooLong
from core.request import RequestError
from core.resident import Busy
from core.schema import SchemaError
from core.vocabulary import TokenizationError
from core.wording import shown

log = logging.getLogger(__name__)

Code = Literal[
    "invalid_json", "invalid_request", "cross_origin", "not_found", "unknown_model", "method_not_allowed",
    "payload_too_large", "schema_error", "native_error", "internal_error", "no_model", "busy", "queue_full",
    "timed_out", "no_gpu", "server_away", "shutting_down", "unknown_host", "unauthorized", "too_many_tries",
]  # fmt: skip

#: Seconds after which a client may well try again.
RETRY_S = 1

#: What the engine raises, the status and the code. What is none of these is a fault of ours.
_KNOWN: Sequence[tuple[type[Exception] | tuple[type[Exception], ...], int, Code]] = (
    ((SchemaError, RequestError, PromptTooLong), 400, "invalid_request"),
    ((TokenizationError, GrammarError), 422, "schema_error"),
    (ModelNotFound, 404, "unknown_model"),
    ((ModelError, ModelUnsupported, BackendMissing, ArithmeticError), 500, "native_error"),
    (Busy, 503, "busy"),
    (QueueFull, 503, "queue_full"),
    (TimedOut, 503, "timed_out"),
    (NotAnswered, 503, "no_gpu"),
    ((Closing, Cancelled), 503, "shutting_down"),
    (Unavailable, 503, "server_away"),  # after what is one of its kinds
)


class Refusal(HTTPException):
    def __init__(self, status: int, code: Code, message: str, headers: Mapping[str, str] | None = None) -> None:
        waits = {"Retry-After": str(RETRY_S)} if status == 503 else {}
        # Half a character, which a message may repeat from a request, has no UTF-8.
        whole = message.encode(errors="backslashreplace").decode()
        super().__init__(status, whole, {**waits, **(headers or {})})
        self.code = code

    @classmethod
    def of(cls, error: BaseException, named: Callable[[str], str] = lambda words: words) -> Refusal:
        """What to answer for what was raised, its words as `named` names things; logs what no client can mend."""
        if isinstance(error, Refusal):
            return error
        for kinds, status, code in _KNOWN:
            if isinstance(error, kinds):
                return cls(status, code, named(str(error)) or _WORDS[code])
        if isinstance(error, RuntimeError | MemoryError | OSError):
            return cls(500, "native_error", told(error, "a request"))
        log.error("a request failed", exc_info=error)  # a ValueError among them: those that can be mended have a name
        return cls(500, "internal_error", f"the service failed: {type(error).__name__}; the log has more")

    @classmethod
    def unshaped(cls, errors: Sequence[Any]) -> Refusal:
        """For what a Pydantic model says of a body."""
        error = errors[0]
        place = _place(error["loc"])
        if error["type"] == "missing":
            return cls(400, "invalid_request", f"{place} is missing")
        must = _MUST.get(error["type"]) or error["msg"].lower()
        return cls(400, "invalid_request", f"{place} {must}, got {shown(error.get('input'))}")

    def to_json(self) -> dict[str, str]:
        return {"code": self.code, "message": self.detail}

    def response(self) -> JSONResponse:
        return JSONResponse(self.to_json(), self.status_code, self.headers)


#: For an exception without words of its own.
_WORDS: Mapping[str, str] = {
    "queue_full": "too many requests are waiting; try again in a moment",
    "timed_out": "the request took longer than it may; make it smaller, or try again when less is asked",
    "shutting_down": "the service is shutting down",
    "busy": "another model is being loaded; try again when it is there",
}

#: What Pydantic means by the types of error that the contract's models can meet.
_MUST = {
    "string_type": "must be a string",
    "list_type": "must be a list",
    "model_type": "must be a JSON object",
    "model_attributes_type": "must be a JSON object",
    "dict_type": "must be a JSON object",
}


def _place(location: Sequence[str | int]) -> str:
    """`fields[3].name`; the body itself by name."""
    steps = location[1:]
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return path.removeprefix(".") or "the request body"


def foreign(headers: Headers) -> Refusal:
    """For what a page of another place sends."""
    named = f"of {shown(headers['origin'])} " if "origin" in headers else "of another place "
    way_out = "post from a page of this server, or without a browser"
    return Refusal(400, "cross_origin", f"a page {named}may not post here; {way_out}")
