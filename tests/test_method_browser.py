"""The method of a run, in Chromium: what the page says of it is what its events say, and what they do not show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from core.presets import load_presets
from core.recordings import load_recordings
from core.trace import Event, FieldDecided, LaneEnded, RunEnded, RunStarted, TokenWritten, WarmedUp, to_lines
from core.ui.components import board_script
from core.ui.page import build
from tests.chromium import CHROMIUM, choose, expect_phase, opener, part, run_to_the_end
from tests.scripted import FOUR, NASTY, PRESETS, ScriptedEngine, ScriptedResident, served, started

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}"),
]

SHIPPED = load_presets()
RECORDED = load_recordings(SHIPPED)
TRICKY = "<b>x</b> <img src=x onerror=window.__pwned=1> ${7*7} {{x}} </script> \u202e"
Said = Callable[..., tuple[str, str]]

CALL = """([source, log, recorded]) => {
  const names = '{ methodOf, citationOf, exactIntegers }';
  const { methodOf, citationOf, exactIntegers } = new Function(`${source}; return ${names};`)();
  const events = log.split('\\n').filter(Boolean).map((line) => JSON.parse(line, exactIntegers));
  const lines = methodOf(events, recorded).flatMap(({ title, lines }) => [title, ...lines]);
  return [lines.join('\\n'), citationOf(events, recorded)];
}"""


@pytest.fixture(scope="module")
def said(browser: Browser) -> Iterator[Said]:
    """The method and the citation of events, without a page."""
    page = browser.new_page()
    source = board_script([*SHIPPED, *PRESETS])
    yield lambda events, recorded=False: page.evaluate(CALL, [source, to_lines(events), recorded])
    page.close()


def ended(lane: str, ms: float, **given: Any) -> LaneEnded:
    usual = {"how": "assembled" if lane == "pcd" else "closed", "passes": 1, "tokens": 12, "text": "{}", "cache": "hit"}
    return LaneEnded(ms, lane, **(usual | given))


def decided(name: str, *shares: float, mass: float = 0.9) -> FieldDecided:
    top = tuple((f"choice {i}", share) for i, share in enumerate(shares))
    return FieldDecided(90.0, "pcd", name, top[0][0], shares[0], mass, 1, top, len(shares))


def race(*told: Event, pcd: float = 100.0, ar: float = 400.0, marks: Sequence[str] = (), **run: Any) -> list[Event]:
    """The events of a race that the table's cases change."""
    lanes = [ended("pcd", pcd), ended("ar", ar, passes=5, forced=3)]
    return [started(**run), *told, *lanes, RunEnded(500.0, "done", "", ar / pcd, tuple(marks))]


NAMES = tuple(field.name for field in FOUR.schema)


