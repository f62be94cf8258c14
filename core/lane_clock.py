"""The clock of one lane, cut into phases, and the ticker that tells it while a pass goes on.

Knows nothing of models.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
