"""The Benchmark tab in Chromium, driven by the scripted engine."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from core.resident import Status
from core.ui.page import build
from core.ui.results import HEADINGS
from core.wording import escaped
from tests.chromium import CHROMIUM, PATIENCE_MS, VEGA, expect_phase, part, spy_on
from tests.scripted import FOUR, HOSTILE, MANY, READY, ScriptedEngine, ScriptedResident, served

OpenPage = Callable[..., Page]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}"),
]

EVIL = replace(FOUR, id=HOSTILE, title=f"Evil {HOSTILE}")


@pytest.fixture(scope="module")
def shared_engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def engine(shared_engine: ScriptedEngine) -> ScriptedEngine:
    """As fast as it can be, until a test makes it slow, and with nobody else's races."""
    for race in shared_engine.races:
        race.cancel()
        assert race.over.wait(10)
    shared_engine.token_ms, shared_engine.pass_ms, shared_engine.failing = 0.5, 20, ""
    shared_engine.races.clear()
    return shared_engine


@pytest.fixture(scope="module")
def resident(shared_engine: ScriptedEngine) -> ScriptedResident:
    return ScriptedResident(shared_engine)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which Gradio keeps the files that it serves."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def url(resident: ScriptedResident, cache: Path) -> Iterator[str]:
    with served(build(resident, (FOUR, MANY, EVIL))) as address:
        yield address


@pytest.fixture
def open_tab(browser: Browser, url: str, engine: ScriptedEngine) -> Iterator[OpenPage]:
    """Opens the tab; at the end nothing may be on the console, and no request may have left for another host."""
    complaints: list[str] = []
    contexts: list[BrowserContext] = []

    def open_one(query: str = "", **options: Any) -> Page:
        contexts.append(browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options}))
        page = contexts[-1].new_page()
        spy_on(page, url, complaints)
        page.goto(url + query)
        page.get_by_role("tab", name="Benchmark").click(timeout=PATIENCE_MS)
        expect(page.locator("#benchmark-start")).to_be_enabled(timeout=PATIENCE_MS)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert [said for said in complaints if not said.startswith(VEGA)] == []


def box(page: Page, group: str, label: str) -> Locator:
    return page.locator(f"#benchmark-{group}").get_by_label(label)


def set_rounds(page: Page, rounds: int | str) -> None:
    page.locator("#benchmark-rounds input").fill(str(rounds))


def start(page: Page) -> None:
    page.locator("#benchmark-start").click()


def expect_progress(page: Page, text: str) -> None:
    expect(page.locator("#benchmark-progress .notice")).to_contain_text(text, timeout=PATIENCE_MS)


def rows(page: Page) -> list[dict[str, str]]:
    """What the table shows, by heading."""
    cells = page.locator('#benchmark-table [role="gridcell"]').all_inner_texts()
    lines = [cells[i : i + len(HEADINGS)] for i in range(0, len(cells), len(HEADINGS))]
    return [dict(zip(HEADINGS, map(str.strip, line), strict=True)) for line in lines]


def plots(page: Page) -> Locator:
    return page.locator("#benchmark-plots svg.marks")


def downloaded(page: Page, kind: str) -> str:
    button = page.locator(f"#benchmark-{kind}")
    expect(button).to_be_enabled(timeout=PATIENCE_MS)
    with page.expect_download() as coming:
        button.click()
    assert coming.value.suggested_filename.endswith(f".{kind.lower()}")
    return Path(coming.value.path()).read_text(encoding="utf-8")


# --- a measurement ---


def test_what_is_ticked_fills_the_table_and_both_files_hold_it(open_tab: OpenPage, engine: ScriptedEngine) -> None:
    page = open_tab()
    plan = page.locator("#benchmark-plan .notice")
    expect(plan).to_have_text("5 races: 1 preset, 1 mode, 1 head, n = 5; and a warm-up race")
    box(page, "modes", "schema:").check()
    box(page, "heads", "cold:").check()
    box(page, "style", "Compact").check()
    set_rounds(page, 2)
    expect(plan).to_have_text("8 races: 1 preset, 2 modes, 2 heads, n = 2; and a warm-up race")
    start(page)
    expect_progress(page, "Race 2 of 8: four_fields, json, warm, PCD first")
    assert [(row["mode"], row["head"], row["n"]) for row in rows(page)][:1] == [("json", "cold", "1")]
    expect_progress(page, "Done: 8 races")
    kinds = [("json", "cold"), ("json", "warm"), ("schema", "cold"), ("schema", "warm")]
    assert [(row["mode"], row["head"], row["n"], row["same fields"]) for row in rows(page)] == [
        (mode, head, "2", "1/4" if mode == "json" else "4/4") for mode, head in kinds
    ]
    headline = page.locator("#benchmark-headline .notice").inner_text()
    assert "scripted-1b (no model: a script), script on a script, float32" in headline
    assert "n = 2 rounds" in headline and "style compact" in headline

    told = json.loads(downloaded(page, "JSON"))
    assert [(trial["pcd_ms"], trial["ar_ms"]) for trial in told["trials"]] == [
        tuple(round(race.trace("lane_end", lane)[0].ms, 4) for lane in ("pcd", "ar")) for race in engine.races[1:]
    ]
    assert (told["is_whole"], told["style"], told["date"][:10] in headline) == (True, "compact", True)
    assert [f"{summary['pcd']['median_ms']:.1f} ({summary['pcd']['p95_ms']:.1f})" for summary in told["summaries"]] == [
        row["PCD ms (p95)"] for row in rows(page)
    ]
    lines = list(csv.DictReader(io.StringIO(downloaded(page, "CSV"))))
    assert [float(line["ar_ms"]) for line in lines] == [trial["ar_ms"] for trial in told["trials"]]


