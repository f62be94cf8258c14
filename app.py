"""The app: flags, the page, and the resident model that loads behind it."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from core import zero_gpu  # before whatever initialises CUDA
from core.backends import NAMES
from core.catalog import Catalog
from core.engine import default_of
from core.models import ModelNotFound, require_known
from core.plans import MAX_BYTES, MAX_ENTRIES
from core.presets import PresetError, load_presets
from core.recordings import load_recordings
from core.resident import Resident
from core.server import routes, service
from core.termination import Terminated, finish, raise_on_sigterm
from core.ui.launch import launch
from core.ui.page import build
from core.ui.tools import require_mcp
from core.ui.visited import Visited

#: Requests that wait beside the one that runs. The page's and those of REST wait in one queue.
QUEUE = 32
MOST_SECONDS = 86_400.0


def main() -> None:
    given = flags().parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("core").setLevel(logging.INFO)
    if given.model != "none":
        require_known(given.model)
    if given.mcp:
        require_mcp()
    raise_on_sigterm()
    files = TemporaryDirectory(prefix="pcd-")  # for what the page offers; Gradio's own folder is one for all, and stays
    os.environ.setdefault("GRADIO_TEMP_DIR", files.name)
    resident = Resident()
    presets = load_presets()
    recordings = {name: recording.events for name, recording in load_recordings(presets).items()}
    catalog = Catalog(given.models_dir)
    page = build(resident, presets, recordings, lambda: {one.id: one.target for one in catalog.entries()})
    start = partial(
        resident.start,
        given.model,
        backend=given.backend,
        dtype=given.dtype,
        offline=given.offline,
        cache_entries=given.cache_entries,
        cache_bytes=given.cache_bytes,
        queue=given.queue,
        timeout_s=given.timeout,
    )
    if zero_gpu.IS_ON:
        start(here=zero_gpu.load)  # before the launch, which puts the weights where workers find them
    answers = service(resident, catalog)
    launch(page, given.host, given.port, routes(Visited(answers, page) if zero_gpu.IS_ON else answers), given.mcp)
    try:
        if not zero_gpu.IS_ON:
            start()
        page.block_thread()
        resident.close()  # Ctrl-C
    except Terminated:
        finish(resident, lambda: page.close(verbose=False))
    finally:
        files.cleanup()
        # Past the interpreter's own clean-up: a thread that is still inside a pass would abort it.
        os._exit(0)


def flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Parallel constrained decoding beside streamed JSON, in a browser.")
    # A Space passes no flags; PCD_* and Gradio's own variable are its way to choose.
    names = "a name of python -m core.models, a hub id, a path, or none"
    parser.add_argument("--model", default=default_of("MODEL"), help=names)
    parser.add_argument("--backend", default=default_of("BACKEND"), choices=NAMES)
    parser.add_argument("--dtype", default=default_of("DTYPE"), choices=["auto", "bfloat16", "float16", "float32"])
    parser.add_argument("--host", default=os.environ.get("GRADIO_SERVER_NAME") or _usual_host())
    parser.add_argument("--port", type=_port, default=7860)
    folder = "a folder of .gguf files and Hugging Face folders that a client may select"
    parser.add_argument("--models-dir", type=Path, metavar="FOLDER", help=folder)
    kept = "schemas whose prompt stays in memory (%(default)s)"
    parser.add_argument("--cache-entries", type=_count, default=MAX_ENTRIES, metavar="N", help=kept)
    size = "and their bytes at most (%(default)s)"
    parser.add_argument("--cache-bytes", type=_count, default=MAX_BYTES, metavar="N", help=size)
    parser.add_argument("--offline", action="store_true", help="ask no network at all")
    tools = "serve the page's endpoints as tools for MCP too, at /gradio_api/mcp/; needs the package mcp"
    is_tool = os.environ.get("GRADIO_MCP_SERVER", "").lower() == "true"
    parser.add_argument("--mcp", action="store_true", default=is_tool, help=tools)
    parser.add_argument("--queue", type=_count, default=QUEUE, metavar="N", help="requests that may wait (%(default)s)")
    limit = "seconds that a request may take, waiting included; without it, until it is done or its client is gone"
    parser.add_argument("--timeout", type=_seconds, metavar="S", help=limit)
    return parser


def _usual_host() -> str:
    """A Space is reached from outside its container."""
    return "0.0.0.0" if os.environ.get("SPACE_ID") else "127.0.0.1"


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; use 1 to 65535")
    return int(text)


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


if __name__ == "__main__":
    try:
        main()
    except (ModelNotFound, PresetError) as error:
        sys.exit(f"error: {error}")
