"""Failures inside Gradio: into the log like all others. It prints tracebacks, whose words may be of a text."""

from __future__ import annotations

import logging
import traceback
from typing import Any

from gradio import queueing, route_utils, routes, utils

log = logging.getLogger(__name__)


class _Logged:
    """What Gradio's modules take for the module `traceback`."""

    def print_exc(self) -> None:
        log.error("an event of the page failed", exc_info=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)


def log_failures() -> None:
    """From now on, for every page of the process."""
    for module in (queueing, route_utils, routes, utils):
        module.traceback = _LOGGED


_LOGGED = _Logged()
