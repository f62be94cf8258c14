"""What a request to the small server meets on its way, so that a test can have it fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.responses import HTMLResponse, JSONResponse, Response


@dataclass(frozen=True)
class Fault:
    """What one request meets instead of its answer, or on the way to it."""

    status: int = 0
    retry_after: str = ""
    page: str = ""  # HTML in place of vLLM's JSON: a balancer answers for itself
    drops: bool = False  # the connection ends without an answer
    cut_after: int | None = None  # parts of an answer's body that come whole; half of the next, and the connection ends
    wait_s: float = 0.0  # before anything else; `HANG` for as long as the server runs
    path: str = "/v1/completions"


HANG = 3600.0


def cut(whole: int, send: Any, transport: Any) -> Any:
    """A `send` that ends the connection in the middle of the body, after so many whole parts of it."""
    left = whole

    async def sent(message: Any) -> None:
        nonlocal left
        if message["type"] != "http.response.body" or left > 0:
            left -= message["type"] == "http.response.body"
            await send(message)
        elif left == 0:
            left -= 1
            half = message["body"][: len(message["body"]) // 2]
            await send({"type": "http.response.body", "body": half, "more_body": True})
            transport.close()

    return sent


def failed(fault: Fault) -> Response:
    headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
    if fault.page:
        return HTMLResponse(fault.page, fault.status, headers)
    error = {"message": "told to fail", "type": "InternalServerError", "param": None, "code": fault.status}
    return JSONResponse({"error": error}, fault.status, headers)
