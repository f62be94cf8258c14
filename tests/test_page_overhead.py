"""`--ui-overhead`: the same race with and without the page, and the page's number is the engine's."""

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest

from core import page_overhead
from core.engine import Engine
from core.page_overhead import Lap, OverheadError, RecordedEngine, Round, lap_of, opened, report_overhead, rounds, shows
from core.presets import Preset
from core.schema import StructuredSchema
from tests.chromium import CHROMIUM
from tests.fakes import HashBackend, PreferringBackend, lexicon

SCHEMA = StructuredSchema(
    {"risk": {"type": "enum", "choices": ["HIGH", "LOW"]}, "is_fraud": {"type": "boolean"}},
)
ANSWER = '{\n  "risk": "HIGH",\n  "is_fraud": true\n}'
PRESET = Preset("A text about nothing.", SCHEMA, "two", "Two fields")
LAP = Lap(1234.56, 12, ANSWER, "hit", "json", ("pcd", "ar"))


def engine_for(**options):
    engine = Engine(PreferringBackend(lexicon("qwen"), **options), "preferring", why="a test")
    engine.backend.intend(ANSWER.removeprefix("{\n"), before="assistant\n{\n")
    return engine


class Stage:
    """Races that take the times that are given, the warm-up's first."""

    def __init__(self, page, headless):
        self.page, self.bare = iter(page), iter(headless)
        self.told = []

    def watched(self):
        self.told.append("page")
        ms = next(self.page)
        return replace(LAP, ms=ms), f" {ms:.1f}ms"

    def headless(self):
        self.told.append("headless")
        ms = next(self.bare)
        if isinstance(ms, BaseException):
            raise ms
        return replace(LAP, ms=ms)


# --- rounds ---


def test_rounds_alternate_after_a_warm_up_that_counts_for_nothing():
    stage = Stage([9999.0, 110.0, 220.0, 330.0], [100.0, 200.0, 300.0])
    found = list(rounds(stage, 3))
    assert stage.told == ["page", "headless", "page", "page", "headless", "headless", "page"]
    assert [(one.headless.ms, one.page.ms, one.shown) for one in found] == [
        (100.0, 110.0, " 110.0ms"),
        (200.0, 220.0, " 220.0ms"),
        (300.0, 330.0, " 330.0ms"),
    ]
    assert [one.ratio for one in found] == pytest.approx([1.1] * 3)


@pytest.mark.parametrize(
    "text, ms, is_shown",
    [
        ("812.4ms", 812.4, True),
        ("\u2007812.4ms", 812.44, True),
        ("812.4 ms\n", 812.35, True),
        ("812.4ms", 812.46, False),
        ("812.4ms", 812.3, False),
        ("12.35s", 12_345.1, True),
        ("12.35s", 12_354.9, True),
        ("12.35s", 12_356.0, False),
        ("12.35s", 12.35, False),
        ("–", 0.0, False),
        ("", 0.0, False),
        ("nan ms", 1.0, False),
        ("1e3ms", 1000.0, False),
    ],
)
def test_a_number_on_the_page_is_the_engines_to_its_last_digit(text, ms, is_shown):
    assert shows(text, ms) is is_shown


@pytest.mark.parametrize(
    "page, shown, words",
    [
        ({"text": "{}", "tokens": 3}, "1234.6ms", "12 tokens, head hit without the page and 3 tokens, head hit with"),
        ({"cache": "miss"}, "1234.6ms", "12 tokens, head hit without the page and 12 tokens, head miss with"),
        ({}, "1234.7ms", "the page shows '1234.7ms' and the engine took 1234.560 ms"),
        ({}, "", "the page shows '' and the engine took 1234.560 ms"),
    ],
)
def test_a_round_whose_races_differ_or_whose_number_is_wrong_is_no_round(page, shown, words):
    page_overhead.checked(Round(LAP, LAP, "1234.6ms"))
    with pytest.raises(OverheadError, match=words):
        page_overhead.checked(Round(LAP, replace(LAP, **page), shown))


# --- the engine that the page gets ---


def test_the_page_gets_the_engines_own_race_and_what_it_asked_for_is_kept():
    engine = engine_for()
    recorded = RecordedEngine(engine)
    given = ("A text about nothing.", SCHEMA)
    options = {"temperature": 2.0, "order": ("ar", "pcd"), "mode": "schema", "cache": False}
    race = recorded.race(*given, **options, asked=time.perf_counter())
    assert recorded.races.get(timeout=10) is race and not race.over.is_set()
    seen = []
    while not race.finished:
        seen += race.drain()
        time.sleep(0.001)
    assert race.over.is_set() and race.events == seen and seen[-1].kind == "end"
    assert recorded.asked == (given, options)
    # The same, with nobody watching.
    lap, bare = lap_of(seen), lap_of(engine.race(*given, **options).wait())
    assert (lap.mode, lap.order, lap.cache) == ("schema", ("ar", "pcd"), "off")
    assert replace(lap, ms=0) == replace(bare, ms=0) and lap.ms > 0
    assert (recorded.model, recorded.owner) == ("preferring", engine.owner)


