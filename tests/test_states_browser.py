"""The states of a run in Chromium: loading, waiting, stopped, failed, and a connection that is lost and comes back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from core.resident import Status
from core.ui.page import build
from tests.chromium import (
    CHROMIUM,
    PATIENCE_MS,
    VEGA,
    OpenPage,
    choose,
    expect_phase,
    opener,
    part,
    run_to_the_end,
    type_schema,
)  # fmt: skip
from tests.relay import Relay, relayed
from tests.scripted import FOUR, HOSTILE, MANY, PRESETS, READY, ScriptedEngine, ScriptedResident, served, told_by

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}"),
]

#: The page's patience, cut short: gradio's own two seconds between two tries are what the tests wait for.
IMPATIENT = """window.connectionTimes = {
  silence: 1500, answer: 400, dead: 4000, look: 100, retry: 200, thanks: 60_000,
};"""
#: What the console says of a broken network, whoever asks.
BROKEN = (
    "Failed to load resource",
    "Failed to fetch dynamically imported module",  # a part of gradio's that was still on its way
    "TypeError: network error",
    "TypeError: Failed to fetch",
    "Unexpected error",
    "AbortError: signal is aborted",
    "Could not connect to component server",  # asked for the model
)
EVIL = f"</script><img src=x onerror=window.__pwned=1> ${{window.__pwned=2}} {{{{x}}}} \u202e {HOSTILE}"


@pytest.fixture(scope="module")
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture(scope="module")
def resident(engine: ScriptedEngine) -> ScriptedResident:
    return ScriptedResident(engine)


@pytest.fixture(autouse=True)
def rested(engine: ScriptedEngine, resident: ScriptedResident) -> Iterator[None]:
    """Nobody else's run, and no state of another test."""
    yield
    for race in engine.races:
        race.cancel()
        assert race.over.wait(10)
    engine.races.clear()
    engine.token_ms, engine.pass_ms, engine.failing = 10.0, 350.0, ""
    resident.status = READY


@pytest.fixture(scope="module")
def url(resident: ScriptedResident) -> Iterator[str]:
    recording = told_by(ScriptedEngine(token_ms=1, pass_ms=20))
    with served(build(resident, PRESETS, {FOUR.id: recording})) as address:
        yield address


@pytest.fixture
def network(url: str) -> Iterator[Relay]:
    with relayed(url) as relay:
        yield relay


@pytest.fixture
def open_page(browser: Browser, url: str) -> Iterator[OpenPage]:
    with opener(browser, url, IMPATIENT, BROKEN + VEGA) as open_any:

        def open_one(address: str = url, **options: Any) -> Page:
            page = open_any(address=address, **options)
            expect(page.locator("#model .notice")).not_to_have_text("")
            return page

        yield open_one


def bar(page: Page) -> Any:
    return page.locator("#connection")


def clocks(page: Page) -> list[str]:
    return [part(page, f"{lane}.clock").inner_text() for lane in ("pcd", "ar")]


def written(page: Page) -> str:
    return part(page, "ar.raw").text_content() or ""


def start_writing(page: Page, engine: ScriptedEngine) -> None:
    """A long run, some tokens into its baseline."""
    engine.token_ms, engine.pass_ms = 40, 150
    choose(page, MANY.title)
    expect(page.locator(".rows .row[data-field]")).to_have_count(len(MANY.schema))
    page.locator("#run").click()
    expect(part(page, "ar.raw")).to_contain_text("field_01", timeout=PATIENCE_MS)


# --- before a run ---


def test_loading_shows_its_stage_and_how_far_it_is(open_page: OpenPage, resident: ScriptedResident) -> None:
    resident.status = Status("loading", "fetching scripted-1b", 0.25)
    page = open_page()
    expect(page.locator("#model .notice")).to_have_text("Loading the model: fetching scripted-1b")
    page.locator("#run").click()
    expect_phase(page, "loading")
    expect(part(page, "status")).to_have_text("Waiting for the model: fetching scripted-1b")
    for stage, fraction in (("converting", 0.75), ("warming up scripted-1b", None)):
        resident.status = Status("loading", stage, fraction)
        expect(part(page, "status")).to_have_text(f"Waiting for the model: {stage}")
        expect(page.locator("#model .notice")).to_have_text(f"Loading the model: {stage}")
        for progress in (part(page, "progress"), page.locator("#model progress")):
            expect(progress).to_be_visible()
            assert progress.evaluate("bar => bar.hasAttribute('value') ? bar.value : null") == fraction
    resident.status = READY
    expect_phase(page, "done")
    expect(part(page, "progress")).to_be_hidden()
    expect(page.locator("#model .notice")).to_have_text(READY.message)
    # A cold start is told apart from the clocks.
    expect(part(page, "untimed")).to_contain_text("12.5 ms warm-up")