@pytest.mark.parametrize(
    "events, words",
    [
        (race(), ["Recorded: a saved run", "Made on 2026-01-02T03:04:05Z", "n = 1: one run"]),
        (
            race(why="asked for", machine="A CPU, 2 cores"),
            ["scripted-1b (asked for), float32, script on cpu", "A CPU, 2 cores."],
        ),
        (race(versions={"torch": "2.13", "python": "3.11"}), ["Versions: torch 2.13, python 3.11."]),
        (race(mode="free"), ["mode free (prompt alone)", "Only the prompt holds", "compare with mode schema"]),
        (race(mode="json"), ["mode json (any JSON enforced)", "Any JSON object is enforced", "is mostly faster"]),
        (race(mode="constructor"), ["mode constructor (unknown to this page).\nConditions"]),
        (race(mode="schema"), ["mode schema (schema enforced)", "A grammar of the schema holds the baseline"]),
        (race(style="compact"), ["the model writes compact JSON"]),
        (race(order=("ar", "pcd")), ["Order: Baseline then PCD", "on a common zero"]),
        (race(cache="hit"), ["Prefix cache: warm (hit)"]),
        (race(cache="miss"), ["Prefix cache: cold (miss)"]),
        (race(cache="off"), ["Prefix cache: off; no stored prefix"]),
        (race(temperature=0.5), ["T = 0.5: it changes the shares, never which choice wins"]),
        (race(prompt_tokens=1234), ["Prompt: 1,234 tokens for each lane."]),
        (race(), ["No warm-up is in the events"]),
        (race(WarmedUp(0.0, 12.5, "load")), ["Warm-up: 12.5 ms at load, in neither clock"]),
        (race(ms=75.0), ["Waiting: 75.0 ms, in neither clock"]),
        (race(strategy="rows"), ["PCD: a row per branch"]),
        (race(reading="best-first"), ["until no other choice can win (best-first)"]),
        (race(scoring="full"), ["scored to the end of its line"]),
        (race(prior="content_free"), ["text without content are subtracted"]),
        (
            race(),
            ["PCD: 100.0 ms, 1 pass, 12 tokens in the tree", "400.0 ms, 5 passes, 12 tokens written, 3 of them forced"],
        ),
        (race(), ["Baseline ÷ PCD: 4.00×, engine time, against baseline mode json"]),
        (
            race(pcd=200.0, ar=100.0),
            ["Baseline ÷ PCD: 0.50×", "⚠ PCD is the slower lane here: it took 2.00× the baseline's time"],
        ),
        (
            race(marks=("limit", "truncated")),
            ["⚠ baseline hit its token limit: the factor does not stand without this mark"],
        ),
        (
            race(unsupported=({"pointer": "/a", "name": "a", "reason": "free text"},)),
            ["Left out of the schema, 1 part: /a (free text)"],
        ),
        (race(), ["Fields are decided independently of each other, given the prompt"]),
        (
            race(decided(NAMES[0], 0.51, 0.49)),
            [f"≈ Near ties, less than 5.0 % ahead of the next choice: {NAMES[0]} (2.0 %)"],
        ),
        (race(decided(NAMES[0], 0.9, 0.1)), ["No field is a near tie", "No field has a candidate mass below 10.0 %"]),
        (
            race(decided(NAMES[0], 0.9, 0.1, mass=0.02)),
            [f"⚠ Low candidate mass, the model wanted to write something else: {NAMES[0]} (2.0 %)"],
        ),
        (
            race(),
            ["Only bounded fields", "Not guaranteed: that it is right", "They are not calibrated", "One user, batch 1"],
        ),
        (race(context=FOUR.context), [f"Scenario: {FOUR.title}; 4 fields"]),
        (race(context=FOUR.context + "!"), ["Scenario: own text and schema; 4 fields, 68 characters of text"]),
        ([started()], ["The run is not over", "PCD: not finished.", "Baseline: not finished."]),
        ([started(), RunEnded(9.0, "stopped", "", None, ())], ["The run was stopped. There is no result to compare."]),
        ([started(), RunEnded(9.0, "failed", "out of memory", None, ())], ["The run failed: out of memory."]),
        ([], ["No run yet", "Press Run, or choose a scenario that has a recording."]),
        ([RunEnded(0.0, "failed", "the context is empty", None, ())], ["No run yet"]),
    ],
)
def test_the_method_says_what_the_events_say(said: Said, events: Sequence[Event], words: Sequence[str]) -> None:
    method, _ = said(events, True)
    for part_of in words:
        assert part_of in method


@pytest.mark.parametrize(
    "events, words",
    [
        (race(), "slower lane"),
        (race(), "⚠"),
        (race(machine=""), "Machine"),
        (race(mode="schema"), "mostly faster"),
        ([started(), RunEnded(9.0, "stopped", "", None, ())], "÷ PCD:"),
    ],
)
def test_the_method_does_not_say_what_is_not_so(said: Said, events: Sequence[Event], words: str) -> None:
    assert words not in said(events)[0]


def test_fields_that_depend_on_others_are_named(said: Said) -> None:
    schema = FOUR.schema.to_json()
    schema["routing"]["depends_on"] = ["risk_level"]
    events = [replace(event, schema=schema) if isinstance(event, RunStarted) else event for event in race()]
    method, _ = said(events)
    assert (
        "Fields that depend on others are decided after them: routing. All others are decided independently" in method
    )


def test_many_names_are_counted_and_not_listed(said: Said) -> None:
    left = tuple({"pointer": f"/{i}", "name": str(i), "reason": "free text"} for i in range(40))
    assert "Left out of the schema, 40 parts: /0 (free text), " in (method := said(race(unsupported=left))[0])
    assert "and 28 more" in method and "/12" not in method


def test_the_citation_names_a_result_and_all_that_it_depends_on_in_one_line(said: Said) -> None:
    line = said(race(context=FOUR.context, machine="A CPU\n2 cores", marks=("limit",)), True)[1]
    assert line == (
        "PCD beside streamed JSON, Four fields, 4 fields; PCD 100.0 ms; Baseline 400.0 ms; "
        "baseline ÷ PCD 4.00× ⚠ baseline hit its token limit; baseline mode json, pretty JSON; "
        "scripted-1b, float32, script, cpu, A CPU 2 cores; prefix cache hit, T = 1, n = 1; 2026-01-02, recorded"
    )
    assert said(race())[1].endswith("2026-01-02, live")
    assert said([])[1] == ""


