"""The history in Chromium: what a browser keeps and shows, and what it makes of a store that is not its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from core.trace import Event, FieldDecided, RunStarted, to_lines
from core.ui.components import board_script
from core.ui.page import build
from tests.chromium import CHROMIUM, OpenPage, choose, expect_phase, opener, part, run, type_schema
from tests.scripted import (
    FOUR,
    HOSTILE,
    MANY,
    NASTY,
    PRESETS,
    ScriptedEngine,
    ScriptedResident,
    decide,
    served,
    told_by,
)  # fmt: skip

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}"),
]

KEY = "pcd.runs.1"
SECRET = "Nobody but me may read this of the Kowalski file."
MARKUP = "<img src=x onerror=window.__pwned=1> ${7*7} {{x}} </script> \u202e"

# Where the store of the page is closed, or has room for so many characters.
CLOSED = """
for (const name of ['getItem', 'setItem', 'removeItem']) {
  const own = Storage.prototype[name];
  Storage.prototype[name] = function (key, ...rest) {
    if (key === 'pcd.runs.1') throw new DOMException('denied', 'SecurityError');
    return own.call(this, key, ...rest);
  };
}
"""
ROOM_FOR = """
const setItem = Storage.prototype.setItem;
Storage.prototype.setItem = function (key, text) {
  if (key === 'pcd.runs.1' && text.length > %d) throw new DOMException('full', 'QuotaExceededError');
  return setItem.call(this, key, text);
};
"""


def told(schema: Any = FOUR.schema, text: str = FOUR.context) -> list[Event]:
    return told_by(ScriptedEngine(token_ms=0, pass_ms=1), replace(FOUR, schema=schema, context=text))


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return told()


@pytest.fixture(scope="module")
def engine() -> ScriptedEngine:
    return ScriptedEngine(token_ms=1, pass_ms=40)


@pytest.fixture(scope="module")
def url(engine: ScriptedEngine, events: Sequence[Event]) -> Iterator[str]:
    with served(build(ScriptedResident(engine), PRESETS, {FOUR.id: events})) as address:
        yield address


@pytest.fixture
def open_page(browser: Browser, url: str) -> Iterator[OpenPage]:
    with opener(browser, url) as open_one:
        yield open_one


def open_history(page: Page) -> Locator:
    page.get_by_role("button", name="History", exact=True).click()
    expect(part(page, "history")).to_be_visible()
    return part(page, "history.list").locator("li")


def stored(page: Page) -> str:
    """All that the browser has stored for this page, whatever the key."""
    return page.evaluate("JSON.stringify(Object.entries(localStorage))")


def kept(page: Page) -> list[dict[str, str]]:
    return json.loads(page.evaluate("(key) => localStorage.getItem(key)", KEY) or '{"runs": []}')["runs"]


def entry(number: int, events: Sequence[Event], scenario: str = "Kept") -> dict[str, str]:
    return {"id": str(number), "scenario": scenario, "log": to_lines(events)}


def put_in(text: str) -> str:
    """A script that finds this in the store, on the first page that runs it."""
    return f"localStorage.getItem({KEY!r}) ?? localStorage.setItem({KEY!r}, {json.dumps(text)});"


def of_runs(*runs: Any, own: Any = False) -> str:
    return json.dumps({"keepsOwn": own, "runs": runs})


# --- what is kept ---


def test_a_finished_live_run_is_kept_over_a_reload(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    assert kept(page) == [], "a recording is not kept"
    run(page)
    ms = engine.races[-1].trace("lane_end", "pcd")[0].ms
    page.reload()
    entries = open_history(page)
    expect(entries).to_have_count(1)
    for words in (FOUR.title, "2026-01-02 03:04:05 UTC", "scripted-1b", f"PCD {ms:.1f} ms", "× in this run"):
        expect(entries).to_contain_text(words)
    kinds = [json.loads(line)["kind"] for line in kept(page)[0]["log"].splitlines()]
    assert kinds[0] == "run" and kinds[-1] == "end" and not {"tick", "prepared", "waiting"} & set(kinds)


def test_a_stopped_run_is_not_kept(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    choose(page, MANY.title)
    expect(part(page, "badge")).to_have_text("NOT RUN YET")
    engine.token_ms = 150
    try:
        page.locator("#run").click()
        expect_phase(page, "running")
        page.locator("#stop").click()
        expect_phase(page, "stopped")
    finally:
        engine.token_ms = 1
    assert kept(page) == []


@pytest.mark.parametrize("what", ["text", "schema"])
def test_an_own_text_or_schema_is_not_kept_before_the_person_says_so(open_page: OpenPage, what: str) -> None:
    page = open_page()
    if what == "text":
        page.locator("#context textarea").fill(f"{FOUR.context} {SECRET}")
    else:
        spec = FOUR.schema.to_json()
        type_schema(page, json.dumps(spec | {"is_fraud": {"type": "boolean", "description": SECRET}}))
    run(page)
    assert SECRET not in stored(page)
    entries = open_history(page)
    expect(entries).to_have_count(0)
    expect(part(page, "history.notice")).to_contain_text("No run is kept yet.")
    expect(part(page, "history.own")).not_to_be_checked()
    part(page, "history.own").check()
    assert SECRET not in stored(page), "what was run before is not kept afterwards"
    run(page)
    expect(entries).to_have_count(1)
    expect(entries).to_contain_text("own text")
    assert SECRET in stored(page)
    page.reload()
    open_history(page)
    expect(part(page, "history.own")).to_be_checked()
    expect(entries).to_have_count(1)


def test_turning_it_off_deletes_own_texts_and_clear_deletes_all(open_page: OpenPage) -> None:
    page = open_page()
    run(page)
    entries = open_history(page)
    part(page, "history.own").check()
    expect(entries).to_have_count(1)
    run(page, SECRET)
    expect(entries).to_have_count(2)
    assert SECRET in stored(page)
    part(page, "history.own").uncheck()
    expect(entries).to_have_count(1)
    expect(part(page, "history.notice")).to_contain_text("1 run with your own text deleted.")
    assert SECRET not in stored(page)
    expect(entries).to_contain_text(FOUR.title)
    page.get_by_role("button", name="Clear").click()
    expect(entries).to_have_count(0)
    assert kept(page) == []


def test_what_was_cleared_does_not_come_back_with_the_run_on_the_board(open_page: OpenPage) -> None:
    page = open_page()
    run(page)
    run(page)
    entries = open_history(page)
    entries.last.get_by_role("button").click()
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("button", name="Back to the current one").click()
    expect(part(page, "badge")).to_contain_text("LIVE")
    expect(entries).to_have_count(0)
    assert kept(page) == []


def test_the_21st_run_drops_the_first(open_page: OpenPage, events: Sequence[Event]) -> None:
    page = open_page(script=put_in(of_runs(*(entry(number, events) for number in range(20)))))
    entries = open_history(page)
    expect(entries).to_have_count(20)
    run(page)
    expect(entries).to_have_count(20)
    expect(entries.first).to_contain_text(FOUR.title)
    assert [run["id"] for run in kept(page)[1:]] == [str(number) for number in range(19)]


def test_two_tabs_keep_in_one_history(open_page: OpenPage) -> None:
    page = open_page()
    beside = open_page(context=page.context)
    entries = open_history(beside)
    expect(entries).to_have_count(0)
    run(page)
    expect(entries).to_have_count(1)
    run(beside)
    expect(entries).to_have_count(2)
    expect(open_history(page)).to_have_count(2)  # what one tab stores reaches the other a moment later


# --- a store that is full, closed or somebody else's ---


def test_a_full_store_keeps_the_newest_and_says_so(open_page: OpenPage, events: Sequence[Event]) -> None:
    room = int(2.5 * len(json.dumps(to_lines(events), ensure_ascii=False)))
    page = open_page(script=put_in(of_runs(*(entry(number, events) for number in range(3)))) + ROOM_FOR % room)
    run(page)
    entries = open_history(page)
    count = entries.count()
    assert 0 < count < 4
    expect(entries.first).to_contain_text(FOUR.title)
    expect(part(page, "history.notice")).to_contain_text(f"storage for this page is full: the newest {count} run")


@pytest.mark.parametrize("script", [CLOSED, ROOM_FOR % 10], ids=["closed", "no room"])
def test_without_a_store_runs_are_kept_until_the_page_is_closed(open_page: OpenPage, script: str) -> None:
    page = open_page(script=script)
    run(page)
    entries = open_history(page)
    expect(entries).to_have_count(1)
    expect(part(page, "history.notice")).to_contain_text("kept until the page is closed")
    run(page)
    expect(entries).to_have_count(2)
    page.get_by_role("button", name="Clear").click()
    expect(entries).to_have_count(0)
    page.reload()
    expect(open_history(page)).to_have_count(0)


@pytest.fixture(scope="module")
def content(browser: Browser) -> Iterator[Callable[[str], dict[str, Any]]]:
    """What the board makes of a stored text, without a page."""
    page = browser.new_page()
    source = board_script(PRESETS)
    call = "([source, text]) => new Function(`${source}; return contentOf;`)()(text)"
    yield lambda text: page.evaluate(call, [source, text])
    page.close()


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "null", "7", '"runs"', "[]", '{"runs": 7}', '{"runs": {"0": 1}}', MARKUP, "[" * 5000,
        '{"__proto__": {"runs": []}}',
    ],
)  # fmt: skip
def test_a_store_that_is_none_counts_as_one_lost_run(content: Callable[[str], Any], text: str) -> None:
    assert content(text) == {"keepsOwn": False, "runs": [], "lost": 1}


def test_a_store_that_is_none_is_left_out_and_written_anew(open_page: OpenPage) -> None:
    page = open_page(script=put_in(MARKUP))
    entries = open_history(page)
    expect(part(page, "history.notice")).to_contain_text("⚠ 1 kept run could not be read and left out.")
    expect(entries).to_have_count(0)
    run(page)
    expect(entries).to_have_count(1)
    assert len(kept(page)) == 1


def changed(events: Sequence[Event], kind: str, values: dict[str, Any]) -> str:
    """The log with other values in the first event of a kind."""
    lines = to_lines(events).splitlines()
    number = next(i for i, line in enumerate(lines) if json.loads(line)["kind"] == kind)
    lines[number] = json.dumps(json.loads(lines[number]) | values)
    return "\n".join(lines) + "\n"


FOUL: list[tuple[str, dict[str, Any]]] = [
    ("run", {"names": None}),
    ("run", {"names": ["risk_level", "risk_level"]}),
    ("run", {"names": ["toString"]}),
    ("run", {"schema": {"risk_level": None}}),
    ("run", {"names": ["risk_level"], "schema": {"risk_level": {"type": "boolean", "titles": 5}}}),
    ("run", {"names": ["risk_level"], "schema": {"risk_level": {"type": "boolean", "depends_on": "is_fraud"}}}),
    ("run", {"date": "whenever"}),
    ("run", {"date": 7}),
    ("run", {"order": ["pcd", "__proto__"]}),
    ("run", {"temperature": "1"}),
    ("run", {"versions": {"a": {"b": 1}}}),
    ("run", {"kind": "constructor"}),
    ("lane", {"lane": "__proto__"}),
    ("phase", {"took_ms": "1"}),
    ("field", {"top": [1]}),
    ("field", {"top": [["a", "b"]]}),
    ("field", {"value": {"toJSON": 1}}),
    ("field", {"probability": 7}),
    ("field", {"path": [["a"]]}),
    ("field", {"ms": None}),
    ("token", {"text": 7}),
    ("token", {"lane": "constructor"}),
    ("row", {"flags": "same"}),
    ("row", {"start": 0.5}),
    ("row", {"name": {}}),
    ("judged", {"counts": []}),
    ("lane_end", {"ms": "5"}),
    ("lane_end", {"ms": -1}),
    ("lane_end", {"lane": "ar"}),
    ("lane_end", {"text": None}),
    ("end", {"state": "failed"}),
    ("end", {"speed_up": "12"}),
    ("end", {"marks": [None]}),
]


def test_runs_that_are_none_are_left_out(open_page: OpenPage, events: Sequence[Event]) -> None:
    logs = [changed(events, kind, values) for kind, values in FOUL]
    logs += [
        "",
        "{",
        "null\n",
        "[]\n",
        to_lines(events[1:]),
        to_lines(events[:-1]),
        to_lines([*events, *events]),
        to_lines(events).replace('"temperature": 1.0', '"temperature": 1e999'),
        MARKUP,
    ]
    for start in range(0, len(logs), 15):
        runs = [{"id": str(number), "scenario": "foul", "log": log} for number, log in enumerate(logs[start:][:15])]
        page = open_page(script=put_in(of_runs(*runs, entry(99, events, "Sound"))))
        entries = open_history(page)
        assert [text.split(",")[0] for text in entries.locator("label").all_text_contents()] == ["Sound"], start
        expect(part(page, "history.notice")).to_contain_text(f"⚠ {len(runs)} kept run")


@pytest.mark.parametrize(
    "runs",
    [
        [None],
        [7],
        [{"id": "1"}],
        [{"id": 1, "scenario": "a", "log": ""}],
        [{"id": "1", "scenario": ["a"], "log": ""}],
        [[]],
    ],
)
def test_entries_that_are_none_are_left_out(
    content: Callable[[str], Any], events: Sequence[Event], runs: list[Any]
) -> None:
    twice = [entry(7, events), entry(7, events)]
    assert content(of_runs(*runs, *twice)) == {"keepsOwn": False, "runs": [twice[0]], "lost": 2}


def test_how_many_entries_were_left_out_is_said(open_page: OpenPage, events: Sequence[Event]) -> None:
    page = open_page(script=put_in(of_runs(None, entry(7, events), entry(7, events))))
    expect(open_history(page)).to_have_count(1)
    expect(part(page, "history.notice")).to_contain_text("⚠ 2 kept runs could not be read and left out.")


@pytest.mark.parametrize("own", [False, "yes", None])
def test_an_own_text_in_the_store_is_none_where_own_texts_are_not_kept(
    content: Callable[[str], Any], events: Sequence[Event], own: Any
) -> None:
    assert content(of_runs(entry(1, events, scenario=""), own=own)) == {"keepsOwn": False, "runs": [], "lost": 1}


def test_an_own_text_in_the_store_is_not_shown_where_own_texts_are_not_kept(
    open_page: OpenPage, events: Sequence[Event]
) -> None:
    page = open_page(script=put_in(of_runs(entry(1, events, scenario=""), own="yes")))
    expect(open_history(page)).to_have_count(0)
    run(page)
    assert [run["scenario"] for run in kept(page)] == [FOUR.title]


def test_hostile_text_of_a_kept_run_stays_text(open_page: OpenPage) -> None:
    events = told(NASTY.schema, f"{HOSTILE} {MARKUP}")
    events = [
        replace(event, model=MARKUP, mode=MARKUP, machine=MARKUP, versions={MARKUP: MARKUP}, cache=HOSTILE)
        if isinstance(event, RunStarted)
        else event
        for event in events
    ]
    page = open_page(script=put_in(of_runs(entry(1, events, MARKUP), entry(2, told(), ""), own=True)))
    entries = open_history(page)
    expect(entries.first).to_contain_text("<img src=x onerror=window.__pwned=1> ${7*7} {{x}} </script> \\u202e")
    for box in entries.locator("input").all():
        box.check()
    expect(part(page, "comparison")).to_be_visible()
    expect(part(page, "comparison.conditions")).to_contain_text("<img src=x onerror=window.__pwned=1>")
    entries.first.get_by_role("button").click()
    expect(part(page, "badge")).to_contain_text("EARLIER RUN")
    expect(part(page, "badge")).to_contain_text("<img src=x onerror=window.__pwned=1>")
    names = page.locator(".rows:not(.invented) .row[data-field] .name").all_text_contents()
    assert names == [field.name for field in NASTY.schema]
    assert "\u202e" not in (page.locator(".board").text_content() or "")
    assert page.evaluate("[window.__pwned, {}.ms, {}.schema]") == [None, None, None]
    assert page.locator(".board img").count() == 0


# --- on the board again ---


def test_an_entry_is_shown_replayed_and_left_again(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    run(page)
    first = engine.races[-1]
    page.locator("#temperature input").fill("2")
    run(page)
    current = part(page, "ar.clock").text_content()
    back = page.get_by_role("button", name="Back to the current one")
    expect(back).to_be_hidden()
    entries = open_history(page)
    entries.last.get_by_role("button").click()
    expect(part(page, "badge")).to_contain_text("◷ EARLIER RUN")
    [end] = first.trace("lane_end", "ar")
    assert f"{end.ms:.1f}" in (part(page, "ar.clock").text_content() or "")
    assert part(page, "ar.raw").text_content() == end.text
    expect(entries.last.get_by_role("button")).to_have_text("On the board")
    part(page, "replay.restart").click()
    expect(part(page, "ar.raw")).to_have_text("{")
    part(page, "replay.full").click()
    assert part(page, "ar.raw").text_content() == end.text
    assert page.locator("#temperature input").input_value() == "2", "the inputs stay"
    back.click()
    expect(part(page, "badge")).to_contain_text("LIVE")
    assert part(page, "ar.clock").text_content() == current
    expect(back).to_be_hidden()
    entries.last.get_by_role("button").click()
    run(page)
    expect(part(page, "badge")).to_contain_text("LIVE")
    expect(entries).to_have_count(3)


def test_a_run_that_ends_behind_another_one_is_kept_and_is_the_run_before(open_page: OpenPage) -> None:
    page = open_page(script=put_in(of_runs(own=True)))
    page.locator("#context textarea").fill("My own text.")
    page.locator("#run").click()
    expect(part(page, "badge")).to_contain_text("LIVE")
    page.locator("#title").click()
    page.keyboard.press("l")
    expect(part(page, "badge")).to_contain_text("RECORDED")
    expect(page.locator("#run")).to_be_enabled()
    run(page)
    expect(part(page, "badge")).to_contain_text("LIVE")
    expect(part(page, "changes")).to_have_text("= No field changed since the run before; the text is the same.")
    assert len(kept(page)) == 2


def test_a_run_that_goes_on_is_not_disturbed(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    run(page)
    entries = open_history(page)
    expect(entries.get_by_role("button")).to_be_enabled()
    choose(page, MANY.title)
    expect(part(page, "badge")).to_have_text("NOT RUN YET")
    engine.token_ms = 150
    try:
        page.locator("#run").click()
        expect_phase(page, "running")
        expect(entries.get_by_role("button")).to_be_disabled()
        expect(part(page, "history.notice")).to_contain_text("A run is going on: an earlier one can be opened when")
        entries.locator("input").check()
        page.wait_for_timeout(300)
        expect(entries.locator("input")).to_be_checked()
        entries.locator("input").press("Escape")
        expect(part(page, "history")).to_be_hidden()
        page.wait_for_timeout(300)
        expect_phase(page, "running")
        open_history(page)
        page.locator("#stop").click()
        expect_phase(page, "stopped")
    finally:
        engine.token_ms = 1
    expect(entries.get_by_role("button")).to_be_enabled()
    expect(part(page, "history.notice")).to_have_text("")


# --- two runs side by side ---


def cells(page: Page, table: str) -> list[list[str]]:
    return part(page, table).evaluate(
        "table => [...table.children].slice(1).map((row) => [...row.children].map((cell) => cell.textContent))"
    )


ROUTE = decide(FOUR.schema.fields[-1])
OTHER_ROUTE = ROUTE.choices[ROUTE.winner - 1]


def other_run(events: Sequence[Event]) -> list[Event]:
    """The same fields on another machine and model, one of them decided otherwise."""
    name = FOUR.schema.fields[-1].name
    return [
        replace(event, model="other-2b", machine="Other chip", temperature=2.0, context="Another text.")
        if isinstance(event, RunStarted)
        else replace(event, value=OTHER_ROUTE, probability=0.51)
        if isinstance(event, FieldDecided) and event.name == name
        else event
        for event in events
    ]


def test_two_runs_are_compared_field_by_field(open_page: OpenPage, events: Sequence[Event]) -> None:
    page = open_page(script=put_in(of_runs(entry(2, other_run(events), "New"), entry(1, events, "Old"))))
    entries = open_history(page)
    pair = part(page, "history.pair")
    expect(pair).to_have_text("Tick two runs to compare them: 0 of 2.")
    entries.first.locator("input").check()
    expect(part(page, "comparison")).to_be_hidden()
    entries.last.locator("input").check()
    expect(part(page, "comparison.names")).to_contain_text("A: Old")
    conditions = {label: values for label, *values in cells(page, "comparison.conditions")}
    assert conditions["machine"] == ["–", "Other chip"]
    assert conditions["model"] == ["scripted-1b", "other-2b"]
    assert conditions["temperature"] == ["1", "2"]
    assert conditions["text"] == [FOUR.context, "Another text."]
    assert set(conditions) == {"date", "text", "machine", "model", "temperature"}
    end, ratio = events[-1], "Baseline ÷ PCD, inside the run"
    clocks = {label: values for label, *values in cells(page, "comparison.clocks")}
    assert clocks[ratio] == [f"{end.speed_up:.{2 if end.speed_up < 10 else 1}f}×"] * 2
    caution = part(page, "comparison.caution")
    expect(caution).to_contain_text("No speed-up is given across two runs")
    expect(caution).to_contain_text("Here machine and model differ, so the times of A and B do not belong together.")
    fields = cells(page, "comparison.fields")
    routing = FOUR.schema.fields[-1].name
    [before] = [e for e in events if isinstance(e, FieldDecided) and e.name == routing]
    assert [name for name, *_ in fields] == [routing, *(field.name for field in FOUR.schema if field.name != routing)]
    assert fields[0][1:3] == [f'"{before.value}" {100 * before.probability:.1f} %', f'"{OTHER_ROUTE}" 51.0 %']
    assert [row[-1] for row in fields] == ["≠ differs", "= same", "= same", "= same"]
    expect(part(page, "comparison.count")).to_have_text("1 of the 4 fields in both differs")
    part(page, "comparison.only").check()
    assert [name for name, *_ in cells(page, "comparison.fields")] == [routing]
    entries.first.locator("input").uncheck()
    expect(part(page, "comparison")).to_be_hidden()


def test_fields_of_one_run_alone_are_named_as_such(open_page: OpenPage, events: Sequence[Event]) -> None:
    page = open_page(script=put_in(of_runs(entry(2, told(MANY.schema)), entry(1, events))))
    for box in open_history(page).locator("input").all():
        box.check()
    expect(part(page, "comparison.count")).to_contain_text(
        "0 of the 0 fields in both differ, 4 only in A, 28 only in B"
    )
    assert {row[-1] for row in cells(page, "comparison.fields")} == {"− only in A", "+ only in B"}


def test_three_ticks_are_one_too_many(open_page: OpenPage, events: Sequence[Event]) -> None:
    page = open_page(script=put_in(of_runs(*(entry(number, events) for number in range(3)))))
    for box in open_history(page).locator("input").all():
        box.check()
    expect(part(page, "history.pair")).to_have_text("3 runs are ticked: untick 1.")
    expect(part(page, "comparison")).to_be_hidden()


def test_the_keyboard_alone_opens_compares_and_leaves(open_page: OpenPage, events: Sequence[Event]) -> None:
    page = open_page(script=put_in(of_runs(*(entry(number, events) for number in range(2)))))
    page.get_by_role("button", name="History", exact=True).focus()
    page.keyboard.press("Enter")
    expect(part(page, "history")).to_be_visible()
    for _ in range(3):  # past the keys' button and the box for own texts
        page.keyboard.press("Tab")
    for key in ("Space", "Tab", "Tab", "Space"):
        page.keyboard.press(key)
    expect(part(page, "comparison")).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(part(page, "badge")).to_contain_text("EARLIER RUN")
    page.keyboard.press("Escape")
    expect(part(page, "history")).to_be_hidden()
    expect(page.get_by_role("button", name="History", exact=True)).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(part(page, "badge")).to_contain_text("RECORDED")


def test_it_fits_a_phone(open_page: OpenPage) -> None:
    runs = [entry(1, told(NASTY.schema, NASTY.context), MARKUP), entry(2, told(MANY.schema), "w" * 200)]
    page = open_page(script=put_in(of_runs(*runs)), viewport={"width": 390, "height": 900})
    for box in open_history(page).locator("label").all():
        box.click()
    expect(part(page, "comparison")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for target in page.locator(".board .history :is(button, label)").all():
        box = target.bounding_box()
        assert box and box["height"] >= 44 and box["x"] >= 0 and box["x"] + box["width"] <= 390
