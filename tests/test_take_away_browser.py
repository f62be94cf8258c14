"""Taking a run away, in Chromium: report, trace, table, picture and link, each opened again by what reads it."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Page, expect

from core.trace import Event, FieldDecided, RunEnded, load, to_lines
from core.ui.links import LONGEST, Link, Shared, link_to
from core.ui.page import build
from tests.chromium import CHROMIUM, PATIENCE_MS, choose, expect_phase, part, run_to_the_end, spy_on
from tests.scripted import (
    FOUR,
    HOSTILE,
    MANY,
    NASTY,
    ScriptedEngine,
    ScriptedRace,
    ScriptedResident,
    scenario,
    served,
    started,
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}"),
]

TRICKY = "</script><script>window.__pwned=3</script><!-- <b>x</b> ${7*7} {{x}} `y` \u202e"
FORMULAS = scenario(
    "Formulas </script><!-- x",
    {
        '=HYPERLINK("//x","y")': {"type": "enum", "choices": ["=1+1", "@SUM(A1)"]},
        "+1+cmd|' /C calc'!A0": {"type": "boolean"},
        "-2+3": {"type": "enum", "choices": [-5, -6]},
        "@x": {"type": "boolean"},
        "\t=x": {"type": "boolean"},
        " =x, or\nnot": {"type": "enum", "choices": [TRICKY, HOSTILE]},
        "＝x": {"type": "boolean"},
    },
    "=1+1",
)
PRESETS = (FOUR, MANY, NASTY, FORMULAS)
FOUR_TEXT = json.dumps(FOUR.schema.to_json())


@pytest.fixture(scope="module")
def engine() -> ScriptedEngine:
    return ScriptedEngine(token_ms=1, pass_ms=40, failing="free")


@pytest.fixture(scope="module")
def recording() -> list[Event]:
    race: ScriptedRace = ScriptedEngine(token_ms=4, pass_ms=90).race(FOUR.context, FOUR.schema)
    race.over.wait()
    return [event for event in race.events if not event.live]


@pytest.fixture(scope="module")
def url(engine: ScriptedEngine, recording: list[Event]) -> Iterator[str]:
    with served(build(ScriptedResident(engine), PRESETS, {FOUR.id: recording})) as address:
        yield address


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    found: list[str] = []
    yield found
    # A page that a test has cut off asks for its server after a while; what a report asks for is told by its address.
    # A page that goes in the middle of a run breaks gradio's stream off.
    forgiven = ("ERR_INTERNET_DISCONNECTED", "AbortError: signal is aborted", "Connection errored out")
    assert [said for said in found if not any(words in said for words in forgiven)] == []


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, url: str, complaints: list[str]) -> Page:
    return opened(context, url, complaints)


def opened(context: BrowserContext, address: str, complaints: list[str], part_of: str = "") -> Page:
    page = context.new_page()
    spy_on(page, address, complaints)
    page.goto(f"{address}{part_of}")
    expect(page.locator(".board .row[data-field]").first).to_be_visible(timeout=PATIENCE_MS)
    return page


def show_tools(page: Page, name: str = "Take away", panel: str = "take") -> None:
    if part(page, panel).is_hidden():
        page.get_by_role("button", name=name, exact=True).click()
    expect(part(page, panel)).to_be_visible()


def taken(page: Page, kind: str, folder: Path) -> Path:
    show_tools(page)
    with page.expect_download() as download:
        part(page, f"take.{kind}").click()
    file = folder / download.value.suggested_filename
    download.value.save_as(file)
    return file


def method(page: Page) -> list[str]:
    show_tools(page, "Method", "method")
    return part(page, "method.text").locator("li").all_text_contents()


def race_on(page: Page, title: str, engine: ScriptedEngine) -> ScriptedRace:
    choose(page, title)
    page.locator("#run").click()
    expect(part(page, "badge")).to_contain_text("LIVE", timeout=PATIENCE_MS)
    expect_phase(page, "done")
    return engine.races[-1]


def screen(page: Page) -> list[str]:
    """All that the board says of both lanes, and where each row's bar stands."""
    parts = ("pcd.clock", "ar.clock", "factor", "conditions", "marks", "run-line", "verdict", "status", "pcd.raw",
             "ar.raw", "pcd.legend", "ar.legend", "replay.caption", "replay.time")  # fmt: skip
    rows = page.locator(".board .row[data-field]")
    bars = rows.locator(".bar i").evaluate_all("bars => bars.map((bar) => bar.style.transform)")
    return [part(page, name).text_content() or "" for name in parts] + rows.all_text_contents() + bars


