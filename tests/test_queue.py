"""The owner's queue as a service has it: bounded, with a time limit, and with an end."""

from __future__ import annotations

import gc
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from core.engine import Engine
from core.owner import Cancelled, Closing, Job, Owner, QueueFull, TimedOut
from core.schema import StructuredSchema
from tests.fakes import HashBackend, lexicon
from tests.test_owner import settled

SCHEMA = StructuredSchema({"risk": {"type": "enum", "choices": ["HIGH", "LOW"]}})


@contextmanager
def busy(owner: Owner) -> Iterator[Job]:
    """The owner with a job in hand until the block is left."""
    started, release = threading.Event(), threading.Event()

    def work(job: Job) -> str:
        started.set()
        release.wait(10)
        return "done"

    running = owner.submit(work)
    assert started.wait(10)
    try:
        yield running
    finally:
        release.set()


def nothing(job: Job) -> None:
    """Takes no time."""


# --- a bound ---


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_beyond_the_bound_a_job_is_refused_with_the_number_in_one_line(limit: int) -> None:
    owner = Owner(limit)
    with busy(owner) as running:
        waiting = [owner.submit(nothing) for _ in range(limit)]
        for _ in range(2):
            with pytest.raises(QueueFull, match=rf"^the queue is full: {limit} requests wait, its limit; [^\n]+$"):
                owner.submit(nothing)
    for job in (running, *waiting):
        job.result()
    assert owner.submit(lambda job: "again").result() == "again"


def test_an_owner_without_a_bound_takes_all() -> None:
    owner = Owner()
    with busy(owner):
        jobs = [owner.submit(nothing) for _ in range(200)]
        assert jobs[-1].ahead == 200
    jobs[-1].result()


def test_a_cancelled_job_frees_its_place_at_once() -> None:
    owner = Owner(1)
    with busy(owner):
        owner.submit(nothing).cancel()
        second = owner.submit(nothing)
        with pytest.raises(QueueFull):
            owner.submit(nothing)
    second.result()


def test_whoever_has_an_answer_may_ask_again_though_nobody_may_wait() -> None:
    owner = Owner(0)
    assert [owner.submit(lambda job, n=n: n).result() for n in range(300)] == list(range(300))


@pytest.mark.parametrize("limits, words", [((-1,), "queue -1"), ((1, 0.0), "timeout 0.0"), ((1, -5.0), "timeout -5.0")])
def test_a_bound_that_is_none_is_refused(limits: tuple, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}: give [^\n]+$"):
        Owner(*limits)


# --- a time limit ---


def test_a_job_that_waits_too_long_ends_without_being_run_and_frees_its_place() -> None:
    owner, ran = Owner(1, timeout_s=0.4), []
    with busy(owner) as running:
        late = owner.submit(lambda job: ran.append(1))
        assert not late.done
        with pytest.raises(TimedOut, match=r"not done within its 0\.4 s, 0\.\d s of which it waited; [^\n]+$"):
            late.result()
        waited = late.waited_ms
        assert waited >= 400 and late.ahead == 0
        other = owner.submit(lambda job: ran.append(2))
        assert settled(lambda: other.done)  # without anybody who waits for its result
        owner.submit(nothing)
    assert ran == [] and late.waited_ms == waited
    assert running.result() == "done"  # it looked at the time no more


def test_a_full_queue_of_late_jobs_is_none() -> None:
    owner = Owner(2, timeout_s=0.4)
    with busy(owner):
        late = [owner.submit(nothing) for _ in range(2)]
        time.sleep(0.5)
        owner.submit(nothing)
        assert [type(job.error) for job in late] == [TimedOut, TimedOut]


def test_a_running_job_learns_at_its_next_check_that_its_time_is_over() -> None:
    owner, steps = Owner(timeout_s=0.4), []

    def work(job: Job) -> None:
        for step in range(1000):
            job.check()
            steps.append(step)
            time.sleep(0.01)

    with pytest.raises(TimedOut, match="not done within its 0.4 s, 0.. s of which it waited"):
        owner.submit(work).result()
    assert 0 < len(steps) < 1000
    assert owner.submit(lambda job: "still here").result() == "still here"


def test_time_in_the_queue_is_told_apart_and_stands_still_once_it_is_over() -> None:
    owner = Owner()
    with busy(owner) as running:
        waiting, cancelled = owner.submit(lambda job: time.sleep(0.05)), owner.submit(nothing)
        time.sleep(0.03)
        cancelled.cancel()
        assert waiting.waited_ms >= 30 and running.waited_ms < waiting.waited_ms
    waiting.result()
    before = [job.waited_ms for job in (running, waiting, cancelled)]
    time.sleep(0.02)
    assert [job.waited_ms for job in (running, waiting, cancelled)] == before


