"""Headers of every response: what a browser may do with what comes from here.

The page is Gradio's: its components are functions made of text, which asks for 'unsafe-eval', and it starts from
scripts and styles in the page. What is left to forbid is everything of another address.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Who may show the page in a frame: itself, and the site where Spaces are shown.
FRAMES = "frame-ancestors 'self' https://huggingface.co https://*.hf.space"

_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
    )
)

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: with that a browser hides the Origin of our own form from us.
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
}


class ResponseHeaders:
    """ASGI middleware. A response that has a header of its own keeps it, and takes `FRAMES` into its policy."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers["Content-Security-Policy"] += f"; {FRAMES}"
            await send(message)

        await self._app(scope, receive, told if scope["type"] == "http" else send)