def opened_report(context: BrowserContext, file: Path, complaints: list[str]) -> Page:
    """The report from a disk, without a network; whatever it asks for or complains of is in `complaints`."""
    report = context.new_page()
    report.route(re.compile("^(https?|wss?):"), lambda route: route.abort())  # the page beside it keeps its own
    spy_on(report, file.as_uri(), complaints)
    report.on("dialog", lambda dialog: complaints.append(dialog.message) or dialog.dismiss())
    report.goto(file.as_uri())
    expect(report.locator(".board .row[data-field]").first).to_be_visible()
    return report


# --- the report ---


@pytest.mark.parametrize("title", [NASTY.title, FORMULAS.title])
def test_a_report_opens_from_a_disk_and_replays_by_keyboard_to_the_page_s_own_screens(
    context: BrowserContext, page: Page, engine: ScriptedEngine, complaints: list[str], tmp_path: Path, title: str
) -> None:
    race_on(page, title, engine)
    file = taken(page, "report", tmp_path)
    assert 50_000 < file.stat().st_size < 900_000
    report = opened_report(context, file, complaints)
    expect(part(report, "badge")).to_contain_text("RECORDED")
    assert screen(report) == screen(page)
    page.locator("#title").click()
    for keys in (["r"], ["ArrowRight"] * 3, ["r", "ArrowRight"], ["ArrowRight"] * 8, ["ArrowLeft"] * 2):
        for key in keys:
            page.keyboard.press(key)
            report.keyboard.press(key)
        assert screen(report) == screen(page)
    report.get_by_role("button", name="Show the end").press("Enter")
    part(page, "replay.full").click()
    assert screen(report) == screen(page)
    expect(report.get_by_role("button", name="Take away")).to_be_hidden()
    report.keyboard.press("?")
    assert report.locator(".keys > div:visible dt").all_text_contents() == ["Space", "← →", "R", "P", "?"]
    report.keyboard.press("?")
    assert report.evaluate("window.__pwned") is None


def test_a_report_plays_names_its_run_prints_its_method_and_follows_the_reader_s_theme(
    context: BrowserContext, page: Page, complaints: list[str], tmp_path: Path
) -> None:
    lines = method(page)
    report = opened_report(context, taken(page, "report", tmp_path), complaints)
    whole = screen(report)
    report.keyboard.press("r")
    assert screen(report) != whole
    report.keyboard.press(" ")
    expect_phase(report, "done")
    assert screen(report) == whole
    for scheme, classes in (("light", "report"), ("dark", "report dark"), ("light", "report")):
        report.emulate_media(color_scheme=scheme)
        expect(report.locator("body")).to_have_class(classes)
        paper, ink = (
            int(re.findall(r"\d+", report.evaluate(f"getComputedStyle(document.querySelector('.board')).{of}"))[0])
            for of in ("backgroundColor", "color")
        )
        assert (paper < ink) == (scheme == "dark"), scheme
    assert report.title() == "scripted-1b, baseline mode json, n = 1: PCD beside streamed JSON"
    assert report.locator(".printed li").all_text_contents() == lines
    assert method(report) == lines
    report.emulate_media(media="print")
    expect(report.locator(".printed")).to_be_visible()
    expect(report.locator(".board .replay")).to_be_hidden()


def test_without_scripts_the_report_still_says_its_method(
    browser: Browser, page: Page, complaints: list[str], tmp_path: Path
) -> None:
    lines, file = method(page), taken(page, "report", tmp_path)
    plain = browser.new_context(java_script_enabled=False).new_page()
    plain.goto(file.as_uri())
    assert plain.locator(".printed li").all_text_contents() == lines
    plain.context.close()


