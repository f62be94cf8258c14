"""The service in tests: on no model, on a tiny one, and on a real port."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from core.catalog import Catalog
from core.engine import Engine
from core.resident import Resident, Status
from core.server import service
from tests.fakes import HashBackend, lexicon

TICKET = "The parcel is wet and I was charged twice. Please help before Friday."
PRIORITY = {"name": "priority", "description": "how urgent it is", "choices": ["LOW", "NORMAL", "HIGH"]}
REFUND = {"name": "refund", "description": "a refund is asked for", "choices": [False, True]}
GOOD = {"context": TICKET, "fields": [PRIORITY, REFUND]}


def resident_of(engine: Engine | None) -> Resident:
    resident = Resident()
    resident.start("none", backend="torch", dtype="float32", offline=True)
    if engine is not None:
        resident.engine = engine
        resident.status = Status("ready", message=engine.model)
    return resident


def client_of(engine: Engine | None = None, models: Path | None = None) -> TestClient:
    # What a route does not answer for itself would be raised in the test.
    return TestClient(app_of(engine, models))


def app_of(engine: Engine | None = None, models: Path | None = None) -> FastAPI:
    return service(resident_of(engine), Catalog(models))


class GatedBackend(HashBackend):
    """Each pass takes a permit, so that a test decides how far the engine comes."""

    def __init__(self) -> None:
        super().__init__(lexicon("qwen"))
        self.permits = threading.Semaphore(0)
        self.entered = threading.Event()

    def _pass(self) -> None:
        self.entered.set()
        assert self.permits.acquire(timeout=20), "nobody let the pass go on"
        super()._pass()


@contextmanager
def listening(app: FastAPI) -> Iterator[int]:
    """The port on which the application is served while the block lasts."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)


def until(holds: Any, seconds: float = 15.0) -> None:
    """Waits for what another thread brings about."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)
