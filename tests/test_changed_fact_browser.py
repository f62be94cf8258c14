"""Changing one fact of a scenario, in Chromium: the text, the button's words, and the recording of what follows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from core.presets import load_presets
from core.recordings import load_recordings
from core.trace import FieldDecided
from core.ui.page import build
from tests.chromium import CHROMIUM, choose, expect_phase, opener, part
from tests.scripted import ScriptedEngine, ScriptedResident, served

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}"),
]

PRESETS = load_presets()
RECORDED = load_recordings(PRESETS)
TRIAGE = next(preset for preset in PRESETS if preset.id == "support_triage")
PLAIN = next(preset for preset in PRESETS if preset.id == "time_zone")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    resident = ScriptedResident(ScriptedEngine(token_ms=1, pass_ms=20))
    with served(build(resident, PRESETS, {name: recording.events for name, recording in RECORDED.items()})) as address:
        yield address


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """The page on the support ticket."""
    with opener(browser, url) as open_one:
        page = open_one()
        if page.locator("#preset input").input_value() != TRIAGE.title:
            choose(page, TRIAGE.title)
        expect(page.locator("#context textarea")).to_have_value(TRIAGE.context)
        yield page


def decided(page: Page) -> dict[str, str]:
    rows = page.locator(".board .rows:not(.invented) .row[data-field]")
    return dict(
        rows.evaluate_all("rows => rows.map((r) => [r.dataset.field, r.querySelector('.pcd .value').textContent])")
    )


def values(recording: str) -> dict[str, str]:
    words = {True: "true", False: "false"}
    fields = (event for event in RECORDED[recording].events if isinstance(event, FieldDecided))
    return {event.name: words.get(event.value, f'"{event.value}"') for event in fields}


def test_one_fact_is_changed_and_back_each_with_its_recording(page: Page) -> None:
    button, text = page.locator("#change"), page.locator("#context textarea")
    expect(button).to_have_text(f"Change one fact: {TRIAGE.change.label}")
    expect_phase(page, "done")
    button.click()
    expect(button).to_have_text("Change it back")
    expect(text).to_have_value(TRIAGE.changed.context)
    expect(page.locator('.row[data-field="contact_channel"] .pcd .value')).to_have_text('"EMAIL"')
    assert decided(page) == values("support_triage_changed")
    button.click()
    expect(page.locator('.row[data-field="contact_channel"] .pcd .value')).to_have_text('"PHONE"')
    expect(text).to_have_value(TRIAGE.context)
    assert decided(page) == values("support_triage")


def test_a_fact_that_is_not_in_the_text_any_more_cannot_be_changed(page: Page) -> None:
    button, text = page.locator("#change"), page.locator("#context textarea")
    text.fill("Another ticket")
    text.press_sequentially(".")
    expect(button).to_have_text("The sentence to change is gone")
    expect(button).to_be_disabled()
    text.fill(f"Another ticket. {TRIAGE.change.after}")
    expect(button).to_have_text("Change it back")
    button.click()
    expect(text).to_have_value(f"Another ticket. {TRIAGE.change.before}")


def test_a_live_result_stays_until_the_next_run(page: Page) -> None:
    page.locator("#run").click()
    expect(part(page, "badge")).to_contain_text("LIVE")
    expect_phase(page, "done")
    before = decided(page)
    page.locator("#change").click()
    expect(page.locator("#context textarea")).to_have_value(TRIAGE.changed.context)
    expect(part(page, "badge")).to_contain_text("LIVE")
    assert decided(page) == before


def test_a_scenario_without_such_a_fact_has_no_button(page: Page) -> None:
    choose(page, PLAIN.title)
    expect(page.locator("#change")).to_be_hidden()
    choose(page, TRIAGE.title)
    expect(page.locator("#change")).to_have_text(f"Change one fact: {TRIAGE.change.label}")
