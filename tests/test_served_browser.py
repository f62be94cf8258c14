"""A run on a server, in Chromium: whose clock it is, what was asked and sent, and a server that does not answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from core.trace import Event, LaneStarted, Loading, PassEnded, Stopping, Tick, to_lines
from core.ui.components import board_script
from core.ui.page import build
from core.ui.tour import tour_of
from tests.chromium import CHROMIUM, OpenPage, expect_phase, opener, part
from tests.scripted import AWAY, FOUR, PRESETS, ScriptedEngine, ScriptedResident, served, started, told_by

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}"),
]

QUICK = {"token_ms": 1.0, "pass_ms": 20.0}
ENGINE, SERVER = ScriptedEngine(**QUICK), ScriptedEngine(**QUICK, clock="client", queue_ms=3.21)
LOCAL, SERVED = told_by(ENGINE), told_by(SERVER)
WIRE = "client time around the wire"
#: What only an engine beside its device has.
OF_AN_ENGINE = re.compile(r"engine time|the engine's|\bpass(es)?\b|at once|\bforced\b|alone on the device|one tree")

Asked = Callable[..., Any]


@pytest.fixture(scope="module")
def asked(browser: Browser) -> Iterator[Asked]:
    """What JavaScript beside the board's functions makes of runs, without a page; `runs` are lists of events."""
    page = browser.new_page()
    source = board_script(PRESETS)

    def of(body: str, *runs: list[Event]) -> Any:
        call = """([source, body, logs]) => {
          const runs = `const runs = logs.map((log) => eventsOf(log)); ${body}`;
          return new Function('logs', `${source.replace(/return createBoard;?\\s*$/, '')}; ${runs}`)(logs);
        }"""
        return page.evaluate(call, [source, body, [to_lines(run) for run in runs]])

    yield of
    page.close()


# --- the words ---

TEXTS = {
    "method": "return [methodText(runs[0], true)]",
    "table": "return [csvOf(runs[0], true)]",
    "card": """
        const said = [];
        const pen = { fillRect() {}, fillText: (text) => said.push(text), measureText: () => ({ width: 10 }) };
        drawCard(pen, runs[0], true, PALETTES.light);
        return said;""",
    "captions": """
        const tape = createTape(runs[0]);
        const moments = Array.from({ length: 200 }, (_, i) => tape.length * i / 199);
        return moments.map((ms) => captionOf(tape, tape.at(ms), ms));""",
    "pauses": "return stopsOf(createTape(runs[0])).map(({ text }) => text)",
    "lines": "const { run } = finalOf(runs[0]); return [runLine({ run }), conditions(run)]",
    "phases": "const { run } = finalOf(runs[0]); return [...PHASES.keys()].map((name) => phaseWords(run, name))",
}


@pytest.mark.parametrize("mode", ["free", "json", "schema"])
@pytest.mark.parametrize("name", TEXTS)
def test_no_text_about_a_served_run_speaks_of_an_engine(asked: Asked, name: str, mode: str) -> None:
    run = SERVER.race(FOUR.context, FOUR.schema, mode=mode).wait()
    said = "\n".join(asked(TEXTS[name], run))
    assert said and OF_AN_ENGINE.search(said) is None, OF_AN_ENGINE.search(said)


@pytest.mark.parametrize("name", TEXTS)
def test_the_same_text_about_a_run_of_an_engine_does(asked: Asked, name: str) -> None:
    assert OF_AN_ENGINE.search("\n".join(asked(TEXTS[name], LOCAL)))


