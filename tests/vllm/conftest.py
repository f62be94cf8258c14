"""A real vLLM, started by the tests so that they can kill it. `tests/vllm/run` sets what it needs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

#: A start takes about a minute, on busy cores several.
READY_WITHIN_S = 600
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "2"}


class RealServer:
    """One vLLM on a loopback port of its own, which it keeps; its engine's processes end with it."""

    def __init__(self, python: str, folder: Path, log: Path, *flags: str) -> None:
        self.python, self.folder, self.log = python, folder, log
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [
            python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--host", "127.0.0.1",
            "--port", str(self.port), "--max-model-len", "8192", "--dtype", "bfloat16", "--enforce-eager",
            "--enable-per-request-metrics", *flags,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, wait: bool = True) -> None:
        """Starts the process; with `wait` until it has answered a request: the first one takes 20 s."""
        with self.log.open("ab") as log:
            # A session of its own: its workers are one group with it, and nobody else is.
            self._process = subprocess.Popen(
                self._command, env=os.environ | QUIET, stdout=log, stderr=log, cwd=self.log.parent,
                start_new_session=True,
            )  # fmt: skip
        if wait:
            self.wait()

    def wait(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while not self._answers():
            ended = self._process is None or self._process.poll() is not None
            assert not ended, f"vLLM ended; the end of {self.log}:\n{self.tail()}"
            assert time.monotonic() < deadline, f"vLLM is not ready; the end of {self.log}:\n{self.tail()}"
            time.sleep(1)
        body = {"model": str(self.folder), "prompt": [1, 2, 3], "max_tokens": 1, "temperature": 0}
        httpx.post(f"{self.url}/v1/completions", json=body, timeout=READY_WITHIN_S).raise_for_status()

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """As `kill -9` of all its processes; nothing if it does not run."""
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait()
            self._process = None

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=2).status_code == 200
        except httpx.TransportError:
            return False


@pytest.fixture(scope="package")
def folder() -> Path:
    if not os.environ.get("PCD_VLLM_PYTHON"):
        pytest.skip("needs a vLLM of its own: tests/vllm/run makes one")
    from core.models import resolve

    return resolve("smollm2-135m").directory


@pytest.fixture(scope="package")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the server ends with us
    server = RealServer(os.environ["PCD_VLLM_PYTHON"], folder, tmp_path_factory.mktemp("vllm") / "server.log")
    print(f"\nstarting vLLM on {server.url} (about a minute); its log is {server.log}", flush=True)
    try:
        server.start()
        print("vLLM is ready", flush=True)
        yield server
    finally:
        server.kill()
