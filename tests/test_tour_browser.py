"""The tour and the presenter's view in Chromium, as somebody with a keyboard or a clicker goes through them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from core.presets import Change, load_presets
from core.recordings import load_recordings
from core.trace import Event, FieldDecided, LaneEnded, PhaseEnded
from core.ui.page import build
from core.ui.tour import tour_of
from tests.chromium import CHROMIUM, PATIENCE_MS, OpenPage, choose, expect_phase, opener, part, run_to_the_end
from tests.scripted import HOSTILE, NASTY, ScriptedEngine, ScriptedResident, served, told_by
from tests.test_replay_browser import CLOCK, go_to, let_pass, moment, screen
from tests.test_tour import ENGINE, changed

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}"),
]

PRESETS = load_presets()
RECORDED = {name: recording.events for name, recording in load_recordings(PRESETS).items()}
MAIN = "support_triage"
TOUR = tour_of(PRESETS, RECORDED)
assert TOUR is not None
CHANGE = f"Change one fact: {TOUR.change.label if TOUR.change else ''}"
TITLES = ["The result first", "Your bet", "Slow motion", CHANGE, "Where it pays", "Your turn"]
BEATS = {event.phase: event.ms for event in RECORDED[MAIN] if isinstance(event, PhaseEnded) and event.lane == "pcd"}
PCD = next(event for event in RECORDED[MAIN] if isinstance(event, LaneEnded) and event.lane == "pcd")
AR = next(event for event in RECORDED[MAIN] if isinstance(event, LaneEnded) and event.lane == "ar")
EDGE = 0.002
UNCONNECTED = ("ERR_INTERNET_DISCONNECTED", "Failed to fetch", "Connection errored out")


@pytest.fixture(scope="module")
def resident() -> ScriptedResident:
    return ScriptedResident(ScriptedEngine(token_ms=1, pass_ms=20))


@pytest.fixture(scope="module")
def address(resident: ScriptedResident) -> Iterator[str]:
    with served(build(resident, PRESETS, RECORDED)) as url:
        yield url


@pytest.fixture
def opened(browser: Browser, address: str) -> Iterator[OpenPage]:
    # Gradio's own connection complains of the network that a test takes away.
    with opener(browser, address, CLOCK, UNCONNECTED) as open_any:

        def open_one(url: str, **options: Any) -> Page:
            page = open_any(address=url, **options)
            expect_phase(page, "done")
            return page

        yield open_one


@pytest.fixture
def open_page(opened: OpenPage, address: str) -> OpenPage:
    return lambda **options: opened(address, **options)


@pytest.fixture
def slow(resident: ScriptedResident) -> Iterator[None]:
    """A run is long enough to be seen and stopped."""
    resident.engine.token_ms, resident.engine.pass_ms = 20, 200
    yield
    resident.engine.token_ms, resident.engine.pass_ms = 1, 20


def tour_on(page: Page) -> Page:
    page.keyboard.press("t")
    expect(part(page, "tour.title")).to_have_text(TITLES[0])
    return page


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def step(page: Page, number: int) -> None:
    """Forward to a step, from whichever is open."""
    count = part(page, "tour.count")
    while (at := int((count.text_content() or "").split()[1])) < number:
        page.keyboard.press("ArrowRight" if at % 2 else "PageDown")
    expect(count).to_have_text(f"Step {number} of 6")


def rows(page: Page) -> Locator:
    return page.locator(".rows:not(.invented) .row[data-field]")


def options(page: Page) -> list[str]:
    return part(page, "tour.options").locator("span").all_text_contents()


def outcomes(page: Page) -> list[str]:
    return part(page, "tour.options").locator("button").evaluate_all("all => all.map((one) => one.dataset.outcome)")


# --- the whole of it ---


def test_the_whole_tour_goes_by_keyboard_alone_with_the_network_cut(open_page: OpenPage) -> None:
    page = open_page()
    before = screen(page)
    part(page, "replay.play").focus()
    tour_on(page)
    page.context.set_offline(True)
    assert page.evaluate("document.activeElement.dataset.part") == "tour"
    text = part(page, "tour.text")
    main = next(point for point in TOUR.points if point.id == MAIN)
    headline = f"{AR.ms / PCD.ms:.2f}× against mode {main.mode}, n = 1, {main.model} on {main.device}"
    for number in (f"{PCD.ms:.1f} ms", f"{AR.ms / 1000:.2f} s", "28 fields", headline):
        expect(text).to_contain_text(number)
    press(page, "PageDown", "1", " ")
    expect(part(page, "tour.said")).to_contain_text(f"At {TOUR.bet.answer} of {TOUR.bet.fields}")
    press(page, "ArrowRight", " ", " ")
    assert moment(page) == pytest.approx(BEATS["plan"], abs=0.01)
    press(page, "ArrowRight", "1", " ", "ArrowRight", "1", " ", "ArrowRight")
    expect(part(page, "tour.title")).to_have_text(TITLES[5])
    for limit in (
        "Only bounded fields",
        "Not guaranteed: that it is right",
        "The factor depends on",
        "One user, batch 1",
    ):
        expect(part(page, "tour.notes")).to_contain_text(limit)
    for title in reversed(TITLES[:-1]):
        page.keyboard.press("PageUp")
        expect(part(page, "tour.title")).to_have_text(title)
    page.keyboard.press("ArrowLeft")
    expect(part(page, "tour.title")).to_have_text(TITLES[0])
    page.keyboard.press("Escape")
    expect(part(page, "tour")).to_be_hidden()
    assert screen(page) == before, "the page's own recording is back"
    assert page.evaluate("document.activeElement.dataset.part") == "replay.play"
    expect(page.get_by_role("button", name="1×", exact=True)).to_have_attribute("aria-pressed", "true")
    tour_on(page)  # what it needs is still there


def test_it_never_starts_itself_and_its_buttons_do_what_its_keys_do(open_page: OpenPage) -> None:
    page = open_page()
    expect(part(page, "tour")).to_be_hidden()
    page.get_by_role("button", name="Tour").click()
    for title in TITLES:
        expect(part(page, "tour.title")).to_have_text(title)
        expect(part(page, "tour.count")).to_have_text(f"Step {TITLES.index(title) + 1} of 6")
        part(page, "tour.next").click()
    expect(part(page, "tour")).to_be_hidden()
    page.get_by_role("button", name="Tour").click()
    part(page, "tour.skip").click()
    expect(part(page, "tour")).to_be_hidden()


def test_a_control_keeps_its_keys(open_page: OpenPage) -> None:
    page = open_page()
    field = page.locator("#context textarea")
    field.fill("")
    for key in ("t", "p", "l", "?"):
        field.press(key)
    expect(field).to_have_value("tpl?")
    expect(part(page, "tour")).to_be_hidden()
    assert page.evaluate("document.body.dataset.presenting") is None
    page.locator("#title").click()
    tour_on(page)
    field.press("ArrowRight")
    field.press("1")
    expect(field).to_have_value("tpl?1")
    expect(part(page, "tour.title")).to_have_text(TITLES[0])


def test_where_the_page_is_not_connected_it_says_so_and_opens_later(open_page: OpenPage) -> None:
    page = open_page()
    page.context.set_offline(True)
    page.keyboard.press("t")
    expect(part(page, "tour.title")).to_have_text("The tour could not be loaded")
    page.keyboard.press("Escape")
    expect(part(page, "tour")).to_be_hidden()
    page.context.set_offline(False)
    tour_on(page)


def test_a_tour_that_is_left_while_it_loads_and_opened_again_is_one_tour(open_page: OpenPage) -> None:
    page = open_page()
    page.evaluate("""() => { const ask = window.fetch;
        window.fetch = (...given) => new Promise((done) => setTimeout(() => done(ask(...given)), 300)); }""")
    for key in ("t", "Escape", "t"):
        page.keyboard.press(key)
    expect(part(page, "tour.title")).to_have_text(TITLES[0])
    page.wait_for_timeout(800)  # for the answer to the opening that was left
    expect(part(page, "tour")).to_be_visible()
    page.keyboard.press("Escape")
    expect(part(page, "tour")).to_be_hidden()
    expect(page.locator(".board")).not_to_have_attribute("data-away", "true")
    page.keyboard.press("t")
    expect(part(page, "tour.title")).to_have_text(TITLES[0])


def test_without_recordings_there_is_no_tour(opened: OpenPage, browser: Browser, resident: ScriptedResident) -> None:
    with served(build(resident, (NASTY,))) as url:
        page = browser.new_context().new_page()
        page.goto(url)
        expect(page.locator(".board .row[data-field]").first).to_be_visible(timeout=PATIENCE_MS)
        expect(part(page, "tour.open")).to_be_hidden()
        page.keyboard.press("t")
        expect(part(page, "tour")).to_be_hidden()
        page.context.close()


# --- step by step ---


def test_the_first_step_shows_the_end_and_plays_on_demand(open_page: OpenPage) -> None:
    page = tour_on(open_page())
    assert moment(page) == pytest.approx(AR.ms, abs=0.01)
    page.keyboard.press(" ")
    let_pass(page, 1000)
    assert moment(page) == pytest.approx(1000, abs=0.01)
    page.keyboard.press(" ")
    let_pass(page, 1000)
    assert moment(page) == pytest.approx(1000, abs=0.01)


def test_flags_are_hidden_until_the_bet_is_revealed(open_page: OpenPage) -> None:
    page = tour_on(open_page())
    step(page, 2)
    assert options(page) == [str(option) for option in TOUR.bet.options]
    right = TOUR.bet.options.index(TOUR.bet.answer)
    expect(rows(page).first.locator(".flags")).to_be_hidden()
    part(page, "tour.method").click()
    expect(part(page, "method.text").get_by_text("The baseline's text:")).to_be_hidden()
    part(page, "tour.method").click()
    part(page, "tour").focus()
    assert outcomes(page) == [""] * len(TOUR.bet.options)
    wrong = (right + 1) % len(TOUR.bet.options)
    page.keyboard.press(str(right + 1))
    page.keyboard.press(str(wrong + 1))
    assert part(page, "tour.options").locator('[aria-pressed="true"]').count() == 1
    page.keyboard.press(" ")
    expect(rows(page).first.locator(".flags")).to_be_visible()
    assert outcomes(page)[right] == "right"
    assert outcomes(page)[wrong] == "wrong"
    said = part(page, "tour.said")
    for flag, count in TOUR.bet.counts.items():
        words = f"{count} {flag}"
        expect(said).not_to_contain_text(words) if flag == "same" else expect(said).to_contain_text(words)
    expect(said).to_contain_text("Agreement is not correctness")
    expect(said).to_contain_text(f"PCD has {TOUR.bet.pcd_right} right, the baseline {TOUR.bet.ar_right}")
    press(page, "ArrowLeft", "ArrowRight")
    assert outcomes(page)[right] == "right", "what was revealed stays so"


def test_an_option_is_picked_by_a_click_too(open_page: OpenPage) -> None:
    page = tour_on(open_page())
    step(page, 2)
    part(page, "tour.options").locator("button").nth(2).click()
    expect(part(page, "tour.options").locator("button").nth(2)).to_have_attribute("aria-pressed", "true")


def test_slow_motion_pauses_itself_where_pcd_begins_something_else(open_page: OpenPage) -> None:
    page = tour_on(open_page())
    step(page, 3)
    assert moment(page) == 0
    expect(page.get_by_role("button", name="1/50×", exact=True)).to_have_attribute("aria-pressed", "true")
    stops = [*(BEATS[name] + EDGE for name in ("plan", "head + context", "tree", "scoring")), PCD.ms]
    words = ["the prompt", "the tree pass", "the forks", "the assembly", "PCD is through"]
    deeds = ["", "reading", "scoring", "assembly", ""]
    passes = ["–", "1", "2", "2", "2"]
    at = 0.0
    for stop, word, deed, count in zip(stops, words, deeds, passes, strict=True):
        page.keyboard.press(" ")
        let_pass(page, 50 * (stop - at) / 2)
        assert moment(page) == pytest.approx((at + stop) / 2, abs=0.01)
        let_pass(page, 50 * (stop - at))  # longer than is left
        assert moment(page) == pytest.approx(stop, abs=0.01)
        let_pass(page, 10_000)
        assert moment(page) == pytest.approx(stop, abs=0.01), "it stands"
        expect(part(page, "tour.text")).to_contain_text(word)
        expect(page.locator(".board")).to_have_attribute("data-doing", deed)
        expect(part(page, "pcd.passes")).to_have_text(count)
        at = stop
    assert len([value for value in rows(page).locator(".pcd").all_text_contents() if value]) == 28
    page.keyboard.press(" ")
    expect(part(page, "tour.title")).to_have_text(TITLES[3])


def test_a_second_press_goes_to_the_pause_at_once(open_page: OpenPage) -> None:
    page = tour_on(open_page())
    step(page, 3)
    for stop in (BEATS["plan"], BEATS["head + context"], BEATS["tree"]):
        press(page, " ", " ")
        assert moment(page) == pytest.approx(stop, abs=0.01)


def test_with_reduced_motion_the_tour_steps_and_never_plays(open_page: OpenPage) -> None:
    page = tour_on(open_page(reduced_motion="reduce"))
    step(page, 3)
    for stop in (BEATS["plan"], BEATS["head + context"], BEATS["tree"]):
        page.keyboard.press(" ")
        assert moment(page) == pytest.approx(stop, abs=0.01)
    assert page.evaluate("window.replayClock.frames.length") == 0


def test_a_changed_fact_is_guessed_and_then_shown(open_page: OpenPage) -> None:
    page = tour_on(open_page())
    step(page, 4)
    change = TOUR.change
    assert change
    expect(part(page, "tour.text")).to_contain_text(change.was)
    expect(part(page, "tour.text")).to_contain_text(change.now)
    assert options(page) == list(change.options)
    first = change.turns[0]
    cell = page.locator(f'.rows:not(.invented) .row[data-field="{first.name}"] .pcd')
    expect(cell).to_have_text(first.was)
    turned = {turn.name for turn in change.turns}
    for i, name in enumerate(change.options):
        if name in turned:
            page.keyboard.press(str(i + 1))
    page.keyboard.press(" ")
    assert outcomes(page) == ["right" if name in turned else "no" for name in change.options]
    expect(cell).to_contain_text(first.now)
    expect(part(page, "changes")).to_contain_text(f"{len(change.turns)} of 28 fields changed")
    page.keyboard.press("PageUp")
    expect(page.locator(".row .was:not(:empty)")).to_have_count(0)
    page.keyboard.press("PageDown")
    for turn in change.turns:
        expect(part(page, "tour.notes")).to_contain_text(f"{turn.name}: {turn.was} → {turn.now}")


def test_each_recorded_run_is_a_bar_with_its_own_ratio(open_page: OpenPage) -> None:
    page = tour_on(open_page())
    step(page, 5)
    bars = part(page, "tour.points").locator("button")
    expect(bars).to_have_count(len(TOUR.points))
    hidden = [point.longest == 255 for point in TOUR.points]
    assert [text == "?" for text in bars.locator("b").all_text_contents()] == hidden
    page.keyboard.press("1")
    page.keyboard.press(" ")
    most = max(point.speed_up for point in TOUR.points)
    asked = TOUR.points[-1]
    expect(part(page, "tour.said")).to_contain_text(f"{asked.speed_up:.2f}× against mode {asked.mode}")
    expect(part(page, "tour.said")).to_contain_text(f"{asked.model} on {asked.device}.")
    for point, bar in zip(TOUR.points, bars.all(), strict=True):
        expect(bar.locator("b")).to_have_text(f"{point.speed_up:.2f}×")
        share = float(bar.locator("i").evaluate("(node) => node.style.getPropertyValue('--share')"))
        assert share == pytest.approx(point.speed_up / most, abs=1e-6)
        lead = "level" if abs(point.ar_ms - point.pcd_ms) <= 0.05 * max(point.ar_ms, point.pcd_ms) else "ahead"
        expect(bar.locator("small")).to_contain_text(lead)
    assert part(page, "ar.clock").text_content().strip().startswith(f"{TOUR.points[-1].ar_ms:.1f}")
    bars.nth(1).click()
    expect(rows(page)).to_have_count(TOUR.points[1].fields)
    expect(part(page, "tour.title")).to_have_text(TITLES[4])


def test_without_a_changed_recording_the_step_offers_the_live_way(opened: OpenPage, resident: ScriptedResident) -> None:
    alone = {name: events for name, events in RECORDED.items() if name != f"{MAIN}_changed"}
    with served(build(resident, PRESETS, alone)) as url:
        page = tour_on(opened(url))
        step(page, 4)
        expect(part(page, "tour.text")).to_contain_text("press Run")
        expect(part(page, "tour.options")).to_be_hidden()
        page.keyboard.press(" ")
        expect(part(page, "tour.title")).to_have_text(TITLES[4])
        page.context.close()


# --- beside runs ---


def test_the_tour_waits_for_a_run_and_a_run_ends_the_tour(open_page: OpenPage, resident: ScriptedResident) -> None:
    page = tour_on(open_page())
    step(page, 6)
    button = part(page, "tour.open")
    with resident.engine.device:
        page.keyboard.press(" ")  # Run live
        expect_phase(page, "waiting")
        expect(part(page, "tour")).to_be_hidden()
        expect(button).to_be_disabled()
        expect(button.locator("span").nth(1)).to_be_visible()
        expect(button.locator("span").nth(1)).to_have_text("after this run")
        page.keyboard.press("t")
        expect(part(page, "tour")).to_be_hidden()
    expect_phase(page, "done")
    expect(part(page, "badge")).to_contain_text("LIVE")
    race = resident.engine.races[-1]
    assert part(page, "ar.raw").text_content() == race.trace("lane_end", "ar")[0].text
    expect(button).to_be_enabled()
    tour_on(page)
    page.evaluate("window.events.length = 0")
    page.keyboard.press("Control+Enter")
    page.wait_for_function("window.events.some(({ kind }) => kind === 'end')", timeout=PATIENCE_MS)
    expect(part(page, "badge")).to_contain_text("LIVE")
    expect(part(page, "tour")).to_be_hidden()
    expect_phase(page, "done")
    again = resident.engine.races[-1]
    assert again is not race
    for lane in ("pcd", "ar"):
        [end] = again.trace("lane_end", lane)
        expect(part(page, f"{lane}.clock")).to_contain_text(f"{end.ms:.1f}")
        assert part(page, f"{lane}.raw").text_content() == end.text


def test_another_preset_ends_the_tour_and_is_what_is_shown(open_page: OpenPage) -> None:
    page = tour_on(open_page())
    choose(page, next(preset.title for preset in PRESETS if preset.id == "fintech_fraud"))
    expect(part(page, "tour")).to_be_hidden()
    expect(rows(page)).to_have_count(4)
    expect(rows(page).first.locator(".name")).to_have_text("fraud_pattern")
    tour_on(page)


def test_one_key_goes_from_the_live_run_to_the_recorded_one_and_back(open_page: OpenPage) -> None:
    page = open_page()
    recorded = screen(page)
    page.keyboard.press("l")
    assert screen(page) == recorded, "there is no live run yet"
    run_to_the_end(page)
    expect(part(page, "badge")).to_contain_text("LIVE", timeout=PATIENCE_MS)
    expect_phase(page, "done")
    live = screen(page)
    page.locator("#title").click()
    page.keyboard.press("l")
    expect(part(page, "badge")).to_contain_text("RECORDED")
    assert screen(page) == recorded
    page.keyboard.press("l")
    expect(part(page, "badge")).to_contain_text("LIVE")
    assert screen(page) == live


def test_the_recorded_run_can_be_shown_while_a_live_one_waits_and_runs(
    open_page: OpenPage, resident: ScriptedResident
) -> None:
    page = open_page()
    recorded = screen(page)
    with resident.engine.device:
        page.locator("#run").click()
        expect_phase(page, "waiting")
        page.locator("#title").click()
        page.keyboard.press("l")
        assert screen(page) == recorded
        expect(part(page, "tour.open")).to_be_disabled()
    assert resident.engine.races[-1].over.wait(PATIENCE_MS / 1000)
    expect(page.locator("#run")).to_be_enabled(timeout=PATIENCE_MS)
    expect(part(page, "tour.open")).to_be_enabled(timeout=PATIENCE_MS)
    assert screen(page) == recorded
    assert page.locator("#click-to-screen").text_content() == "", "another run was on the screen"
    page.keyboard.press("l")
    expect(part(page, "badge")).to_contain_text("LIVE")
    assert part(page, "ar.raw").text_content() == resident.engine.races[-1].trace("lane_end", "ar")[0].text


# --- what PCD does to the rows, in any replay ---


def test_in_the_tree_pass_all_rows_are_read_at_once_and_none_moves(open_page: OpenPage) -> None:
    page = open_page()
    choose(page, next(preset.title for preset in PRESETS if preset.id == MAIN))
    expect(rows(page)).to_have_count(28)
    told = "node => getComputedStyle(node, '::before').content"
    boxes = "nodes => nodes.map((node) => Object.values(node.getBoundingClientRect().toJSON()))"
    at_the_end = rows(page).evaluate_all(boxes)
    for ms, words in (
        (BEATS["plan"] / 2, "none"),
        (BEATS["head + context"] / 2, "none"),
        (BEATS["head + context"] + 1, "reading"),
        (BEATS["tree"] - 1, "reading"),
        (BEATS["tree"] + 0.5, "scoring"),
        (PCD.ms + 1, "none"),
    ):
        go_to(page, ms)
        shown = [cell.evaluate(told) for cell in rows(page).locator(".pcd .value").all()]
        assert all(words in content for content in shown) if words != "none" else set(shown) <= {"none", '""'}
        assert rows(page).evaluate_all(boxes) == at_the_end
    go_to(page, BEATS["tree"] + 0.5)
    forks = sum(event.levels for event in RECORDED[MAIN] if isinstance(event, FieldDecided))
    expect(part(page, "replay.caption")).to_contain_text(f"{forks} forks on the paths of the 28 values")


# --- the presenter's view ---

SIZES = """
() => {
  const found = [];
  const walker = document.createTreeWalker(document.querySelector('.board'), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const isDrawn = walker.currentNode.data.trim() && node.checkVisibility({ visibilityProperty: true });
    const size = parseFloat(getComputedStyle(node).fontSize);
    if (isDrawn && !node.closest('.live')) found.push([node.outerHTML.slice(0, 90), size]);
  }
  return found;
}
"""


@pytest.mark.parametrize("width, height, theme", [(1280, 720, "light"), (1920, 1080, "dark")])
def test_all_letters_are_large_and_the_tour_needs_no_scrolling(
    open_page: OpenPage, width: int, height: int, theme: str
) -> None:
    page = open_page(viewport={"width": width, "height": height}, color_scheme=theme)
    page.keyboard.press("p")
    tour_on(page)
    for number in range(1, 7):
        step(page, number)
        for reveal in (False, True):
            if reveal and number in (2, 4, 5):
                press(page, "1", " ")
            sizes = page.evaluate(SIZES)
            assert len(sizes) > 20
            assert [one for one in sizes if one[1] < 24] == []
            for lane in ("pcd", "ar"):
                clock = part(page, f"{lane}.clock").locator("span")
                assert clock.evaluate("(node) => parseFloat(getComputedStyle(node).fontSize)") >= 64
                box = clock.bounding_box()
                assert box and 0 <= box["y"] and box["y"] + box["height"] < height / 3
            card = part(page, "tour").bounding_box()
            assert card and card["y"] > 0 and card["y"] + card["height"] <= height
            row = rows(page).first.bounding_box()
            assert row and row["y"] >= card["y"] + card["height"] and row["y"] + row["height"] <= height + 1
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_view_leaves_settings_and_editors_out_and_gives_all_back(open_page: OpenPage) -> None:
    page = open_page()
    page.locator("#context textarea").fill("My own text.")
    page.locator("#temperature input").fill("0.7")
    page.locator("#run").focus()
    scrolled = page.evaluate("scrollY")
    page.keyboard.press("p")
    for hidden in ("#settings", "#context", "#schema", "#title", "#preset"):
        expect(page.locator(hidden)).to_be_hidden()
    expect(part(page, "replay.play")).to_be_visible()
    for _ in range(12):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement === document.body || !!document.activeElement.closest('.board')")
    part(page, "present").focus()
    page.keyboard.press("Escape")
    assert page.evaluate("document.body.dataset.presenting") is None
    expect(page.locator("#run")).to_be_focused()
    assert page.evaluate("scrollY") == scrolled
    expect(page.locator("#context textarea")).to_have_value("My own text.")
    expect(page.locator("#temperature input")).to_have_value("0.7")
    page.keyboard.press("p")
    page.keyboard.press("p")
    expect(page.locator("#context textarea")).to_be_visible()
    page.get_by_role("button", name="Present").click()
    expect(page.locator("#context textarea")).to_be_hidden()
    page.get_by_role("button", name="Present").click()
    expect(page.locator("#context textarea")).to_be_visible()


def test_escape_leaves_the_tour_first_and_stops_a_run_before_it_leaves_the_view(
    open_page: OpenPage, slow: None
) -> None:
    page = open_page()
    page.keyboard.press("p")
    tour_on(page)
    page.keyboard.press("Escape")
    expect(part(page, "tour")).to_be_hidden()
    assert page.evaluate("document.body.dataset.presenting") == ""
    page.keyboard.press("Control+Enter")
    expect_phase(page, "running")
    expect_phase(page, "done")
    expect(part(page, "badge")).to_contain_text("LIVE")
    assert [one for one in page.evaluate(SIZES) if one[1] < 24] == []
    expect(page.locator("#run")).to_be_enabled()
    page.keyboard.press("Control+Enter")
    expect_phase(page, "running")
    page.keyboard.press("Escape")
    expect_phase(page, "stopped")
    assert page.evaluate("document.body.dataset.presenting") == ""
    expect(page.locator("#run")).to_be_enabled()
    page.keyboard.press("Escape")
    assert page.evaluate("document.body.dataset.presenting") is None


def test_a_question_mark_lists_the_keys(open_page: OpenPage) -> None:
    page = open_page()
    page.keyboard.press("?")
    keys = part(page, "keys")
    expect(keys).to_be_visible()
    for word in ("Ctrl", "Space", "R", "L", "T", "P", "Esc"):
        expect(keys).to_contain_text(word)
    page.keyboard.press("?")
    expect(keys).to_be_hidden()
    press(page, "p", "?")
    expect(keys).to_be_visible()
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    assert page.evaluate("document.body.dataset.presenting") == ""


# --- for everyone ---


def test_the_tour_fits_a_phone(open_page: OpenPage) -> None:
    page = open_page(viewport={"width": 390, "height": 844})
    part(page, "tour.open").click()
    for title in TITLES:
        expect(part(page, "tour.title")).to_have_text(title)
        if part(page, "tour.options").is_visible():
            part(page, "tour.options").locator("button").first.click()
            part(page, "tour.deed").click()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for button in part(page, "tour").locator("button:visible").all():
            box = button.bounding_box()
            assert box and box["x"] >= 0 and box["x"] + box["width"] <= 390
            assert min(box["width"], box["height"]) >= 44
        part(page, "tour.next").click()


def test_hostile_text_is_inert_in_every_step(opened: OpenPage, resident: ScriptedResident) -> None:
    title = f"{HOSTILE} ${{7*7}} {{{{x}}}} </script> \u202e<b>"
    change = Change(title, NASTY.context, f"{HOSTILE} otherwise.")
    preset = replace(NASTY, title=title, expected={HOSTILE: True}, change=change)
    events: Sequence[Event] = told_by(ENGINE, NASTY)
    names = [event.name for event in events if isinstance(event, FieldDecided)]
    again = changed(events, dict.fromkeys(names, HOSTILE))
    recordings = {NASTY.id: events, f"{NASTY.id}_changed": again}
    with served(build(resident, (preset,), recordings)) as url:
        page = tour_on(opened(url))
        expect(part(page, "tour.text")).to_contain_text("</script> \\u202e<b>")
        for number in range(1, 7):
            step(page, number)
            if number in (2, 4, 5):
                press(page, "1", " ")
                expect(part(page, "tour.deed")).to_be_hidden()
            assert part(page, "tour").locator("img, script, b b, p b img").count() == 0
        press(page, "PageUp", "PageUp")
        expect(part(page, "tour.count")).to_have_text("Step 4 of 6")
        expect(part(page, "tour.notes")).to_contain_text(json.dumps(HOSTILE, ensure_ascii=False)[:30])
        assert page.evaluate("window.__pwned") is None
        page.context.close()