@pytest.mark.parametrize(
    "name, words",
    [
        ("method", f"Baseline ÷ PCD: {{}}, {WIRE}, against baseline mode json."),
        ("method", "the network and the server's own queue are in them"),
        ("method", "In the server's queue, which is in the clocks: PCD 3.2 ms, Baseline 3.2 ms."),
        ("method", "1 request, 67 tokens sent, 12 tokens in the tree"),
        ("method", "a prompt for each fork that is read, sent to a server"),
        ("method", "The baseline writes the opening brace itself"),
        ("method", "of the probability was not asked for at most 1.2 % (risk_level)."),
        ("card", f"{WIRE}, waiting and warm-up not in it"),
        ("card", "1 request, 67 tokens sent"),
        ("captions", "PCD has decided 4 fields in 1 request, 67 tokens sent."),
        ("pauses", "Each fork that is read is a prompt of its own"),
        ("lines", "client time around the wire"),
        ("phases", "requests with the text, and a prompt for each fork"),
    ],
)
def test_a_served_run_names_its_clock_its_requests_and_what_was_sent(asked: Asked, name: str, words: str) -> None:
    before, _, after = words.partition("{}")
    said = "\n".join(asked(TEXTS[name], SERVED))
    assert before in said and after in said


def test_in_mode_free_the_brace_is_in_the_prompt_of_both(asked: Asked) -> None:
    [said] = asked(TEXTS["method"], SERVER.race(FOUR.context, FOUR.schema, mode="free").wait())
    assert "opening brace" not in said


def test_a_server_that_does_not_tell_its_queue_is_not_said_to_have_none(asked: Asked) -> None:
    run = told_by(replace(SERVER, queue_ms=None))
    assert "queue, which" not in asked(TEXTS["method"], run)[0]
    assert '"PCD server queue ms"' not in (table := asked(TEXTS["table"], run)[0])
    heading, row = table.split("\r\n")[:2]
    assert row.split(",")[heading.split(",").index("PCD server queue ms")] == ""


def test_the_table_names_the_clock_and_counts_requests(asked: Asked) -> None:
    heading, row, *_ = asked(TEXTS["table"], SERVED)[0].split("\r\n")
    values = dict(zip(heading.split(","), row.split(","), strict=False))
    names = ("clock", "mass not asked for", "PCD requests", "baseline tokens sent", "PCD server queue ms")
    assert [values[name] for name in names] == [WIRE, "0.0123", "1", "67", "3.21"]
    heading, row, *_ = asked(TEXTS["table"], LOCAL)[0].split("\r\n")
    assert dict(zip(heading.split(","), row.split(","), strict=False))["clock"] == "engine time"
    assert "requests" not in heading


def test_an_older_trace_had_the_engine_s_clock_and_a_newer_one_is_named(asked: Asked) -> None:
    call = "const { run } = finalOf(runs[0]); delete run.clock; return [clockOf(run), clockOf({ clock: 'moon' })]"
    assert asked(call, LOCAL) == ["engine time", "moon time"]


COMPARED = """
    const [one, other] = runs.map((events) => ({ events, state: finalOf(events) }));
    const [was, now] = [one.state.run, other.state.run];
    return [timesOf(was, now), caution(was, now), conditionRows(one, other), clockRows(one.state, other.state)];"""


def test_two_runs_of_different_clocks_say_so(asked: Asked) -> None:
    times, caution, conditions, clocks = asked(COMPARED, LOCAL, SERVED)
    assert times == f"A: engine time, B: {WIRE}"
    assert "the clocks differ, so the times of A and B do not belong together" in caution
    assert ["clock", "engine time", WIRE] in conditions
    assert ["asked of the model, PCD", "1 pass", "1 request, 67 tokens sent"] in clocks
    assert ["in the server's queue", "–", "PCD 3.2 ms, Baseline 3.2 ms"] in clocks


def test_two_runs_of_one_clock_name_it_once(asked: Asked) -> None:
    for run, words in ((LOCAL, "Engine time"), (SERVED, "Client time around the wire")):
        times, caution, conditions, _ = asked(COMPARED, run, run)
        assert times == words and "clocks" not in caution
        assert "clock" not in [label for label, *_ in conditions]


def test_a_point_of_the_tour_has_the_clock_of_its_run() -> None:
    tour = tour_of([FOUR], {FOUR.id: SERVED})
    assert tour and [point.clock for point in tour.points] == ["client"]


