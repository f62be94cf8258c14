"""Benchmarks in progress: from a press of Start to the last race.

Knows an engine and its races, nothing of the page's components. Each measurement belongs to
one session and is known under it only while it lasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from contextvars import copy_context
from dataclasses import dataclass, replace

from core.engine import Engine
from core.faults import told
from core.public import named_model, public_name
from core.report import Report
from core.setting import Setting
from core.trials import Benchmark, Series

#: A race that goes on says so after this time: gradio notices a closed tab only when something is yielded.
HEARTBEAT_S = 1.0
#: Between two races, until a browser on the same machine has drawn what the last one has changed.
SETTLE_S = 0.3


@dataclass(frozen=True)
class Step:
    """How far a measurement has come."""

    report: Report
    is_over: bool = False
    ahead: int = 0  # other work that the engine does before the next race
    error: str = ""  # what ended it


class Measurements:
    """All benchmarks in progress, by session."""

    def __init__(self) -> None:
        self._series: dict[str | None, Series] = {}

    def __contains__(self, session: str | None) -> bool:
        return session in self._series

    async def start(self, session: str | None, engine: Engine, benchmark: Benchmark) -> AsyncGenerator[Step, None]:
        """A step before the first race, one after each, and one a second in between; closing it cancels the races.

        Does nothing while the session has one.
        """
        if session in self._series:
            return
        series = self._series[session] = Series(engine, benchmark)
        try:
            async with aclosing(_steps(engine, series)) as steps:
                async for step in steps:
                    yield step
        finally:
            series.cancel()
            del self._series[session]

    def cancel(self, session: str | None) -> None:
        """Ends the session's measurement within one token; its last step has what was finished."""
        if session in self._series:
            self._series[session].cancel()


async def _steps(engine: Engine, series: Series) -> AsyncGenerator[Step, None]:
    visitor = copy_context()  # whose GPU time it is, on ZeroGPU
    benchmark, trials = series.benchmark, iter(series)
    # A thread of its own: it waits in each race, and the few that coroutines share may all wait already.
    thread = ThreadPoolExecutor(1, "pcd-benchmark")
    setting = replace(await asyncio.to_thread(Setting.here, engine), model=public_name(engine.model))
    report = Report(setting, benchmark, (), is_whole=False)
    try:
        yield Step(report)
        while len(report.trials) < len(benchmark.turns):
            coming = asyncio.get_running_loop().run_in_executor(thread, visitor.run, next, trials, None)
            while not (await asyncio.wait([coming], timeout=HEARTBEAT_S))[0]:
                yield Step(report, ahead=series.ahead)
            if (trial := coming.result()) is None:  # cancelled
                break
            report = replace(report, trials=(*report.trials, trial))
            yield Step(report)
            await asyncio.sleep(SETTLE_S)
        yield Step(replace(report, is_whole=len(report.trials) == len(benchmark.turns)), is_over=True)
    except Exception as error:  # the border of the engine: the page must learn that there is no more to come
        yield Step(report, is_over=True, error=named_model(told(error, "a benchmark"), engine.model))
    finally:
        thread.shutdown(wait=False)
