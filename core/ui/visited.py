"""Who asks, where the package `spaces` looks for it: beside Gradio's own events also for routes of ours.

On ZeroGPU GPU time is that of the visitor, whose token comes in a header; without one it is that of nobody.
"""

from __future__ import annotations

import gradio as gr
from gradio.context import LocalContext
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send


class Visited:
    """An application beside a page; a worker that is forked in it closes the page's sockets, as in an event."""

    def __init__(self, app: ASGIApp, page: gr.Blocks) -> None:
        self._app, self._page = app, page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        LocalContext.request.set(Request(scope))
        LocalContext.blocks.set(self._page)
        await self._app(scope, receive, send)