@pytest.mark.parametrize(
    "count, mass, words",
    [
        (1, 0.2, "1 vocabulary token was not asked for; it holds at most 20.0 % of the probability"),
        (1234, 1e-9, "1,234 vocabulary tokens were not asked for; they hold at most < 0.1 % of the probability"),
    ],
)
def test_the_inspector_says_what_was_not_asked_for(asked: Asked, count: int, mass: float, words: str) -> None:
    run = [replace(event, unasked=count, unasked_mass=mass) if event.kind == "field" else event for event in LOCAL]
    call = "return factsOf(runs[0].find(({ kind }) => kind === 'field')).join(' · ')"
    assert words in asked(call, run)
    assert "asked for" not in asked(call, LOCAL)


# --- a trace from outside ---


def test_a_served_trace_is_taken_and_one_without_the_new_keys_too(asked: Asked) -> None:
    call = "return logs.map((log) => traceOf(log)?.length ?? null)"
    assert asked(call, SERVED, LOCAL) == [len(SERVED), len(LOCAL)]
    old = """
        const without = ({ clock, sent_tokens, server_queue_ms, unasked, unasked_mass, ...event }) => event;
        const events = traceOf(runs[0].map((event) => `${JSON.stringify(without(event))}\\n`).join(''));
        return csvOf(events, true).split('\\r\\n')[1];"""
    assert "engine time" in asked(old, LOCAL)


@pytest.mark.parametrize(
    "kind, key, value",
    [
        ("run", "clock", 1),
        ("run", "opening", None),
        ("lane_end", "sent_tokens", "many"),
        ("lane_end", "server_queue_ms", -1),
        ("field", "unasked", -1),
        ("field", "unasked_mass", 2),
    ],
)
def test_a_trace_with_a_wrong_value_under_a_new_key_is_none(asked: Asked, kind: str, key: str, value: Any) -> None:
    run = [replace(event, **{key: value}) if event.kind == kind else event for event in SERVED]
    assert asked("return traceOf(logs[0]) === undefined", run) is True


# --- as code ---


def test_the_library_asks_the_server_by_an_address_that_has_to_be_given(asked: Asked) -> None:
    call = """
        const snippets = snippetsOf(runs[0][0], { address: 'http://127.0.0.1:1', mcp: false });
        return ['library', 'curl', 'httpx', 'client'].map((name) => snippets.find(({ id }) => id === name));"""
    library, *others = asked(call, SERVED)
    assert 'engine = Engine.load("http://HOST:PORT", backend="vllm")\n' in library["text"]
    assert "#" not in library["text"] and "as served" not in library["text"] and "HOST:PORT" in library["notes"][1]
    assert "HOST:PORT" not in "".join(asked(call, LOCAL)[0]["notes"])
    for other, of_engine in zip(others, asked(call, LOCAL)[1:], strict=True):
        assert other["text"] == of_engine["text"] and other["text"]


# --- a server that does not answer, in the middle ---

BEGUN = [started(clock="client"), LaneStarted(0.0, "pcd")]
HELD = Loading(50.0, AWAY, None)
STATE = "const { phase, message, milestone } = finalOf(runs[0]); return [phase, message, milestone]"


@pytest.mark.parametrize(
    "events, expected",
    [
        ([HELD], ["loading", f"Held up: {AWAY}", f"Held up: {AWAY}"]),
        ([HELD, Tick(60.0, "pcd"), HELD, Tick(70.0, "pcd")], ["loading", f"Held up: {AWAY}", f"Held up: {AWAY}"]),
        ([HELD, HELD, PassEnded(80.0, "pcd", 1, 9)], ["running", "PCD scores all fields.", "The run goes on."]),
        ([HELD, LaneStarted(0.0, "ar")], ["running", "The baseline reads the prompt.", "The run goes on."]),
        (
            [HELD, Stopping(60.0), HELD],
            ["loading", "Stopping, after the request or the token that runs.", f"Held up: {AWAY}"],
        ),
        (
            [HELD, Stopping(60.0), PassEnded(80.0, "pcd", 1, 9)],
            ["running", "Stopping, after the request or the token that runs.", "The run goes on."],
        ),
    ],
)
def test_a_wait_in_the_middle_lasts_until_an_event_tells_of_work(
    asked: Asked, events: list[Event], expected: list[str]
) -> None:
    assert asked(STATE, [*BEGUN, *events]) == expected