def test_the_plots_are_drawn_when_it_is_over_and_anew_after_the_next_one(open_tab: OpenPage) -> None:
    page = open_tab()
    for preset, rounds in ((FOUR, 1), (MANY, 2)):
        for each in (FOUR, MANY):
            box(page, "presets", each.title).set_checked(each == preset)
        set_rounds(page, rounds)
        start(page)
        expect_progress(page, "Race 1 of ")
        expect(plots(page)).to_have_count(0)
        expect_progress(page, "Done: ")
        expect(plots(page)).to_have_count(2)
        assert page.locator("#benchmark-medians .mark-rect path").count() == 2
        assert page.locator("#benchmark-races .mark-symbol.role-mark path").count() == 2 * rounds
        names = plots(page).locator("text").filter(has_text=preset.id).all_text_contents()
        assert names == [f"{preset.id} json warm{lane}" for lane in (" AR", " PCD", "")]


def test_cancel_stops_the_engine_and_keeps_what_was_finished(open_tab: OpenPage, engine: ScriptedEngine) -> None:
    page = open_tab()
    set_rounds(page, 3)
    start(page)
    expect_progress(page, "Race 2 of 3: four_fields, json, warm, baseline first")
    engine.pass_ms = 60_000
    while len(engine.races) < 3:  # the warm-up, the first, the second
        page.wait_for_timeout(20)
    page.locator("#benchmark-cancel").click()
    expect_progress(page, "Cancelled after 1 race of 3")
    assert engine.races[-1].trace("end")[0].state == "stopped"
    assert [row["n"] for row in rows(page)] == ["1"]
    told = json.loads(downloaded(page, "JSON"))
    assert (told["is_whole"], len(told["trials"])) == (False, 1)
    expect(page.locator("#benchmark-start")).to_be_enabled()
    expect(page.locator("#benchmark-cancel")).to_be_disabled()


def test_a_double_click_starts_one_measurement(open_tab: OpenPage, engine: ScriptedEngine) -> None:
    page = open_tab()
    set_rounds(page, 1)
    page.locator("#benchmark-start").dblclick()
    expect_progress(page, "Done: 1 race")
    page.wait_for_timeout(500)
    assert len(engine.races) == 2


def test_a_live_run_waits_its_turn_and_says_so(open_tab: OpenPage, engine: ScriptedEngine) -> None:
    page = open_tab()
    engine.pass_ms = 400
    start(page)
    expect_progress(page, "Race 1 of 5")
    page.get_by_role("tab", name="Race").click()
    page.locator("#run").click()
    expect_phase(page, "waiting")
    expect(part(page, "status")).to_contain_text("1 run is ahead of yours")
    expect_phase(page, "done")
    page.get_by_role("tab", name="Benchmark").click()
    expect_progress(page, "Done: 5 races")
    assert rows(page)[0]["n"] == "5"
    assert len(engine.races) == 1 + 5 + 1
    page.get_by_role("tab", name="Race").click()
    expect(part(page, "factor")).to_contain_text("×")


def test_the_keys_of_the_race_do_nothing_here(open_tab: OpenPage, engine: ScriptedEngine) -> None:
    page = open_tab()
    page.locator("#benchmark-rounds input").focus()
    page.keyboard.press("Control+Enter")
    page.keyboard.press("Escape")
    page.wait_for_timeout(500)
    assert engine.races == []


# --- what goes wrong ---


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda page: box(page, "presets", "Four fields").uncheck(), "no preset is ticked; tick at least one"),
        (lambda page: box(page, "modes", "json:").uncheck(), "no baseline mode is ticked"),
        (lambda page: box(page, "heads", "warm:").uncheck(), "no head is ticked"),
        (lambda page: set_rounds(page, ""), "n is empty; type a whole number from 1 to 50"),
        (lambda page: set_rounds(page, 51), "n 51 is none"),
    ],
    ids=["preset", "mode", "head", "empty", "many"],
)
def test_what_cannot_be_run_is_refused_in_words(
    open_tab: OpenPage, engine: ScriptedEngine, change: Callable[[Page], None], words: str
) -> None:
    page = open_tab()
    change(page)
    expect(page.locator("#benchmark-plan .notice")).to_contain_text(words, timeout=PATIENCE_MS)
    start(page)
    expect_progress(page, words)
    expect(page.locator("#benchmark-progress .notice")).to_have_attribute("data-tone", "error")
    expect(page.locator("#benchmark-start")).to_be_enabled()
    assert engine.races == []


