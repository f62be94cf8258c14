"""The relay: a request that is done in another process gives what it would give here, and its errors, and its end."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Any

import pytest

from core.engine import Engine
from core.grammar import GrammarError
from core.owner import Cancelled, NotAnswered, QueueFull, TimedOut
from core.plans import MAX_BYTES, MAX_ENTRIES
from core.relay import Answer, Call, Relay, answered
from core.request import PromptTooLong
from core.schema import StructuredSchema
from core.trace import Event, LaneEnded, Loading, RunEnded, RunStarted
from core.trials import Benchmark, Case
from core.ui.measurements import Measurements
from core.vocabulary import TokenizationError
from tests.fakes import TWINS, HashBackend, lexicon
from tests.serving import GatedBackend, until

SCHEMA = StructuredSchema({"risk": {"type": "enum", "choices": ["HIGH", "LOW"]}, "refund": {"type": "boolean"}})
TEXT = "The parcel is wet and I was charged twice."
ASKER: ContextVar[str] = ContextVar("asker", default="nobody")


class Line:
    """What lies between two processes: all that goes through is pickled, as `spaces` does it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.calls: list[Call] = []
        self.askers: list[str] = []
        self.is_left, self.is_over = threading.Event(), threading.Event()

    def __call__(self, call: Call) -> Generator[Any, None, None]:
        self.calls.append(call)
        self.askers.append(ASKER.get())
        try:
            there = answered(lambda: self.engine, pickle.loads(pickle.dumps(call)))
            for reply in there:
                try:
                    yield pickle.loads(pickle.dumps(reply))
                except GeneratorExit:
                    self.is_left.set()
                    there.close()
                    raise
        finally:
            self.is_over.set()


def relay_over(away: Callable[[Call], Any], backend: HashBackend | None = None, **bounds: Any) -> Relay:
    bounds = {"cache_entries": MAX_ENTRIES, "cache_bytes": MAX_BYTES, **bounds}
    return Relay(backend or HashBackend(lexicon("qwen")), "hash", "a test", away, **bounds)


def pair() -> tuple[Relay, Engine]:
    """A relay to an engine, and another engine that is just like that one."""
    there, here = (Engine(HashBackend(lexicon("qwen")), "hash") for _ in range(2))
    return relay_over(Line(there)), here


def told(events: list[Event]) -> list[Any]:
    """What a trace says, but for its times and what only a waiting page hears."""
    untimed = {"ms", "date", "took_ms", "speed_up", "first_token_ms", "tokens_per_s", "why"}
    return [{k: v for k, v in event.to_json().items() if k not in untimed} for event in events if not event.live]


# --- the same as here ---


@pytest.mark.parametrize("mode", ["free", "json", "schema"])
def test_a_race_tells_in_another_process_what_it_tells_here(mode: Any) -> None:
    relay, here = pair()
    for _ in range(2):  # the second one finds what the first has kept there
        there, local = (engine.race(TEXT, SCHEMA, mode=mode).wait() for engine in (relay, here))
        assert told(there) == told(local)
    assert local[-1].state == "done"


def test_decisions_are_those_of_an_engine_here() -> None:
    relay, here = pair()
    for options in ({}, {}, {"cache": False}, {"scoring": "full"}, {"prior": "content_free"}, {"style": "compact"}):
        there, local = (engine.run_parallel(TEXT, SCHEMA, 2.0, **options) for engine in (relay, here))
        assert there.decisions == local.decisions and there.caches == local.caches and there.passes == local.passes


def test_many_texts_are_decided_there_and_what_is_wrong_with_one_stands_in_its_place() -> None:
    relay, here = pair()
    texts = [TEXT, "Nothing to report.", " ", TEXT]
    there, local = (engine.decode_many(texts, SCHEMA, return_exceptions=True) for engine in (relay, here))
    assert [type(one) for one in there] == [type(one) for one in local]
    assert there[0].decisions == local[0].decisions and str(there[2]) == str(local[2])


def test_a_race_asks_in_the_context_of_whoever_asked() -> None:
    line = Line(pair()[1])
    relay = relay_over(line)
    for asker in ("ada", "grace"):
        token = ASKER.set(asker)
        race = relay.race(TEXT, SCHEMA)
        ASKER.reset(token)
        race.wait()
    relay.run_parallel(TEXT, SCHEMA)
    assert line.askers == ["ada", "grace", "nobody"]


