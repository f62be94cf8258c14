"""The page in Chromium, driven by the scripted engine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import gradio as gr
import pytest
from playwright.sync_api import Browser, Page, expect

from core.resident import Status
from core.trace import Event, LaneEnded, LaneStarted, PhaseEnded, RunEnded, TokenWritten
from core.ui.components import Board
from core.ui.log import Log
from core.ui.page import build
from core.ui.views import schema_text
from tests.chromium import (
    CHROMIUM,
    PATIENCE_MS,
    OpenPage,
    choose,
    expect_phase,
    hot,
    opener,
    part,
    run,
    run_to_the_end,
    type_schema,
)  # fmt: skip
from tests.scripted import (
    FOUR,
    HOSTILE,
    MANY,
    NASTY,
    PRESETS,
    READY,
    TICKET,
    TICKET_LEFT_OUT,
    ScriptedEngine,
    ScriptedResident,
    decide,
    served,
    started,
)  # fmt: skip

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}"),
]


@pytest.fixture(scope="module")
def engine() -> ScriptedEngine:
    return ScriptedEngine(token_ms=5, pass_ms=300)


@pytest.fixture(scope="module")
def resident(engine: ScriptedEngine) -> ScriptedResident:
    return ScriptedResident(engine)


@pytest.fixture(scope="module")
def url(resident: ScriptedResident) -> Iterator[str]:
    with served(build(resident, PRESETS)) as address:
        yield address


@pytest.fixture
def open_page(browser: Browser, url: str) -> Iterator[OpenPage]:
    with opener(browser, url) as open_one:
        yield open_one


@contextmanager
def replayed(events: Iterable[Event]) -> Iterator[str]:
    """The address of a board that shows these events and nothing else."""
    with gr.Blocks(fill_width=True) as page, gr.Column():
        Board(Log().extended(events))
    with served(page) as address:
        yield address


def legend(page: Page, lane: str) -> list[tuple[str, float, str]]:
    """Where a lane's time goes, in its words: phase, milliseconds, share."""
    rows = (
        part(page, f"{lane}.legend")
        .locator("li")
        .evaluate_all("rows => rows.map((row) => [...row.children].map((cell) => cell.textContent))")
    )
    assert [number for number, *_ in rows] == [str(i) for i in range(1, len(rows) + 1)]
    return [(name, float(ms.removesuffix(" ms")), share) for _, name, ms, share in rows]


# --- a run ---