def test_a_model_that_fails_to_load_says_why_in_one_line(open_page: OpenPage, resident: ScriptedResident) -> None:
    evil = EVIL.replace("/", "").replace("\\", "")  # what may be a path is cut down to its last part
    resident.status, engine, resident.engine = Status("failed", message=evil), resident.engine, None
    try:
        page = open_page()
        expect(page.locator("#model .notice")).to_have_attribute("data-tone", "error")
        page.locator("#run").click()
        expect_phase(page, "failed")
        expect(part(page, "status")).to_contain_text("<img src=x onerror=")
        expect(part(page, "status")).to_contain_text("\\u202e")
        assert page.evaluate("window.__pwned") is None
    finally:
        resident.engine = engine


def test_waiting_says_its_place_in_the_queue(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    engine.pass_ms = 60_000
    first, second = (engine.race("somebody else's", FOUR.schema) for _ in range(2))
    page.locator("#run").click()
    expect_phase(page, "waiting")
    expect(part(page, "status")).to_have_text("Waiting: 2 runs are ahead of yours. The clocks do not count this.")
    expect(part(page, "pcd.clock")).to_have_text("–")
    page.wait_for_timeout(2000)  # longer than the page's patience with a silent run
    expect(bar(page)).to_be_hidden()
    first.cancel()
    second.cancel()
    engine.pass_ms = 20
    expect_phase(page, "done")


# --- ends that are none ---


@pytest.mark.parametrize("how", ["Stop", "Escape"])
def test_what_was_written_stays_when_a_run_is_stopped(open_page: OpenPage, engine: ScriptedEngine, how: str) -> None:
    page = open_page()
    start_writing(page, engine)
    before = written(page)
    if how == "Stop":
        page.locator("#stop").click()
    else:
        page.keyboard.press("Escape")
    expect_phase(page, "stopped")
    expect(part(page, "status")).to_have_text("Stopped.")
    expect(part(page, "ar.how")).to_have_text("stopped")
    assert written(page).startswith(before)
    assert len(page.locator(".board .row.decided").all()) == len(MANY.schema)
    expect(page.locator("#run")).to_be_enabled()
    expect(page.locator("#stop")).to_be_disabled()
    expect(part(page, "replay.play")).to_be_disabled()


def test_an_error_of_the_engine_is_one_line_of_plain_text(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    engine.failing = "json"
    page.locator("#run").click()
    expect_phase(page, "failed")
    expect(part(page, "status")).to_have_text(f"out of memory: {HOSTILE}")
    sign = part(page, "status").evaluate("node => getComputedStyle(node, '::before').content")
    assert "⚠" in sign
    assert page.evaluate("window.__pwned") is None
    assert page.locator(".board img").count() == 0
    engine.failing = ""
    run_to_the_end(page)


# --- the connection ---


def test_a_server_that_goes_away_in_a_run_is_told_and_its_coming_back_too(
    open_page: OpenPage, engine: ScriptedEngine, network: Relay
) -> None:
    page = open_page(network.address)
    start_writing(page, engine)
    network.cut()
    expect_phase(page, "lost")
    expect(bar(page)).to_contain_text("Connection lost: the server does not answer.")
    expect(part(page, "status")).to_contain_text("Connection lost")
    expect(part(page, "live")).to_contain_text("Connection lost")
    expect(part(page, "ar.how")).to_have_text("⚠ broke off")
    expect(page.locator('.row [data-flag="writing"]')).to_have_count(0)
    arrived, stood = written(page), clocks(page)
    assert "field_01" in arrived
    page.wait_for_timeout(600)
    assert (written(page), clocks(page)) == (arrived, stood)
    network.mend()
    expect(bar(page)).to_contain_text("What you had typed is back", timeout=PATIENCE_MS)  # gradio has loaded it anew
    expect_phase(page, "lost")
    expect(part(page, "status")).to_contain_text("The run ended here when the page was loaded anew.")
    assert written(page) == arrived
    expect(part(page, "tour.open")).to_be_enabled()
    page.get_by_role("button", name="Take away", exact=True).click()
    expect(part(page, "take.note")).to_contain_text("The run broke off")
    engine.token_ms = 1
    run_to_the_end(page)
    expect(bar(page)).to_be_hidden()


def test_a_run_goes_on_when_a_pulled_cable_is_put_back(
    open_page: OpenPage, engine: ScriptedEngine, network: Relay
) -> None:
    page = open_page(network.address)
    start_writing(page, engine)
    network.mute()
    expect_phase(page, "lost")
    expect(bar(page)).to_contain_text("Connection lost: the server does not answer.")
    arrived = written(page)
    live = "document.querySelector('[data-part=\"live\"]')"
    page.evaluate(f"""() => {{
      window.told = [];
      new MutationObserver(() => window.told.push({live}.textContent)).observe({live}, {{ childList: true }});
    }}""")
    engine.token_ms = 1
    network.unmute()
    expect(bar(page)).to_have_text("Connected again.")
    expect_phase(page, "done")
    assert page.evaluate("window.told")[0] == "Connected again."
    assert written(page).startswith(arrived)
    [end] = engine.races[-1].trace("lane_end", "ar")
    assert written(page) == end.text
    expect(part(page, "ar.how")).to_have_text("done")


def test_a_lost_run_stays_lost_when_another_one_was_looked_at(
    open_page: OpenPage, engine: ScriptedEngine, network: Relay
) -> None:
    page = open_page(network.address)
    engine.token_ms, engine.pass_ms = 100, 150
    page.locator("#run").click()
    expect(part(page, "ar.how")).to_have_text("running", timeout=PATIENCE_MS)
    network.mute()
    expect_phase(page, "lost")
    page.locator("#title").click()
    page.keyboard.press("l")
    expect(part(page, "badge")).to_contain_text("RECORDED")
    page.keyboard.press("l")
    expect(part(page, "badge")).to_contain_text("LIVE")
    expect_phase(page, "lost")
    network.unmute()


def test_a_run_whose_stream_is_dead_can_be_left_and_what_was_typed_is_kept(
    open_page: OpenPage, engine: ScriptedEngine, network: Relay
) -> None:
    page = open_page(network.address)
    start_writing(page, engine)
    page.locator("#context textarea").fill(EVIL)
    network.strand()
    expect(bar(page)).to_contain_text("nothing more of this run arrives", timeout=PATIENCE_MS)
    expect_phase(page, "lost")
    arrived = written(page)
    page.get_by_role("button", name="Load the page anew").click()
    expect(bar(page)).to_contain_text("What you had typed is back", timeout=PATIENCE_MS)
    expect(page.locator("#context textarea")).to_have_value(EVIL)
    assert written(page) == arrived
    assert page.evaluate("window.__pwned") is None
    page.get_by_role("button", name="Close").click()
    expect(bar(page)).to_be_hidden()
    assert page.evaluate("sessionStorage.length") == 0


@pytest.mark.parametrize("deed", ["Run", "typing"])
def test_a_server_that_went_away_while_nobody_asked_is_told_at_the_next_deed(
    open_page: OpenPage, network: Relay, deed: str
) -> None:
    page = open_page(network.address)
    network.cut()
    page.wait_for_timeout(1600)
    expect(bar(page)).to_be_hidden()
    if deed == "Run":
        page.locator("#run").click()
    else:
        page.locator("#context textarea").press("x")
    expect(bar(page)).to_contain_text("Connection lost: the server does not answer.")
    expect_phase(page, "done")  # the recording stays, and can be replayed
    part(page, "replay.restart").click()
    expect(part(page, "replay.time")).to_contain_text("0.0 ms of")
    part(page, "replay.full").click()
    expect_phase(page, "done")
    network.mend()
    expect(bar(page)).to_contain_text("Connected again" if deed == "typing" else "is back", timeout=PATIENCE_MS)
    run_to_the_end(page)


def test_what_is_typed_and_chosen_while_the_server_is_away_comes_back_with_it(
    open_page: OpenPage, network: Relay
) -> None:
    page = open_page(network.address)
    network.cut()
    page.locator("#run").click()
    expect(bar(page)).to_contain_text("Connection lost: the server does not answer.")
    page.locator("#context textarea").fill("Typed without a server.")
    page.locator("#temperature input").fill("0.4")
    page.locator("#mode").get_by_text("schema:").click()
    type_schema(page, '{"typed_offline": {"type": "boolean"}}')
    page.evaluate("document.body.dataset.presenting = ''")  # the presenter's view says it too
    assert bar(page).evaluate("node => getComputedStyle(node).visibility") == "visible"
    network.mend()
    expect(bar(page)).to_contain_text("is back", timeout=PATIENCE_MS)
    expect(page.locator("#context textarea")).to_have_value("Typed without a server.")
    expect(page.locator("#temperature input")).to_have_value("0.4")
    expect(page.locator("#mode input[value='schema']")).to_be_checked()
    expect(page.locator("#schema .cm-content")).to_contain_text("typed_offline")
    expect(page.locator("#verdict")).to_contain_text("1 field, 2 choices")


def test_a_link_that_is_asked_for_tells_that_the_server_is_away(open_page: OpenPage, network: Relay) -> None:
    page = open_page(network.address)
    page.get_by_role("button", name="Take away").click()
    network.cut()
    page.get_by_role("button", name="Link to these inputs").click()
    expect(bar(page)).to_contain_text("Connection lost: the server does not answer.")


def test_what_was_typed_and_chosen_outlives_a_restart_of_the_server(
    open_page: OpenPage, engine: ScriptedEngine, network: Relay
) -> None:
    page = open_page(network.address)
    choose(page, MANY.title)
    expect(page.locator(".rows .row[data-field]")).to_have_count(len(MANY.schema))
    schema = {"typed": {"type": "boolean"}, EVIL[:100]: {"type": "enum", "choices": ["x", "y"]}}
    page.locator("#context textarea").fill(EVIL)
    type_schema(page, json.dumps(schema))
    page.get_by_label("schema:").click()
    page.get_by_label("Prefix cache").uncheck()
    expect(page.locator("#verdict .notice")).to_contain_text("2 fields")
    engine.pass_ms = 60_000
    page.locator("#run").click()
    expect_phase(page, "running")
    with served(build(ScriptedResident(ScriptedEngine(token_ms=1, pass_ms=20)), PRESETS)) as other:
        network.cut()
        network.mend(int(other.rstrip("/").rsplit(":", 1)[1]))
        expect(bar(page)).to_contain_text("What you had typed is back", timeout=PATIENCE_MS)
        assert page.locator("#preset input").input_value() == MANY.title
        assert page.locator("#context textarea").input_value() == EVIL
        assert json.loads(page.locator("#schema .cm-content").inner_text()) == schema
        expect(page.get_by_label("schema:")).to_be_checked()
        expect(page.get_by_label("Prefix cache")).not_to_be_checked()
        expect(page.locator(".rows:not(.invented) .row[data-field]")).to_have_count(2)
        run_to_the_end(page)
        assert page.evaluate("window.__pwned") is None
        page.close()


STORED = [
    "no JSON",
    "null",
    "7",
    '{"inputs": "x", "board": {"run": "1", "log": "{", "recorded": false}}',
    '{"inputs": [1, 2], "board": {"run": {"path": "x"}, "log": "7", "recorded": false}}',
    json.dumps({"inputs": ["x", {}, 1, 2, 3, 4, 5, 6], "board": {"run": "1", "log": "7\n", "recorded": True}}),
]


def test_a_store_that_is_none_of_ours_is_passed_over(open_page: OpenPage) -> None:
    page = open_page()
    for stored in STORED:
        page.evaluate("(stored) => sessionStorage.setItem('pcd.kept', stored)", stored)
        page.reload()
        expect(page.locator("#context textarea"), stored).to_have_value(FOUR.context)
        expect_phase(page, "done")
        expect(page.locator("#model .notice"), stored).to_have_text(READY.message)
        expect(bar(page), stored).to_be_hidden()


def test_an_ordinary_reload_keeps_nothing(open_page: OpenPage) -> None:
    page = open_page()
    page.locator("#context textarea").fill("typed")
    page.reload()
    expect(page.locator("#context textarea")).to_have_value(FOUR.context)
    assert page.evaluate("sessionStorage.length") == 0


def test_a_page_at_rest_and_a_run_that_speaks_ask_the_server_nothing(
    open_page: OpenPage, engine: ScriptedEngine
) -> None:
    page = open_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "app_id" in request.url else None)
    page.wait_for_timeout(2000)
    start_writing(page, engine)
    page.wait_for_timeout(2000)
    engine.token_ms = 1
    expect_phase(page, "done")
    assert len(asked) <= 2  # of the two presses, after a rest


# --- the benchmark ---


def test_a_benchmark_that_is_being_cancelled_says_so(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    engine.pass_ms = 20
    page.get_by_role("tab", name="Benchmark").click()
    page.locator("#benchmark-start").click()
    cancel = page.locator("#benchmark-cancel")
    expect(cancel).to_be_enabled(timeout=PATIENCE_MS)
    with engine.device:  # the race in hand comes to no end
        cancel.click()
        expect(cancel).to_have_text("Cancelling …")
        expect(cancel).to_be_disabled()
    expect(page.locator("#benchmark-start")).to_be_enabled(timeout=PATIENCE_MS)
    expect(cancel).to_have_text("Cancel")
    expect(cancel).to_be_disabled()