def test_a_wait_before_the_run_is_one_for_the_model(asked: Asked) -> None:
    assert asked(STATE, [HELD])[:2] == ["loading", f"Waiting for the model: {AWAY}"]
    assert asked(STATE, [HELD, BEGUN[0]])[:2] == ["running", "Started."]


# --- the page ---


@pytest.fixture(scope="module")
def engine() -> ScriptedEngine:
    return ScriptedEngine(token_ms=2, pass_ms=100, clock="client", queue_ms=3.21)


@pytest.fixture(scope="module")
def url(engine: ScriptedEngine) -> Iterator[str]:
    with served(build(ScriptedResident(engine), PRESETS, {FOUR.id: LOCAL})) as address:
        yield address


@pytest.fixture
def open_page(browser: Browser, url: str, engine: ScriptedEngine) -> Iterator[OpenPage]:
    with opener(browser, url) as open_one:
        yield open_one
    engine.away.clear()


def cells(page: Page, lane: str) -> dict[str, str]:
    found = page.locator(f'.lane[data-lane="{lane}"] dl > div:visible').evaluate_all(
        "nodes => nodes.map((node) => [node.children[0].innerText, node.children[1].innerText])"
    )
    return dict(found)


@pytest.mark.parametrize("width", [1440, 390])
def test_a_served_run_shows_requests_tokens_sent_and_the_queue(open_page: OpenPage, width: int) -> None:
    page = open_page(viewport={"width": width, "height": 900})
    expect_phase(page, "done")
    assert "passes" in cells(page, "pcd") and "sent tokens" not in cells(page, "pcd")  # the recording is an engine's
    page.locator("#run").click()
    expect(part(page, "badge")).to_contain_text("LIVE")
    expect_phase(page, "done")
    assert cells(page, "pcd") == {
        "requests": "1", "sent tokens": "67", "tree tokens": "12", "cache": "hit", "server queue": "3.2 ms"
    }  # fmt: skip
    told = cells(page, "ar")
    assert (told["requests"], told["sent tokens"], told["server queue"]) == ("1", "67", "3.2 ms")
    assert "of which forced" not in told and "forced" not in told
    expect(part(page, "conditions")).to_contain_text(WIRE)
    expect(part(page, "run-line")).to_contain_text("client time around the wire")
    assert (part(page, "ar.raw").text_content() or "").startswith('{\n  "risk_level"')
    page.locator('.rows:not(.invented) .row[data-field="risk_level"]').click()
    expect(part(page, "inspector.facts")).to_contain_text("1,234 vocabulary tokens were not asked for")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_while_the_server_is_away_the_page_says_so_and_goes_on_when_it_is_back(
    open_page: OpenPage, engine: ScriptedEngine
) -> None:
    page = open_page()
    engine.away.set()
    page.locator("#run").click()
    expect(part(page, "status")).to_have_text(f"Held up: {AWAY}")
    expect_phase(page, "loading")
    expect(part(page, "progress")).to_be_visible()
    expect(part(page, "pcd.how")).to_have_text("running")
    expect(page.locator("#stop")).to_be_enabled()
    engine.away.clear()
    expect_phase(page, "done")
    expect(part(page, "status")).to_have_text("Done.")
    expect(part(page, "progress")).to_be_hidden()


def test_while_the_server_is_away_a_run_can_be_stopped(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    engine.away.set()
    page.locator("#run").click()
    expect_phase(page, "loading")
    page.locator("#stop").click()
    expect_phase(page, "stopped")
    expect(part(page, "status")).to_have_text("Stopped.")
    expect(page.locator("#run")).to_be_enabled()
