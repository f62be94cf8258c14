"""A Space on ZeroGPU: this process has no GPU, and for each request a worker that has one is forked off it.

To be imported before anything that initialises CUDA: `spaces`, which such a Space installs by itself, makes torch
believe in a GPU from then on, in the thread that imports it. Elsewhere this asks for nothing and changes nothing.

Facts are those of `spaces` 0.51.3, by its source.
"""

from __future__ import annotations

import math
import os
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from core.address import is_url
from core.backend import BackendMissing
from core.engine import Engine
from core.models import ModelNotFound, Progress, resolve
from core.owner import Job, Owner
from core.relay import Call, Relay, Reply, answered

#: As `spaces` reads its own flag.
IS_ON = os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")

#: What is asked of the platform for one call, in seconds. It lends by what is asked, ends what takes longer, and a
#: visitor has minutes a day: so no more than is likely. Estimates, not measured on ZeroGPU: a worker that is new puts
#: the weights on its GPU, proves how it reads them and warms up; a step of `transformers` takes a GPU of this class
#: 15 to 30 ms whatever the size of a small model; it reads some ten thousand tokens a second.
LEAST_S, MOST_S = 15, 60
WRITTEN_S, READ_S = 0.03, 1e-4


@dataclass(frozen=True)
class _Home:
    """The model as this process and all its workers hold it: here without a GPU, there on it."""

    model: Any
    tokenizer: Any
    name: str
    why: str
    bounds: dict[str, int]  # of each worker's caches


_home: _Home | None = None


def duration_s(call: Call) -> int:
    """For which time a GPU is asked for; `spaces` calls it with what the decorated function is given."""
    likely = LEAST_S + WRITTEN_S * call.written_tokens + READ_S * call.read_tokens
    return min(MOST_S, math.ceil(likely))


def _work(call: Call) -> Generator[Reply, None, None]:
    """Runs in a worker. The one decorated function: each has workers of its own, which all start cold."""
    yield from answered(_engine, call)


if IS_ON:
    import spaces

    _work = spaces.GPU(duration=duration_s)(_work)


def load(
    name: str = "auto",
    *,
    backend: str = "auto",
    dtype: str = "auto",
    offline: bool = False,
    cache_entries: int,
    cache_bytes: int,
    progress: Progress,
    queue: int | None = None,
    timeout_s: float | None = None,
) -> Relay:
    """`Engine.load` for a Space on ZeroGPU: in the thread that imported this, before the page is launched, and once.

    The reading is proved here on the CPU, so that a model that cannot be read is known at the start, and once more
    in each worker. Launching moves the weights to the disk, from where each worker takes them to its GPU.
    """
    global _home
    if _home is not None:
        raise ModelNotFound(
            f"on ZeroGPU {_home.name} stays: its workers are forked with it; set PCD_MODEL and restart the Space"
        )
    if backend == "mlx":
        raise BackendMissing("ZeroGPU has no MLX; use --backend torch, or leave it out")
    if backend == "vllm" or is_url(name):
        raise BackendMissing("on ZeroGPU no server is asked; choose other hardware for the Space, or another PCD_MODEL")
    found = resolve(name, offline=offline, accelerator=True, progress=progress)
    from core.engine_torch import TorchBackend

    progress(f"loading {found.name}", None)
    read = TorchBackend.load(found.directory, dtype="bfloat16" if dtype == "auto" else dtype, device="cpu")
    read.model.to("cuda")
    read.identity = replace(read.identity, device="cuda (ZeroGPU)")  # which GPU it is, a worker knows
    bounds = {"cache_entries": cache_entries, "cache_bytes": cache_bytes}
    _home = _Home(read.model, read.tokenizer, found.name, found.why, bounds)
    return Relay(read, found.name, found.why, _work, queue=queue, timeout_s=timeout_s, **bounds)


@cache
def _engine() -> Engine:
    """A worker's own, with its own owner thread: made in its first request, kept for those that it gets while warm."""
    from core.engine_torch import TorchBackend

    assert _home is not None, "a worker is forked after the model was loaded"
    home, owner = _home, Owner()

    def made(job: Job) -> Engine:
        engine = Engine(TorchBackend(home.model, home.tokenizer), home.name, home.why, owner, **home.bounds)
        engine.warm_up()
        return engine

    return owner.submit(made).result()