def test_a_recorded_race_is_stopped_as_any_other():
    recorded = RecordedEngine(engine_for(pass_s=0.05))
    race = recorded.race("A text about nothing.", SCHEMA)
    race.cancel()
    while not race.finished:
        race.drain()
        time.sleep(0.001)
    with pytest.raises(OverheadError, match="^the race stopped: stopped"):
        lap_of(race.events)


def test_a_race_that_fails_says_why():
    engine = Engine(HashBackend(lexicon("qwen"), window=10), "small")
    with pytest.raises(OverheadError, match="^the race failed: .*window"):
        lap_of(engine.race("A text about nothing.", SCHEMA).wait())


# --- the report ---


@pytest.fixture
def staged(monkeypatch):
    """Puts a stage where the page would be."""

    def put(page, headless):
        @contextmanager
        def opened(engine, preset, mode):
            yield Stage([0.0, *page], headless)

        monkeypatch.setattr(page_overhead, "opened", opened)

    return put


@pytest.mark.parametrize(
    "page, status, words",
    [
        ([105.0, 205.0, 420.0], 0, "median headless 200 ms, under the page 205 ms: 1.025, at most 1.05"),
        ([90.0, 210.0, 400.0], 0, "under the page 210 ms: 1.050, at most 1.05"),
        ([100.0, 210.2, 300.0], 1, "under the page 210 ms: 1.051, MORE THAN 1.05"),
    ],
)
def test_the_report_compares_medians_and_says_whether_it_is_within_the_limit(staged, capsys, page, status, words):
    staged(page, [100.0, 200.0, 400.0])
    assert report_overhead(engine_for(), PRESET, "two\x1b[2J", 3) == status
    shown = capsys.readouterr()
    assert words in shown.out and "two\\x1b[2J, baseline mode json, 12 tokens, order pcd then ar" in shown.out
    said = json.loads(shown.out.splitlines()[-1])
    assert (said["benchmark"], said["n"], said["is_within"]) == ("ui-overhead", 3, status == 0)
    assert said["ratio"] == pytest.approx(said["page_ms"] / said["headless_ms"]) and said["headless_ms"] == 200.0
    assert [one["ratio"] for one in said["rounds"]] == pytest.approx(
        [there / here for there, here in zip(page, [100.0, 200.0, 400.0], strict=True)]
    )
    assert len(shown.err.splitlines()) == 3 and "\x1b" not in shown.out + shown.err


def test_what_was_measured_before_ctrl_c_is_printed(staged, capsys):
    staged([110.0, 120.0], [100.0, KeyboardInterrupt()])
    assert report_overhead(engine_for(), PRESET, "two", 2) == 130
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["n"] == 1
    staged([110.0], [KeyboardInterrupt()])
    assert report_overhead(engine_for(), PRESET, "two", 2) == 130
    assert capsys.readouterr().out == "nothing was measured\n"


def test_without_playwright_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "playwright", None)
    engine = engine_for()
    words = "^the page is driven by playwright, which is not installed; run: pip install playwright$"
    with pytest.raises(OverheadError, match=words):
        report_overhead(engine, PRESET, "two", 1)
    assert engine.backend.passes == 0


def test_importing_the_measurement_loads_neither_gradio_nor_playwright_nor_torch():
    code = "import sys, core.page_overhead; print({'gradio', 'playwright', 'torch'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


# --- the real page ---


@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}")
@pytest.mark.parametrize("mode", ["json", "schema"])
def test_the_real_page_runs_the_same_race_and_shows_the_engines_number(mode, monkeypatch):
    monkeypatch.setattr(page_overhead, "SETTLE_S", 0.1)
    with opened(engine_for(pass_s=0.02), PRESET, mode) as tab:
        (one,) = rounds(tab, 1)
    assert one.headless.text == one.page.text == ANSWER
    assert (one.page.mode, one.page.order, one.page.cache) == (mode, ("pcd", "ar"), "hit")
    assert shows(one.shown, one.page.ms) and one.page.ms > 20.0


@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}")
def test_a_browser_that_does_not_start_is_one_line(monkeypatch, tmp_path):
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OverheadError, match=r"^Chromium does not start \([^\n]+\); run: playwright install chromium$"):
        with opened(engine_for(), PRESET, "json"):
            raise AssertionError("never reached")
