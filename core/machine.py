"""The machine that figures come from, in the words that stand beside them."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from core.backend import Clock

#: What figures depend on beside a framework, where the model runs in this process.
PACKAGES = ("transformers", "llguidance")
#: What figures depend on, by backend. A server's own version stands in its device's name.
DEPENDENCIES = {
    "torch": ("torch", *PACKAGES),
    "mlx": ("mlx", "mlx-lm", *PACKAGES),
    "vllm": ("transformers", "httpx"),
}


@cache
def machine_name() -> str:
    """The processor's model and the cores that this process may use: `AMD EPYC 7B13, 2 cores`.

    Found once per process: a Mac is asked in a process of its own.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{processor_name()}, {cores} core{'s' * (cores > 1)}"


def machine_of(clock: Clock) -> str:
    """The machine beside figures of a clock: of a client's only where the client ran is known."""
    return machine_name() if clock == "engine" else f"client {machine_name()}"


def processor_name() -> str:
    """As the system calls it; its architecture where it has no name for it."""
    if sys.platform == "darwin":
        try:
            asked = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True)
        except OSError:  # a PATH without /usr/sbin: no reason to run nothing
            return platform.machine()
        return asked.stdout.strip() or platform.machine()
    listed = Path("/proc/cpuinfo")
    for line in listed.read_text(errors="replace").splitlines() if listed.is_file() else ():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()


def versions(backend: str) -> dict[str, str]:
    """Of Python and of what a backend's figures depend on, as far as it is installed."""
    found = {"python": platform.python_version()}
    for package in DEPENDENCIES.get(backend, PACKAGES):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
