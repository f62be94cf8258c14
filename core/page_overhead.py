"""`python -m core.benchmark --ui-overhead`: what the page costs the baseline.

The same race runs headless and under the real page in Chromium, in turns, in one process as the app
does it. Compared is the engine's own time of the ar lane, from the trace of each race; the page's
last number must be the same. Gradio and playwright are imported when something is measured.
"""

from __future__ import annotations

import queue
import re
import shutil
import socket
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from core.backend import CLOCKS
from core.figures import ms_text
from core.interruption import INTERRUPTED, interruptible
from core.resident import Resident, Status
from core.setting import Setting, json_line
from core.trace import Event, Lane, LaneEnded, RunEnded, RunStarted
from core.wording import escaped

if TYPE_CHECKING:
    from core.engine import Engine
    from core.presets import Preset
    from core.race import Race

#: The page may take the baseline's time at most so many times.
LIMIT = 1.05

#: Names under which a system has Chromium; playwright's own is taken where there is none.
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--disable-gpu",)  # a machine without a display may have none to offer

PAGE_MS = 60_000  # patience with the page
RACE_S = 3_600.0  # and with a race
SETTLE_S = 1.0  # after a page was opened or left, until the browser is quiet


class OverheadError(RuntimeError):
    """The overhead cannot be measured here; the message says why and what to do."""


@dataclass(frozen=True)
class Lap:
    """The baseline's part of one race, watched or not."""

    ms: float  # the ar lane's
    tokens: int
    text: str  # what it wrote
    cache: str  # state of the head that both lanes started from
    mode: str
    order: tuple[Lane, ...]


@dataclass(frozen=True)
class Round:
    """One race of each kind, one right after the other."""

    headless: Lap
    page: Lap
    shown: str  # the page's last number

    @property
    def ratio(self) -> float:
        return self.page.ms / self.headless.ms

    def to_json(self) -> dict[str, Any]:
        times = {"headless_ms": self.headless.ms, "page_ms": self.page.ms, "ratio": self.ratio}
        return {**times, "shown": self.shown, "tokens": self.page.tokens}


@dataclass(frozen=True)
class Overhead:
    """Rounds of a preset on an engine; one or more where figures are asked of it."""

    setting: Setting
    preset: str
    rounds: tuple[Round, ...]

    @property
    def headless_ms(self) -> float:
        return statistics.median(one.headless.ms for one in self.rounds)

    @property
    def page_ms(self) -> float:
        return statistics.median(one.page.ms for one in self.rounds)

    @property
    def ratio(self) -> float:
        return self.page_ms / self.headless_ms

    @property
    def is_within(self) -> bool:
        return round(self.ratio, 3) <= LIMIT  # as it is printed

    def to_json(self) -> dict[str, Any]:
        lap = self.rounds[0].page
        how = {"preset": self.preset, "mode": lap.mode, "order": lap.order, "cache": lap.cache, "n": len(self.rounds)}
        times = {"headless_ms": self.headless_ms, "page_ms": self.page_ms, "ratio": self.ratio}
        found = {"limit": LIMIT, "is_within": self.is_within, "rounds": [one.to_json() for one in self.rounds]}
        return {"benchmark": "ui-overhead", **asdict(self.setting), **how, **times, **found}


class RecordedRace:
    """A race as the page knows it; what it drains is kept, and nothing else is done beside."""

    def __init__(self, race: Race) -> None:
        self._race = race
        self.events: list[Event] = []
        self.over = threading.Event()

    @property
    def finished(self) -> bool:
        return self._race.finished

    def drain(self) -> list[Event]:
        events = self._race.drain()
        self.events += events
        if self._race.finished:
            self.over.set()
        return events

    def cancel(self) -> None:
        self._race.cancel()