def test_the_races_of_a_benchmark_are_asked_for_by_whoever_pressed_the_button() -> None:
    line = Line(pair()[1])
    benchmark = Benchmark((Case("one", TEXT, SCHEMA),), modes=("schema",), heads=("cold",), rounds=1)

    async def measured() -> None:
        ASKER.set("ada")
        async for _ in Measurements().start("me", relay_over(line), benchmark):
            pass

    asyncio.run(measured())
    assert line.askers == ["ada"] * 2, "a race to warm up, and one that counts"


def test_how_long_it_waited_for_the_other_process_is_in_the_trace_and_not_in_engine_time() -> None:
    there = pair()[1]

    def late(call: Call) -> Generator[Any, None, None]:
        threading.Event().wait(0.3)
        yield from answered(lambda: there, call)

    events = relay_over(late).race(TEXT, SCHEMA).wait()
    (started,) = (event for event in events if isinstance(event, RunStarted))
    assert started.ms >= 300
    assert any(isinstance(event, Loading) and event.stage == "waiting for a GPU" for event in events)


def test_tokens_are_counted_before_anybody_is_asked() -> None:
    line = Line(pair()[1])
    relay = relay_over(line)
    relay.race(TEXT, SCHEMA).wait()
    relay.run_parallel(TEXT, SCHEMA)
    relay.decode_many([TEXT, TEXT], SCHEMA)
    race, one, two = line.calls
    assert race.read_tokens == one.read_tokens > 50 and two.read_tokens == 2 * one.read_tokens
    assert race.written_tokens > 64 and (one.written_tokens, two.written_tokens) == (0, 0)


# --- what goes wrong ---


@pytest.mark.parametrize(
    "context, schema, window, error",
    [
        ("word " * 400, SCHEMA, 300, PromptTooLong),
        (TEXT, StructuredSchema({"word": {"type": "enum", "choices": TWINS[:2]}}), 10_000, TokenizationError),
    ],
)
def test_a_request_that_cannot_be_done_asks_for_no_gpu(
    context: str, schema: StructuredSchema, window: int, error: type[Exception]
) -> None:
    def away(call: Call) -> Any:
        raise AssertionError("asked")

    relay = relay_over(away, HashBackend(lexicon("nfc"), window=window))
    with pytest.raises(error):
        relay.run_parallel(context, schema)
    end = relay.race(context, schema).wait()[-1]
    assert isinstance(end, RunEnded) and end.state == "failed" and "asked" not in end.message


@pytest.mark.parametrize("given", [{"context": " "}, {"mode": "poem"}, {"temperature": 0.0}, {"scoring": "half"}])
def test_what_is_no_request_is_refused_at_once(given: dict[str, Any]) -> None:
    relay, here = pair()
    asked = {"context": TEXT, "schema": SCHEMA, **given}
    words = []
    for engine in (relay, here):
        with pytest.raises(ValueError) as refused:
            engine.race(**asked)
        words.append(str(refused.value))
    assert words[0] == words[1]


class Toast(Exception):
    """Like `gradio.Error`, in which `spaces` says that there is no GPU."""

    def __init__(self, message: str, title: str = "Error") -> None:
        super().__init__(message)
        self.message, self.title = message, title


