"""The page for everyone, in Chromium: axe-core, the keyboard, what a screen reader is told, phones, and stillness."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from core.trace import Event, LaneEnded
from core.ui.page import build
from tests.chromium import CHROMIUM, PATIENCE_MS, OpenPage, choose, expect_phase, opener, part
from tests.relay import Relay, relayed
from tests.scripted import FOUR, MANY, PRESETS, READY, ScriptedEngine, ScriptedResident, served, told_by
from tests.test_states_browser import BROKEN, IMPATIENT, start_writing

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}"),
]

WIDTHS, THEMES = (1440, 390), ("light", "dark")

#: Whatever can be pressed or typed into, and is not gradio's own inside.
PRESSABLE = """
:is(#run, #stop, #benchmark-start, #benchmark-cancel, #benchmark-json, #benchmark-csv, #settings label,
    #benchmark-choices label, #preset input, #temperature input, #benchmark-rounds input, [role="tab"],
    .board button, .board input, .board .row[data-field], .board [role="button"], .board select, .board summary,
    .board textarea, .board a, #connection button)"""
#: The same press is on the member's row, which is large enough.
INLINE = ".raw [data-field]"


@pytest.fixture(scope="module")
def engine() -> ScriptedEngine:
    return ScriptedEngine(token_ms=2, pass_ms=60)


@pytest.fixture(scope="module")
def recording() -> Sequence[Event]:
    return told_by(ScriptedEngine(token_ms=1, pass_ms=20))


@pytest.fixture(scope="module")
def url(engine: ScriptedEngine, recording: Sequence[Event]) -> Iterator[str]:
    with served(build(ScriptedResident(engine), PRESETS, {FOUR.id: recording})) as address:
        yield address


@pytest.fixture
def open_page(browser: Browser, url: str) -> Iterator[OpenPage]:
    with opener(browser, url) as open_any:
        yield lambda *args, **options: sized(open_any, *args, **options)


def sized(open_any: OpenPage, width: int = 1440, theme: str = "light", height: int = 900, **options: Any) -> Page:
    page = open_any(f"?__theme={theme}", viewport={"width": width, "height": height}, **options)
    expect(page.locator("#model .notice")).to_have_text(READY.message)
    return page


def run_live(page: Page) -> None:
    page.locator("#run").click()
    expect(part(page, "badge")).to_contain_text("LIVE", timeout=PATIENCE_MS)
    expect_phase(page, "done")


# --- axe-core ---


def violations(page: Page) -> list[str]:
    """What axe-core finds, as "rule: selector, what is wrong"."""
    page.mouse.move(0, 0)
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [f"{rule['id']}: {node['target']}, {node['failureSummary']}" for rule in found for node in rule["nodes"]]


def at_rest(page: Page) -> None:
    expect_phase(page, "done")
    expect(part(page, "badge")).to_contain_text("RECORDED")


def after_a_run(page: Page) -> None:
    run_live(page)
    expect(page.locator(".invented .row[data-field]").first).to_be_attached()


def in_a_replay(page: Page) -> None:
    part(page, "replay.restart").click()
    for _ in range(5):
        part(page, "replay.forward").click()


def after_a_failure(page: Page) -> None:
    page.locator("#context textarea").fill(" ")
    page.locator("#run").click()
    expect_phase(page, "failed")


def with_the_inspector(page: Page) -> None:
    page.locator(".board .row[data-field]").nth(1).click()
    expect(part(page, "inspector")).to_be_visible()


def with_a_wrong_schema(page: Page) -> None:
    page.locator("#schema .cm-content").click()
    page.keyboard.insert_text("{")
    expect(page.locator("#verdict .notice")).to_have_attribute("data-tone", "error")


def on_the_benchmark_tab(page: Page) -> None:
    page.get_by_role("tab", name="Benchmark").click()
    expect(page.locator("#benchmark-start")).to_be_visible()


SCREENS = (
    at_rest,
    with_the_inspector,
    in_a_replay,
    after_a_run,
    with_a_wrong_schema,
    after_a_failure,
    on_the_benchmark_tab,
)


def expect_connection(page: Page, state: str, words: str) -> None:
    bar = page.locator("#connection")
    expect(bar).to_contain_text(words, timeout=PATIENCE_MS)
    expect(bar).to_have_attribute("data-state", state)


def with_a_lost_connection(page: Page, network: Relay, engine: ScriptedEngine) -> None:
    network.cut()
    page.wait_for_timeout(1600)  # of silence, after which a press is worth a question
    page.locator("#title").click()
    expect_connection(page, "lost", "Connection lost: the server does not answer.")


def with_the_connection_back(page: Page, network: Relay, engine: ScriptedEngine) -> None:
    network.mend()
    expect_connection(page, "back", "Connected again.")


def with_a_run_that_fell_silent(page: Page, network: Relay, engine: ScriptedEngine) -> None:
    start_writing(page, engine)
    network.strand()
    expect_connection(page, "silent", "nothing more of this run arrives")
    expect(page.get_by_role("button", name="Load the page anew")).to_be_visible()


def after_it_was_loaded_anew(page: Page, network: Relay, engine: ScriptedEngine) -> None:
    page.get_by_role("button", name="Load the page anew").click()
    expect_connection(page, "back", "What you had typed is back")
    expect(page.get_by_role("button", name="Close")).to_be_visible()


#: In this order: each goes on from the one before.
BROKEN_OFF = (
    with_a_lost_connection,
    with_the_connection_back,
    with_a_run_that_fell_silent,
    after_it_was_loaded_anew,
)


@pytest.fixture
def unhurried(engine: ScriptedEngine) -> Iterator[ScriptedEngine]:
    """The engine as it was, and nobody's run, at the end."""
    token_ms, pass_ms = engine.token_ms, engine.pass_ms
    yield engine
    engine.token_ms, engine.pass_ms = token_ms, pass_ms
    for race in engine.races:
        race.cancel()
        assert race.over.wait(10)


def in_each_panel(page: Page) -> Iterator[str]:
    """The names of the panels, each while it is open."""
    for button in page.locator(".board [data-panel]:visible").all():
        name = button.get_attribute("data-panel") or ""
        button.click()
        expect(part(page, name)).to_be_visible()
        yield name


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing_on_any_screen_nor_in_any_panel(open_page: OpenPage, width: int, theme: str) -> None:
    page = open_page(width, theme, reduced_motion="reduce")  # a colour on its way to another is neither
    found = {}
    for name in in_each_panel(page):
        found[f"panel {name}"] = violations(page)
    assert len(found) > 2
    page.locator(f'.board [data-panel="{name}"]').click()
    expect(part(page, name)).to_be_hidden()
    for screen in SCREENS:
        screen(page)
        found[screen.__name__] = violations(page)
    assert {name: those for name, those in found.items() if those} == {}


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing_where_the_connection_breaks(
    browser: Browser, url: str, unhurried: ScriptedEngine, width: int, theme: str
) -> None:
    found = {}
    with relayed(url) as network, opener(browser, network.address, IMPATIENT, BROKEN) as open_any:
        page = sized(open_any, width, theme, reduced_motion="reduce")
        for screen in BROKEN_OFF:
            screen(page, network, unhurried)
            found[screen.__name__] = violations(page)
    assert {name: those for name, those in found.items() if those} == {}


def test_axe_would_find_what_is_wrong(open_page: OpenPage) -> None:
    page = open_page()
    assert violations(page) == []
    page.evaluate("document.querySelector('.board .caption').style.color = '#eee'")
    page.evaluate("""() => {
      const button = document.querySelector('.board [data-part="replay.back"]');
      Object.assign(button, { ariaLabel: '', textContent: '', title: '' });
    }""")
    assert {one.split(":")[0] for one in violations(page)} == {"color-contrast", "button-name"}


# --- the keyboard ---

#: What has the focus, in one word.
FOCUSED = """() => {
  const node = document.activeElement;
  if (node === document.body) return 'body';
  const place = node.closest('[data-part]')?.dataset.part;
  if (node.dataset.part) return node.dataset.part;
  if (place) return `${place}: ${node.dataset.field ?? node.textContent.trim()}`;
  return node.closest('[id]:not(button, input)')?.id && node.id !== '' && node.matches('button') ? node.id
    : node.role === 'tab' ? node.textContent.trim() : node.closest('[id]')?.id ?? '';
}"""


def tabbed(page: Page, most: int = 80) -> list[str]:
    """Where Tab goes from the top of the page to its end, in one word each; each place once."""
    page.evaluate("document.activeElement.blur()")
    stops: list[str] = []
    for _ in range(most):
        page.keyboard.press("Tab")
        stop = page.evaluate(FOCUSED)
        if stop == "body":
            break
        if not stops or stops[-1] != stop:
            stops.append(stop)
    return stops


CONTROLS = ["preset", "run", "mode", "style", "order", "temperature", "cache"]
EDITORS = ["context", "schema"]
BOARD = [
    "replay.scrub",
    *(f"replay.{name}" for name in ("restart", "back", "play", "forward", "full")),
    *(f"replay.speeds: {speed}" for speed in ("1×", "½×", "1/10×", "1/50×")),
    "rows: risk_level",
    "invented: __proto__",
    "pcd.raw: risk_level",
    "ar.raw: risk_level",
]


@pytest.mark.parametrize("width, middle", [(1440, EDITORS + BOARD), (390, BOARD + EDITORS)])
def test_tab_goes_through_the_page_as_it_is_read(open_page: OpenPage, width: int, middle: list[str]) -> None:
    page = open_page(width)
    stops = [
        stop for stop in tabbed(page) if stop.split(":")[0].strip() in {s.split(":")[0] for s in CONTROLS + middle}
    ]
    assert stops == CONTROLS + middle


def test_a_group_of_rows_is_one_stop_and_the_arrows_move_in_it(open_page: OpenPage) -> None:
    page = open_page()
    choose(page, MANY.title)
    rows = page.locator(".rows:not(.invented) .row[data-field]")
    expect(rows).to_have_count(len(MANY.schema))
    rows.first.focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    expect(rows.nth(3)).to_be_focused()
    assert page.locator('.rows:not(.invented) .row[tabindex="0"]').count() == 1
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    expect(rows.nth(3)).to_be_focused()
    choose(page, FOUR.title)
    expect(rows).to_have_count(len(FOUR.schema))
    assert page.locator('.rows:not(.invented) .row[tabindex="0"]').count() == 1


@pytest.mark.parametrize("theme", THEMES)
def test_whatever_of_ours_has_the_focus_shows_it(open_page: OpenPage, theme: str) -> None:
    page = open_page(theme=theme)
    run_live(page)
    plain = []
    page.keyboard.press("Shift")  # as somebody at the keyboard: the ring is for them
    for place in page.locator(".board :is(button, input, [tabindex='0']):not(:disabled)").all():
        if not place.is_visible():
            continue
        place.focus()
        width, style = place.evaluate(
            "node => [getComputedStyle(node).outlineWidth, getComputedStyle(node).outlineStyle]"
        )
        if style == "none" or float(width.removesuffix("px")) < 2:
            plain.append(place.evaluate("node => node.outerHTML"))
    assert plain == []


# --- what a screen reader is told ---


def test_the_live_region_tells_the_milestones_of_a_run_and_nothing_else(
    open_page: OpenPage, engine: ScriptedEngine
) -> None:
    page = open_page()
    # Beside it, the editor's own and gradio's own, which are silent here.
    assert page.locator("[aria-live]:not(.cm-announced, .sr-only)").count() == page.locator(".board .live").count() == 1
    # The editor's own answers to an edit, which come in no run.
    assert page.locator(":is(.sheet, .board) [role=status]").evaluate_all(
        "all => all.map((node) => node.dataset.part)"
    ) == ["told"]
    page.evaluate("""() => {
      const node = document.querySelector('.board .live');
      window.told = [];
      new MutationObserver(() => told.push(node.textContent)).observe(node, { childList: true, characterData: true });
    }""")
    run_live(page)
    ends = {event.lane: event.ms for event in engine.races[-1].events if isinstance(event, LaneEnded)}
    told = [words for words in page.evaluate("told") if words]
    # Two that come in one message are told as the last of them.
    milestones = ["Run started.", f"PCD finished: {ends['pcd']:.1f} ms.", f"Baseline finished: {ends['ar']:.1f} ms."]
    assert [words for words in told if words not in [*milestones, "Done."]] == []
    assert told[0] == milestones[0] and milestones[1] in told and told[-1] == "Done."


def test_colours_come_with_a_sign_and_a_word(open_page: OpenPage) -> None:
    page = open_page()
    choose(page, MANY.title)
    expect(page.locator(".rows:not(.invented) .row[data-field]")).to_have_count(len(MANY.schema))
    run_live(page)
    flags = page.locator(".board [data-flag]").evaluate_all(
        "nodes => nodes.map((node) => [node.dataset.flag, ...node.childNodes].map((one) => one.textContent ?? one))"
    )
    assert {flag for flag, _, _ in flags} >= {"same", "differs", "omitted", "not_allowed", "invented"}
    for flag, sign, word in flags:
        assert sign and word.strip() == flag.replace("_", " ")
    assert (part(page, "badge").locator("b").text_content() or "").startswith("◉")
    assert "✓" in part(page, "status").evaluate("node => getComputedStyle(node, '::before').content")


# --- phones ---


def small(page: Page) -> list[str]:
    return page.evaluate(
        """([pressable, inline]) => [...document.querySelectorAll(pressable)]
        .filter((node) => node.checkVisibility() && !node.matches(inline))
        .map((node) => [node, (node.closest('label') ?? node).getBoundingClientRect()])
        .filter(([node, box]) => box.width && (box.height < 43.5 || box.width < 43.5))
        .map(([node, box]) => `${box.width} x ${box.height}: ${node.outerHTML.slice(0, 120)}`)""",
        [PRESSABLE, INLINE],
    )


def test_whatever_can_be_pressed_on_a_phone_is_large_enough(open_page: OpenPage) -> None:
    page = open_page(390, has_touch=True, is_mobile=True)
    run_live(page)
    page.locator(".board .row[data-field]").first.click()
    found = small(page)
    for button in page.locator(".board [data-panel]:visible").all():
        button.click()
        found += small(page)
    on_the_benchmark_tab(page)
    assert found + small(page) == []


def test_a_phone_does_not_zoom_in_on_what_is_typed_into(open_page: OpenPage) -> None:
    page = open_page(390, has_touch=True, is_mobile=True)
    for button in page.locator(".board [data-panel]:visible").all():
        button.click()
        assert tiny(page) == []
    assert tiny(page) == []
    on_the_benchmark_tab(page)
    assert tiny(page) == []


def tiny(page: Page) -> list[str]:
    return page.evaluate(
        """[...document.querySelectorAll('input, textarea, select, [contenteditable="true"]')]
        .filter((node) => node.checkVisibility() && !['radio', 'checkbox', 'range', 'file'].includes(node.type))
        .filter((node) => parseFloat(getComputedStyle(node).fontSize) < 16)
        .map((node) => node.outerHTML.slice(0, 120))"""
    )


def test_clocks_and_speed_up_stay_in_sight_while_the_rows_scroll(open_page: OpenPage) -> None:
    page = open_page(height=700)
    run_live(page)
    for width in (1440, 390, 320):
        page.set_viewport_size({"width": width, "height": 700})
        expect_clocks_in_sight(page, width)


def expect_clocks_in_sight(page: Page, width: int) -> None:
    strip = page.locator(".board .strip p")
    page.evaluate("scrollTo(0, 0)")
    expect(strip).not_to_be_visible()
    page.locator(".board .table").evaluate("node => node.scrollIntoView()")
    expect(strip).to_be_visible()
    assert strip.bounding_box()["y"] == 0
    for lane in ("pcd", "ar"):
        number, unit = part(page, f"{lane}.clock").locator("span, small").all_text_contents()
        expect(part(page, f"strip.{lane}").locator("b")).to_have_text(f"{number.strip()} {unit}")
    expect(part(page, "strip.factor").locator("b")).to_have_text(part(page, "factor").text_content() or "")
    cut = strip.locator("span").evaluate_all(
        "nodes => nodes.filter((node) => node.scrollWidth > node.clientWidth).length"
    )
    assert cut == 0
    boxes = [box.bounding_box() for box in strip.locator("span").all()]
    assert all(one["x"] + one["width"] <= other["x"] + 0.5 for one, other in zip(boxes, boxes[1:], strict=False))
    assert boxes[-1]["x"] + boxes[-1]["width"] <= width
    page.locator(".raw").evaluate("node => node.scrollIntoView()")
    assert strip.bounding_box()["y"] == 0
    page.evaluate("scrollTo(0, 0)")
    expect(strip).not_to_be_visible()


def test_a_focused_row_is_not_hidden_by_the_strip(open_page: OpenPage) -> None:
    page = open_page(390, height=500)
    page.locator(".raw").evaluate("node => node.scrollIntoView()")
    row = page.locator(".board .row[data-field]").first
    row.focus()
    strip, box = page.locator(".board .strip p").bounding_box(), row.bounding_box()
    assert box["y"] >= strip["y"] + strip["height"] - 1


@pytest.mark.parametrize("widths, zoom", [((390, 320), 1), ((720,), 2)])
def test_nothing_scrolls_sideways_on_a_narrow_or_zoomed_page(
    open_page: OpenPage, widths: Sequence[int], zoom: int
) -> None:
    page = open_page(widths[0], device_scale_factor=zoom)  # 200 % of 1440 px: 720 of them, twice as dense
    run_live(page)
    page.locator(".board .row[data-field]").first.click()
    expect_no_sideways_scroll(page, widths)
    for name in in_each_panel(page):
        expect_no_sideways_scroll(page, widths, name)
    on_the_benchmark_tab(page)
    expect_no_sideways_scroll(page, widths)


def expect_no_sideways_scroll(page: Page, widths: Sequence[int], where: str = "") -> None:
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("innerWidth") == width
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (where, width)
        beyond = page.evaluate(
            """[...document.querySelectorAll('.board :is(button, input, h2, dd, .clock, .factor), #run, #stop')]
            .filter((node) => node.checkVisibility() && node.getBoundingClientRect().right > innerWidth + 1)
            .map((node) => node.outerHTML.slice(0, 100))"""
        )
        assert beyond == [], (where, width)


# --- stillness ---


def moved(page: Page) -> list[Any]:
    return page.evaluate("""shifts.flatMap((shift) => shift.sources.map((source) => [
      source.node?.outerHTML?.slice(0, 120) ?? source.node?.textContent, source.previousRect.x - source.currentRect.x,
      source.previousRect.y - source.currentRect.y]))""")


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_moves_in_a_run_and_in_its_replay(open_page: OpenPage, width: int) -> None:
    page = open_page(width)
    for preset, place in ((FOUR, "top"), (MANY, "top"), (FOUR, "rows, with the strip")):
        if page.locator("#preset input").input_value() != preset.title:
            choose(page, preset.title)
        expect(page.locator(".rows:not(.invented) .row[data-field]")).to_have_count(len(preset.schema))
        expect(part(page, "badge")).to_contain_text("RECORDED" if preset is FOUR else "NOT RUN YET")
        page.locator("body" if place == "top" else ".board .table").evaluate("node => node.scrollIntoView()")
        page.wait_for_timeout(700)  # until the last input no longer excuses a shift
        page.evaluate("shifts.length = 0")
        page.evaluate("document.getElementById('run').click()")  # no input of a person, so every shift counts
        expect(part(page, "badge")).to_contain_text("LIVE", timeout=PATIENCE_MS)
        expect_phase(page, "done")
        assert moved(page) == [], (preset.id, place)
        page.evaluate("document.querySelector('[data-part=\"replay.play\"]').click()")
        expect(part(page, "replay.play")).to_contain_text("Pause")
        expect(part(page, "replay.play")).to_contain_text("Play", timeout=PATIENCE_MS)
        expect_phase(page, "done")
        assert moved(page) == [], (preset.id, place)


def test_who_asked_for_less_motion_gets_none(open_page: OpenPage) -> None:
    page = open_page(reduced_motion="reduce")
    page.evaluate("""() => {
      window.moving = new Set();
      const look = () => {
        for (const one of document.getAnimations()) moving.add(one.animationName ?? one.transitionProperty ?? 'script');
        requestAnimationFrame(look);
      };
      look();
    }""")
    part(page, "replay.restart").click()
    expect(part(page, "replay.time")).to_contain_text("0.0 ms of")
    part(page, "replay.play").click()
    expect_phase(page, "done")  # the end at once
    expect(part(page, "replay.play")).to_contain_text("Play")
    page.locator("#run").hover()
    run_live(page)
    on_the_benchmark_tab(page)
    assert page.evaluate("[...moving]") == []