class RecordedEngine:
    """An engine for the page; keeps what it was asked for, and the races."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.races: queue.SimpleQueue[RecordedRace] = queue.SimpleQueue()
        self.asked: tuple[tuple[Any, ...], Mapping[str, Any]] = ((), {})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def race(self, *given: Any, **options: Any) -> RecordedRace:
        race = RecordedRace(self._engine.race(*given, **options))
        self.asked = given, {name: value for name, value in options.items() if name != "asked"}
        self.races.put(race)
        return race


class Stage(Protocol):
    """Where races are run, both ways."""

    def watched(self) -> tuple[Lap, str]:
        """A race under the page, and the last number that the page showed."""
        ...

    def headless(self) -> Lap:
        """The same race, asked for in the same words, with nobody watching."""
        ...


class Tab:
    """The page in Chromium, beside the engine that it runs on."""

    def __init__(self, tab: Any, url: str, recorded: RecordedEngine, engine: Engine, mode: str) -> None:
        self._tab, self._url = tab, url
        self._recorded, self._engine = recorded, engine
        self._mode = mode

    def watched(self) -> tuple[Lap, str]:
        self._tab.goto(self._url)
        self._tab.locator(".board .row[data-field]").first.wait_for()
        self._tab.locator(f'#mode input[value="{self._mode}"]').check()
        time.sleep(SETTLE_S)
        self._tab.locator("#run").click()
        try:
            race = self._recorded.races.get(timeout=PAGE_MS / 1e3)
        except queue.Empty:
            raise OverheadError("the page started no race when Run was pressed; this is a bug") from None
        # Not asked of the browser, which would look for it again and again.
        if not race.over.wait(RACE_S):
            race.cancel()
            raise OverheadError(f"the race was not over after {RACE_S:.0f} s; take a smaller preset or model")
        lap = lap_of(race.events)
        self._tab.locator('.board[data-phase="done"]').wait_for()
        return lap, self._tab.locator('.board [data-part="ar.clock"]').text_content()

    def headless(self) -> Lap:
        self._tab.goto("about:blank")
        time.sleep(SETTLE_S)
        given, options = self._recorded.asked
        race = self._engine.race(*given, **options)
        try:
            return lap_of(race.wait())
        finally:
            race.cancel()


def rounds(stage: Stage, count: int) -> Iterator[Round]:
    """Rounds as they end, after one race on the page that warms everything up. Raises `OverheadError`."""
    stage.watched()
    for number in range(count):
        if number % 2:
            page, shown = stage.watched()
            headless = stage.headless()
        else:
            headless = stage.headless()
            page, shown = stage.watched()
        yield checked(Round(headless, page, shown))


def lap_of(events: Sequence[Event]) -> Lap:
    """The baseline's part of a race that is over."""
    end = events[-1]
    if not isinstance(end, RunEnded) or end.state != "done":
        raise OverheadError(f"the race {end.state}: {end.message}")
    [started] = [event for event in events if isinstance(event, RunStarted)]
    [ended] = [event for event in events if isinstance(event, LaneEnded) and event.lane == "ar"]
    return Lap(ended.ms, ended.tokens, ended.text, started.cache, started.mode, started.order)


def checked(one: Round) -> Round:
    """The round, if both of its races were the same and the page showed the engine's number; else `OverheadError`."""
    headless, page = one.headless, one.page
    if (headless.text, headless.cache) != (page.text, page.cache):
        raise OverheadError(
            f"the races differ: {headless.tokens} tokens, head {headless.cache} without the page and {page.tokens} "
            f"tokens, head {page.cache} with it; take a dtype in which the model repeats itself, such as float32"
        )
    if not shows(one.shown, page.ms):
        raise OverheadError(f"the page shows {one.shown!r} and the engine took {page.ms:.3f} ms; this is a bug")
    return one


def shows(text: str, ms: float) -> bool:
    """Whether a clock's text, such as `812.4ms` or `12.35s`, is this time to its last digit."""
    if not (read := re.fullmatch(r"\s*(\d+\.(\d+))\s*(ms|s)\s*", text)):
        return False
    number, decimals, unit = read.groups()
    unit_ms = 1.0 if unit == "ms" else 1e3
    half_a_digit = 0.5 * unit_ms * 10.0 ** -len(decimals)
    return abs(float(number) * unit_ms - ms) <= half_a_digit + 1e-3  # a trace rounds to microseconds


