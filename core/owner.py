"""The owner thread: all model work of an engine happens there, one job at a time.

An engine that has its work done by a server may own several, each with one job at a time.

It starts with the first job, in the process where that job was submitted, and ends when nobody
holds its owner any more. Knows nothing of models: a job is a function that is given its own `Job`,
to look at the cancel flag and the time limit.
"""

from __future__ import annotations

import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from core.outline import add_outline


class Cancelled(Exception):
    """The job was asked to stop; raised inside it by `Job.check`."""


class Unavailable(RuntimeError):
    """Work that is not done though nothing is wrong with it; the message is one line for people."""

    is_passing = True  # it may be done later, though nobody does anything about it


class QueueFull(Unavailable):
    """As many jobs wait as may."""


class TimedOut(Unavailable):
    """The job's time was over before it was done; raised inside it by `Job.check`."""


class Closing(Unavailable):
    """No job is taken any more."""


class NotAnswered(Unavailable):
    """Work that is done elsewhere: that process could not be had, or ended before it was done."""


class Job:
    """One piece of work in the queue. `limit_s`: its time from now on, waiting included; None: without end."""

    def __init__(self, owner: Owner, work: Callable[[Job], Any], limit_s: float | None = None) -> None:
        self._owner = owner
        self._work = work
        self._limit_s = limit_s
        self._cancel = threading.Event()
        self._done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        self._submitted = time.perf_counter()
        self._left_queue: float | None = None

    @property
    def ahead(self) -> int:
        """Jobs that come before this one, the running one included."""
        return self._owner.ahead_of(self)

    @property
    def waited_ms(self) -> float:
        """Time in the queue: until the job was run or given up, or until now."""
        return ((self._left_queue or time.perf_counter()) - self._submitted) * 1e3

    @property
    def done(self) -> bool:
        self._look_at_the_time()
        return self._done.is_set()

    @property
    def error(self) -> BaseException | None:
        """What the work raised, once the job is done."""
        return self._error

    def cancel(self) -> None:
        """Stops the job at its next check; one that waits is over at once."""
        self._cancel.set()
        self._give_up()

    def check(self) -> None:
        """Raises `Cancelled` or `TimedOut` if the job is to stop: called between passes and at every token."""
        if self._cancel.is_set():
            raise Cancelled
        if self._is_late():
            raise TimedOut(
                f"the request was not done within its {self._limit_s:g} s, {self.waited_ms / 1e3:.1f} s of which "
                "it waited; try again later, shorten it, or start the service with a longer --timeout"
            )

    def wait(self) -> None:
        """Until the job is done, cancelled or failed; Ctrl-C in the meantime cancels it."""
        try:
            while not self._done.wait(self._patience_s()):
                self._look_at_the_time()
        except KeyboardInterrupt:
            self.cancel()
            raise

    def result(self) -> Any:
        """Waits for the work's value; raises what the work raised."""
        self.wait()
        if self._error is not None:
            try:
                raise self._error
            finally:
                del self  # or the error's traceback holds the job, which holds the error
        return self._value

    def run(self) -> None:
        """Does the work, unless the job was cancelled or is late."""
        self._left_queue = time.perf_counter()
        try:
            self.check()
            self._value = self._work(self)
        except BaseException as error:  # handed to whoever waits for the result
            self._error = _released(error)
        finally:
            del self._work
            self._done.set()
            del self  # as in `result`

    def _is_late(self) -> bool:
        return self._limit_s is not None and time.perf_counter() - self._submitted > self._limit_s

    def _patience_s(self) -> float | None:
        """Until a job that waits is late; None where nobody has to look."""
        if self._limit_s is None or self._left_queue is not None:
            return None
        return max(0.001, self._submitted + self._limit_s - time.perf_counter())

    def _look_at_the_time(self) -> None:
        """A job that is late while it waits is over, and its place is free."""
        if self._left_queue is None and self._is_late():
            self._give_up()

    def _give_up(self) -> None:
        if self._owner.withdraw(self):
            self.run()  # its first check ends it


def _released(error: BaseException) -> BaseException:
    """The error without what its frames hold, which would keep the failed run's KV alive as long as the error lives.

    One that a person can mend keeps its traceback, whose frames are emptied. Frames of a framework's own cannot be
    (torch keeps a layer's inputs in a closure): there a note of the error says where it came from.
    """
    can_be_mended = isinstance(error, ValueError | ArithmeticError)
    if not can_be_mended and type(error).__module__.partition(".")[0] != __package__:  # errors of our own say all
        add_outline(error)
    chain: BaseException | None = error
    while chain is not None:
        traceback.clear_frames(chain.__traceback__)
        chain.__traceback__ = chain.__traceback__ if can_be_mended else None
        chain = chain.__cause__ or chain.__context__
    # The first frame is the job's own, which holds the error.
    return error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)