def test_a_race_tells_the_same_time_in_the_queue_as_its_job() -> None:
    engine = Engine(HashBackend(lexicon("qwen")), "hash")
    with busy(engine.owner):
        race = engine.race("text", SCHEMA)
        time.sleep(0.03)
    started = next(event for event in race.wait() if event.kind == "run")
    assert started.ms == race.waited_ms >= 30


@pytest.mark.parametrize(
    "ask",
    [
        lambda engine: engine.run_parallel("text", SCHEMA),
        lambda engine: engine.decode_many(["one", "two", "three"], SCHEMA),
        lambda engine: engine.race("text", SCHEMA).wait(),
    ],
)
def test_each_kind_of_request_takes_one_place(ask: Callable[[Engine], object]) -> None:
    engine = Engine(HashBackend(lexicon("qwen")), "hash", owner=Owner(1))
    with busy(engine.owner) as running:
        asking = threading.Thread(target=ask, args=(engine,))
        asking.start()
        assert settled(lambda: engine.owner.waiting == 1)
        with pytest.raises(QueueFull, match="1 requests wait"):
            ask(engine)
    running.result()
    asking.join(10)
    assert not asking.is_alive()


# --- an end ---


def test_a_draining_owner_finishes_what_it_has_and_takes_nothing_new() -> None:
    owner, ran = Owner(), []
    with busy(owner) as running:
        waiting = [owner.submit(lambda job, n=n: ran.append(n)) for n in range(3)]
        draining = threading.Thread(target=owner.drain, args=(10,))
        draining.start()
        owner.refuse()
        with pytest.raises(Closing, match="^the service is shutting down and takes no new requests; [^\n]+$"):
            owner.submit(nothing)
        assert draining.is_alive()
    draining.join(10)
    assert not draining.is_alive() and running.result() == "done"
    assert ran == [0, 1, 2] and all(job.done for job in waiting)


def test_draining_has_an_end_and_closing_then_cancels_the_rest() -> None:
    owner, started = Owner(), threading.Event()

    def work(job: Job) -> None:
        started.set()
        while True:
            time.sleep(0.01)
            job.check()

    running, waiting = owner.submit(work), owner.submit(nothing)
    assert started.wait(10)
    owner.drain(0.05)
    assert not running.done and not waiting.done
    owner.close(10)
    for job in (running, waiting):
        with pytest.raises(Cancelled):
            job.result()


def test_the_thread_ends_when_nobody_holds_its_owner_and_not_before() -> None:
    owner = Owner()
    thread = owner.submit(lambda job: threading.current_thread()).result()
    with busy(owner) as running:
        del owner
        assert thread.is_alive()
    assert running.result() == "done"
    assert thread.is_alive(), "who holds a job may ask its owner for the place of it"
    del running
    thread.join(10)
    assert not thread.is_alive()


# --- what a failed job leaves behind ---


class Kv:
    """Stands for a run's tensors."""


def raising(error: Exception, seen: list) -> Callable[[Job], None]:
    def work(job: Job) -> None:
        kv = Kv()
        seen.append(weakref.ref(kv))
        try:
            raise KeyError("what came before")
        except KeyError:
            deeper(kv, error)

    def deeper(kv: Kv, error: Exception) -> None:
        raise error

    return work


@pytest.mark.parametrize("error", [ValueError("bad"), RuntimeError("worse"), MemoryError(), Cancelled()])
def test_no_error_keeps_what_its_run_has_computed_and_a_fault_tells_where_it_was(error: Exception) -> None:
    owner, seen = Owner(), []
    gc.disable()
    try:
        job = owner.submit(raising(error, seen))
        with pytest.raises(type(error)) as raised:
            job.result()
        assert raised.value is error and seen[0]() is None
        assert ("in deeper" in "".join(traceback.format_exception(error))) == (not isinstance(error, Cancelled))
    finally:
        gc.enable()


def test_no_error_keeps_its_job_or_the_engine() -> None:
    gc.disable()
    try:
        engine = Engine(HashBackend(lexicon("qwen"), window=200), "hash")
        gone = [weakref.ref(engine), weakref.ref(engine.owner), weakref.ref(engine.backend)]
        job = engine.submit("text " * 500, SCHEMA)
        with pytest.raises(ValueError, match="the window of hash holds 200"):
            job.result()
        assert engine.race("text " * 500, SCHEMA).wait()[-1].state == "failed"
        del engine, job
        assert settled(lambda: [ref() for ref in gone] == [None] * 3)
    finally:
        gc.enable()