def test_final_numbers_are_those_of_the_trace(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    run_to_the_end(page)
    race = engine.races[-1]
    for lane in ("pcd", "ar"):
        [end] = race.trace("lane_end", lane)
        assert part(page, f"{lane}.clock").inner_text().replace("\n", "").strip() == f"{end.ms:.1f}ms"
        assert part(page, f"{lane}.passes").inner_text() == str(end.passes)
        assert part(page, f"{lane}.tokens").inner_text() == str(end.tokens)
        assert part(page, f"{lane}.raw").text_content() == end.text
    [end] = race.trace("end")
    assert part(page, "factor").inner_text() == f"{end.speed_up:.2f}×"
    [last] = [row for row in race.trace("row") if row.name == "is_fraud"][-1:]
    row = page.locator('.row[data-field="is_fraud"]')
    assert row.locator(".ar").inner_text() == last.text
    assert row.locator(".flags").inner_text().split() == ["≠", "differs"]
    [field] = [field for field in race.trace("field") if field.name == "is_fraud"]
    assert row.locator(".percent").inner_text() == f"{100 * field.probability:.1f} %"


def test_a_share_says_what_was_not_read(open_page: OpenPage) -> None:
    page = open_page()
    type_schema(page, json.dumps({"code": {"type": "enum", "choices": [f"code {i}" for i in range(80)]}}))
    run_to_the_end(page)
    row = page.locator('.row[data-field="code"]')
    assert row.locator(".percent").inner_text().startswith("≥ ")
    tip = row.locator(".share").get_attribute("title")
    assert "77 proved to lose and not read, together at most " in tip and "more" not in tip
    assert "NaN" not in tip and "undefined" not in tip


def test_a_share_lists_the_likeliest_eight_and_counts_the_others(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    run_to_the_end(page)
    saved = [event for event in engine.races[-1].events if not event.live]
    [field] = [event for event in saved if event.kind == "field" and event.name == "is_fraud"]
    top = tuple((f"choice {i}", 0.05) for i in range(20))
    events = [replace(event, top=top, cardinality=30, unread=7) if event is field else event for event in saved]
    with replayed(events) as address:
        tip = open_page(address=address).locator('.row[data-field="is_fraud"] .share').get_attribute("title")
    _, *lines, others, unread, _ = tip.split("\n")
    assert [line.split("  ")[1] for line in lines] == [f'"choice {i}"' for i in range(8)]
    assert others == "and 15 more" and unread.startswith("7 proved to lose")


def test_a_saved_trace_draws_the_last_screen_of_its_run(open_page: OpenPage, engine: ScriptedEngine) -> None:
    live = open_page()
    run_to_the_end(live)
    saved = [event for event in engine.races[-1].events if not event.live]
    with replayed(saved) as address:
        shown = open_page(address=address)
        expect_phase(shown, "done")
        assert shown.locator(".board").text_content() == live.locator(".board").text_content()


def test_mode_style_and_cache_are_chosen_and_stand_beside_the_speed_up(
    open_page: OpenPage, engine: ScriptedEngine
) -> None:
    page = open_page()
    for label in ("schema:", "Compact"):
        page.get_by_label(label).click()
    page.get_by_label("Prefix cache").uncheck()
    run_to_the_end(page)
    race = engine.races[-1]
    assert (race.mode, race.style, race.request.cache) == ("schema", "compact", False)
    whose = "scripted-1b, cpu, float32"
    expect(part(page, "conditions")).to_have_text(
        f"baseline mode schema, compact JSON ÷ PCD, engine time, n = 1: {whose}"
    )
    expect(page.locator('.lane[data-lane="ar"] h2')).to_contain_text("Baseline: schema enforced")
    expect(part(page, "run-line")).to_contain_text("baseline mode schema · compact JSON · prefix cache off · order")
    assert [part(page, f"{lane}.cache").inner_text() for lane in ("pcd", "ar")] == ["off", "off"]


def test_the_counters_of_the_baseline_are_those_of_the_trace(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    page.get_by_label("schema:").click()
    run_to_the_end(page)
    [end] = engine.races[-1].trace("lane_end", "ar")
    assert 0 < end.forced < end.tokens and end.passes == 1 + end.tokens - end.forced
    expected = {
        "passes": str(end.passes),
        "tokens": str(end.tokens),
        "forced": str(end.forced),
        "first-token": f"{end.first_token_ms:.1f} ms",
        "rate": f"{end.tokens_per_s:.1f}",
    }
    assert {name: part(page, f"ar.{name}").inner_text() for name in expected} == expected


def test_a_lane_that_was_stopped_counts_what_its_tokens_told(open_page: OpenPage) -> None:
    tokens = [TokenWritten(100 * n, "ar", n, "x", n, passes=1, forced=n > 1) for n in range(1, 5)]
    with replayed([started(), LaneStarted(0, "ar"), *tokens, RunEnded(500, "stopped", "stopped", None, ())]) as address:
        page = open_page(address=address)
        expect_phase(page, "stopped")
        counted = [part(page, f"ar.{name}").inner_text() for name in ("tokens", "forced", "first-token", "rate")]
        assert counted == ["4", "3", "100.0 ms", "10.0"]


def test_the_phases_sum_to_the_clock(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    for cache in (True, False):
        page.get_by_label("Prefix cache").set_checked(cache)
        run(page)
        passes = ["context + tree"] if cache else ["head + context", "tree"]
        names = {
            "pcd": ["plan", *passes, "scoring", "assembly"],  # scoring twice in the trace
            "ar": ["prefill", "decode", "mask", "detokenise"],
        }
        for lane, expected in names.items():
            [end] = engine.races[-1].trace("lane_end", lane)
            told = legend(page, lane)
            assert [name for name, _, _ in told] == expected
            assert sum(ms for _, ms, _ in told) == pytest.approx(end.ms, abs=0.05 * len(told) + 0.01)
            took = {
                name: sum(e.took_ms for e in engine.races[-1].trace("phase", lane) if e.phase == name)
                for name, *_ in told
            }
            track = part(page, f"{lane}.phases").bounding_box()
            widths = part(page, f"{lane}.phases").evaluate(
                "bar => [...bar.children].map(i => i.getBoundingClientRect().width)"
            )
            for (name, ms, share), width in zip(told, widths, strict=True):
                assert ms == pytest.approx(took[name], abs=0.06)
                percent = 100 * took[name] / end.ms  # which may lie between two tenths
                assert share in ("< 0.1 %", "> 99.9 %") or float(share[:-2]) == pytest.approx(percent, abs=0.051)
                assert width == pytest.approx(track["width"] * took[name] / end.ms, abs=1)


def test_shares_come_when_the_lane_is_over_and_what_it_has_not_told_stays_empty(open_page: OpenPage) -> None:
    events = [LaneStarted(0, "ar"), PhaseEnded(100, "ar", "prefill", 100), TokenWritten(400, "ar", 7, "x", 1, 1)]
    with replayed([started(), *events]) as address:
        page = open_page(address=address)
        expect_phase(page, "running")
        assert legend(page, "ar") == [("prefill", 100.0, "–")]
        expect(part(page, "ar.phases").locator("i")).to_have_count(0)
    with replayed([started(), *events, RunEnded(500, "stopped", "stopped", None, ())]) as address:
        page = open_page(address=address)
        expect_phase(page, "stopped")
        assert legend(page, "ar") == [("prefill", 100.0, "25.0 %")]
        segment = part(page, "ar.phases").locator("i")
        assert segment.get_attribute("title") == "prefill, 100.0 ms, 25.0 %"
        assert segment.bounding_box()["width"] == pytest.approx(
            part(page, "ar.phases").bounding_box()["width"] / 4, abs=1
        )


def test_no_figure_of_a_lane_is_cut(open_page: OpenPage) -> None:
    events: list[Event] = [started(mode="json")]
    for lane, phases in {"pcd": ("plan", "head + context", "tree", "scoring"), "ar": ("prefill", "decode")}.items():
        events.append(LaneStarted(0, lane))
        events += [PhaseEnded(9999.9, lane, name, 9999.9 / len(phases)) for name in phases]
        events.append(LaneEnded(9999.9, lane, "limit", 10_000, 10_000, "{}", "fallback", 10_000, 9999.9, 1234.5))
    with replayed(events) as address:
        page = open_page(address=address)
        expect(part(page, "ar.rate")).to_have_text("1234.5")
        for width in (390, 768, 1180, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            cut = page.evaluate("""[...document.querySelectorAll('.lane :is(h2, dt, dd, .legend span, .clock)')]
                .filter((node) => node.scrollWidth > node.clientWidth).map((node) => node.textContent)""")
            assert cut == [], width


def test_the_clock_never_runs_backwards_nor_past_the_last_event(open_page: OpenPage) -> None:
    page = open_page()
    page.evaluate("shown.length = 0")
    run_to_the_end(page)
    for lane in ("pcd", "ar"):
        shown = [s for s in page.evaluate("shown") if s["lane"] == lane and s["ms"]]
        numbers = [s["ms"] for s in shown]
        assert len(set(numbers)) >= 5  # scripted ticks come 20 times a second, and the pass takes a third of one
        assert numbers == sorted(numbers)
        assert [s for s in shown if s["ms"] > s["received"] + 0.051] == []


def test_with_the_baseline_first_the_flags_come_after_pcd(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    page.get_by_label("Baseline first").click()
    run_to_the_end(page)
    assert engine.races[-1].order == ("ar", "pcd")
    expect(part(page, "run-line")).to_contain_text("order Baseline then PCD")
    expect(page.locator('.row[data-field="risk_level"] .flags')).to_contain_text("same")


def test_a_baseline_that_hit_its_limit_is_marked(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    engine.limit = 30
    try:
        run_to_the_end(page)
    finally:
        engine.limit = 1000
    expect(part(page, "ar.how")).to_have_text("⚠ token limit")
    expect(part(page, "marks")).to_contain_text("baseline hit its token limit")
    expect(part(page, "verdict")).to_contain_text("JSON is cut off")
    expect(page.locator('.row[data-field="routing"] .flags')).to_contain_text("omitted")
    expect(page.locator('.row[data-field="risk_level"] .flags')).to_contain_text("partial")


def test_stop_stops_the_engine_and_another_run_follows(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    page.locator("#run").click()
    expect_phase(page, "running")
    page.locator("#stop").click()
    expect_phase(page, "stopped")
    assert engine.races[-1].cancelled.is_set()
    expect(part(page, "factor")).to_have_text("–")
    run_to_the_end(page)


def test_a_double_click_starts_one_run(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    before = len(engine.races)
    page.locator("#run").dblclick()
    expect_phase(page, "done")
    assert len(engine.races) == before + 1


def test_a_closed_tab_stops_its_run(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    page.locator("#run").click()
    expect_phase(page, "running")
    page.close()
    assert engine.races[-1].cancelled.wait(timeout=10)


def test_a_second_user_waits_sees_it_and_sees_nobody_elses_text(open_page: OpenPage, engine: ScriptedEngine) -> None:
    pages = [open_page(), open_page()]
    secrets = ["the first user's text", "the second user's text"]
    choose(pages[0], MANY.title)
    expect(pages[0].locator("#context textarea")).to_have_value(MANY.context)
    for page, secret in zip(pages, secrets, strict=True):
        page.locator("#context textarea").fill(secret)
    pages[0].locator("#run").click()
    expect_phase(pages[0], "running")
    pages[1].locator("#run").click()
    expect_phase(pages[1], "waiting")
    expect(part(pages[1], "status")).to_contain_text("1 run is ahead of yours")
    for page in pages:
        expect_phase(page, "done")
    for page, secret in zip(pages, secrets, strict=True):
        contexts = page.evaluate("events.filter((e) => e.kind === 'run').map((e) => e.context)")
        assert contexts == [secret]
    waited = engine.races[-1].trace("run")[0].ms
    assert waited > engine.races[-1].trace("lane_end", "pcd")[0].ms


# --- the keyboard ---


def test_shortcuts_run_and_stop_from_inside_the_editors(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    for editor in ("#context textarea", "#schema .cm-content"):
        before, text = len(engine.races), page.locator("#schema .cm-content").inner_text()
        page.locator(editor).click()
        page.keyboard.press("Control+Enter")
        expect_phase(page, "running")
        page.keyboard.press("Escape")
        expect_phase(page, "stopped")
        expect(page.locator("#run")).to_be_enabled(timeout=PATIENCE_MS)
        assert len(engine.races) == before + 1
        assert page.locator("#schema .cm-content").inner_text() == text


def test_escape_stops_a_run_that_the_mouse_started(open_page: OpenPage) -> None:
    page = open_page()
    page.locator("#run").click()
    expect_phase(page, "running")
    page.keyboard.press("Escape")
    expect_phase(page, "stopped")


# --- one field, everywhere ---


def test_hover_and_focus_on_either_side_light_up_the_same_field(open_page: OpenPage) -> None:
    page = open_page()
    run_to_the_end(page)
    places = {
        "row": page.locator('.row[data-field="channel"]'),
        "pcd": page.locator('[data-part="pcd.raw"] [data-field="channel"]'),
        "ar": page.locator('[data-part="ar.raw"] [data-field="channel"]'),
    }
    for place in places.values():
        place.hover()
        assert hot(page) == ["channel"] * len(places)
        page.locator("h1").hover()
        assert hot(page) == []
    for place in places.values():
        place.focus()
        assert hot(page) == ["channel"] * len(places)
    places["row"].focus()
    page.keyboard.press("ArrowUp")
    assert hot(page) == ["is_fraud"] * len(places)


def test_a_tap_selects_on_a_phone(open_page: OpenPage) -> None:
    page = open_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    run_to_the_end(page)
    page.locator('.row[data-field="channel"]').tap()
    expect(page.locator(".board .selected")).to_have_count(3)
    page.locator('[data-part="ar.raw"] [data-field="risk_level"]').tap()
    expect(page.locator('.row[data-field="risk_level"]')).to_have_class(re.compile("selected"))


def test_selecting_scrolls_inside_the_panes_and_not_the_page(open_page: OpenPage) -> None:
    page = open_page()
    choose(page, MANY.title)
    expect(page.locator(".rows .row[data-field]")).to_have_count(len(MANY.schema))
    run_to_the_end(page)
    part(page, "ar.raw").evaluate("pane => { pane.scrollTop = 0; }")
    row = page.locator('.row[data-field="field_20"]')
    row.scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    row.press("Enter")
    assert page.evaluate("scrollY") == before
    for lane in ("pcd", "ar"):
        pane, member = part(page, f"{lane}.raw"), page.locator(f'[data-part="{lane}.raw"] [data-field="field_20"]')
        outer, inner = pane.bounding_box(), member.first.bounding_box()
        assert outer["y"] <= inner["y"] < outer["y"] + outer["height"]


# --- what people type ---


def test_hostile_text_stays_text_everywhere(open_page: OpenPage) -> None:
    page = open_page()
    choose(page, NASTY.title)
    expect(page.locator(".rows .row[data-field]")).to_have_count(len(NASTY.schema))
    run_to_the_end(page)
    names = page.locator(".rows:not(.invented) .row[data-field] .name").all_text_contents()
    assert names == [field.name for field in NASTY.schema]
    expect(page.locator(".row .pcd").filter(has_text="1").last).to_be_attached()
    choose(page, FOUR.title)
    expect(page.locator(".rows:not(.invented) .row[data-field]")).to_have_count(len(FOUR.schema))
    run_to_the_end(page)
    invented = page.locator(".invented .row[data-field]")
    assert invented.locator(".name").all_text_contents() == ["__proto__", HOSTILE]
    linked = page.locator('[data-part="ar.raw"] [data-field="channel"]')  # behind an emoji, which is two units
    assert linked.text_content() == '"channel": "MAYBE"'
    type_schema(page, '{"' + HOSTILE.replace("\\", "\\\\") + '": {"type": "' + HOSTILE.replace("\\", "/") + '"}}')
    expect(page.locator("#verdict .notice")).to_contain_text("<img src=x onerror=")
    page.locator("#run").click()
    expect_phase(page, "failed")
    expect(part(page, "status")).to_contain_text("<img src=x onerror=")
    type_schema(page, schema_text(FOUR.schema))
    expect_phase(page, "idle")
    expect(page.locator(".rows:not(.invented) .row[data-field]")).to_have_count(len(FOUR.schema))
    assert page.evaluate("window.__pwned") is None
    assert page.locator(".board img").count() == 0


def test_what_a_trace_names_is_inert_too(open_page: OpenPage) -> None:
    events = [
        started(mode=HOSTILE, style=HOSTILE, cache=HOSTILE),
        LaneStarted(0, "ar"),
        PhaseEnded(10, "ar", HOSTILE, 10),
        PhaseEnded(20, "ar", "__proto__", 10),
        LaneEnded(20, "ar", HOSTILE, 1, 1, "{", HOSTILE),
        RunEnded(30, "done", "", 2.0, (HOSTILE,)),
    ]
    with replayed(events) as address:
        page = open_page(address=address)
        expect_phase(page, "done")
        assert [name for name, _, _ in legend(page, "ar")] == [HOSTILE, "__proto__"]
        for name in ("ar.mode", "ar.how", "ar.cache", "conditions", "run-line", "marks"):
            expect(part(page, name)).to_contain_text(HOSTILE)
        assert page.evaluate("window.__pwned") is None
        assert page.locator(".board img").count() == 0


def test_members_of_a_compact_object_are_linked_in_both_texts(open_page: OpenPage) -> None:
    page = open_page()
    choose(page, NASTY.title)
    expect(page.locator(".rows .row[data-field]")).to_have_count(len(NASTY.schema))
    page.get_by_label("Compact").click()
    page.get_by_label("schema:").click()
    run_to_the_end(page)
    for lane in ("pcd", "ar"):
        members = page.locator(f'[data-part="{lane}.raw"] [data-field]').all_text_contents()
        assert [json.loads("{" + member + "}") for member in members] == [
            {decision.name: decision.value} for decision in map(decide, NASTY.schema)
        ]


def test_direction_marks_are_shown_and_not_obeyed(open_page: OpenPage) -> None:
    page = open_page()
    type_schema(page, '{"\\u202eevil": {"type": "boolean"}}')
    expect(page.locator(".rows .row[data-field] .name").first).to_have_text("\\u202eevil")


def test_an_escape_right_after_run_is_not_lost(open_page: OpenPage) -> None:
    page = open_page()
    choose(page, MANY.title)  # a run that is long enough to be stopped
    expect(page.locator(".rows .row[data-field]")).to_have_count(len(MANY.schema))
    page.evaluate("""() => {
        document.getElementById('run').click();
        dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }));
    }""")
    expect_phase(page, "stopped")


def test_a_schema_is_checked_while_it_is_typed(open_page: OpenPage) -> None:
    page = open_page()
    verdict = page.locator("#verdict .notice")
    type_schema(page, '{"a": {"type": "enum", "choices": ["x"]}}')
    expect(verdict).to_have_attribute("data-tone", "error")
    expect(verdict).to_contain_text("'a': only one choice")
    type_schema(page, '{"a": {"type": "boolean"}, "b": {"type": "enum", "choices": ["x", "y"]}}')
    expect(verdict).to_contain_text("2 fields, 4 choices")
    assert page.locator(".row[data-field] .name").all_text_contents() == ["a", "b"]


def test_a_json_schema_is_taken_returned_in_its_shape_and_what_is_left_out_is_listed(open_page: OpenPage) -> None:
    page = open_page()
    assert not part(page, "returned").is_visible()
    type_schema(page, json.dumps(TICKET))
    verdict = page.locator("#verdict .notice")
    expect(verdict).to_have_attribute("data-tone", "warn")
    for pointer, name in TICKET_LEFT_OUT.items():
        expect(verdict).to_contain_text(f"{pointer} ({name}): free text")
    names = ["kind", "priority", "topics.billing", "topics.login", "sender.plan", "escalate"]
    expect(page.locator(".rows:not(.invented) .row[data-field] .name")).to_have_text(names)
    run_to_the_end(page)
    expect(page.locator('.row[data-field="kind"] .percent')).to_have_text("fixed")
    expect(part(page, "run-line")).to_contain_text("2 of the schema's parts left out")
    decided = {row: json.loads(page.locator(f'.row[data-field="{row}"] .pcd').text_content() or "") for row in names}
    assert json.loads(part(page, "returned").text_content() or "") == {
        "kind": "ticket",
        "priority": decided["priority"],
        "topics": [topic for topic in ("billing", "login") if decided[f"topics.{topic}"]],
        "sender": {"plan": decided["sender.plan"]},
        "escalate": decided["escalate"],
    }
    type_schema(page, schema_text(FOUR.schema))
    expect(part(page, "returned")).to_be_hidden()


def test_hostile_text_of_a_json_schema_stays_text(open_page: OpenPage) -> None:
    page = open_page()
    hostile = {"type": "object", "properties": {HOSTILE: {"enum": [HOSTILE, "b"]}, f"{HOSTILE}2": {"type": "string"}}}
    type_schema(page, json.dumps({"type": "object", "properties": {"in": hostile}}))
    expect(page.locator("#verdict .notice")).to_contain_text("<img src=x onerror=")
    expect(page.locator(".rows:not(.invented) .row[data-field] .name")).to_have_text([f"in.{HOSTILE}"])
    run_to_the_end(page)
    assert list(json.loads(part(page, "returned").text_content() or "")["in"]) == [HOSTILE]
    assert page.evaluate("window.__pwned") is None
    assert page.locator(".board img, #verdict img").count() == 0


def test_an_empty_context_is_refused_and_nothing_is_lost(open_page: OpenPage) -> None:
    page = open_page()
    page.locator("#context textarea").fill("  ")
    page.locator("#run").click()
    expect_phase(page, "failed")
    expect(part(page, "status")).to_have_text("the context is empty; give the text that the fields are about")
    assert page.locator("#context textarea").input_value() == "  "
    page.locator("#context textarea").fill("text")
    run_to_the_end(page)


# --- the model ---


def test_run_waits_for_the_model_and_says_so(open_page: OpenPage, resident: ScriptedResident) -> None:
    resident.status = Status("loading", "converting", 0.25)
    try:
        page = open_page()
        expect(page.locator("#model .notice")).to_have_text("Loading the model: converting")
        assert page.locator("#model progress").evaluate("bar => bar.value") == 0.25
        page.locator("#run").click()
        expect_phase(page, "loading")
        expect(part(page, "status")).to_have_text("Waiting for the model: converting")
    finally:
        resident.status = READY
    expect_phase(page, "done")
    expect(page.locator("#model .notice")).to_have_text(READY.message)


# --- the look ---


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_width_scrolls_sideways_in_either_theme(open_page: OpenPage, theme: str) -> None:
    page = open_page(f"?__theme={theme}")
    dark = page.evaluate("getComputedStyle(document.querySelector('.board')).backgroundColor")
    assert (dark == "rgb(255, 255, 255)") == (theme == "light")
    for width in (390, 768, 1180, 1600):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("innerWidth") == width
        assert page.evaluate("document.documentElement.scrollWidth") <= width
