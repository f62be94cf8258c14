"""Faults in the middle of a request: an error of that request in one line, and the next one is answered."""

from __future__ import annotations

import errno
import gc
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from transformers import Cache

from core import conversion, wheels
from core.engine import Engine
from core.engine_torch import TorchBackend
from core.faults import told
from core.models import ModelError, resolve
from core.owner import Cancelled, QueueFull
from core.request import RequestError
from core.resident import Resident
from core.schema import StructuredSchema
from tests.test_conversion import gguf_file
from tests.test_owner import settled

SCHEMA = StructuredSchema({"risk": {"type": "enum", "choices": ["HIGH", "LOW"]}, "is_fraud": {"type": "boolean"}})
FULL = os.strerror(errno.ENOSPC)

#: What frameworks raise where memory ends, and what people are told.
NO_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried to ..."),
    RuntimeError("[malloc_or_wait] Unable to allocate 123456 bytes."),
    RuntimeError("[metal::malloc] Attempting to allocate 99 bytes which is greater than the maximum allowed"),
]
OTHER = [RuntimeError("the size of tensor a (3)\nmust match"), AssertionError("secret text"), KeyError("/srv/models")]


@pytest.mark.parametrize(
    "error, words",
    [
        *((error, "out of memory: there is not enough for this request; shorten the text") for error in NO_MEMORY),
        *((error, f"the engine failed: {type(error).__name__}; the log has more") for error in OTHER),
        (RequestError("the context is empty"), "the context is empty"),
        (ValueError("of a framework: secret at /srv/x"), "the engine failed: ValueError; the log has more"),
        (QueueFull("the queue is full"), "the queue is full"),
        (Cancelled(), "stopped"),
    ],
)
def test_an_error_is_told_in_one_line_without_a_word_of_a_text_or_a_path(error: Exception, words: str) -> None:
    said = told(error, "a request")
    assert said.startswith(words) and "\n" not in said and "secret" not in said and "/srv" not in said


# --- a model that fails in the middle of a pass ---


@contextmanager
def failing(backend: TorchBackend, error: Exception) -> Iterator[list[weakref.ref]]:
    """The last layer raises; what the layers before it have put into the cache is told."""
    caches: list[weakref.ref] = []
    layer = backend.model.get_decoder().layers[-1]

    def raise_it(module: object, args: object, given: dict[str, object]) -> None:
        caches.append(weakref.ref(next(it for it in given.values() if isinstance(it, Cache))))
        raise error

    hook = layer.register_forward_pre_hook(raise_it, with_kwargs=True)
    try:
        yield caches
    finally:
        hook.remove()


@pytest.mark.parametrize("error", [*NO_MEMORY[:3], *OTHER[:2]])
def test_a_failed_pass_costs_one_request_and_leaves_nothing(
    tiny: Callable[..., TorchBackend], error: Exception
) -> None:
    engine = Engine(tiny("llama"), "tiny")
    before = engine.run_parallel("text", SCHEMA, cache=False)
    gc.collect()
    gc.disable()
    try:
        with failing(engine.backend, error) as caches:
            job, race = engine.submit("text", SCHEMA, cache=False), engine.race("text", SCHEMA)
            waiting = engine.submit("text", SCHEMA)
            with pytest.raises(type(error)):
                job.result()
            assert race.wait()[-1].message == told(error, "a race")
            with pytest.raises(type(error)):
                waiting.result()
        # The last one goes when the owner's thread has left its frames.
        is_free = settled(lambda: [cache() for cache in caches] == [None] * 3)
        assert is_free, "though the jobs and errors are here"
    finally:
        gc.enable()
    after = engine.run_parallel("text", SCHEMA, cache=False)
    assert (after.values, after.decisions) == (before.values, before.decisions)
    assert engine.run_parallel("text", SCHEMA).caches.entries == 1, "no failed run has filled a cache"


def test_a_race_that_fails_in_its_second_lane_keeps_what_the_first_has_found(
    tiny: Callable[..., TorchBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tiny("llama"), "tiny")

    def decoder(prefix: object) -> object:
        raise MemoryError

    monkeypatch.setattr(engine.backend, "decoder", decoder)
    events = engine.race("text", SCHEMA).wait()
    assert events[-1].state == "failed" and [e.lane for e in events if e.kind == "lane_end"] == ["pcd"]
    assert engine.run_parallel("text", SCHEMA).cache == "hit"


# --- a full disk ---


def full(path: Path) -> Path:
    """A file on a disk that has no room: whatever is written there, the system says so."""
    path.symlink_to("/dev/full")
    return path


needs_dev_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")


@needs_dev_full
def test_a_disk_that_fills_while_a_model_is_converted_leaves_the_old_model_and_nothing_half(
    tmp_path: Path, checkpoint: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("PCD_CACHE", str(cache))
    path = gguf_file(tmp_path / "it.gguf", "llama", "smollm")
    resident = Resident()
    resident.start(str(checkpoint("llama", "qwen")), backend="torch", dtype="float32", offline=True)
    assert settled(lambda: resident.status.state != "loading", 30)
    old = resident.engine
    tell = resident._tell

    def fill(stage: str, part: float | None) -> None:
        tell(stage, part)
        for folder in cache.glob(".gguf-*.new-*"):
            if not (folder / "tokenizer.json").exists():
                full(folder / "tokenizer.json")

    monkeypatch.setattr(resident, "_tell", fill)
    with pytest.raises(ModelError, match=rf"^\S+it.gguf cannot be converted: {FULL}; free some space or set PCD_CACHE"):
        resident.switch(path)
    assert [found.name for found in cache.iterdir() if found.is_dir()] == []
    assert resident.engine is old and old.run_parallel("text", SCHEMA).model == old.model
    monkeypatch.setattr(resident, "_tell", tell)
    assert resident.switch(path).run_parallel("text", SCHEMA).model == str(path), "once there is room"
    resident.close()


@needs_dev_full
def test_a_seal_that_cannot_be_written_leaves_nothing_that_is_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, path = tmp_path / "cache", tmp_path / "it.gguf"
    monkeypatch.setenv("PCD_CACHE", str(cache))
    path.write_bytes(b"a model")

    def convert(gguf: Path, folder: Path, family: str, progress: object) -> None:
        (folder / "model.safetensors").write_bytes(b"weights")
        full(folder / "origin.json")

    monkeypatch.setattr("core.models.convert", convert)
    with pytest.raises(ModelError, match=rf": {FULL}; free some space or set PCD_CACHE to another folder$"):
        resolve(str(path))
    assert [found.name for found in cache.iterdir() if found.is_dir()] == []


@pytest.mark.parametrize(
    "said, words",
    [
        (f"OSError: [Errno 28] {FULL}", f"it.gguf cannot be converted: {FULL}; free some space or set PCD_CACHE"),
        (f"safetensors_rust.SafetensorError: Error while serializing: I/O error: {FULL} (os error 28)", "free some"),
        ("ValueError: no such thing", "cannot be converted: ValueError: no such thing; give a Hugging Face folder"),
    ],
)
def test_the_last_word_of_a_conversion_leads_to_its_way_out(said: str, words: str) -> None:
    assert words in conversion._last_word(Path("it.gguf"), 1, f"Traceback\n{said}\n")


def test_a_download_that_fills_the_disk_does_not_blame_the_network() -> None:
    said = f"ERROR: Could not install packages due to an OSError: [Errno 28] {FULL}\n"
    assert wheels._reason(said) == f"{said[7:-1]}; free some space or set PCD_CACHE to another folder"
    assert "check the network" in wheels._reason("ERROR: No matching distribution found for it")
