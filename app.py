"""The app: the page, the service, and the resident model that loads behind it."""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from tempfile import TemporaryDirectory

from core import zero_gpu  # before whatever initialises CUDA
from core.address import AddressError, is_url, servers
from core.catalog import Catalog
from core.flags import flags
from core.guard import exposure
from core.model_flags import load_options
from core.models import ModelNotFound, require_known
from core.presets import PresetError, load_presets
from core.recordings import load_recordings
from core.resident import Resident
from core.server import routes, service
from core.termination import Terminated, finish, raise_on_sigterm
from core.text_log import start_log
from core.ui.launch import launch
from core.ui.page import build
from core.ui.tools import require_mcp
from core.ui.visited import Visited

log = logging.getLogger("core")


def main() -> None:
    given = flags().parse_args()
    start_log(given.log_text)
    if warning := exposure(given.host, given.api_key):
        log.warning(warning)
    if is_url(given.model):
        servers(given.model)
    elif given.model != "none":
        require_known(given.model)
    if given.mcp:
        require_mcp()
    raise_on_sigterm()
    files = TemporaryDirectory(prefix="pcd-")  # for what the page offers; Gradio's own folder is one for all, and stays
    os.environ.setdefault("GRADIO_TEMP_DIR", files.name)
    resident = Resident()
    presets = load_presets()
    recordings = {name: recording.events for name, recording in load_recordings(presets).items()}
    catalog = Catalog(given.models_dir, given.model if is_url(given.model) else "")
    page = build(resident, presets, recordings, lambda: {one.id: one.target for one in catalog.entries()})
    start = partial(
        resident.start,
        given.model,
        **load_options(given),
        cache_entries=given.cache_entries,
        cache_bytes=given.cache_bytes,
        queue=given.queue,
        timeout_s=given.timeout,
    )
    if zero_gpu.IS_ON:
        start(here=zero_gpu.load)  # before the launch, which puts the weights where workers find them
    answers = service(resident, catalog)
    answers = Visited(answers, page) if zero_gpu.IS_ON else answers
    launch(page, given.host, given.port, routes(answers), given.api_key, given.mcp)
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


if __name__ == "__main__":
    try:
        main()
    except (ModelNotFound, PresetError, AddressError) as error:
        sys.exit(f"error: {error}")
