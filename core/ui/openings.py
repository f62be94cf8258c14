"""Gradio's paths that the page and `gradio_client` use; of all others it answers as if they were not there.

Gradio 6.31 brings some eighty. Among them: uploads that stay on the disk, a fetch of any address of the internet in
the server's name (`file=https://`), monitoring, recordings, and a login of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import gradio as gr
from gradio import processing_utils
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.intake import require_room
from core.origin import SAFE_METHODS
from core.refusal import Refusal

_OPEN = re.compile(
    r"/(?:config/?|theme\.css|favicon\.ico|manifest\.json|robots\.txt|(?:assets|static|svelte)/.*)?"
    r"|/gradio_api/(?:info/?|openapi\.json|startup-events|theme\.css|app_id|heartbeat/[^/]+|cancel|reset/?"
    r"|queue/(?:join|data)|component_server/?|(?:run|call|call/v2)/[^/]+/?|call/[^/]+/[^/]+"
    # An absolute path of this machine, of which Gradio offers only what the page has put among its files.
    r"|file=(?:/|[A-Za-z]:[/\\]).*)",
    re.DOTALL,
)
_OF_MCP = re.compile(r"/gradio_api/mcp/?")


def fetch_nothing() -> None:
    """From now on Gradio fetches no address that a client names as a file of its inputs: the page takes no files."""
    processing_utils.async_ssrf_protected_download = _refused


async def _refused(url: str, cache_dir: str) -> str:
    raise gr.Error("this server fetches nothing: give the text itself", print_exception=False)


async def _with_body(receive: Receive) -> Receive:
    """With the body read, which Gradio would take at any length. Raises `Refusal`."""
    body = bytearray()
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        require_room(len(body))
        if not message.get("more_body"):
            break
    first = [{**message, "body": bytes(body)} if message["type"] == "http.request" else message]

    async def replayed() -> Message:
        return first.pop() if first else await receive()

    return replayed


class Openings:
    """ASGI middleware. `routes`: those that are not Gradio's; `mcp`: whether its tools are served."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute] = (), mcp: bool = False) -> None:
        self._app = app
        self._routes = routes
        self._open = (_OPEN, _OF_MCP) if mcp else (_OPEN,)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: ASGIApp = self._app
        if scope["type"] == "http" and not any(route.matches(scope)[0] != Match.NONE for route in self._routes):
            try:
                receive = await self._let_in(scope, receive)
            except Refusal as refusal:
                answer = refusal.response()
        await answer(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive) -> Receive:
        if not any(paths.fullmatch(scope["path"]) for paths in self._open):
            raise Refusal(404, "not_found", "there is nothing here; /docs lists what there is")
        return receive if scope["method"] in SAFE_METHODS else await _with_body(receive)