@pytest.mark.parametrize(
    "status, words",
    [
        (Status("loading", "converting", 0.25), "the model is still loading (converting); try again in a moment"),
        (Status("absent", message="no model is loaded: start with --model NAME"), "no model is loaded: start with"),
    ],
    ids=["loading", "absent"],
)
def test_without_a_model_it_is_said_why(
    open_tab: OpenPage, resident: ScriptedResident, engine: ScriptedEngine, status: Status, words: str
) -> None:
    resident.status, resident.engine = status, None
    try:
        page = open_tab()
        start(page)
        expect_progress(page, words)
    finally:
        resident.status, resident.engine = READY, engine


def test_failures_are_shown_as_such(open_tab: OpenPage, engine: ScriptedEngine) -> None:
    engine.failing = "schema"
    page = open_tab()
    box(page, "modes", "schema:").check()
    set_rounds(page, 1)
    start(page)
    expect_progress(page, "Done: 2 races, 1 of them failed")
    failures = page.locator("#benchmark-failures .notice")
    expect(failures).to_have_attribute("data-tone", "error")
    expect(failures).to_contain_text("failed: four_fields, 1 race: out of memory: <img src=x onerror=")
    assert [row["mode"] for row in rows(page)] == ["json"]
    assert page.evaluate("window.__pwned") is None


def test_a_slow_pcd_lane_is_said_to_be_slower(open_tab: OpenPage, engine: ScriptedEngine) -> None:
    engine.pass_ms = 400
    page = open_tab()
    set_rounds(page, 1)
    start(page)
    expect_progress(page, "Done: ")
    assert rows(page)[0]["notes"].startswith("PCD is slower (0.")


def test_a_hostile_name_stays_text_everywhere(open_tab: OpenPage) -> None:
    page = open_tab()
    box(page, "presets", "Four fields").uncheck()
    box(page, "presets", "Evil").check()
    set_rounds(page, 1)
    start(page)
    expect_progress(page, "Done: ")
    assert rows(page)[0]["preset"] == escaped(HOSTILE)
    for mark in ("#benchmark-medians .mark-rect path", "#benchmark-races .mark-symbol.role-mark path"):
        page.locator(mark).first.hover()
        expect(page.locator("#vg-tooltip-element")).to_contain_text("<img src=x onerror=")
    expect(plots(page).first).to_contain_text("<img src=x onerror=")
    assert json.loads(downloaded(page, "JSON"))["presets"] == [HOSTILE]
    assert page.evaluate("window.__pwned") is None
    assert page.locator("#benchmark img, .vg-tooltip img").count() == 0


# --- several people ---


def test_two_users_see_their_own_figures(open_tab: OpenPage, engine: ScriptedEngine) -> None:
    pages = [open_tab(), open_tab()]
    engine.pass_ms = 200
    box(pages[1], "presets", "Four fields").uncheck()
    box(pages[1], "presets", "Many fields").check()
    for page in pages:
        set_rounds(page, 2)
        start(page)
    for page, preset in zip(pages, (FOUR, MANY), strict=True):
        expect_progress(page, "Done: 2 races")
        assert [(row["preset"], row["n"]) for row in rows(page)] == [(preset.id, "2")]
        assert {trial["preset"] for trial in json.loads(downloaded(page, "JSON"))["trials"]} == {preset.id}


def test_a_closed_tab_stops_its_races_and_takes_its_files_along(
    open_tab: OpenPage, engine: ScriptedEngine, cache: Path
) -> None:
    page = open_tab()
    set_rounds(page, 1)
    start(page)
    expect_progress(page, "Done: 1 race")
    expect(page.locator("#benchmark-JSON")).to_be_enabled(timeout=PATIENCE_MS)
    assert list(cache.rglob("benchmark-*.json"))
    engine.pass_ms = 60_000
    races = len(engine.races)
    start(page)
    expect_progress(page, "Race 1 of 1")
    mine = engine.races[races]
    page.close()
    assert mine.over.wait(timeout=10) and mine.trace("end")[0].state == "stopped"
    deadline = time.monotonic() + 10
    while list(cache.rglob("benchmark-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(cache.rglob("benchmark-*")) == []


# --- the look ---


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1180, 1600])
def test_no_width_scrolls_sideways_in_either_theme(open_tab: OpenPage, theme: str, width: int) -> None:
    page = open_tab(f"?__theme={theme}", viewport={"width": width, "height": 900})
    set_rounds(page, 1)
    start(page)
    expect_progress(page, "Done: ")
    expect(plots(page)).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for plot in plots(page).all():
        assert plot.bounding_box()["x"] + plot.bounding_box()["width"] <= width