# --- the panel ---


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    resident = ScriptedResident(ScriptedEngine(token_ms=1, pass_ms=20))
    recordings = {name: recording.events for name, recording in RECORDED.items()}
    with served(build(resident, [*SHIPPED, FOUR, NASTY], recordings)) as address:
        yield address


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    with opener(browser, url) as open_one:
        yield open_one(permissions=["clipboard-read", "clipboard-write"])


def opened(page: Page) -> Any:
    page.get_by_role("button", name="Method", exact=True).click()
    expect(part(page, "method")).to_be_visible()
    return part(page, "method.text")


def test_each_recording_has_a_method_of_its_own(page: Page) -> None:
    text = opened(page)
    for preset in SHIPPED:
        recording = RECORDED[preset.id]
        if preset is not SHIPPED[0]:
            choose(page, preset.title)
        expect(text).to_contain_text(f"Scenario: {preset.title}; {len(preset.schema)} field")
        run = recording.run
        tokens = f"{run.prompt_tokens:,} tokens for each lane"
        for words in (run.model, run.machine, run.date, f"mode {run.mode}", tokens):
            expect(text).to_contain_text(words)
        written = sum(isinstance(event, TokenWritten) for event in recording.events)
        expect(text).to_contain_text(f"{written} token{'s' * (written != 1)} written")
        shown = text.text_content() or ""
        assert ("slower lane" in shown) == ((recording.end.speed_up or 1) < 1), preset.id
        near = [
            e.name
            for e in recording.events
            if isinstance(e, FieldDecided) and len(e.top) > 1 and e.top[0][1] - e.top[1][1] < 0.05
        ]
        assert ("≈ Near ties" in shown) == bool(near), preset.id
        assert all(f"{name} (" in shown for name in near[:12]), preset.id


def test_the_panel_follows_from_no_run_to_a_live_one_and_moves_no_row(page: Page) -> None:
    choose(page, FOUR.title)
    text = opened(page)
    expect(text).to_have_text("No run yetPress Run, or choose a scenario that has a recording.")
    expect(part(page, "method.cite")).to_be_hidden()
    page.evaluate("window.shifts.length = 0")
    run_to_the_end(page)
    expect(text).to_contain_text("Live: run from this page.")
    expect(text).to_contain_text(f"Scenario: {FOUR.title}")
    expect(text).to_contain_text("Baseline ÷ PCD:")
    assert (
        page.evaluate(
            "window.shifts.filter(({ hadRecentInput }) => !hadRecentInput).reduce((sum, { value }) => sum + value, 0)"
        )
        == 0
    )


def test_the_citation_line_is_copied(page: Page) -> None:
    opened(page)
    part(page, "method.cite").click()
    expect(part(page, "method.said")).to_have_text("Copied.")
    line = page.evaluate("navigator.clipboard.readText()")
    assert line == part(page, "method.citation").text_content()
    assert RECORDED[SHIPPED[0].id].run.model in line and "\n" not in line


def test_escape_closes_the_panel_and_gives_the_focus_back(page: Page) -> None:
    opened(page)
    part(page, "method.cite").focus()
    page.keyboard.press("Escape")
    expect(part(page, "method")).to_be_hidden()
    expect(page.get_by_role("button", name="Method", exact=True)).to_be_focused()


def test_hostile_text_stays_text_in_the_method(page: Page) -> None:
    choose(page, NASTY.title)
    expect(page.locator("#context textarea")).to_have_value(NASTY.context)  # what was there before has an end too
    expect_phase(page, "idle")
    run_to_the_end(page)
    text = opened(page)
    expect(text).to_contain_text("Scenario: Hostile text")
    assert text.locator("img, b, script").count() == 0
    assert page.evaluate("window.__pwned") is None


def test_hostile_words_of_a_trace_are_shown_and_never_run(browser: Browser) -> None:
    fields = ("model", "why", "backend", "device", "machine", "dtype", "mode", "style", "cache", "date")
    events = race(**{field: f"{field} {TRICKY}" for field in fields})
    with (
        served(build(ScriptedResident(None), [FOUR], {FOUR.id: events})) as address,
        opener(browser, address) as open_one,
    ):
        page = open_one()
        expect_phase(page, "done")
        text = opened(page)
        shown = "<img src=x onerror=window.__pwned=1> ${7*7} {{x}} </script> \\u202e"
        for field in fields:
            expect(text).to_contain_text(f"{field} <b>x</b> {shown}")
        assert text.locator("img, b").count() == 0 and page.evaluate("window.__pwned") is None


def test_the_panel_fits_a_phone(browser: Browser, url: str) -> None:
    with opener(browser, url) as open_one:
        page = open_one(viewport={"width": 390, "height": 844})
        opened(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for button in page.locator(".board :is(.tools, .panel) button:visible").all():
            box = button.bounding_box()
            assert box and min(box["width"], box["height"]) >= 44
