"""SIGTERM: the service takes no more requests, finishes those that it has, and ends within ten seconds."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from core.resident import Resident

log = logging.getLogger(__name__)

#: Ten seconds in all, as a container has before it is killed, less a reserve: for the requests that were taken, for
#: the pass of those that are then cancelled, until their answers are in the server's hands, and for the server to send.
FINISH_S, STOP_S, ANSWER_S, SEND_S = 6.0, 1.0, 0.5, 1.0


class Terminated(SystemExit):
    """SIGTERM came; raised in the main thread. A program that does not handle it ends quietly."""


def raise_on_sigterm() -> None:
    signal.signal(signal.SIGTERM, _raise)


def finish(resident: Resident, close_server: Callable[[], None]) -> None:
    """Lets the requests that were taken come to their end, and their answers out. The server refuses new ones."""
    log.info("ending: the requests that were taken are finished, for %g s at most", FINISH_S)
    resident.drain(FINISH_S)
    resident.close(STOP_S)
    time.sleep(ANSWER_S)
    closing = threading.Thread(target=close_server, name="pcd-close", daemon=True)
    closing.start()
    closing.join(SEND_S)


def _raise(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one must not cut off those that are being finished
    raise Terminated(0)
