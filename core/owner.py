"""The owner thread: all model work of an engine happens there, one job at a time.

It starts with the first job, in the process where that job was submitted. Knows nothing
of models: a job is a function that is given its own `Job`, to look at the cancel flag.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Cancelled(Exception):
    """The job was asked to stop; raised inside it by `Job.check`."""


class Job:
    """One piece of work in the queue."""

    def __init__(self, owner: Owner, work: Callable[[Job], Any]) -> None:
        self._owner = owner
        self._work = work
        self._cancel = threading.Event()
        self._done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    @property
    def ahead(self) -> int:
        """Jobs that come before this one, the running one included."""
        return self._owner.ahead_of(self)

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def cancel(self) -> None:
        """Stops the job at its next check; one that waits is over at once."""
        self._cancel.set()
        if self._owner.withdraw(self):
            self.run()  # its first check ends it

    def check(self) -> None:
        """Raises `Cancelled` if the job is to stop: called between passes and at every token."""
        if self._cancel.is_set():
            raise Cancelled

    def wait(self) -> None:
        """Until the job is done, cancelled or failed."""
        self._done.wait()

    def result(self) -> Any:
        """Waits for the work's value; raises what the work raised."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._value

    def run(self) -> None:
        """Does the work, unless the job was cancelled."""
        try:
            self.check()
            self._value = self._work(self)
        except Cancelled as error:
            # Without its traceback, whose frames would keep the run's KV alive until the next full collection.
            self._error = error.with_traceback(None)
        except BaseException as error:  # handed to whoever waits for the result
            self._error = error
        finally:
            del self._work
            self._done.set()


class Owner:
    """A queue and the one thread that empties it."""

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[Job], Any]) -> Job:
        job = Job(self, work)
        with self._change:
            self._waiting.append(job)
            # After a fork the thread is not alive in the child, and starts anew there.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._loop, name="pcd-owner", daemon=True)
                self._thread.start()
            self._change.notify()
        return job

    def ahead_of(self, job: Job) -> int:
        with self._change:
            if job not in self._waiting:
                return 0
            return self._waiting.index(job) + (self._running is not None)

    def withdraw(self, job: Job) -> bool:
        """Takes a job out of the queue; False if it is not waiting any more."""
        with self._change:
            if job not in self._waiting:
                return False
            self._waiting.remove(job)
            return True

    def close(self, patience_s: float) -> None:
        """Cancels every job and waits for the running one to notice, between two passes or tokens."""
        with self._change:
            jobs = [*self._waiting, *filter(None, [self._running])]
        for job in jobs:
            job.cancel()
        deadline = time.perf_counter() + patience_s
        while self._running is not None and time.perf_counter() < deadline:
            time.sleep(0.02)

    def _loop(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting)
                job = self._running = self._waiting.popleft()
            job.run()
            del job  # or an idle thread keeps the last job's engine and result
            with self._change:
                self._running = None


class LaneClock:
    """Engine time of one lane, cut into phases that follow one another without a gap.

    `before_ms` is work of this lane that was done already, such as compiling the plan.
    """

    def __init__(self, synchronize: Callable[[], None], **before_ms: float) -> None:
        self._synchronize = synchronize
        self.phases: dict[str, float] = dict(before_ms)  # milliseconds
        self._lock = threading.Lock()
        self._stopped = False
        synchronize()
        self._last = time.perf_counter()
        self._start = self._last - self.elapsed_ms / 1e3

    @property
    def now_ms(self) -> float:
        return (time.perf_counter() - self._start) * 1e3

    def tick_ms(self) -> float | None:
        """`now_ms` for a thread beside: never past the lane's end, None after it."""
        with self._lock:
            return None if self._stopped else self.now_ms

    @property
    def elapsed_ms(self) -> float:
        """The sum of the phases: engine time up to the last one's end."""
        return sum(self.phases.values())

    def lap(self, phase: str, *, last: bool = False) -> float:
        """Ends a phase, once the device has done its work; returns its milliseconds."""
        self._synchronize()
        with self._lock:
            took = self.mark(phase)
            self._stopped = last
        return took

    def mark(self, phase: str) -> float:
        """`lap` without waiting for the device, whose work then counts to the phase in which its result is needed."""
        now = time.perf_counter()
        took = (now - self._last) * 1e3
        self.phases[phase] = self.phases.get(phase, 0.0) + took
        self._last = now
        return took


@contextmanager
def ticking(tick: Callable[[], None], every_s: float = 0.05) -> Iterator[None]:
    """Calls `tick` from a thread beside, also while the owner sits in a long pass."""
    stop = threading.Event()

    def loop() -> None:
        while not stop.wait(every_s):
            tick()

    thread = threading.Thread(target=loop, name="pcd-ticker", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
