"""Ctrl-C during a measurement: the engine stops, and what was finished by then is still told."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from core.engine import Engine

#: The exit status, as shells have it after Ctrl-C.
INTERRUPTED = 130

#: How long an interrupted run waits for the pass in hand: a thread that dies inside one takes the process along.
PATIENCE_S = 10.0


@contextmanager
def interruptible(engine: Engine, publish: Callable[[], None]) -> Iterator[None]:
    """Runs the block, which Ctrl-C ends together with the engine's work, and then publishes in any case.

    Nothing interrupts `publish`: a second Ctrl-C would leave half of what it writes and prints.
    """
    try:
        yield
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt):  # who presses it twice does not want to wait
            engine.owner.stop(PATIENCE_S)
    finally:
        with _uninterrupted():
            publish()


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def leave(status: int) -> NoReturn:
    """Ends the process; after an interruption at once, because a thread inside a pass would abort it with a signal."""
    if status == INTERRUPTED:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(status)
    sys.exit(status)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
