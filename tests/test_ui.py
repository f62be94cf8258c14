"""The page without a browser: its wiring, what it says, runs, and the two endpoints."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator
from contextlib import aclosing
from functools import partial
from typing import Any, get_args

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from core.engine import Engine
from core.grammar import MODES as ENGINE_MODES
from core.owner import Owner
from core.presets import Preset
from core.prompt import Style
from core.resident import Status
from core.schema import SchemaError, StructuredSchema
from core.trace import Event, from_line, to_lines
from core.ui.components import Board, Notice, SchemaTable
from core.ui.inputs import InputError, Inputs, read_inputs
from core.ui.launch import head, launch
from core.ui.log import Log
from core.ui.modes import MODES, STYLES
from core.ui.page import build
from core.ui.runs import Runs
from core.ui.views import edited_schema, model_note, schema_note, schema_text
from tests.fakes import HashBackend, lexicon
from tests.scripted import (
    FOUR,
    HOSTILE,
    NASTY,
    PRESETS,
    READY,
    TICKET,
    TICKET_LEFT_OUT,
    ScriptedEngine,
    ScriptedResident,
    canonical,
    served,
)
from tests.test_queue import busy

Server = tuple[str, ScriptedResident]
FOUR_JSON = schema_text(FOUR.schema)


def resident(status: Status = READY) -> ScriptedResident:
    return ScriptedResident(ScriptedEngine(token_ms=1, pass_ms=30), status)


def inputs(context: str = "text", temperature: float | None = 1.0, schema: str = FOUR_JSON, **options: Any) -> Inputs:
    given = {"first": "pcd", "mode": "json", "style": "pretty", "cache": True} | options
    return read_inputs(context, schema, temperature, **given)


# --- wiring ---


@pytest.fixture(scope="module")
def config() -> dict:
    return build(resident(), PRESETS).get_config_file()


def dependency(config: dict, elem_id: str, event: str) -> dict:
    [component] = [c for c in config["components"] if c["props"].get("elem_id") == elem_id]
    [found] = [d for d in config["dependencies"] if [component["id"], event] in [list(t) for t in d["targets"]]]
    return found


def test_only_the_two_operations_are_public(config: dict) -> None:
    public = [d["api_name"] for d in config["dependencies"] if d["api_visibility"] == "public"]
    assert public == ["parallel", "autoregressive"]


def test_run_is_queued_and_stop_is_not(config: dict) -> None:
    assert dependency(config, "run", "click")["queue"] is not False
    assert dependency(config, "run", "click")["trigger_mode"] == "once"
    assert dependency(config, "stop", "click")["queue"] is False
    assert dependency(config, "schema", "input")["trigger_mode"] == "always_last"


def test_no_event_draws_a_progress_overlay(config: dict) -> None:
    assert {d["show_progress"] for d in config["dependencies"] if d["api_visibility"] == "private"} == {"hidden"}


def test_gradio_asks_nobody_and_the_page_names_no_other_host() -> None:
    assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"
    assert "http" not in head()


def test_the_templates_hold_nothing_that_gradio_would_run() -> None:
    for component in (Board(Log()), Notice(), SchemaTable()):
        assert not any(mark in component.html_template for mark in ("{{", "${", "`", "\\"))


# --- what is said ---


@pytest.mark.parametrize(
    "text, tone, words",
    [
        (FOUR_JSON, "good", "4 fields, 11 choices"),
        ('{"a": {"type": "boolean"}}', "good", "1 field, 2 choices"),
        ('{"a": ', "error", "not valid JSON"),
        ("", "error", "not valid JSON"),
        ("a: {type: enum, choices: [SE, NO]}", "error", "quote it"),
        (
            json.dumps({"type": "object", "properties": {"a": {"type": "boolean"}}}),
            "good",
            "JSON Schema, taken as 1 field",
        ),
        (
            json.dumps(TICKET),
            "warn",
            "Left out, 2 of its parts:\n/properties/sender/properties/name (sender.name): free text",
        ),
        (json.dumps(TICKET), "warn", "Taken in a form of its own:\n/properties/escalate (escalate): not required"),
        ('{"type": "object", "properties": {"a": {"type": "string"}}}', "error", "/properties/a (a): free text"),
        ('{"a": {"type": "' + HOSTILE.replace("\\", "/") + '"}}', "error", "<img src=x onerror="),
    ],
)
def test_the_schema_note_says_its_size_or_its_fault(text: str, tone: str, words: str) -> None:
    note = schema_note(edited_schema(text))
    assert note.tone == tone
    assert words in note.text


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.id)
def test_the_schema_text_is_the_schema(preset: Preset) -> None:
    assert StructuredSchema.from_text(schema_text(preset.schema)) == preset.schema


def test_the_model_note_tells_of_another_that_loads_beside_the_one_that_serves() -> None:
    note = model_note(READY, Status("loading", "converting", 0.25))
    assert (note.tone, note.fraction) == ("busy", 0.25)
    assert note.text == "scripted-1b (no model: a script)\nLoading another: converting"


@pytest.mark.parametrize(
    "status, tone, words",
    [
        (Status("loading", "downloading", 0.5), "busy", "Loading the model: downloading"),
        (READY, "good", "scripted-1b (no model: a script)"),
        (Status("failed", message="no room on disk"), "error", "no room on disk"),
    ],
)
def test_the_model_note_follows_the_status(status: Status, tone: str, words: str) -> None:
    note = model_note(status)
    assert (note.tone, note.text, note.fraction) == (tone, words, status.fraction)


def test_an_empty_temperature_is_refused() -> None:
    with pytest.raises(InputError, match="the temperature is empty"):
        inputs(temperature=None)


def test_a_wrong_schema_is_refused_with_its_own_words() -> None:
    with pytest.raises(SchemaError, match="the schema has no fields"):
        inputs(schema="{}")


UNKNOWN = [
    ({"mode": "strict"}, "baseline mode 'strict' is unknown; use one of: free, json, schema"),
    ({"mode": None}, "baseline mode None is unknown"),
    ({"mode": ["json"]}, "baseline mode ['json'] is unknown"),
    ({"style": "tabs"}, "style 'tabs' is unknown; use one of: pretty, compact"),
    ({"style": ["compact"]}, "style ['compact'] is unknown"),
    ({"cache": "yes"}, "cache 'yes' is unknown; use one of: True, False"),
    ({"cache": 1}, "cache 1 is unknown"),
]


def test_the_page_has_words_for_every_mode_and_style_of_the_engine() -> None:
    assert tuple(MODES) == ENGINE_MODES
    assert tuple(STYLES) == get_args(Style)


def test_the_board_and_the_controls_say_the_same_modes(config: dict) -> None:
    [radio] = [c["props"] for c in config["components"] if c["props"].get("elem_id") == "mode"]
    assert [value for _, value in radio["choices"]] == list(MODES)
    assert all(mode.enforced in Board(Log()).js_on_load for mode in MODES.values())


def test_the_prepared_log_keeps_the_order_of_names_that_look_like_numbers() -> None:
    [line] = Log.prepared(NASTY.schema).lines.splitlines()
    assert json.loads(line)["names"] == [field.name for field in NASTY.schema]


# --- runs ---


async def logs(runs: Runs, session: str, given: Inputs) -> list[Log]:
    return [log async for log in runs.start(session, given)]


def events(log: Log) -> list[Event]:
    return [from_line(line) for line in log.lines.splitlines()[1:]]


def test_a_log_only_grows_and_ends_as_the_trace() -> None:
    there = resident()
    drawn = asyncio.run(logs(Runs(there), "me", inputs()))
    assert len({log.run for log in drawn}) == 1
    assert all(later.lines.startswith(log.lines) for log, later in zip(drawn, drawn[1:], strict=False))
    assert drawn[-1].lines.split("\n", 1)[1] == to_lines(there.engine.races[0].events)


@pytest.mark.parametrize("options, words", UNKNOWN)
def test_an_option_that_does_not_exist_ends_a_run_in_the_engines_words(options: dict, words: str) -> None:
    [*_, end] = events(asyncio.run(logs(Runs(resident()), "me", inputs(**options)))[-1])
    assert (end.kind, end.state) == ("end", "failed") and words in end.message


def test_mode_style_and_cache_reach_the_race() -> None:
    there = resident()
    asyncio.run(logs(Runs(there), "me", inputs(mode="schema", style="compact", cache=False)))
    [race] = there.engine.races
    assert (race.mode, race.style, race.request.cache) == ("schema", "compact", False)
    assert race.trace("lane_end", "ar")[0].text == canonical(FOUR.schema, "compact")


def test_a_second_start_of_the_same_session_does_nothing() -> None:
    there = resident()
    runs = Runs(there)

    async def both() -> list[list[Log]]:
        return await asyncio.gather(logs(runs, "me", inputs()), logs(runs, "me", inputs()))

    first, second = asyncio.run(both())
    assert events(first[-1])[-1].state == "done"
    assert second == []
    assert len(there.engine.races) == 1
    assert "me" not in runs


def test_stop_reaches_only_the_own_run() -> None:
    there = resident()
    runs = Runs(there)

    async def stop_mine() -> list[str]:
        async def stop() -> None:
            await asyncio.sleep(0.02)
            runs.stop("me")

        mine, other, _ = await asyncio.gather(logs(runs, "me", inputs()), logs(runs, "you", inputs()), stop())
        return [events(log[-1])[-1].state for log in (mine, other)]

    assert asyncio.run(stop_mine()) == ["stopped", "done"]


def test_a_run_that_is_dropped_stops_the_engine() -> None:
    there = resident()
    runs = Runs(there)

    async def drop() -> None:
        run = runs.start("me", inputs())
        while not there.engine.races:
            await anext(run)
        await run.aclose()

    asyncio.run(drop())
    assert there.engine.races[0].cancelled.is_set()
    assert "me" not in runs


def test_a_run_waits_for_the_model() -> None:
    there = resident(Status("loading", "converting", 0.5))

    async def load() -> list[Log]:
        async def finish() -> None:
            await asyncio.sleep(0.1)
            there.status = READY

        drawn, _ = await asyncio.gather(logs(Runs(there), "me", inputs()), finish())
        return drawn

    kinds = [event.kind for event in events(asyncio.run(load())[-1])]
    assert kinds[0] == "loading"
    assert kinds[-1] == "end"


def test_a_run_can_be_stopped_while_the_model_loads() -> None:
    there = resident(Status("loading"))
    runs = Runs(there)

    async def stop() -> list[Log]:
        drawn, _ = await asyncio.gather(logs(runs, "me", inputs()), asyncio.to_thread(lambda: runs.stop("me")))
        return drawn

    assert events(asyncio.run(stop())[-1])[-1].state == "stopped"


def test_a_full_queue_and_a_service_that_ends_refuse_a_run_in_one_line() -> None:
    engine = Engine(HashBackend(lexicon("qwen")), "hash", owner=Owner(0))
    there = ScriptedResident(engine)
    with busy(engine.owner):
        [*_, last] = asyncio.run(logs(Runs(there), "me", inputs()))
    assert events(last)[-1].message == "the queue is full: 0 requests wait, its limit; try again in a moment"
    engine.owner.close(10)
    [*_, last] = asyncio.run(logs(Runs(there), "me", inputs()))
    assert events(last)[-1].message.startswith("the service is shutting down and takes no new requests;")


def test_a_run_stays_with_the_model_with_which_it_has_begun() -> None:
    old, new = (Engine(HashBackend(lexicon("qwen"), seed=seed), f"hash {seed}") for seed in (0, 1))
    there = ScriptedResident(old)

    async def switched() -> Log:
        async with aclosing(Runs(there).start("me", inputs())) as runs:
            async for log in runs:
                if there.engine is old and "\n" in log.lines[log.lines.index("\n") + 1 :]:
                    there.engine = new
        return log

    told = events(asyncio.run(switched()))
    assert there.engine is new and told[-1].state == "done"
    assert [event.model for event in told if event.kind == "run"] == ["hash 0"]


def test_without_a_model_run_says_what_to_do() -> None:
    there = ScriptedResident(None, Status("absent", message="no model: start again without --model none"))
    [*_, last] = asyncio.run(logs(Runs(there), "me", inputs()))
    assert events(last)[-1].message == "no model: start again without --model none"


@pytest.mark.parametrize(
    "context, temperature, message",
    [(" \n", 1.0, "the context is empty"), ("half \ud800", 1.0, "half a character"), ("text", -1, "above 0")],
)
def test_what_the_engine_refuses_is_said(context: str, temperature: float, message: str) -> None:
    [*_, last] = asyncio.run(logs(Runs(resident()), "me", inputs(context, temperature)))
    assert message in events(last)[-1].message


# --- the server ---


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    there = resident()
    with served(build(there, PRESETS)) as address:
        yield address, there


@pytest.fixture(scope="module")
def client(server: Server) -> Client:
    return Client(server[0], verbose=False)


def test_parallel_answers_with_the_result(client: Client) -> None:
    result = json.loads(client.predict("text", FOUR_JSON, api_name="/parallel"))
    assert result["mode"] == "parallel_constrained"
    assert result["values"] == json.loads(canonical(FOUR.schema))


def test_a_field_named_path_travels_as_any_other(client: Client) -> None:
    result = json.loads(client.predict("text", '{"path": {"type": "boolean"}}', 0.5, api_name="/parallel"))
    assert list(result["values"]) == ["path"]


def test_autoregressive_streams_and_ends_with_the_whole(client: Client) -> None:
    job = client.submit("text", FOUR_JSON, api_name="/autoregressive")
    job.result()
    *events, last = map(json.loads, job.outputs())
    assert {event["kind"] for event in events} >= {"token", "row", "lane_end"}
    assert (last["kind"], last["state"]) == ("end", "done")


def test_endpoints_take_a_json_schema_and_refuse_the_rest_of_it_or_leave_it_out(client: Client) -> None:
    for name in ("/parallel", "/autoregressive"):
        with pytest.raises(AppError, match="2 parts of the schema cannot be decided: .*sender.name.*summary"):
            client.predict("text", json.dumps(TICKET), api_name=name)
    result = json.loads(client.predict("text", json.dumps(TICKET), on_unsupported="skip", api_name="/parallel"))
    assert list(result["values"]) == ["kind", "priority", "topics", "sender", "escalate"]
    assert list(result["values"]["sender"]) == ["plan"] and isinstance(result["values"]["topics"], list)
    assert {remark["pointer"]: remark["name"] for remark in result["unsupported"]} == TICKET_LEFT_OUT
    job = client.submit("text", json.dumps(TICKET), on_unsupported="skip", api_name="/autoregressive")
    job.result()
    run = next(event for event in map(json.loads, job.outputs()) if event["kind"] == "run")
    assert {remark["pointer"]: remark["name"] for remark in run["unsupported"]} == TICKET_LEFT_OUT
    with pytest.raises(AppError, match="on_unsupported 'drop' is unknown; use 'error' or 'skip'"):
        client.predict("text", FOUR_JSON, on_unsupported="drop", api_name="/parallel")


def test_mode_style_and_cache_of_a_caller_reach_the_engine(client: Client, server: Server) -> None:
    client.predict("text", FOUR_JSON, "schema", "compact", False, api_name="/autoregressive")
    race = server[1].engine.races[-1]
    assert (race.mode, race.style, race.request.cache) == ("schema", "compact", False)
    result = json.loads(client.predict("text", FOUR_JSON, 1.0, "compact", False, api_name="/parallel"))
    assert (result["values"], result["cache"]) == (json.loads(canonical(FOUR.schema)), "off")


@pytest.mark.parametrize("options, words", UNKNOWN)
def test_endpoints_refuse_an_option_that_does_not_exist(client: Client, options: dict, words: str) -> None:
    for name in ("/parallel", "/autoregressive") if "mode" not in options else ("/autoregressive",):
        with pytest.raises(AppError, match=re.escape(words)):
            client.predict("text", FOUR_JSON, **options, api_name=name)


@pytest.mark.parametrize("name", ["/parallel", "/autoregressive"])
@pytest.mark.parametrize(
    "context, schema, message", [("", FOUR_JSON, "the context is empty"), ("text", "{}", "the schema has no fields")]
)
def test_endpoints_refuse_in_one_line(client: Client, name: str, context: str, schema: str, message: str) -> None:
    with pytest.raises(AppError, match=message):
        client.predict(context, schema, api_name=name)


def test_endpoints_say_that_the_model_loads(client: Client, server: Server) -> None:
    server[1].status = Status("loading", "converting", 0.4)
    try:
        with pytest.raises(AppError, match=r"still loading \(converting\)"):
            client.predict("text", FOUR_JSON, api_name="/parallel")
    finally:
        server[1].status = READY


def test_a_port_in_use_is_one_line_that_says_what_to_do(server: Server) -> None:
    port = int(server[0].rstrip("/").rsplit(":", 1)[1])
    with pytest.raises(SystemExit, match=rf"cannot listen on 127\.0\.0\.1:{port}: the port is in use.* --port"):
        launch(build(resident(), PRESETS), "127.0.0.1", port)


def test_a_silent_wait_is_yielded_now_and_then_so_that_a_closed_tab_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.ui.runs.HEARTBEAT_S", 0.05)
    there = resident()
    with there.engine.device:  # somebody else's run

        async def waiting() -> str:
            seen = 0
            async with aclosing(Runs(there).start("me", inputs())) as logs:
                async for log in logs:
                    seen += 1
                    if seen == 6:
                        break
            return log.lines

        lines = asyncio.run(asyncio.wait_for(waiting(), 10)).splitlines()
        assert [from_line(line).kind for line in lines[1:]] == ["waiting", *["alive"] * 4]  # the first are the rows


def test_a_model_that_loads_for_long_says_so_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.ui.runs.HEARTBEAT_S", 0.05)
    there = resident(Status("loading", "converting", 0.5))

    async def loading() -> str:
        async with aclosing(Runs(there).start("me", inputs())) as logs:
            async for log in logs:
                if log.lines.count("\n") == 4:
                    break
        return log.lines

    lines = asyncio.run(asyncio.wait_for(loading(), 10)).splitlines()
    assert [from_line(line).stage for line in lines[1:]] == ["converting"] * 3


def test_what_is_sent_of_a_page_leads_to_nothing_of_the_server() -> None:
    """Gradio copies it for whoever opens the page: through a bound method, the queue and every session's events."""
    page = build(ScriptedResident(ScriptedEngine()), PRESETS)
    props = {
        (component["type"], name): value
        for component in page.get_config_file()["components"]
        for name, value in component["props"].items()
    }
    assert [key for key, value in props.items() if isinstance(value, partial) or hasattr(value, "__self__")] == []