# --- the real page ---


@contextmanager
def opened(engine: Engine, preset: Preset, mode: str) -> Iterator[Tab]:
    """The page of one preset, served as the app serves it, in Chromium. Raises `OverheadError`."""
    require_browser()
    from playwright.sync_api import Error, sync_playwright

    recorded = RecordedEngine(engine)
    with _served(recorded, preset) as url, sync_playwright() as playwright:
        executable = next(filter(None, map(shutil.which, CHROMIUM)), None)
        try:
            browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        except Error as error:
            reason = str(error).strip().partition("\n")[0]
            raise OverheadError(f"Chromium does not start ({reason}); run: playwright install chromium") from None
        with closing(browser):
            tab = browser.new_page()
            tab.set_default_timeout(PAGE_MS)
            try:
                yield Tab(tab, url, recorded, engine, mode)
            except Error as error:
                reason = str(error).strip().partition("\n")[0]
                raise OverheadError(f"the page does not do what it should: {reason}; this is a bug") from error


def require_browser() -> None:
    """Raises `OverheadError` where playwright is missing."""
    if find_spec("playwright") is None:
        raise OverheadError("the page is driven by playwright, which is not installed; run: pip install playwright")


@contextmanager
def _served(engine: RecordedEngine, preset: Preset) -> Iterator[str]:
    """The address of the real page on an engine that is ready."""
    from core.ui.launch import launch  # here: the core works without gradio
    from core.ui.page import build

    resident = Resident()
    resident.engine = engine
    resident.status = Status("ready", message=engine.model)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    page = build(resident, [preset])
    with redirect_stdout(sys.stderr):  # gradio says where it listens
        url = launch(page, "127.0.0.1", port)
    try:
        yield url
    finally:
        with redirect_stdout(sys.stderr):
            page.close()


# --- the command ---


def report_overhead(engine: Engine, preset: Preset, name: str, count: int = 3, mode: str = "json") -> int:
    """Measures, prints medians, ratios and one line of JSON; exit status 1 where the page costs too much.

    After Ctrl-C or an error, what was measured by then. Raises `OverheadError`.
    """
    found: list[Round] = []
    setting = Setting.here(engine)

    def told() -> None:
        publish(Overhead(setting, name, tuple(found)))

    with interruptible(engine, told), opened(engine, preset, mode) as tab:
        for one in rounds(tab, count):
            found.append(one)
            print(f"round {len(found)} of {count}: {round_text(one)}", file=sys.stderr)
    return INTERRUPTED if len(found) < count else int(not Overhead(setting, name, tuple(found)).is_within)


def publish(overhead: Overhead) -> None:
    if not overhead.rounds:
        print("nothing was measured")
        return
    for line in lines_of(overhead):
        print(escaped(line))
    print(json_line(overhead.to_json()), flush=True)


def lines_of(overhead: Overhead) -> Iterator[str]:
    """The figures for a terminal."""
    lap, order = overhead.rounds[0].page, " then ".join(overhead.rounds[0].page.order)
    yield from overhead.setting.lines()
    how = f"baseline mode {lap.mode}, {lap.tokens} tokens, order {order}, head {lap.cache}"
    yield f"{overhead.preset}, {how}, n = {len(overhead.rounds)}"
    yield from (f"  {round_text(one)}" for one in overhead.rounds)
    verdict = "at most" if overhead.is_within else "MORE THAN"
    times = f"median headless {ms_text(overhead.headless_ms)} ms, under the page {ms_text(overhead.page_ms)} ms"
    yield f"{CLOCKS[overhead.setting.clock]} of the ar lane: {times}: {overhead.ratio:.3f}, {verdict} {LIMIT}"


def round_text(one: Round) -> str:
    times = f"headless {ms_text(one.headless.ms)} ms, under the page {ms_text(one.page.ms)} ms"
    return f"{times} (shown as {one.shown.strip()}): {one.ratio:.3f}"
