"""The page's endpoints as tools for MCP: whether they can be, and what of a call stays out of the log."""

from __future__ import annotations

import logging
import sys
from importlib.util import find_spec
from pathlib import PurePath


def require_mcp() -> None:
    """Ends the program where the package is missing, without which gradio would start and serve no MCP."""
    if find_spec("mcp") is None:
        sys.exit('error: --mcp needs a package that is not here: pip install "mcp>=1.21,<2"')


def keep_calls_out_of_the_log() -> None:
    """What the package mcp complains of, it quotes: names of tools, whole requests that are none."""
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_mcp)  # mcp 1.30 logs a part of it without a name (shared/session.py)


def _is_not_of_mcp(record: logging.LogRecord) -> bool:
    return PurePath(record.pathname).parts[-3:-1] != ("mcp", "shared")
