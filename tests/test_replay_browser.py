"""The replay in Chromium: a finished run on one axis, moved by a clock of the test's own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from core.presets import Preset, load_presets
from core.recordings import Recording, load_recordings
from core.resident import Status
from core.trace import Event, FieldDecided, LaneEnded, RowCompared, RunStarted, TokenWritten
from core.ui.page import build
from tests.chromium import CHROMIUM, PATIENCE_MS, OpenPage, choose, expect_phase, opener, part, run_to_the_end
from tests.scripted import FOUR, MANY, PRESETS, READY, ScriptedEngine, ScriptedResident, served, told_by

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}"),
]

# Time passes when the test says so: `pass(ms)` moves the clock and draws one frame.
CLOCK = """
window.replayClock = {
  time: 0,
  frames: [],
  now() { return this.time; },
  frame(call) { this.frames.push(call); },
  pass(ms) { this.time += ms; this.frames.splice(0).forEach((call) => call()); },
};
"""


@pytest.fixture(scope="module")
def recording() -> Sequence[Event]:
    return told_by(ScriptedEngine(token_ms=8, pass_ms=200))


@pytest.fixture(scope="module")
def resident() -> ScriptedResident:
    return ScriptedResident(ScriptedEngine(token_ms=2, pass_ms=60), Status("loading", "converting", 0.4))


@pytest.fixture(scope="module")
def address(resident: ScriptedResident, recording: Sequence[Event]) -> Iterator[str]:
    with served(build(resident, PRESETS, {FOUR.id: recording})) as url:
        yield url


@pytest.fixture
def open_page(browser: Browser, address: str) -> Iterator[OpenPage]:
    """Opens a page that has a recording of its first preset."""
    with opener(browser, address, CLOCK) as open_one:
        yield open_one


def let_pass(page: Page, ms: float) -> None:
    page.evaluate("(ms) => window.replayClock.pass(ms)", ms)


def moment(page: Page) -> float:
    """Where the replay is, in milliseconds."""
    return float(part(page, "replay.scrub").evaluate("(node) => node.valueAsNumber"))


def go_to(page: Page, ms: float) -> None:
    part(page, "replay.scrub").evaluate(
        "(node, ms) => { node.value = ms; node.dispatchEvent(new Event('input', { bubbles: true })); }", ms
    )


def one(events: Sequence[Event], cls: type, lane: str) -> Any:
    return next(event for event in events if isinstance(event, cls) and event.lane == lane)


def length(events: Sequence[Event]) -> float:
    return max(event.ms for event in events if isinstance(event, LaneEnded))


def screen(page: Page) -> list[str]:
    """All that the board says of both lanes."""
    parts = ("pcd.clock", "ar.clock", "factor", "verdict", "pcd.raw", "ar.raw", "pcd.tokens", "ar.tokens", "changes")
    rows = page.locator(".board .row[data-field]").all_text_contents()
    return [part(page, name).text_content() or "" for name in parts] + rows


# --- the result first ---


def test_the_page_opens_on_a_finished_recording_while_the_model_still_loads(open_page: OpenPage, recording) -> None:
    page = open_page()
    expect_phase(page, "done")
    expect(page.locator("#model .notice")).to_contain_text("Loading the model")
    badge = part(page, "badge")
    run = next(event for event in recording if isinstance(event, RunStarted))
    expect(badge).to_contain_text("RECORDED")
    for words in (run.model, run.dtype, f"baseline mode {run.mode}", run.date[:10], run.device):
        expect(badge).to_contain_text(words)
    for event in recording:
        if isinstance(event, FieldDecided):
            assert page.locator(f'.row[data-field="{event.name}"] .pcd').text_content() == json.dumps(event.value)
    assert moment(page) == pytest.approx(length(recording), abs=0.01)


def test_a_live_run_turns_the_badge_and_can_be_replayed_too(open_page: OpenPage, resident: ScriptedResident) -> None:
    page = open_page()
    resident.status = READY
    try:
        expect(part(page, "badge")).to_contain_text("RECORDED")
        page.locator("#run").click()
        expect(part(page, "badge")).to_contain_text("LIVE", timeout=PATIENCE_MS)
        expect_phase(page, "done")
        at_the_end = screen(page)
        part(page, "replay.restart").click()
        assert moment(page) == 0
        assert screen(page) != at_the_end
        part(page, "replay.full").click()
        assert screen(page) == at_the_end
    finally:
        resident.status = Status("loading", "converting", 0.4)


def test_another_preset_shows_its_rows_and_the_recorded_one_its_recording_again(open_page: OpenPage) -> None:
    page = open_page()
    before = screen(page)
    choose(page, MANY.title)
    expect(page.locator(".rows:not(.invented) .row[data-field]")).to_have_count(len(MANY.schema))
    expect(part(page, "replay.play")).to_be_disabled()
    expect(part(page, "badge")).to_have_text("NOT RUN YET")
    choose(page, FOUR.title)
    expect(part(page, "badge")).to_contain_text("RECORDED")
    assert screen(page) == before


# --- moving in time ---


def test_a_replay_shows_what_the_trace_says_of_each_moment(open_page: OpenPage, recording) -> None:
    page = open_page()
    pcd, tokens = one(recording, LaneEnded, "pcd"), [e for e in recording if isinstance(e, TokenWritten)]
    for speed, share in (("1×", 1.0), ("½×", 0.5), ("1/10×", 0.1), ("1/50×", 0.02)):
        part(page, "replay.restart").click()
        page.get_by_role("button", name=speed, exact=True).click()
        expect(page.get_by_role("button", name=speed, exact=True)).to_have_attribute("aria-pressed", "true")
        part(page, "replay.play").click()
        for target in (pcd.ms / 2, tokens[0].ms + 0.5, pcd.ms + 1, tokens[len(tokens) // 2].ms + 0.01):
            let_pass(page, (target - moment(page)) / share)
            assert moment(page) == pytest.approx(target, abs=0.01), speed
            written = [token for token in tokens if token.ms <= target]
            expect(part(page, "ar.tokens"), speed).to_have_text(str(len(written)) if written else "–")
            shown = [
                text for text in page.locator(".rows:not(.invented) .row[data-field] .pcd").all_text_contents() if text
            ]
            assert len(shown) == (len(FOUR.schema) if target >= pcd.ms else 0), speed
            clock = float((part(page, "ar.clock").text_content() or "").strip().removesuffix("ms"))
            assert clock == pytest.approx(target, abs=0.06), speed
        let_pass(page, 2 * length(recording) / share)
        expect_phase(page, "done")
        expect(part(page, "replay.play"), speed).to_contain_text("Play")


def test_the_end_of_a_replay_is_the_screen_that_it_began_with(open_page: OpenPage, recording) -> None:
    page = open_page()
    whole = screen(page)
    for ms in (0, length(recording) / 3, length(recording) / 1.5, length(recording) / 10, length(recording)):
        go_to(page, ms)
    assert screen(page) == whole


def test_keys_move_the_replay_from_anywhere_but_an_editor(open_page: OpenPage, recording) -> None:
    page = open_page()
    page.locator("#title").click()
    page.keyboard.press("r")
    assert moment(page) == 0
    page.keyboard.press("ArrowRight")
    steps = sorted({event.ms for event in recording if event.kind in ("pass", "phase", "token", "field", "lane_end")})
    assert moment(page) == pytest.approx(next(ms for ms in steps if ms > 0), abs=0.01)
    page.keyboard.press("ArrowRight")
    assert moment(page) == pytest.approx([ms for ms in steps if ms > 0][1], abs=0.01)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert moment(page) == 0
    page.keyboard.press(" ")
    expect(part(page, "replay.play")).to_contain_text("Pause")
    let_pass(page, 50)
    page.keyboard.press(" ")
    expect(part(page, "replay.play")).to_contain_text("Play")
    let_pass(page, 50)
    assert moment(page) == pytest.approx(50, abs=0.01)
    page.locator("#context textarea").focus()
    page.keyboard.press("r")
    page.keyboard.press("ArrowRight")
    assert moment(page) == pytest.approx(50, abs=0.01)


def test_the_baseline_gets_no_verdict_before_the_other_lane_has_decided(open_page: OpenPage, recording) -> None:
    page = open_page()
    pcd, first = one(recording, LaneEnded, "pcd"), one(recording, TokenWritten, "ar")
    assert first.ms < pcd.ms, "the baseline writes before PCD is through"
    go_to(page, pcd.ms - 1)
    flags = page.locator(".rows:not(.invented) .row[data-field] .flags").all_text_contents()
    assert not any(word in " ".join(flags) for word in ("same", "differs"))


def test_captions_say_what_the_events_say(open_page: OpenPage, recording) -> None:
    page = open_page()
    pcd = one(recording, LaneEnded, "pcd")
    caption = part(page, "replay.caption")
    go_to(page, pcd.ms / 2)
    expect(caption).to_contain_text("for all 4 fields at once")
    go_to(page, pcd.ms + 1)
    expect(caption).to_contain_text(f"PCD has decided 4 fields in {pcd.passes} pass")
    written = sum(isinstance(event, TokenWritten) and event.ms <= pcd.ms + 1 for event in recording)
    expect(caption).to_contain_text(f"has written {written} token")


def test_one_frame_is_asked_for_at_a_time_whatever_is_pressed(open_page: OpenPage) -> None:
    page = open_page()
    part(page, "replay.restart").click()
    for name in ("1/50×", "½×", "1/10×"):
        part(page, "replay.play").click()
        page.get_by_role("button", name=name, exact=True).click()
        part(page, "replay.play").click()
    part(page, "replay.play").click()
    assert page.evaluate("window.replayClock.frames.length") == 1
    let_pass(page, 100)
    assert moment(page) == pytest.approx(10, abs=0.01)
    assert page.evaluate("window.replayClock.frames.length") == 1


def test_with_reduced_motion_play_shows_the_end_at_once(open_page: OpenPage, recording) -> None:
    page = open_page(reduced_motion="reduce")
    part(page, "replay.restart").click()
    part(page, "replay.play").click()
    expect_phase(page, "done")
    assert moment(page) == pytest.approx(length(recording), abs=0.01)


@pytest.mark.parametrize("width, theme", [(390, "dark"), (768, "light")])
def test_the_replay_fits_narrow_screens(open_page: OpenPage, width: int, theme: str) -> None:
    page = open_page(viewport={"width": width, "height": 900}, color_scheme=theme)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for button in page.locator(".board .replay button").all():
        box = button.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= width
        assert width > 720 or min(box["width"], box["height"]) >= 44


def test_a_stopped_run_has_no_replay(open_page: OpenPage, resident: ScriptedResident) -> None:
    page = open_page()
    resident.status = READY
    try:
        choose(page, MANY.title)
        expect(page.locator(".rows:not(.invented) .row[data-field]")).to_have_count(len(MANY.schema))
        page.locator("#run").click()
        expect_phase(page, "running")
        page.locator("#stop").click()
        expect_phase(page, "stopped")
        expect(part(page, "replay.play")).to_be_disabled()
        choose(page, FOUR.title)
        run_to_the_end(page)
        expect(part(page, "replay.play")).to_be_enabled()
    finally:
        resident.status = Status("loading", "converting", 0.4)


# --- what is shipped ---

SHIPPED = load_presets()
RECORDED = load_recordings(SHIPPED)


@pytest.fixture(scope="module")
def shipped_url(resident: ScriptedResident) -> Iterator[str]:
    with served(build(resident, SHIPPED, {name: recording.events for name, recording in RECORDED.items()})) as url:
        yield url


def test_each_recording_replays_to_the_screen_that_its_result_says(browser: Browser, shipped_url: str) -> None:
    with opener(browser, shipped_url) as open_one:
        page = open_one()
        for preset in SHIPPED:
            if preset is not SHIPPED[0]:
                choose(page, preset.title)
            replays_to_its_result(page, preset, RECORDED[preset.id])


def replays_to_its_result(page: Page, preset: Preset, recording: Recording) -> None:
    rows = page.locator(".rows:not(.invented) .row[data-field]")
    expect(rows).to_have_count(len(preset.schema))
    expect(rows.first.locator(".name")).to_have_text(preset.schema.fields[0].name)
    expect_phase(page, "done")
    for moment_of in (0, length(recording.events) / 2, length(recording.events)):
        go_to(page, moment_of)
    expect_phase(page, "done")
    decided = [event for event in recording.events if isinstance(event, FieldDecided)]
    assert rows.locator(".pcd").all_text_contents() == [json.dumps(e.value, ensure_ascii=False) for e in decided]
    for lane in ("pcd", "ar"):
        end = one(recording.events, LaneEnded, lane)
        assert part(page, f"{lane}.raw").text_content() == end.text
        assert part(page, f"{lane}.tokens").text_content() == str(end.tokens)
    last = {event.name: event for event in recording.events if isinstance(event, RowCompared) and not event.invented}
    assert page.locator(".rows:not(.invented) .row[data-field] .flags").count() == len(preset.schema)
    for name, row in last.items():
        shown = page.locator(f'.rows:not(.invented) .row[data-field="{name}"]')
        assert (shown.locator(".ar").text_content() or "").startswith(row.text)
        assert shown.get_attribute("data-verdict") == row.flags[-1]
    speed_up = recording.end.speed_up
    assert speed_up and part(page, "factor").text_content() == f"{speed_up:.{2 if speed_up < 10 else 1}f}×"
    assert recording.run.machine and recording.run.machine in (part(page, "badge").text_content() or "")