class _Queue:
    """What an owner and its threads share; they must not hold the owner, or none would ever end."""

    def __init__(self) -> None:
        self.waiting: deque[Job] = deque()
        self.running: dict[int, Job] = {}  # by thread
        self.change = threading.Condition()
        self._is_abandoned = False

    def work(self) -> None:
        """What a thread does."""
        while job := self._next():
            job.run()
            del job  # or an idle thread keeps the last job's engine and result

    def is_idle(self) -> bool:
        return not self.running and not self.waiting

    def abandon(self) -> None:
        """Nobody can submit any more."""
        with self.change:
            self._is_abandoned = True
            self.change.notify_all()

    def _next(self) -> Job | None:
        with self.change:
            own = threading.get_ident()
            self.running.pop(own, None)
            self.change.notify_all()
            self.change.wait_for(lambda: self.waiting or self._is_abandoned)
            if self.waiting:
                self.running[own] = self.waiting.popleft()
            return self.running.get(own)


class Owner:
    """A queue and the one thread that empties it, or several where no device is theirs.

    `limit`: jobs that may wait beside those that run; `timeout_s`: of each job, from `submit` on. None: no bound.
    """

    def __init__(self, limit: int | None = None, timeout_s: float | None = None, threads: int = 1) -> None:
        if limit is not None and limit < 0:
            raise ValueError(f"queue {limit}: give the number of requests that may wait, 0 or more")
        if timeout_s is not None and not timeout_s > 0:
            raise ValueError(f"timeout {timeout_s}: give seconds above 0, or none")
        self._limit, self._timeout_s, self._most = limit, timeout_s, threads
        self._queue = _Queue()
        self._is_closing = False
        self.is_closed = False  # nobody shall wait for a job any more
        self._threads: list[threading.Thread] = []
        weakref.finalize(self, self._queue.abandon).atexit = False

    def submit(self, work: Callable[[Job], Any]) -> Job:
        """Raises `QueueFull` or `Closing`."""
        job, queue = Job(self, work, self._timeout_s), self._queue
        with queue.change:
            # After a fork no thread is alive in the child: what they ran is the parent's, and the first starts anew.
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            if not self._threads:
                queue.running.clear()
            self._require_room()
            queue.waiting.append(job)
            idle = len(self._threads) - len(queue.running)
            if not self._threads or idle < len(queue.waiting) and len(self._threads) < self._most:
                self._threads.append(threading.Thread(target=queue.work, name="pcd-owner", daemon=True))
                self._threads[-1].start()
            queue.change.notify_all()
        return job

    @property
    def waiting(self) -> int:
        """Jobs that wait beside those that run."""
        return len(self._queue.waiting)

    def ahead_of(self, job: Job) -> int:
        queue = self._queue
        with queue.change:
            return queue.waiting.index(job) + len(queue.running) if job in queue.waiting else 0

    def withdraw(self, job: Job) -> bool:
        """Takes a job out of the queue; False if it is not waiting any more."""
        queue = self._queue
        with queue.change:
            if job not in queue.waiting:
                return False
            queue.waiting.remove(job)
            queue.change.notify_all()
            return True

    def stop(self, patience_s: float) -> None:
        """Cancels every job and waits for the running ones to notice, between two passes or tokens."""
        queue = self._queue
        with queue.change:
            jobs = [*queue.waiting, *queue.running.values()]
        for job in jobs:
            job.cancel()
        self.wait_until_idle(patience_s)

    def close(self, patience_s: float) -> None:
        """Takes no more jobs, and stops those that there are. What is not over by then is given up."""
        self.refuse()
        self.stop(patience_s)
        self.is_closed = True

    def drain(self, patience_s: float) -> None:
        """Takes no more jobs, and waits for those that there are to be done."""
        self.refuse()
        self.wait_until_idle(patience_s)

    def refuse(self) -> None:
        """From now on `submit` raises `Closing`."""
        with self._queue.change:
            self._is_closing = True

    def wait_until_idle(self, patience_s: float | None) -> None:
        with self._queue.change:
            self._queue.change.wait_for(self._queue.is_idle, patience_s)

    def _require_room(self) -> None:
        if self._is_closing:
            raise Closing("the service is shutting down and takes no new requests; send this one again in a moment")
        if self._limit is None:
            return
        waiting = [job for job in list(self._queue.waiting) if not job.done]  # looked at: a late one leaves
        running = [job for job in list(self._queue.running.values()) if not job.done]
        if len(waiting) + len(running) - self._most >= self._limit:
            raise QueueFull(f"the queue is full: {len(waiting)} requests wait, its limit; try again in a moment")