@pytest.mark.parametrize(
    "error, words",
    [
        (Toast("You have 3s left.\n Try again in 0:10:00. ", "ZeroGPU quota exceeded"),
         "ZeroGPU quota exceeded: You have 3s left. Try again in 0:10:00."),
        (Toast("GPU task aborted", "ZeroGPU worker error"), "ZeroGPU worker error: GPU task aborted"),
        (RuntimeError("secret: ZeroGPU API /schedule error: 500"),
         "the worker could not be had or failed: RuntimeError; the log has more"),
        (StopIteration(), "the worker ended without an answer; try again"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", [0, 1])
def test_a_platform_that_refuses_or_ends_a_worker_is_a_failed_run_in_one_line(
    error: Exception, words: str, before: int, caplog: pytest.LogCaptureFixture
) -> None:
    there = pair()[1]

    def away(call: Call) -> Generator[Any, None, None]:
        replies = answered(lambda: there, call)
        for _ in range(before):
            yield next(replies)
        replies.close()
        if not isinstance(error, StopIteration):
            raise error

    relay = relay_over(away)
    with caplog.at_level(logging.ERROR):
        end = relay.race(TEXT, SCHEMA).wait()[-1]
        with pytest.raises(NotAnswered) as failed:
            relay.run_parallel(TEXT, SCHEMA)
    assert isinstance(end, RunEnded) and (end.state, end.message) == ("failed", words) and str(failed.value) == words
    assert ("secret" in caplog.text) == ("secret" in str(error))


class Unportable(RuntimeError):
    """Cannot be made again from what it is pickled as."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


@pytest.mark.parametrize(
    "error, kind, words",
    [
        (GrammarError("no such mode"), GrammarError, "no such mode"),
        (ArithmeticError("field 'risk': nan"), ArithmeticError, "field 'risk': nan"),
        (MemoryError(), MemoryError, "in broken"),
        (Unportable("a", "b"), RuntimeError, "Unportable: ab"),
    ],
)
def test_an_error_of_the_engine_there_is_that_error_here(error: Exception, kind: type[Exception], words: str) -> None:
    there = pair()[1]

    def broken(*_: object, **__: object) -> None:
        raise error

    there.backend.prefill = there.backend.read = broken  # type: ignore[method-assign]
    relay = relay_over(Line(there))
    with pytest.raises(kind, match=words):
        relay.run_parallel(TEXT, SCHEMA)


def test_a_worker_that_cannot_make_its_engine_says_why() -> None:
    def engine() -> Engine:
        raise RuntimeError("this model is not read right")

    with pytest.raises(RuntimeError, match="this model is not read right"):
        relay_over(lambda call: answered(engine, call)).run_parallel(TEXT, SCHEMA)


# --- ends ---


def test_stop_ends_the_work_there_within_one_pass_and_the_next_one_is_done() -> None:
    backend = GatedBackend()
    line = Line(Engine(backend, "hash"))
    relay = relay_over(line)
    race = relay.race(TEXT, SCHEMA)
    assert backend.entered.wait(10)  # in its first pass
    until(lambda: any(isinstance(event, RunStarted) for event in race.drain()))
    race.cancel()
    assert line.is_left.wait(10) and not line.is_over.is_set(), "it waits for the pass"
    backend.permits.release(2)  # of which the second is needed where the lane goes on before it is told
    until(lambda: race.job.done)
    end = race.drain()[-1]
    assert isinstance(end, RunEnded) and end.state == "stopped" and backend.passes <= 2
    assert line.is_over.is_set() and line.engine.owner.waiting == 0
    backend.permits.release(1000)
    assert relay.run_parallel(TEXT, SCHEMA).values.keys() == {"risk", "refund"}


def test_a_race_that_still_waits_for_a_gpu_is_over_at_once_when_it_is_stopped() -> None:
    found = threading.Event()
    there = pair()[1]

    def away(call: Call) -> Generator[Any, None, None]:
        assert found.wait(20)
        yield from answered(lambda: there, call)

    relay = relay_over(away)
    race = relay.race(TEXT, SCHEMA)
    until(lambda: race.drain())
    race.cancel()
    events = race.drain()
    assert isinstance(events[-1], RunEnded) and events[-1].state == "stopped" and race.finished
    assert race.drain() == [] and not race.job.done
    found.set()
    until(lambda: race.job.done)
    assert isinstance(race.job.error, Cancelled) and race.drain() == []


def test_a_bound_of_the_queue_and_a_time_limit_hold_here() -> None:
    backend = GatedBackend()
    relay = relay_over(Line(Engine(backend, "hash")), queue=0, timeout_s=0.4)
    job = relay.submit(TEXT, SCHEMA)
    assert backend.entered.wait(10)
    with pytest.raises(QueueFull):
        relay.submit(TEXT, SCHEMA)
    threading.Event().wait(0.5)
    backend.permits.release(1000)
    with pytest.raises(TimedOut, match="not done within its 0.4 s"):
        job.result()


def test_what_comes_back_is_read_to_its_end() -> None:
    """A line that is closed early is taken for cancelled there, and its worker is not used again."""
    ended = []

    def away(call: Call) -> Generator[Any, None, None]:
        yield []
        yield Answer("the value", None)
        ended.append(True)

    assert relay_over(away).run_parallel(TEXT, SCHEMA) == "the value" and ended == [True]


def test_a_relay_keeps_no_heads_and_runs_no_pass_of_its_own() -> None:
    relay, _ = pair()
    lanes = [event for event in relay.race(TEXT, SCHEMA).wait() if isinstance(event, LaneEnded)]
    assert len(lanes) == 2 and relay.backend.passes == 0 and relay.held == (0, 0)
