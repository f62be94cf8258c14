"""The engine as a service under load: many threads, mixed requests, a full queue, and memory that stays flat."""

from __future__ import annotations

import ctypes
import gc
import random
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch

from core.engine import Engine
from core.engine_torch import TorchBackend
from core.owner import Cancelled, Owner, QueueFull
from core.result import Result
from core.schema import SchemaError, StructuredSchema
from tests.test_queue import busy

THREADS, QUEUE = 64, 32
#: Probabilities move by as much with the way in which a float32 prompt was cut into passes.
CLOSE = 1e-4

LABELS = ["HIGH", "LOW", "BILLING", "BILLING_DISPUTE", "A+", "A-", "Yes", "Yes.", "CWE-79", "CWE-798"]
SCHEMAS = [
    StructuredSchema(
        {f"f{size}_{n}": {"type": "enum", "choices": LABELS[n % 3 : n % 3 + 2 + size]} for n in range(size)}
        | {f"is_{size}": {"type": "boolean"}}
    )
    for size in range(1, 7)
]
MALFORMED: list[object] = [{}, {"a": {"type": "text"}}, {"a": {"type": "enum", "choices": ["x", "x"]}}, {"a": 3}, []]


@dataclass
class Soak:
    """A count of requests to one engine, from many threads, each of which knows what the answer alone was."""

    engine: Engine
    total: int
    kinds: str  # of requests, as often as they are to come
    alone: dict[tuple[int, str], Result]
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    rss: list[float] = field(default_factory=list)  # bytes, measured after every so many requests
    every: int = 0  # 0: never

    def __post_init__(self) -> None:
        self._numbers = iter(range(self.total))
        self._lock = threading.Lock()
        self._finished = 0

    def run(self) -> None:
        together = threading.Barrier(THREADS + 1)
        threads = [threading.Thread(target=self._client, args=(together,)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        with busy(self.engine.owner):  # until there are more than may wait
            together.wait()
            while not self.counts["refused"]:
                time.sleep(0.01)
        for thread in threads:
            thread.join()

    def _client(self, together: threading.Barrier) -> None:
        together.wait()
        while (number := self._next()) is not None:
            chance = random.Random(number)
            kind, asked = chance.choice(self.kinds), chance.choice(list(self.alone))
            try:
                if kind in "sv":
                    self._refused(kind, chance)
                else:
                    ways = {"d": self._decode, "m": self._many, "r": self._race, "c": self._cancel}
                    self._told(kind, ways[kind], *asked)
            except Exception as error:
                self.wrong.append(f"{kind} {asked}: {type(error).__name__} {error}")
            self._ended()

    def _next(self) -> int | None:
        with self._lock:
            return next(self._numbers, None)

    def _told(self, kind: str, ask: Callable[[int, str], str], which: int, context: str) -> None:
        while True:
            try:
                said = ask(which, context)
            except QueueFull:
                self._count("refused")
                time.sleep(0.01)
                continue
            self._count(kind)
            if said:
                self.wrong.append(f"{kind} {which} {context!r}: {said}")
            return

    def _decode(self, which: int, context: str) -> str:
        return differs(self.engine.run_parallel(context, SCHEMAS[which]), self.alone[which, context])

    def _many(self, which: int, context: str) -> str:
        contexts = [text for schema, text in self.alone if schema == which]
        found = self.engine.decode_many(contexts, SCHEMAS[which])
        wrong = [differs(one, self.alone[which, text]) for one, text in zip(found, contexts, strict=True)]
        return "; ".join(filter(None, wrong))

    def _race(self, which: int, context: str) -> str:
        events = self.engine.race(context, SCHEMAS[which], order=("pcd",)).wait()
        values = {event.name: event.value for event in events if event.kind == "field"}
        [run] = [event for event in events if event.kind == "run"]
        alone = self.alone[which, context]
        is_right = events[-1].state == "done" and values == alone.values and run.context == context
        return "" if is_right else f"{events[-1]} {values}"

    def _cancel(self, which: int, context: str) -> str:
        job = self.engine.submit(context, SCHEMAS[which])
        time.sleep(random.random() * 0.01)
        job.cancel()
        job.wait()
        if job.error is None:  # it was faster
            return differs(job.result(), self.alone[which, context])
        return "" if isinstance(job.error, Cancelled) else repr(job.error)

    def _refused(self, kind: str, chance: random.Random) -> None:
        """What is wrong in itself is told to its own client, and to no other."""
        try:
            if kind == "s":
                self.engine.run_parallel("text", StructuredSchema(chance.choice(MALFORMED)))
            else:
                self.engine.run_parallel(chance.choice([" ", "word " * 9000]), SCHEMAS[0])
        except QueueFull:
            return self._refused(kind, chance)
        except SchemaError:
            self._count("s")
        except ValueError:
            self._count("v")
        else:
            self.wrong.append(f"{kind} was answered")

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def _ended(self) -> None:
        with self._lock:
            self._finished += 1
            if self.every and self._finished % self.every == 0:
                self.rss.append(resident_bytes())


def differs(found: Result, alone: Result) -> str:
    if found.values != alone.values or found.text != alone.text:
        return f"{found.text} and alone {alone.text}"
    pairs = zip(found.decisions, alone.decisions, strict=True)
    off = max(abs(p - q) for one, other in pairs for p, q in zip(one.probabilities, other.probabilities, strict=True))
    return f"off by {off}" if off > CLOSE else ""


def resident_bytes() -> float:
    """Of this process, once what the allocator merely holds is given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096.0


def soak(backend: TorchBackend, total: int, texts: int, kinds: str, every: int = 0) -> Soak:
    alone = Engine(backend, "alone")
    contexts = [f"A text, number {n}, {'that is longer than others ' * (n % 5)}" for n in range(texts)]
    known = {(n % len(SCHEMAS), text): (text, SCHEMAS[n % len(SCHEMAS)]) for n, text in enumerate(contexts)}
    expected = {key: alone.run_parallel(*given, complete=True) for key, given in known.items()}
    engine = Engine(backend, "soaked", owner=Owner(QUEUE), cache_entries=4)
    return Soak(engine, total, kinds, expected, every=every)


def live_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(it), torch.Tensor) for it in gc.get_objects())


MIXED = "ddddddddddddddmrrccsv"


def test_every_accepted_request_has_the_answer_that_it_has_alone(tiny: Callable[..., TorchBackend]) -> None:
    running = soak(tiny("llama"), 200, texts=24, kinds=MIXED)
    running.run()
    assert running.wrong == []
    done = sum(running.counts[kind] for kind in "dmrcsv")
    assert done == 200 and min(running.counts[kind] for kind in "dmrcsv") > 0
    assert running.counts["refused"] > 0, "the queue was full"
    engine = running.engine
    before = live_tensors()
    for number in range(40):  # the caches are full: what comes takes the place of what goes
        engine.run_parallel(f"Another text, {number}", SCHEMAS[number % len(SCHEMAS)])
    assert live_tensors() == before
    assert engine.owner.waiting == 0 and engine.run_parallel("text", SCHEMAS[0]).caches.entries == 4


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_is_flat_over_2000_requests(tiny: Callable[..., TorchBackend]) -> None:
    running = soak(tiny("llama"), 2000, texts=48, kinds=MIXED, every=20)
    running.run()
    assert running.wrong == []
    assert sum(running.counts[kind] for kind in "dmrcsv") == 2000
    first, last = statistics.mean(running.rss[:25]), statistics.mean(running.rss[-25:])
    print(f"\n{dict(running.counts)}; RSS of the first 500 {first / 1e6:.1f} MB, of the last 500 {last / 1e6:.1f} MB")
    assert last <= 1.05 * first


@pytest.mark.slow
@pytest.mark.model
def test_100_requests_to_the_embedded_model() -> None:
    engine = Engine.load("smollm2-135m", backend="torch", dtype="float32", offline=True)
    running = soak(engine.backend, 100, texts=12, kinds=MIXED)
    running.run()
    assert running.wrong == []
    assert sum(running.counts[kind] for kind in "dmrcsv") == 100
