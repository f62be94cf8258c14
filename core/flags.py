"""The app's flags. A Space passes none: model, backend, dtype, host, key and MCP have an environment variable."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from core.api_key import ApiKey
from core.model_flags import add_model_flags
from core.plans import MAX_BYTES, MAX_ENTRIES

#: Requests that wait beside the one that runs. The page's and those of REST wait in one queue.
QUEUE = 32
MOST_SECONDS = 86_400.0


def flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Parallel constrained decoding beside streamed JSON, in a browser.")
    # A Space passes no flags; PCD_* and Gradio's own variable are its way to choose.
    add_model_flags(parser, or_none=True)
    parser.add_argument("--host", default=os.environ.get("GRADIO_SERVER_NAME") or _usual_host())
    parser.add_argument("--port", type=_port, default=7860)
    folder = "a folder of .gguf files and Hugging Face folders that a client may select"
    parser.add_argument("--models-dir", type=_folder, metavar="FOLDER", help=folder)
    kept = "schemas whose prompt stays in memory (%(default)s)"
    parser.add_argument("--cache-entries", type=_count, default=MAX_ENTRIES, metavar="N", help=kept)
    size = "and their bytes at most (%(default)s)"
    parser.add_argument("--cache-bytes", type=_count, default=MAX_BYTES, metavar="N", help=size)
    tools = "serve the page's endpoints as tools for MCP too, at /gradio_api/mcp/; needs the package mcp"
    is_tool = os.environ.get("GRADIO_MCP_SERVER", "").lower() == "true"
    parser.add_argument("--mcp", action="store_true", default=is_tool, help=tools)
    parser.add_argument("--queue", type=_count, default=QUEUE, metavar="N", help="requests that may wait (%(default)s)")
    limit = "seconds that a request may take, waiting included; without it, until it is done or its client is gone"
    parser.add_argument("--timeout", type=_seconds, metavar="S", help=limit)
    key = "guards page and REST; others on this machine see a flag with ps, so better set PCD_API_KEY; no server's key"
    # An empty variable is none: a Space's secret that was taken back.
    kept = os.environ.get("PCD_API_KEY") or None
    parser.add_argument("--api-key", type=_key, default=kept, metavar="KEY", help=key)
    texts = "log the contexts and schemas of requests, and the words of errors, which may be of them"
    parser.add_argument("--log-text", action="store_true", help=texts)
    return parser


def _usual_host() -> str:
    """A Space is reached from outside its container."""
    return "0.0.0.0" if os.environ.get("SPACE_ID") else "127.0.0.1"


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; use 1 to 65535")
    return int(text)


def _folder(text: str) -> Path:
    if not (folder := Path(text).expanduser()).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is no folder here")
    return folder


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no count; use 0 or more")
    return int(text)


def _seconds(text: str) -> float:
    try:
        if 0 < (seconds := float(text)) <= MOST_SECONDS:
            return seconds
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no time; use a number of seconds above 0, a day at most")


def _key(text: str) -> ApiKey:
    try:
        return ApiKey(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
