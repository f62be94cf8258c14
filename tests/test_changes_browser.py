"""Was -> now in Chromium: a run beside the finished one before it, on an engine that reads what has changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from core.request import Request
from core.trace import Event, FieldDecided, RowCompared, RunStarted
from core.ui.page import build
from tests.chromium import CHROMIUM, PATIENCE_MS, OpenPage, choose, expect_phase, opener, part, run
from tests.scripted import (
    FOUR,
    HOSTILE,
    MANY,
    MODEL,
    NASTY,
    ScriptedEngine,
    ScriptedRace,
    ScriptedResident,
    decide,
    scenario,
    served,
    told_by,
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}"),
]

AGAIN = scenario("Four again", FOUR.schema.to_json(), "Later on. Now channel is another.")
OTHER_MODEL = "other-2b"
HINT = "Change one fact in the text and run again: the fields that change are marked."


class ReadingRace(ScriptedRace):
    """Decides a field otherwise where the text says `Now NAME is another`, with shares of 60 and 40 %."""

    def _emit(self, event: Event) -> None:
        if isinstance(event, FieldDecided) and self._is_another(event.name):
            value = other(self, event.name)
            event = replace(event, value=value, probability=0.6, top=((value, 0.6), (event.value, 0.4)))
        if isinstance(event, RowCompared) and self._is_another(event.name) and event.text and not event.partial:
            event = replace(event, text=f"{event.text} once more")
        super()._emit(event)

    def _is_another(self, name: str) -> bool:
        return f"Now {name} is another" in self.request.context


class ReadingEngine(ScriptedEngine):
    def race(self, context: str, schema: Any, **given: Any) -> ScriptedRace:
        given.pop("asked", None)
        own = {"order": given.pop("order", ("pcd", "ar")), "mode": given.pop("mode", "json")}
        race = ReadingRace(self, Request(context, schema, **given), **own)
        self.races.append(race)
        race.start()
        return race


def other(race: ScriptedRace, name: str) -> Any:
    decision = decide(race.schema[name])
    return decision.choices[decision.winner - 1]


def of_another_model(events: Sequence[Event]) -> list[Event]:
    return [replace(event, model=OTHER_MODEL) if isinstance(event, RunStarted) else event for event in events]


@pytest.fixture(scope="module")
def engine() -> ReadingEngine:
    return ReadingEngine(token_ms=1, pass_ms=40)


@pytest.fixture(scope="module")
def url(engine: ReadingEngine) -> Iterator[str]:
    presets = (FOUR, AGAIN, MANY)  # runs of one date are told apart by their times
    recordings = {one.id: told_by(replace(engine, pass_ms=40 + i), one) for i, one in enumerate(presets)}
    recordings[MANY.id] = of_another_model(recordings[MANY.id])
    with served(build(ScriptedResident(engine), [FOUR, AGAIN, MANY, NASTY], recordings)) as address:
        yield address


@pytest.fixture
def open_page(browser: Browser, url: str) -> Iterator[OpenPage]:
    with opener(browser, url) as open_one:
        yield open_one


def row(page: Page, name: str) -> Locator:
    rows = page.locator(".rows:not(.invented) .row[data-field]")
    return rows.nth(rows.evaluate_all("(rows, name) => rows.findIndex((row) => row.dataset.field === name)", name))


def marked(page: Page) -> dict[str, str]:
    rows = page.locator(".rows:not(.invented) .row[data-field]")
    found = rows.evaluate_all("rows => rows.map((row) => [row.dataset.field, row.querySelector('.was').textContent])")
    return {name: text for name, text in found if text}


def line(page: Page) -> Locator:
    return part(page, "changes")


CHANNEL = decide(FOUR.schema["channel"])
WAS, NOW = CHANNEL.value, CHANNEL.choices[CHANNEL.winner - 1]
MARK = f'↻ was "{WAS}" → now "{NOW}"'


def test_a_changed_fact_marks_the_rows_that_changed_and_counts_them(open_page: OpenPage) -> None:
    page = open_page()
    run(page)
    run(page, f"{FOUR.context} Now channel is another.")
    assert marked(page) == {"channel": MARK}
    expect(row(page, "channel").locator(".value")).to_have_text(f'"{NOW}"')
    expect(line(page)).to_have_text(
        "↻ 1 of 4 fields changed since the run before; 1 of the baseline's values changed too; the text differs."
    )
    before = f"{100 * CHANNEL.probabilities[CHANNEL.winner]:.1f} %"
    tooltip = f'was "{WAS}" → now "{NOW}"\nshare {before} → 60.0 %'
    assert row(page, "channel").locator(".pcd").get_attribute("title") == tooltip
    assert row(page, "risk_level").locator(".pcd").get_attribute("title").endswith("since the run before")
    assert '→ now "MAYBE" once more' in (row(page, "channel").locator(".ar").get_attribute("title") or "")


def test_the_run_before_is_the_last_one_that_was_finished(open_page: OpenPage) -> None:
    page = open_page()
    run(page, f"{FOUR.context} Now channel is another.")
    run(page)
    assert marked(page) == {}
    expect(line(page)).to_have_text("= No field changed since the run before; the text is the same.")
    page.locator("#context textarea").fill(" ")
    page.locator("#run").click()
    expect_phase(page, "failed")
    run(page, FOUR.context)
    assert marked(page) == {"channel": f'↻ was "{NOW}" → now "{WAS}"'}


def test_what_else_differs_is_named(open_page: OpenPage) -> None:
    page = open_page()
    run(page)
    page.locator("#cache input").uncheck()
    page.locator("#temperature input").fill("2")
    page.locator("#mode").get_by_text("the schema itself").click()
    run(page)
    expect(line(page)).to_contain_text("the text is the same; also different: ")
    for words in ("baseline mode json → schema", "prefix cache hit → off", "temperature 1 → 2"):
        expect(line(page)).to_contain_text(words)
    assert marked(page) == {}


def test_runs_of_another_style_are_not_compared_and_it_says_so(open_page: OpenPage) -> None:
    page = open_page()
    page.locator("#style").get_by_text("Compact").click()
    run(page, f"{FOUR.context} Now channel is another.")
    expect(line(page)).to_have_text("⊘ Not compared with the run before: JSON style pretty → compact.")
    assert marked(page) == {}


def test_runs_of_another_model_are_not_compared_and_it_says_so(open_page: OpenPage) -> None:
    page = open_page()
    choose(page, MANY.title)
    expect(part(page, "badge")).to_contain_text(OTHER_MODEL)
    run(page, "Now field_03 is another.")
    expect(line(page)).to_have_text(f"⊘ Not compared with the run before: model {OTHER_MODEL} → {MODEL}.")
    assert marked(page) == {}
    run(page, "Now field_04 is another.")
    assert set(marked(page)) == {"field_03", "field_04"}
    expect(line(page)).to_contain_text("↻ 2 of 28 fields changed since the run before")


def test_a_recording_is_compared_with_the_recording_before_it(open_page: OpenPage) -> None:
    page = open_page()
    expect(line(page)).to_have_text(HINT)
    choose(page, AGAIN.title)
    expect(line(page)).to_contain_text("↻ 1 of 4 fields changed since the run before")
    assert marked(page) == {"channel": MARK}
    run(page)
    assert marked(page) == {}
    expect(line(page)).to_contain_text("= No field changed since the run before")


def test_other_fields_are_not_compared(open_page: OpenPage) -> None:
    page = open_page()
    run(page)
    choose(page, NASTY.title)
    run(page)
    expect(line(page)).to_have_text(HINT)
    assert marked(page) == {}


def test_a_mark_appears_in_the_replay_when_its_field_is_decided(open_page: OpenPage) -> None:
    page = open_page()
    run(page)
    run(page, f"{FOUR.context} Now channel is another.")
    part(page, "replay.restart").click()
    assert marked(page) == {}
    expect(line(page)).to_have_text("No field is decided yet that could be compared with the run before.")
    seen, said = [], []
    for _ in range(60):
        part(page, "replay.forward").click()
        said.append(line(page).text_content() or "")
        seen.append(row(page, "channel").locator(".value").text_content() != "")
        assert marked(page) == ({"channel": MARK} if seen[-1] else {})
        if seen[-1]:
            break
    assert seen[-1] and not seen[0]
    assert any(words.startswith("= None of the 2 decided so far changed; ") for words in said)
    part(page, "replay.restart").click()
    assert marked(page) == {}


def test_an_earlier_run_is_compared_with_none_and_the_one_after_it_with_it(open_page: OpenPage) -> None:
    page = open_page()
    run(page)
    run(page, f"{FOUR.context} Now channel is another.")
    current = line(page).text_content() or ""
    page.get_by_role("button", name="History", exact=True).click()
    page.locator(".history li button").last.click()
    expect(part(page, "badge")).to_contain_text("EARLIER RUN")
    assert marked(page) == {}
    expect(line(page)).to_have_text(HINT)
    page.get_by_role("button", name="Back to the current one").click()
    expect(line(page)).to_have_text(current)
    assert marked(page) == {"channel": MARK}
    page.locator(".history li button").last.click()
    expect(part(page, "badge")).to_contain_text("EARLIER RUN")
    run(page, f"{FOUR.context} Now routing is another.")
    assert set(marked(page)) == {"routing"}


def test_hostile_values_stay_text_in_a_mark(open_page: OpenPage) -> None:
    page = open_page()
    choose(page, NASTY.title)
    expect(part(page, "badge")).to_have_text("NOT RUN YET")
    run(page)
    run(page, f"Now constructor is another. Now {HOSTILE} is another. Now 10 is another. \u202e")
    marks = marked(page)
    assert {"constructor", HOSTILE, "10"} == set(marks)
    assert "12345678901234567890123" in marks["10"]
    assert any(word in marks["constructor"] for word in ("${7*7}", "{{x}}", "<img"))
    assert page.evaluate("window.__pwned") is None
    assert page.locator(".board img").count() == 0


@pytest.mark.parametrize("width", [1440, 390])
def test_marks_move_nothing_during_a_run(open_page: OpenPage, width: int) -> None:
    page = open_page(viewport={"width": width, "height": 900})
    run(page)
    page.locator("#context textarea").fill(f"{FOUR.context} Now channel is another.")
    page.wait_for_timeout(700)  # until the last input no longer excuses a shift
    page.evaluate("window.events.length = 0; shifts.length = 0; document.getElementById('run').click()")
    page.wait_for_function("window.events.some(({ kind }) => kind === 'end')", timeout=PATIENCE_MS)
    expect_phase(page, "done")
    assert marked(page) == {"channel": MARK}
    assert page.evaluate("shifts.flatMap(({ sources }) => sources.map(({ node }) => node?.outerHTML ?? ''))") == []
    box = row(page, "channel").locator(".was").bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= width
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