def test_a_report_runs_its_own_script_alone_and_asks_nobody(page: Page, tmp_path: Path) -> None:
    text = taken(page, "report", tmp_path).read_text(encoding="utf-8")
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    nonce = re.search(r"script-src 'nonce-([0-9a-f]{32})'", policy)
    assert nonce and policy == (
        f"default-src 'none'; script-src 'nonce-{nonce[1]}'; style-src 'nonce-{nonce[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert text.index("Content-Security-Policy") < text.index("<style")
    assert not re.search(
        r"""(src|href)=|url\(|@import|https?://""", re.sub(r"<script.*?</script>", "", text, flags=re.S)
    )
    assert taken(page, "report", tmp_path).read_text(encoding="utf-8") != text, "a nonce is used once"


def test_hostile_words_of_a_run_are_inert_in_every_export(
    context: BrowserContext, complaints: list[str], tmp_path: Path, recording: list[Event]
) -> None:
    words = (
        "model",
        "why",
        "backend",
        "device",
        "machine",
        "dtype",
        "mode",
        "style",
        "cache",
        "date",
        "context",
        "opening",
    )
    events = [started(**dict.fromkeys(words, TRICKY), versions={TRICKY: TRICKY}), *recording[1:]]
    with served(build(ScriptedResident(None), PRESETS, {FOUR.id: events})) as address:
        page = opened(context, address, complaints)
        files = [taken(page, kind, tmp_path) for kind in ("report", "trace", "csv", "card")]
        assert all(re.fullmatch(r"[\w.-]+", file.name) and ".." not in file.name for file in files)
        assert to_lines(load(files[1])) == to_lines(events)
        read_csv(files[2])
        assert Image.open(files[3]).size == (1200, 630)
        whole = screen(page)
    report = opened_report(context, files[0], complaints)
    assert screen(report) == whole
    assert report.evaluate("[window.__pwned, document.scripts.length]") == [None, 2]
    assert report.locator("b b, img, svg").count() == 0


# --- the trace ---


@pytest.mark.parametrize("title", [FOUR.title, NASTY.title])
def test_the_trace_of_a_live_run_is_read_as_the_events_that_were_sent(
    page: Page, engine: ScriptedEngine, tmp_path: Path, title: str
) -> None:
    race = race_on(page, title, engine)
    file = taken(page, "trace", tmp_path)
    kept = [event for event in race.events if not event.live]
    assert to_lines(load(file)) == to_lines(kept)
    document = json.loads(file.read_text(encoding="utf-8"))
    assert list(document) == ["method", "events"]
    lines = [line for section in document["method"] for line in section["lines"]]
    assert [line.replace("\u202e", "\\u202e") for line in lines] == method(page)


def test_integers_keep_their_digits_in_the_trace_and_in_the_table(
    page: Page, engine: ScriptedEngine, tmp_path: Path
) -> None:
    race = race_on(page, NASTY.title, engine)
    [long] = [event for event in race.events if isinstance(event, FieldDecided) and event.name == "10"]
    events = load(taken(page, "trace", tmp_path))
    assert next(e for e in events if isinstance(e, FieldDecided) and e.name == "10").top == long.top
    assert "12345678901234567890123" in str(long.top)
    [row] = [row for row in read_csv(taken(page, "csv", tmp_path)) if row["field"] == "10"]
    assert row["PCD value"] == str(long.value)


# --- the table ---


def read_csv(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.reader(lines, strict=True))
    assert {len(row) for row in rows} == {len(rows[0])}
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def test_the_table_has_a_row_per_field_and_invented_key_with_conditions_and_method(
    page: Page, recording: list[Event], tmp_path: Path
) -> None:
    lines = method(page)
    file = taken(page, "csv", tmp_path)
    assert file.read_bytes().count(b"\r\n") == len(read_csv(file)) + 1
    rows = read_csv(file)
    decided = [event for event in recording if isinstance(event, FieldDecided)]
    assert [row["field"] for row in rows[:4]] == [event.name for event in decided]
    assert [row["flags"] for row in rows[4:]] == ["invented", "invented"]
    for row, event in zip(rows, decided, strict=False):
        assert row["PCD value"] == json.dumps(event.value)
        assert float(row["share"]) == event.probability
        assert float(row["candidate mass"]) == event.candidate_mass
        assert float(row["margin"]) == pytest.approx(event.top[0][1] - event.top[1][1])
    lanes = {event.lane: event for event in recording if event.kind == "lane_end"}
    end = recording[-1]
    assert isinstance(end, RunEnded) and end.speed_up
    for row in rows:
        assert (row["model"], row["device"], row["dtype"], row["baseline mode"]) == (
            "scripted-1b",
            "cpu",
            "float32",
            "json",
        )
        assert float(row["PCD ms"]) == pytest.approx(lanes["pcd"].ms, abs=0.001)
        assert float(row["baseline ms"]) == pytest.approx(lanes["ar"].ms, abs=0.001)
        assert float(row["baseline / PCD"]) == end.speed_up
        assert (row["n"], row["date"], row["source"]) == ("1", "2026-01-02T03:04:05Z", "recorded")
        written = [line for name, text in row.items() if name.startswith("method: ") for line in text.split("\n")]
        assert written == lines


def test_what_a_spreadsheet_would_run_is_text_in_the_table(page: Page, engine: ScriptedEngine, tmp_path: Path) -> None:
    race_on(page, FORMULAS.title, engine)
    rows = read_csv(taken(page, "csv", tmp_path))
    fields = [row["field"] for row in rows[: len(FORMULAS.schema)]]
    assert fields == [f"'{field.name}" for field in FORMULAS.schema]
    assert rows[2]["PCD value"] in ("-5", "-6"), "a number is no formula"
    for row in rows:
        for cell in row.values():
            assert not re.match(r"\s*[=+@\t＝＋－＠]", cell) and (not cell.startswith("-") or float(cell))
            assert not re.search(r"[\u202e\r\0]", cell)


# --- the picture ---


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_card_is_a_picture_of_a_fixed_size_with_the_method_in_it(
    context: BrowserContext, url: str, complaints: list[str], tmp_path: Path, theme: str
) -> None:
    page = opened(context, url, complaints, f"?__theme={theme}")
    lines = method(page)
    with Image.open(taken(page, "card", tmp_path)) as card:
        card.load()
        assert (card.format, card.size) == ("PNG", (1200, 630))
        told = [line.removeprefix("- ") for line in card.text["Description"].split("\n") if line.startswith("- ")]
        paper = card.convert("RGB").getpixel((5, 5))
        drawn = {color for _, color in card.convert("RGB").getcolors(1 << 20)}
    assert told == lines
    assert paper == ((255, 255, 255) if theme == "light" else (15, 23, 42))
    assert len(drawn) > 50


# --- what can be taken, and what cannot ---


KINDS = ("report", "trace", "csv", "card")


def can_take(page: Page) -> list[str]:
    return [kind for kind in KINDS if part(page, f"take.{kind}").is_enabled()]


def test_before_a_run_there_is_nothing_to_take_and_it_is_said(page: Page) -> None:
    choose(page, MANY.title)
    expect(part(page, "badge")).to_have_text("NOT RUN YET")
    show_tools(page)
    expect(part(page, "take.note")).to_contain_text("There is no run to take yet")
    assert can_take(page) == []


def test_of_a_stopped_run_only_the_trace_can_be_taken(page: Page, engine: ScriptedEngine, tmp_path: Path) -> None:
    show_tools(page)
    choose(page, MANY.title)
    engine.token_ms = 60
    try:
        page.locator("#run").click()
        expect_phase(page, "running")
        expect(part(page, "take.note")).to_contain_text("The run is not over")
        assert can_take(page) == []
        page.locator("#stop").click()
        expect_phase(page, "stopped")
    finally:
        engine.token_ms = 1
    expect(part(page, "take.note")).to_have_text(
        "The run was stopped: it has no result to take, only the trace up to there."
    )
    assert can_take(page) == ["trace"]
    kept = [event for event in engine.races[-1].events if not event.live]
    file = taken(page, "trace", tmp_path)
    assert to_lines(load(file)) == to_lines(kept)
    assert "There is no result to compare." in file.read_text(encoding="utf-8")


def test_of_a_failed_run_only_the_trace_can_be_taken(page: Page, tmp_path: Path) -> None:
    page.locator("#mode").get_by_text("the prompt alone").click()
    page.locator("#run").click()
    expect_phase(page, "failed")
    show_tools(page)
    expect(part(page, "take.note")).to_contain_text("The run failed (out of memory: <img src=x onerror=")
    assert can_take(page) == ["trace"]
    end = load(taken(page, "trace", tmp_path))[-1]
    assert isinstance(end, RunEnded) and end.state == "failed"


def test_of_a_refused_run_nothing_can_be_taken(page: Page) -> None:
    page.locator("#temperature input").fill("")
    page.locator("#run").click()
    expect_phase(page, "failed")
    show_tools(page)
    expect(part(page, "take.note")).to_contain_text(
        "Nothing was run, so there is nothing to take: the temperature is empty"
    )
    assert can_take(page) == []


def test_a_trace_has_nothing_that_was_only_for_who_waited(page: Page, engine: ScriptedEngine, tmp_path: Path) -> None:
    with engine.device:
        page.locator("#run").click()
        page.wait_for_function("window.events.some(({ kind }) => kind === 'alive')", timeout=PATIENCE_MS)
    expect_phase(page, "done")
    kinds = {event.kind for event in load(taken(page, "trace", tmp_path))}
    assert {"run", "end"} <= kinds and not {"alive", "waiting", "tick"} & kinds
    expect(part(page, "take")).to_contain_text("Report and trace hold the run's text and schema.")


def test_files_are_named_after_scenario_model_and_date(page: Page, tmp_path: Path) -> None:
    assert [taken(page, kind, tmp_path).name for kind in KINDS] == [
        f"four_fields_scripted-1b_2026-01-02{ending}" for ending in (".html", ".trace.json", ".csv", ".png")
    ]
    page.locator("#context textarea").fill("A text of my own.")
    page.locator("#run").click()
    expect(part(page, "badge")).to_contain_text("LIVE")
    expect_phase(page, "done")
    assert taken(page, "csv", tmp_path).name == "own_scripted-1b_2026-01-02.csv"


# --- links ---


def asked_link(page: Page) -> str:
    show_tools(page)
    part(page, "take.share").click()
    expect(part(page, "take.made")).to_be_visible()
    return part(page, "take.link").input_value()


def inputs(page: Page) -> dict[str, Any]:
    """What stands in the page's inputs; of the schema, what its editor shows."""
    return {
        "context": page.locator("#context textarea").input_value(),
        "schema": "\n".join(page.locator("#schema .cm-line").all_text_contents()),
        "mode": page.locator("#mode input:checked").get_attribute("value"),
        "style": page.locator("#style input:checked").get_attribute("value"),
        "first": page.locator("#order input:checked").get_attribute("value"),
        "cache": page.locator("#cache input").is_checked(),
        "temperature": page.locator("#temperature input").input_value(),
    }


def test_a_link_to_own_inputs_fills_them_in_in_another_browser_and_runs_nothing(
    browser: Browser, page: Page, url: str, engine: ScriptedEngine, complaints: list[str]
) -> None:
    page.locator("#context textarea").fill(f"{TRICKY} of my own & 生气 #=%")
    page.locator("#schema .cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text('{"__proto__": {"type": "boolean", "description": "<b>x</b>"}}')
    page.locator("#style").get_by_text("Compact").click()
    page.locator("#order").get_by_text("Baseline first").click()
    page.locator("#cache input").uncheck()
    page.locator("#temperature input").fill("0.5")
    page.locator("#temperature input").press("Tab")
    link = asked_link(page)
    assert link.startswith(f"{url}#own=") and "my own" not in link
    given, runs = inputs(page), len(engine.races)
    fresh = browser.new_context(viewport={"width": 1440, "height": 900})
    other = opened(fresh, url, complaints, link.removeprefix(url))
    expect(other.locator("#about .notice")).to_contain_text("Filled in from a link, nothing was run")
    assert inputs(other) == given
    expect(other.locator("#verdict .notice")).to_contain_text("1 field, 2 choices")
    expect(other.locator(".rows:not(.invented) .row[data-field]")).to_have_count(1)
    expect(part(other, "badge")).to_have_text("NOT RUN YET")
    expect(other.locator("#preset input")).to_have_value("")
    assert other.evaluate("window.__pwned") is None
    assert len(engine.races) == runs
    choose(other, MANY.title)
    expect(other.locator("#context textarea")).to_have_value(MANY.context)
    fresh.close()


def test_a_link_to_a_scenario_names_it_and_shows_its_recording(
    browser: Browser, page: Page, url: str, complaints: list[str]
) -> None:
    page.locator("#mode").get_by_text("the schema itself is enforced").click()
    link = asked_link(page)
    assert link == f"{url}#preset=four_fields&mode=schema&style=pretty&cache=on&first=pcd&temperature=1.0"
    fresh = browser.new_context()
    other = opened(fresh, url, complaints, link.removeprefix(url))
    expect(other.locator("#about .notice")).to_contain_text("Settings filled in from a link")
    assert inputs(other)["mode"] == "schema"
    expect(part(other, "badge")).to_contain_text("RECORDED")
    run_to_the_end(other)
    expect(part(other, "run-line")).to_contain_text("baseline mode schema")
    fresh.close()


def test_a_link_that_is_opened_where_the_page_stands_is_read_too(page: Page, url: str, engine: ScriptedEngine) -> None:
    page.goto(f"{url}{link_to(Link('From the link.', FOUR_TEXT))}")
    expect(page.locator("#context textarea")).to_have_value("From the link.")
    expect(part(page, "badge")).to_have_text("NOT RUN YET")
    with engine.device:  # a run goes on
        page.locator("#run").click()
        expect_phase(page, "waiting")
        page.goto(f"{url}{link_to(Link('From another link.', FOUR_TEXT))}")
        expect(page.locator("#context textarea")).to_have_value("From another link.")
    assert engine.races[-1].over.wait(PATIENCE_MS / 1000)


def test_a_link_is_copied_and_forgotten_when_the_inputs_change(page: Page) -> None:
    link = asked_link(page)
    part(page, "take.copy").click()
    expect(part(page, "take.said")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == link
    page.locator("#context textarea").fill("Another text.")
    expect(part(page, "take.made")).to_be_hidden()
    page.get_by_role("button", name="Table", exact=True).click()
    asked_link(page)
    page.locator("#table .card .remove").last.click()  # no input of the browser's own
    expect(part(page, "take.made")).to_be_hidden()


def test_on_a_space_a_link_is_built_for_the_space_s_page(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPACE_ID", "someone/race")
    assert asked_link(page).startswith("https://huggingface.co/spaces/someone/race#preset=four_fields&")


def test_inputs_too_long_for_a_link_are_refused_with_the_way_out(page: Page) -> None:
    page.locator("#context textarea").fill("".join(chr(0x4E00 + (i * i * 7919) % 20_000) for i in range(9_000)))
    show_tools(page)
    part(page, "take.share").click()
    expect(part(page, "take.said")).to_contain_text(f"programs cut links of more than {LONGEST:,}; shorten the text")
    expect(part(page, "take.made")).to_be_hidden()


NOWHERE = "#preset=%3Cimg%20src%3Dx%20onerror%3Dwindow.__pwned%3D1%3E"
BAD_LINKS = {
    "#nonsense": "the link is damaged",
    "#preset=nowhere": "scenario 'nowhere' is none of this page's",
    NOWHERE: "scenario '<img src=x onerror=window.__pwned=1>'",
    "#preset=four_fields&color=red": "setting 'color' is unknown",
    "#preset=four_fields&mode=%24%7B7*7%7D": "mode '${7*7}' is unknown",
    "#own=%%%": "damaged",
    f"#own={'A' * 20_000}": "at most 8,000 are read",
}


def expect_refused(page: Page, words: str) -> None:
    note = page.locator("#about .notice")
    expect(note).to_contain_text(words)
    assert "\n" not in (note.locator("span").text_content() or ""), words
    assert page.evaluate("window.__pwned") is None, words
    assert inputs(page)["context"] == FOUR.context, words


def test_a_bad_link_gets_one_line_and_the_page_stays_usable(
    context: BrowserContext, url: str, complaints: list[str]
) -> None:
    page = opened(context, url, complaints, NOWHERE)
    expect_refused(page, BAD_LINKS[NOWHERE])
    run_to_the_end(page)


def test_each_bad_link_gets_its_own_line(page: Page, url: str) -> None:
    for part_of, words in BAD_LINKS.items():
        page.goto("about:blank")  # some links get the same words as the one before
        page.goto(f"{url}{part_of}")
        expect_refused(page, words)
    run_to_the_end(page)


def test_the_inputs_of_a_link_can_be_wrong_and_are_shown_as_they_are(
    context: BrowserContext, url: str, complaints: list[str]
) -> None:
    page = opened(context, url, complaints, link_to(Link("text", '{"a": ', Shared(mode="schema"))))
    expect(page.locator("#verdict .notice")).to_contain_text("not valid JSON")
    expect(page.locator("#schema .cm-content")).to_contain_text('{"a":')


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_panel_and_the_report_fit_a_phone(browser: Browser, url: str, tmp_path: Path, theme: Any) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=theme)
    page = opened(context, url, [], f"?__theme={theme}")
    asked_link(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for control in page.locator(".board .panel :is(button, input):visible").all():
        box = control.bounding_box()
        assert box and min(box["width"], box["height"]) >= 44 and box["x"] + box["width"] <= 390
    assert part(page, "take.link").evaluate("(node) => getComputedStyle(node).fontSize") == "16px"
    report = opened_report(context, taken(page, "report", tmp_path), [])
    assert report.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
