"""Another model in the place of the resident one, with tiny real models: the old one serves until then."""

from __future__ import annotations

import gc
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from core.backend import BackendMissing
from core.engine import Engine
from core.models import ModelError, ModelNotFound
from core.owner import Closing, QueueFull
from core.resident import ABSENT, Busy, Resident, Status
from core.schema import StructuredSchema
from tests.test_owner import settled
from tests.test_queue import busy

SCHEMA = StructuredSchema({"risk": {"type": "enum", "choices": ["HIGH", "LOW"]}, "is_fraud": {"type": "boolean"}})
KEPT = {"backend": "torch", "dtype": "float32", "offline": True}

Checkpoint = Callable[[str, str], Path]


@pytest.fixture
def one(checkpoint: Checkpoint) -> Path:
    return checkpoint("llama", "qwen")


@pytest.fixture
def other(checkpoint: Checkpoint) -> Path:
    return checkpoint("qwen2", "smol")


@pytest.fixture
def resident(one: Path) -> Iterator[Resident]:
    resident = Resident()
    resident.start(str(one), **KEPT, cache_entries=3, cache_bytes=5 << 20, queue=3, timeout_s=60)
    assert settled(lambda: resident.status.state != "loading", 30)
    yield resident
    resident.close()


def held_up(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Loads wait, once they have begun, until they are let go."""
    begun, go = threading.Event(), threading.Event()
    load = Engine.load.__func__

    def waiting(cls: type[Engine], name: str, **options: object) -> Engine:
        options["progress"]("converting", 0.5)
        begun.set()
        assert go.wait(30)
        return load(cls, name, **options)

    monkeypatch.setattr(Engine, "load", classmethod(waiting))
    return begun, go


def in_background(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    found: list[object] = []

    def tell() -> None:
        try:
            found.append(work())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=tell)
    thread.start()
    return thread, found


def test_another_model_takes_the_place_and_starts_with_empty_caches(resident: Resident, other: Path) -> None:
    old = resident.engine
    assert old.run_parallel("text", SCHEMA).caches.head == "miss"
    assert old.run_parallel("text", SCHEMA).caches.head == "hit"
    engine = resident.switch(other)
    assert resident.engine is engine is not old
    assert resident.status == Status("ready", message=resident.status.message) and str(other) in resident.status.message
    assert resident.switching is None
    result = engine.run_parallel("text", SCHEMA)
    assert result.caches.head == "miss" and result.model == str(other)
    threads = [engine.owner.submit(lambda job: threading.get_ident()).result() for engine in (old, engine)]
    assert threads[0] != threads[1]


def test_what_was_given_at_the_start_holds_for_the_model_that_comes(resident: Resident, other: Path) -> None:
    engine = resident.switch(str(other))
    assert engine.backend.identity.dtype == "float32"
    for number in range(5):
        schema = StructuredSchema({f"field_{number}": {"type": "boolean"}})
        report = engine.run_parallel("text", schema).caches
    assert report.entries == 3
    with busy(engine.owner) as running:
        waiting = [engine.submit("text", SCHEMA) for _ in range(3)]
        with pytest.raises(QueueFull, match="3 requests wait"):
            engine.submit("text", SCHEMA)
    for job in (running, *waiting):
        job.result()


def test_until_then_the_old_one_answers_and_the_progress_is_told(
    resident: Resident, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = held_up(monkeypatch)
    resident.start("none", **KEPT)  # takes the slow load
    old, before = resident.engine, resident.status
    switch, found = in_background(lambda: resident.switch(other))
    try:
        assert begun.wait(10)
        assert resident.switching == Status("loading", "converting", 0.5)
        assert (resident.engine, resident.status) == (old, before)
        assert old.run_parallel("text", SCHEMA).model == old.model
        with pytest.raises(Busy, match=f"^{other} is being loaded already; wait until it is there$"):
            resident.switch("smollm2-135m")
    finally:
        go.set()
        switch.join(30)
    assert found == [resident.engine] and resident.engine is not old and resident.switching is None


def broken(folder: Path, model: Path) -> Path:
    """A folder that looks like a model's and holds half of its weights."""
    shutil.copytree(model, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    return folder


@pytest.mark.parametrize(
    "name, kind, words",
    [
        ("bogus", ModelNotFound, "model 'bogus' is not known and no such path exists; use auto"),
        ("qwen2.5-0.5b", ModelNotFound, "is not on this machine and offline mode asks no network"),
        ("BROKEN", ModelError, "could not be loaded: SafetensorError, "),
    ],
)
def test_the_old_one_stays_if_the_new_one_fails(
    resident: Resident, one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: type, words: str
) -> None:
    monkeypatch.setenv("PCD_CACHE", str(tmp_path / "cache"))
    wanted = broken(tmp_path / "broken", one) if name == "BROKEN" else name
    old, before = resident.engine, resident.status
    with pytest.raises(kind, match=words) as raised:
        resident.switch(wanted)
    assert "\n" not in str(raised.value)
    assert (resident.engine, resident.status, resident.switching) == (old, before, None)
    assert old.run_parallel("text", SCHEMA).model == old.model
    assert resident.switch(one) is resident.engine, "and the next switch is none the worse"


@pytest.mark.parametrize(
    "error, kind, words",
    [
        (torch.OutOfMemoryError("CUDA out of memory"), ModelError, "could not be loaded: out of memory; free some, or"),
        (MemoryError(), ModelError, "could not be loaded: out of memory"),
        (BackendMissing("torch is not installed; install it"), BackendMissing, "^torch is not installed; install it$"),
        (KeyError("what\na bug"), ModelError, "could not be loaded: KeyError, 'what.*; the log has more$"),
    ],
)
def test_whatever_a_load_raises_is_one_line_and_leaves_the_old_one(
    resident: Resident, other: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type, words: str
) -> None:
    def load(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("core.engine_torch.TorchBackend.load", load)
    old = resident.engine
    with pytest.raises(kind, match=words) as raised:
        resident.switch(other)
    assert "\n" not in str(raised.value) and resident.engine is old


def test_requests_in_flight_finish_on_the_old_one_which_is_then_gone(resident: Resident, other: Path) -> None:
    gc.disable()
    try:
        old = resident.engine
        gone = [weakref.ref(it) for it in (old, old.backend, old.backend.model, old.owner)]
        thread = old.owner.submit(lambda job: threading.current_thread()).result()
        old.run_parallel("text", SCHEMA)
        with busy(old.owner):
            waiting, race = old.submit("text", SCHEMA), old.race("text", SCHEMA, mode="schema")
            resident.switch(other)
            late = old.submit("text", SCHEMA)  # by somebody who took the engine before the switch
        model = old.model
        del old
        assert [job.result().model for job in (waiting, late)] == [model, model]
        assert [event.model for event in race.wait() if event.kind == "run"] == [model]
        assert resident.engine.model == str(other)
        assert thread.is_alive() and gone[0]() is not None
        del waiting, late, race
        thread.join(10)
        assert not thread.is_alive()
        assert settled(lambda: [ref() for ref in gone] == [None] * 4)
    finally:
        gc.enable()


def test_without_a_model_a_switch_is_a_load_that_everybody_sees(one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resident = Resident()
    resident.start("none", **KEPT)
    assert resident.status == ABSENT
    with pytest.raises(ModelNotFound):
        resident.switch("bogus")
    assert resident.status.state == "failed" and "'bogus' is not known" in resident.status.message
    begun, go = held_up(monkeypatch)
    resident.start("none", **KEPT)
    switch, _ = in_background(lambda: resident.switch(one))
    try:
        assert begun.wait(10)
        assert resident.status == resident.switching == Status("loading", "converting", 0.5)
    finally:
        go.set()
        switch.join(30)
    assert resident.status.state == "ready" and resident.engine.run_parallel("text", SCHEMA).model == str(one)
    resident.close()


def test_a_draining_resident_finishes_on_every_engine_in_use_and_takes_nothing_new(
    resident: Resident, other: Path
) -> None:
    old = resident.engine
    with busy(old.owner) as running:
        waiting = old.submit("text", SCHEMA)
        resident.switch(other)
        job = resident.engine.submit("text", SCHEMA)
        draining = threading.Thread(target=resident.drain, args=(10,))
        draining.start()
        assert settled(lambda: resident.is_closing)
        for ask in (lambda: old.submit("text", SCHEMA), lambda: resident.engine.submit("text", SCHEMA)):
            with pytest.raises(Closing, match="^the service is shutting down"):
                settled(lambda ask=ask: ask() and False, 1)  # until it is told to refuse
        with pytest.raises(Closing, match="no other model is loaded"):
            resident.switch(other)
        assert draining.is_alive()
    draining.join(10)
    assert not draining.is_alive()
    assert [it.done for it in (running, waiting, job)] == [True] * 3
    assert waiting.result().model == old.model


def test_a_switch_that_ends_after_the_service_has_begun_to_end_changes_nothing(
    resident: Resident, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = held_up(monkeypatch)
    resident.start("none", **KEPT)
    old = resident.engine
    switch, found = in_background(lambda: resident.switch(other))
    assert begun.wait(10)
    resident.drain(0)
    go.set()
    switch.join(30)
    assert [type(error) for error in found] == [Closing] and resident.engine is old
