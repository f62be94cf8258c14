"""The wire to a server: HTTP whose waiting ends when the work that waits is to stop.

A request that nobody wants any more is hung up on at once, so that it holds neither a thread here
nor the server. A blocking read of httpx looks at nothing until its timeout.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

#: Seconds between two looks at whether the work is to stop.
LOOK_S = 0.05

_of_thread = threading.local()


@contextmanager
def watching(check: Callable[[], None]) -> Iterator[None]:
    """What `check` raises ends a read of this thread, and its connection."""
    before = _check()
    _of_thread.check = check
    try:
        yield
    finally:
        _of_thread.check = before


class Wire(httpx.HTTPTransport):
    """httpx's own transport over connections that are watched; idle ones are kept for `idle_s`."""

    def __init__(self, idle_s: float) -> None:
        # httpx has no parameter for the network backend. SSL_CERT_FILE is heeded: a server may have its own authority.
        context = httpx.create_ssl_context()
        self._pool = httpcore.ConnectionPool(
            context, max_connections=None, keepalive_expiry=idle_s, network_backend=_Network()
        )


class _Network(httpcore.SyncBackend):
    def connect_tcp(self, *given: Any, **options: Any) -> httpcore.NetworkStream:
        return _Watched(super().connect_tcp(*given, **options))


class _Watched(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self.write, self.close, self.get_extra_info = stream.write, stream.close, stream.get_extra_info

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            _check()()
            try:
                return self._stream.read(max_bytes, LOOK_S)
            except httpcore.ReadTimeout:
                if until is not None and time.monotonic() >= until:
                    raise

    def start_tls(self, *given: Any, **options: Any) -> httpcore.NetworkStream:
        return _Watched(self._stream.start_tls(*given, **options))


def _check() -> Callable[[], None]:
    return getattr(_of_thread, "check", _nothing)


def _nothing() -> None:
    """Nobody waits who could stop."""
