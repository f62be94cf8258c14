"""Starting the page: its look, and the server."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import gradio as gr
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from core.api_key import ApiKey
from core.guard import Guard
from core.origin import is_loopback
from core.response_headers import ResponseHeaders
from core.ui.components import asset
from core.ui.failures import log_failures
from core.ui.openings import Openings, fetch_nothing
from core.ui.tools import keep_calls_out_of_the_log

# Names of fonts that the system has; gradio would ask Google for its own.
SANS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif"]
MONO = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace"]

_PARTS = (
    "panels",
    "take",
    "code",
    "phases",
    "replay",
    "inspector",
    "table",
    "narrow",
    "threshold",
    "history",
    "tour",
    "presenter",
    "strip",
    "lost",
)
_BOARD = ("board.css", *(f"board/{part}.css" for part in _PARTS))
STYLES = (
    "page.css",
    "notice.css",
    "models.css",
    "editor.css",
    *_BOARD,
    "benchmark.css",
    "accessibility.css",
    "connection.css",
)
SCRIPTS = ("page.js", "accessibility.js", "typed.js", "kept.js", "connection.js")


def launch(
    page: gr.Blocks,
    host: str,
    port: int,
    routes: Sequence[BaseRoute] = (),
    key: ApiKey | None = None,
    mcp: bool = False,
) -> str:
    """Serves the page from a thread of its own; returns its address. Ends the program where the port is taken.

    `routes` come before gradio's own, and are there from the first request on; `key` guards both. `mcp`: whether the
    page's endpoints are tools for MCP too, at /gradio_api/mcp/; `require_mcp` first.
    """
    log_failures()
    if mcp:
        keep_calls_out_of_the_log()
    fetch_nothing()
    # In this order on a request's way in.
    middleware = [
        Middleware(ResponseHeaders),
        Middleware(Guard, key, only_loopback=is_loopback(host)),
        Middleware(Openings, routes, mcp),
    ]
    try:
        _, url, _ = page.launch(
            server_name=host,
            server_port=port,
            prevent_thread_lock=True,
            theme=theme(),
            head=head(),
            ssr_mode=False,
            run_history=False,
            enable_monitoring=False,
            footer_links=["api"],
            max_file_size=1,  # the page takes no files; Gradio's own parser of forms has no other limit
            app_kwargs={"routes": list(routes), "middleware": middleware},
            mcp_server=mcp,
            _frontend=False,  # no look at its own page, which ends the program where it takes more than three seconds
        )
    except OSError:
        reason = "the port is in use, or the host is not of this machine"
        sys.exit(f"error: cannot listen on {host}:{port}: {reason}; choose with --port or --host")
    return url


def theme() -> gr.themes.Base:
    base = gr.themes.Base(primary_hue="blue", neutral_hue="slate", radius_size="sm", font=SANS, font_mono=MONO)
    # The base theme's own grey and blue have too little contrast for text; the accent has no pair, see page.css.
    return base.set(
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_400",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        color_accent="*primary_600",
    )


def head() -> str:
    """Style sheet and keyboard, in the head: gradio's `css` drops container queries. A report takes the sheet by id."""
    style, script = ("".join(map(asset, names)) for names in (STYLES, SCRIPTS))
    return f"<style id='styles'>{style}</style><script>{script}</script>"
