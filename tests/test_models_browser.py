"""The model at the top of the page in Chromium: a switch made there or elsewhere, its progress, and one that fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from core.models import ModelError
from core.public import pathless
from core.resident import Busy, Status
from core.ui.page import build
from tests.chromium import CHROMIUM, PATIENCE_MS, OpenPage, expect_phase, opener
from tests.scripted import HOSTILE, MODEL, PRESETS, READY, ScriptedEngine, ScriptedResident, served
from tests.test_accessibility_browser import violations

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}"),
]

OTHER = "scripted-3b"
IMPATIENT = "window.modelTimes = { idle: 150, busy: 50 };"


@dataclass
class Switchable(ScriptedResident):
    """Comes as far with a switch as it is let."""

    wanted: list[object] = field(default_factory=list)
    refusal: Exception | None = None
    go: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.switch = self._switch

    def _switch(self, name: object) -> None:
        if self.switching:
            raise Busy(f"{OTHER} is being loaded already; wait until it is there")
        self.wanted.append(name)
        self.switching = Status("loading", f"converting {name}", 0.25)
        try:
            assert self.go.wait(30)
            if self.refusal:
                raise self.refusal
            self.engine = ScriptedEngine(token_ms=1, pass_ms=20, model=str(name))
            self.status = Status("ready", message=f"{name} (chosen)")
        finally:
            self.switching = None


@pytest.fixture
def resident() -> Switchable:
    return Switchable(ScriptedEngine(token_ms=1, pass_ms=20))


@pytest.fixture
def open_page(browser: Browser, resident: Switchable) -> Iterator[OpenPage]:
    models = {MODEL: MODEL, OTHER: OTHER, HOSTILE: "hostile"}
    with served(build(resident, PRESETS, models=lambda: models)) as url, opener(browser, url, IMPATIENT) as opened:
        yield opened
        resident.go.set()


def notice(page: Page) -> Locator:
    return page.locator("#model .notice")


def refusal(page: Page) -> Locator:
    return page.locator("#model [role=alert]")


def select(page: Page) -> Locator:
    return page.locator("#model select")


def press_switch(page: Page, name: str) -> None:
    select(page).select_option(name)
    page.locator("#model button").click()


def test_a_switch_from_the_page_shows_its_progress_and_the_model_that_came(
    open_page: OpenPage, resident: Switchable
) -> None:
    page, other_page = open_page(), open_page()
    for one in (page, other_page):
        expect(notice(one)).to_have_text(READY.message)
        expect(select(one)).to_have_value(MODEL)
        expect(one.locator("#model button")).to_be_disabled()  # it is the one
    assert select(page).locator("option").all_text_contents() == [MODEL, OTHER, HOSTILE]
    press_switch(page, OTHER)
    for one in (page, other_page):
        expect(notice(one)).to_have_text(f"{READY.message}\nLoading another: converting {OTHER}")
        assert one.locator("#model progress").evaluate("bar => bar.value") == 0.25
        expect(select(one)).to_be_disabled()
        expect(one.locator("#model button")).to_be_disabled()
    page.locator("#run").click()  # meanwhile the old one answers
    expect_phase(page, "done")
    assert len(resident.engine.races) == 1 and resident.engine.model == MODEL
    resident.go.set()
    for one in (page, other_page):
        expect(notice(one)).to_have_text(f"{OTHER} (chosen)")
        expect(select(one)).to_have_value(OTHER)
        expect(select(one)).to_be_enabled()
        expect(refusal(one)).to_be_hidden()
    assert resident.wanted == [OTHER]


def test_a_run_in_progress_finishes_on_the_old_model_and_says_so(open_page: OpenPage, resident: Switchable) -> None:
    page = open_page()
    old = resident.engine
    old.pass_ms = 60_000
    page.locator("#run").click()
    expect_phase(page, "running")
    resident.go.set()
    resident.switch(OTHER)  # over REST
    expect(notice(page)).to_have_text(f"{OTHER} (chosen)")
    expect(select(page)).to_have_value(OTHER)
    expect_phase(page, "running")
    old.races[0].cancel()
    assert old.races[0].over.wait(10) and resident.engine.races == []
    expect(page.locator("#run")).to_be_enabled(timeout=PATIENCE_MS)
    page.locator("#run").click()
    expect_phase(page, "done")
    assert len(resident.engine.races) == 1


def test_a_switch_that_fails_says_why_in_plain_text_and_may_be_tried_again(
    open_page: OpenPage, resident: Switchable
) -> None:
    page = open_page()
    resident.refusal = ModelError(f"it could not be loaded: {HOSTILE}")
    resident.go.set()
    press_switch(page, HOSTILE)
    expect(refusal(page)).to_have_text(f"it could not be loaded: {pathless(HOSTILE)}")
    expect(notice(page)).to_have_text(READY.message)
    assert violations(page) == []
    assert resident.wanted == ["hostile"] and page.evaluate("window.__pwned") is None
    resident.refusal = None
    press_switch(page, OTHER)
    expect(notice(page)).to_have_text(f"{OTHER} (chosen)")
    expect(refusal(page)).to_be_hidden()


def test_an_id_that_is_not_here_is_refused_whatever_the_browser_sends(
    open_page: OpenPage, resident: Switchable
) -> None:
    page = open_page()
    expect(select(page)).to_have_value(MODEL)
    page.evaluate("document.querySelector('#model option').value = '../../etc/passwd'")
    page.locator("#model select").select_option("../../etc/passwd")
    page.locator("#model button").click()
    expect(refusal(page)).to_have_text("model '../../etc/passwd' is not here; choose another one")
    assert resident.wanted == []


def test_where_there_is_no_other_model_there_is_no_choice(browser: Browser) -> None:
    resident = ScriptedResident(ScriptedEngine(token_ms=1, pass_ms=20))
    with (
        served(build(resident, PRESETS, models=lambda: {MODEL: MODEL})) as url,
        opener(browser, url, IMPATIENT) as opened,
    ):
        page = opened()
        expect(notice(page)).to_have_text(READY.message)
        expect(page.locator("#model form")).to_be_hidden()
