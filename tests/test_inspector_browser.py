"""Inside a decision, in Chromium: what the page says of a field is what its events say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from core.presets import load_presets
from core.recordings import Recording, load_recordings
from core.trace import FieldDecided, RowCompared, TokenWritten
from core.ui.page import build
from tests.chromium import CHROMIUM, choose, expect_phase, opener, part
from tests.scripted import ScriptedEngine, ScriptedResident, served

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}"),
]

PRESETS = load_presets()
RECORDED = load_recordings(PRESETS)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    resident = ScriptedResident(ScriptedEngine(token_ms=1, pass_ms=20))
    with served(build(resident, PRESETS, {name: recording.events for name, recording in RECORDED.items()})) as address:
        yield address


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    with opener(browser, url) as open_one:
        yield open_one()


def opened(page: Page, preset: str, name: str) -> Locator:
    title = next(one.title for one in PRESETS if one.id == preset)
    if page.locator("#preset input").input_value() != title:
        choose(page, title)
    row = page.locator(f'.rows:not(.invented) .row[data-field="{name}"]')
    expect(row).to_be_attached()
    expect_phase(page, "done")
    row.click()
    expect(part(page, "inspector")).to_be_visible()
    return part(page, "inspector")


def decided(recording: Recording, name: str) -> FieldDecided:
    return next(event for event in recording.events if isinstance(event, FieldDecided) and event.name == name)


def test_nothing_is_shown_before_a_field_is_chosen(page: Page) -> None:
    expect(part(page, "inspector")).to_be_hidden()


def test_choices_shares_path_and_tokens_are_those_of_the_events(page: Page) -> None:
    for preset, name in (("support_triage", "category"), ("spam_phishing", "is_phishing"), ("customs_tariff", "")):
        expect_decision(page, preset, name)


def expect_decision(page: Page, preset: str, name: str) -> None:
    recording = RECORDED[preset]
    name = name or recording.run.names[0]
    event = decided(recording, name)
    opened(page, preset, name)
    expect(part(page, "inspector.name")).to_have_text(name)
    items = part(page, "inspector.choices").locator("li")
    expect(items).to_have_count(min(8, len(event.top)))
    assert items.first.locator("b").text_content().endswith(f"{100 * event.probability:.1f} %")
    facts = part(page, "inspector.facts")
    expect(facts).to_contain_text("probability of any allowed choice")
    expect(facts).to_contain_text(f"{100 * (event.top[0][1] - event.top[1][1]):.1f} % ahead of the next")
    marked = part(page, "inspector.path").locator("code.marked")
    expect(marked).to_have_count(sum(share is not None for _, share in event.path))
    shown = "".join(part(page, "inspector.path").locator("code").all_text_contents())
    assert shown == "".join(text for text, _ in event.path).replace("\n", "⏎").replace(" ", "·")
    rows = [row for row in recording.events if isinstance(row, RowCompared) and row.name == name and row.start >= 0]
    if rows:
        member = "".join(part(page, "inspector.written").locator("code").all_text_contents())
        written = "".join(token.text for token in recording.events if isinstance(token, TokenWritten))
        text = (recording.run.opening + written)[rows[-1].start : rows[-1].end]
        assert text.replace("\n", "⏎").replace(" ", "·") in member


def test_all_choices_that_were_read_can_be_listed(page: Page) -> None:
    recording = RECORDED["customs_tariff"]
    name = recording.run.names[0]
    event = decided(recording, name)
    opened(page, "customs_tariff", name)
    more = part(page, "inspector.more")
    expect(more).to_have_text(f"and {len(event.top) - 8} more")
    more.click()
    expect(part(page, "inspector.choices").locator("li")).to_have_count(len(event.top))
    expect(part(page, "inspector.facts")).to_contain_text(f"{event.unread} proved to lose and not read")
    more.click()
    expect(part(page, "inspector.choices").locator("li")).to_have_count(8)


def test_a_near_tie_carries_a_word_and_a_sign(page: Page) -> None:
    near = {
        preset: [e.name for e in recording.events if isinstance(e, FieldDecided) and e.top[0][1] - e.top[1][1] < 0.05]
        for preset, recording in RECORDED.items()
    }
    preset, names = next((preset, names) for preset, names in near.items() if names)
    opened(page, preset, names[0])
    expect(part(page, "inspector.facts")).to_contain_text("≈ near tie")


def test_before_its_decision_a_field_says_so_in_a_replay(page: Page) -> None:
    opened(page, "spam_phishing", "is_phishing")
    part(page, "replay.restart").click()
    expect(part(page, "inspector.facts")).to_have_text("PCD has not decided it yet.")
    expect(part(page, "inspector.choices").locator("li")).to_have_count(0)
    part(page, "replay.full").click()
    expect(part(page, "inspector.choices").locator("li")).to_have_count(2)


def test_a_key_that_the_baseline_made_up_is_said_to_be_none_of_pcds(page: Page) -> None:
    page.locator("#run").click()
    expect(part(page, "badge")).to_contain_text("LIVE")
    expect_phase(page, "done")
    page.locator(".rows.invented .row[data-field]").first.click()
    expect(part(page, "inspector.facts")).to_have_text(
        "The baseline made this key up: PCD decides the keys of the schema and no others."
    )
