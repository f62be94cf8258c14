"""Which backend runs here. Each framework is imported behind this one door, when it is asked for."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from core.backend import BackendMissing

#: `vllm` is a server, and no backend of this process.
NAMES = ("auto", "torch", "mlx", "vllm")


@dataclass(frozen=True)
class Candidate:
    """A backend that can be imported here."""

    kind: Any  # its class: `load(directory, dtype=...)` and `accelerated()`
    why: str  # what to say of it where nobody asked for it by name; empty where there is nothing to say
    mlx: bool  # whether weights made for MLX are what it wants


def candidates(name: str) -> Iterator[Candidate]:
    """What `name` stands for, in the order in which it is to be tried. Raises `BackendMissing`.

    `auto` is MLX on Apple silicon and then torch, torch elsewhere; a name is that backend and no other. One that
    runs in this process: `vllm` does not.
    """
    if name == "vllm":
        raise BackendMissing("backend vllm is a server; give its address, such as --url http://127.0.0.1:8000")
    if name not in NAMES:
        raise BackendMissing(f"backend {name!r} is not there; use {', '.join(NAMES[:-1])} or {NAMES[-1]}")
    if name == "mlx":
        yield Candidate(_mlx(), "", True)
    elif name == "torch" or not on_apple_silicon():
        yield Candidate(_torch(), "", False)
    else:
        yield from _apples()


def on_apple_silicon() -> bool:
    return (platform.system(), platform.machine()) == ("Darwin", "arm64")


def _apples() -> Iterator[Candidate]:
    missing = []
    found: tuple[tuple[Callable[[], Any], str, bool], ...] = (
        (_mlx, "MLX, the choice on Apple silicon", True),
        (_torch, "torch", False),
    )
    for door, why, mlx in found:
        try:
            kind = door()
        except BackendMissing as problem:
            missing.append(str(problem).partition(";")[0])
        else:
            yield Candidate(kind, f"{why}, because {' and '.join(missing)}" if missing else why, mlx)
    if len(missing) == len(found):
        raise BackendMissing(f"{' and '.join(missing)}; pip install -r requirements.txt")


def _mlx() -> Any:
    try:
        from core.engine_mlx import MlxBackend
    except ImportError as problem:
        if (problem.name or "").partition(".")[0] not in ("mlx", "mlx_lm"):
            raise
        if not isinstance(problem, ModuleNotFoundError):
            raise BackendMissing(f"MLX cannot be loaded ({problem}); install it anew, or use --backend torch") from None
        raise BackendMissing(
            "MLX is not installed; on a Mac with Apple silicon `pip install mlx-lm`, on Linux "
            '`pip install "mlx[cpu]" mlx-lm`, or use --backend torch'
        ) from None
    return MlxBackend


def _torch() -> Any:
    try:
        from core.engine_torch import TorchBackend
    except ImportError as problem:
        if (problem.name or "").partition(".")[0] != "torch":
            raise
        raise BackendMissing(
            "torch is not installed; `pip install -r requirements.txt`, or use --backend mlx on a Mac"
        ) from None
    return TorchBackend
