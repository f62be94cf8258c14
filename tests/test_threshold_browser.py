"""The threshold in Chromium: which fields go through, and what makes a share weak, are counted from the events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Page, expect

from core.presets import load_presets
from core.recordings import load_recordings
from core.trace import Event, FieldDecided
from core.ui.page import build
from tests.chromium import CHROMIUM, PATIENCE_MS, OpenPage, choose, expect_phase, opener, part, run_to_the_end
from tests.scripted import ScriptedEngine, ScriptedResident, scenario, served

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}"),
]

PRESETS = load_presets()
RECORDED = load_recordings(PRESETS)
HOSTILE = "<img src=x onerror=window.__pwned=1> ${7*7} {{x}} </script> \u202e"
#: A fixed value, a near tie, low mass, a share at the threshold, and one that was read best-first.
WEAK = scenario(
    "Weak shares",
    {
        "fixed": {"type": "enum", "choices": ["ALONE", "OTHER"]},
        "tie": {"type": "boolean"},
        "low": {"type": "boolean"},
        "at_the_limit": {"type": "boolean"},
        HOSTILE: {"type": "enum", "choices": [HOSTILE, "b"]},
    },
    "text",
)
SHARES = {
    "fixed": {"cardinality": 1, "probability": 0.1, "top": (("ALONE", 1.0),), "candidate_mass": 0.01},
    "tie": {"probability": 0.52, "top": ((True, 0.52), (False, 0.48))},
    "low": {"probability": 0.9, "top": ((True, 0.9), (False, 0.1)), "candidate_mass": 0.05},
    "at_the_limit": {"probability": 0.8, "top": ((True, 0.8), (False, 0.2))},
    HOSTILE: {"probability": 0.7, "top": ((HOSTILE, 0.7),), "unread": 1, "unread_mass": 0.3, "value": HOSTILE},
}
#: Between two decisions.
STEP_MS = 5.0


def weak() -> list[Event]:
    race = ScriptedEngine(token_ms=1, pass_ms=40).race(WEAK.context, WEAK.schema)
    race.wait()
    names = list(SHARES)
    return [
        replace(event, ms=STEP_MS * (names.index(event.name) + 1), **SHARES[event.name])
        if isinstance(event, FieldDecided)
        else event
        for event in race.events
        if not event.live
    ]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    resident = ScriptedResident(ScriptedEngine(token_ms=1, pass_ms=40))
    recordings: dict[str, Sequence[Event]] = {name: recording.events for name, recording in RECORDED.items()}
    with served(build(resident, [*PRESETS, WEAK], {**recordings, WEAK.id: weak()})) as address:
        yield address


@pytest.fixture
def open_page(browser: Browser, url: str) -> Iterator[OpenPage]:
    with opener(browser, url) as open_one:
        yield open_one


def show(page: Page, title: str, first: str) -> None:
    if page.locator("#preset input").input_value() != title:
        choose(page, title)
    expect(page.locator(".rows:not(.invented) .row[data-field] .name").first).to_have_text(first)


def shipped(page: Page, name: str) -> list[FieldDecided]:
    preset = next(preset for preset in PRESETS if preset.id == name)
    show(page, preset.title, preset.schema.fields[0].name)
    return [event for event in RECORDED[name].events if isinstance(event, FieldDecided)]


def set_limit(page: Page, limit: float) -> None:
    part(page, "threshold.limit").evaluate(
        "(node, limit) => { node.value = limit; node.dispatchEvent(new Event('input', { bubbles: true })); }", limit
    )


def go_to(page: Page, ms: float) -> None:
    part(page, "replay.scrub").evaluate(
        "(node, ms) => { node.value = ms; node.dispatchEvent(new Event('input', { bubbles: true })); }", ms
    )


def signs(page: Page) -> dict[str, str]:
    """What stands below the share of each field."""
    rows = page.locator(".rows:not(.invented) .row[data-field]")
    return dict(
        rows.evaluate_all("rows => rows.map((row) => [row.dataset.field, row.querySelector('.signs').textContent])")
    )


@pytest.mark.parametrize("name", ["support_triage", "content_moderation", "time_zone"])
def test_the_count_and_the_marked_rows_are_those_of_the_shares(open_page: OpenPage, name: str) -> None:
    page = open_page()
    decided = shipped(page, name)
    for limit in (0.0, 0.5, 0.8, 0.95, 1.0):
        set_limit(page, limit)
        through = sum(event.probability >= limit for event in decided)
        goes = "goes" if through == 1 else "go"
        words = f"At {limit:.2f}, {through} of {len(decided)} {goes} through, {len(decided) - through} to a person."
        expect(part(page, "threshold.line")).to_have_text(words)
        assert part(page, "threshold.limit").get_attribute("aria-valuetext") == words
        marked = {field for field, text in signs(page).items() if "☞ to a person" in text}
        assert marked == {event.name for event in decided if event.probability < limit}, limit


def test_a_share_at_the_threshold_and_a_fixed_value_go_through(open_page: OpenPage) -> None:
    page = open_page()
    show(page, WEAK.title, "fixed")
    expect(part(page, "threshold.line")).to_have_text("At 0.80, 3 of 5 go through, 2 to a person.")
    set_limit(page, 1)
    expect(part(page, "threshold.line")).to_have_text("At 1.00, 1 of 5 goes through, 4 to a person.")
    assert signs(page)["fixed"] == ""


def test_weak_shares_carry_a_word_and_a_sign_in_the_row(open_page: OpenPage) -> None:
    page = open_page()
    show(page, WEAK.title, "fixed")
    assert signs(page) == {
        "fixed": "",
        "tie": "☞ to a person ≈ near tie",
        "low": "⚠ low mass",
        "at_the_limit": "",
        HOSTILE: "☞ to a person",
    }


def test_the_words_say_what_the_share_is_and_what_a_lower_bound_is(open_page: OpenPage) -> None:
    page = open_page()
    about = part(page, "threshold.about")
    expect(about).to_have_text("Decided by the share among the allowed choices, which is not calibrated.")
    show(page, WEAK.title, "fixed")
    expect(about).to_contain_text("was read best-first and is a lower bound")
    hostile = page.locator(".rows:not(.invented) .row[data-field]").last
    expect(hostile.locator(".percent")).to_have_text("≥ 70.0 %")
    assert page.evaluate("window.__pwned") is None
    assert page.locator(".board img").count() == 0


def test_it_follows_the_replay_and_counts_what_is_decided(open_page: OpenPage) -> None:
    page = open_page()
    show(page, WEAK.title, "fixed")
    line = part(page, "threshold.line")
    part(page, "replay.restart").click()
    expect(line).to_have_text("At 0.80: no field is decided yet.")
    assert set(signs(page).values()) == {""}
    for count, through, goes in [(1, 1, "goes"), (2, 1, "goes"), (3, 2, "go"), (4, 3, "go")]:
        go_to(page, count * STEP_MS + 0.01)
        words = f"At 0.80, {through} of the {count} decided so far {goes} through, {count - through} to a person."
        expect(line).to_have_text(words)
        assert sum("to a person" in text for text in signs(page).values()) == count - through
    part(page, "replay.full").click()
    expect(line).to_have_text("At 0.80, 3 of 5 go through, 2 to a person.")


def test_the_keyboard_moves_it_and_a_run_keeps_it(open_page: OpenPage) -> None:
    page = open_page()
    limit = page.get_by_role("slider", name="Threshold")
    limit.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(part(page, "threshold.line")).to_contain_text("At 0.83,")
    run_to_the_end(page)
    expect(part(page, "badge")).to_contain_text("LIVE", timeout=PATIENCE_MS)
    expect_phase(page, "done")
    expect(part(page, "threshold.line")).to_contain_text("At 0.83,")
    choose(page, WEAK.title)
    expect(part(page, "threshold.line")).to_have_text("At 0.83, 2 of 5 go through, 3 to a person.")


@pytest.mark.parametrize("width", [1440, 390])
def test_no_row_moves_when_the_threshold_does(open_page: OpenPage, width: int) -> None:
    page = open_page(viewport={"width": width, "height": 900})
    places = "rows => rows.map((row) => [row.offsetTop, row.offsetHeight])"
    rows = page.locator(".rows:not(.invented) .row[data-field]")
    set_limit(page, 0)
    before = rows.evaluate_all(places)
    set_limit(page, 1)
    assert any(signs(page).values())
    assert rows.evaluate_all(places) == before


def test_it_fits_a_phone(open_page: OpenPage) -> None:
    page = open_page(viewport={"width": 390, "height": 900})
    show(page, WEAK.title, "fixed")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    box = part(page, "threshold.limit").bounding_box()
    assert box and box["height"] >= 44 and box["x"] >= 0 and box["x"] + box["width"] <= 390
    for sign in page.locator(".board .signs [data-mark]").all():
        box = sign.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= 390
