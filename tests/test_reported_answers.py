"""Answers that people reported parsers to have misread, each with what a careful person makes of it.

The docstrings and ids tell where: project and issue. Most texts are read twice: as they came, and
behind the brace with which the prompt opens the object, after which a model may begin anew.
"""

import json
import time

import gradio as gr
import pytest
from playwright.sync_api import sync_playwright

from core.answer import read_answer
from core.compare import Flag, Row, compare
from core.engine import Engine, Request
from core.race import Reading
from core.schema import StructuredSchema
from core.ui.components import Board
from core.ui.log import Log
from tests import fakes
from tests.chromium import CHROMIUM, FLAGS, PATIENCE_MS, spy_on
from tests.fakes import LEXICONS, PreferringBackend, lexicon
from tests.scripted import served

CONTEXT = "A text about nothing."
#: What the prompt's tail ends with, and the baseline's text begins with.
OPENING = "{\n"
SCHEMA = StructuredSchema({"a": {"type": "enum", "choices": ["B", "C"]}, "ok": {"type": "boolean"}})
VALUES = {"a": "B", "ok": True}


def values(text):
    return {member.name: member.value for member in read_answer(text).members}


def outcome(text):
    return compare(SCHEMA, text, finished=True).outcome


def rows(schema, text, **options):
    comparison = compare(StructuredSchema(schema), text, finished=True, **options)
    return {row.name: row for row in (*comparison.rows, *comparison.invented)}


# --- what stands around the answer ---

THINKING = "garrytan/gbrain#4640, HKUDS/DeepTutor#675"
FENCES = "langchain-ai/langchain#5428, vectorize-io/hindsight#2563, n8n-io/n8n#23726"
SHELL = "NVIDIA-NeMo/labs-OO-Agents#238"
STRINGS = "BoundaryML/baml#1255"
EMPTY = "xorbitsai/inference#3647, QwenLM/Qwen3#1396"
ESCAPED = "mangiucugna/json_repair#44, mangiucugna/json_repair#46"

#: (source, text, answer)
WRAPPED = [
    (THINKING, '<think>maybe {"priority":"LOW"}</think>{"priority":"HIGH"}', {"priority": "HIGH"}),
    (THINKING, '<think>\nmaybe "priority": "LOW"\n</think>\n\n{"priority":"HIGH"}', {"priority": "HIGH"}),
    (THINKING, 'maybe {"priority":"LOW"}</think>{"priority":"HIGH"}', {"priority": "HIGH"}),
    (THINKING, 'maybe {"priority":"LOW", so\n</think>\n```\n{"priority":"HIGH"}\n```', {"priority": "HIGH"}),
    (THINKING, '<thinking>maybe {"priority":"LOW"}</thinking>{"priority":"HIGH"}', {"priority": "HIGH"}),
    (EMPTY, '<think></think>\n{"a":"B"}', {"a": "B"}),
    (EMPTY, '<think>\n\n</think>\n\n{"a":"B"}', {"a": "B"}),
    (FENCES, '```json {"why":"show ```py blocks","ok":true} ```', {"why": "show ```py blocks", "ok": True}),
    (FENCES, '```json\n{"a":"B"}\n```', {"a": "B"}),
    (FENCES, '````json\n{"a":"```","ok":true}\n````', {"a": "```", "ok": True}),
    (FENCES, '~~~\n{"a":"B"}\n~~~', {"a": "B"}),
    (SHELL, '```bash ls``` then ```json {"a":"B"}```', {"a": "B"}),
    (SHELL, '```bash\necho \'{"a": "C"}\' | jq "x: y"\n```\n\n```json\n{"a":"B"}\n```', {"a": "B"}),
    (SHELL, '````sh\ncat <<X\n```\n{"a": "C"}\nX\n````\n{"a":"B"}', {"a": "B"}),
    (SHELL, '```\nfor f in {"a","b"}; do cat "$f"; done\n```\n```\n{"a":"B"}\n```', {"a": "B"}),
    (STRINGS, '{"a":"}{","ok":true}', {"a": "}{", "ok": True}),
    (STRINGS, '{"a":"{\\"ok\\": false}","ok":true}', {"a": '{"ok": false}', "ok": True}),
    (ESCAPED, '{"q":"say \\"no\\", then go","k":"x"}', {"q": 'say "no", then go', "k": "x"}),
    (ESCAPED, 'Sure! Here it is:\n{"a":"B"}\nIs there {anything} else, "or: not"?', {"a": "B"}),
    (STRINGS, 'The set {B, C}, the empty {} and {{x}} aside, I say {"a":"B"}', {"a": "B"}),
]


@pytest.mark.parametrize(
    "text, answer", [pytest.param(*case, id=f"{source} {n}") for n, (source, *case) in enumerate(WRAPPED)]
)
def test_the_answer_is_found_in_what_stands_around_it(text, answer):
    """Behind the prompt's brace the answer is the same, and the whole is no JSON: `{{"a": 1}}`."""
    assert (values(text), outcome(text)) == (answer, "parsed")
    assert (values(OPENING + text), outcome(OPENING + text)) == (answer, "not_parsable")


#: What goes on behind the prompt's brace without one of its own: (source, text, answer, outcome)
CONTINUED = [
    (EMPTY, '<think></think>\n"a":"B"\n}', {"a": "B"}, "parsed"),
    (EMPTY, '</think>"a":"B"}', {"a": "B"}, "parsed"),
    (THINKING, '<think>maybe {"a":"C"}</think>\n\n  "a": "B"\n}', {"a": "B"}, "parsed"),
    (THINKING, 'maybe {"a":"C"}</think>\n  "a": "B"\n}', {"a": "B"}, "parsed"),
    (THINKING, '"a":"C"\n}</think>\n  "a": "B"\n}', {"a": "B"}, "parsed"),
    (FENCES, '```json\n  "a": "B"\n}\n```', {"a": "B"}, "parsed"),
    (FENCES, '<think></think>\n````\n"a": "B"}\n````', {"a": "B"}, "parsed"),
    (SHELL, '```bash\necho "a": "C"\n```\n"a": "B"}', {"a": "B"}, "not_parsable"),
    (ESCAPED, 'Sure! Here it is:\n  "a": "B"\n}', {"a": "B"}, "not_parsable"),
    (ESCAPED, '"a": "B"\n}\n```\nThat is {all}.', {"a": "B"}, "parsed"),
]


@pytest.mark.parametrize(
    "text, answer, expected", [pytest.param(*case, id=f"{source} {n}") for n, (source, *case) in enumerate(CONTINUED)]
)
def test_the_answer_goes_on_behind_the_prompts_brace(text, answer, expected):
    """Thinking blocks and a fence are set aside there as anywhere; prose is not: it stands inside the braces."""
    assert (values(OPENING + text), outcome(OPENING + text)) == (answer, expected)


@pytest.mark.parametrize("text", ['<think>maybe {"a":"B"} and on', '<think>\n"a": "B"\n}', '```bash\n{"a":"B"}'])
@pytest.mark.parametrize("opening", ["", OPENING])
def test_what_a_block_that_never_closes_holds_is_no_answer(text, opening):
    """garrytan/gbrain#4640"""
    comparison = compare(SCHEMA, opening + text, finished=True, values=VALUES)
    assert [row.flags for row in comparison.rows] == [(Flag.OMITTED,)] * 2 and comparison.outcome == "not_parsable"
    assert compare(SCHEMA, opening + text, finished=True, truncated=True).outcome == "truncated"


def test_a_closing_tag_after_the_answer_makes_no_draft_of_it():
    """HKUDS/DeepTutor#675"""
    for after in ("</think>", "</think>\nThat is {it}.", '\n"</think>" {"x"}'):
        assert (values('{"a":"B"}' + after), outcome('{"a":"B"}' + after)) == ({"a": "B"}, "parsed")


@pytest.mark.parametrize("name", LEXICONS)
def test_the_prompt_holds_the_empty_thinking_block_where_the_template_prints_it(name):
    """Thinking was off, and a think pair stood in the output. xorbitsai/inference#3647, QwenLM/Qwen3#1396"""
    tokens = lexicon(name)
    template = fakes.CHATML.replace("assistant\n' }}", "assistant\n<think></think>\n' }}")
    tokens.chat.chat_template, kept = template, tokens.chat.chat_template
    try:
        engine = Engine(PreferringBackend(tokens), "thinking")
        prepared = engine.prepare(Request(CONTEXT, SCHEMA))
    finally:
        tokens.chat.chat_template = kept
    opening = prepared.plan.prompt.layout.opening
    assert tokens.chat.decode(prepared.whole).endswith("assistant\n<think></think>\n" + opening)
    engine.backend.intend('{\n<think></think>\n  "a": "B",\n  "ok": true\n}'.removeprefix(opening), before=opening)
    events = drained(engine.race(CONTEXT, SCHEMA, mode="free", order=("ar",)))
    assert final_rows(events)["a"].text == '"B"' and events[-1].marks == ()


# --- values ---


def test_python_is_shown_as_written_and_beside_it_how_a_lenient_reader_takes_it():
    """mangiucugna/json_repair#128, mangiucugna/json_repair#56"""
    schema = {"tier": {"type": "enum", "choices": ["P1", None]}, "vip": {"type": "enum", "choices": ["x", None]}}
    text = "{'tier': 'P1', 'vip': None, 'ok': True}"
    not_allowed = (Flag.NOT_ALLOWED,)
    assert rows(schema, text, values={"tier": "P1", "vip": None}) == {
        "tier": Row("tier", "'P1'", not_allowed, True, '"P1"'),
        "vip": Row("vip", "None", not_allowed, True, "null"),
        "ok": Row("ok", "True", (Flag.INVENTED,), True, "true"),
    }
    assert outcome(text) == "not_parsable"


def test_a_lenient_reading_is_drawn_and_can_be_sent():
    """mangiucugna/json_repair#128"""
    shown = rows({"a": {"type": "boolean"}}, "{'a': 'M\\u00fcnchen \\ud83d \\u202e\ud83d'}")["a"]
    assert shown.lenient == '"München \\ud83d \\u202e\\ud83d"'
    assert (shown.text + shown.lenient).encode("utf-8")


def test_a_key_written_twice_is_flagged_and_no_clean_match():
    """cityjson/specs#2, AdaCore/gnatcoll-core#3, bblanchon/ArduinoJson#1095"""
    schema = StructuredSchema({"block": {"type": "boolean"}})
    comparison = compare(schema, '{"block":false,"block":true}', finished=True, values={"block": True})
    assert comparison.rows[0].flags == (Flag.DUPLICATE, Flag.SAME)
    assert comparison.counts == {Flag.DUPLICATE: 1}


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_constants_that_json_lacks_are_invalid_everywhere(constant):
    """python/cpython#121189, frenck/probatio#76"""
    text = f'{{"score":{constant},"a":"B"}}'
    shown = rows({"score": {"type": "enum", "choices": [0, 1, constant]}}, text)
    assert shown["score"] == Row("score", constant, (Flag.NOT_ALLOWED,), partial=True, lenient="")
    assert outcome(text) == outcome(f'{{"a":[{{"b":{constant}}}]}}') == "not_parsable"


@pytest.mark.parametrize("written", ['"yes"', '"true"', '"True"', '"false"', "1", "0", "null", '""'])
@pytest.mark.parametrize("decided", [True, False])
def test_what_is_no_boolean_is_never_made_one(written, decided):
    """A parser took "yes" for false. langgenius/dify#28086, llm-exe/llm-exe#147"""
    text = f'{{"is_valid":{written}}}'
    shown = rows({"is_valid": {"type": "boolean"}}, text, values={"is_valid": decided})["is_valid"]
    assert shown == Row("is_valid", written, (Flag.NOT_ALLOWED,), partial=False)
    assert outcome(text) == "parsed"


SPELLINGS = ["HIGH", "high", " HIGH", "High ", "HIGH\u00a0", "HIGH\n"]


@pytest.mark.parametrize("written", SPELLINGS)
@pytest.mark.parametrize("decided", SPELLINGS)
def test_one_rule_of_equality_holds_for_both_lanes_and_for_their_agreement(written, decided):
    """JSON type and exact text. DouglasNeuroInformatics/OpenDataCapture#1003, datacite/schema#86, langchain#5396"""
    text = json.dumps({"risk": written})
    one = rows({"risk": {"type": "enum", "choices": ["HIGH", "x"]}}, text, values={"risk": "HIGH"})["risk"]
    assert one.flags == ((Flag.SAME,) if written == "HIGH" else (Flag.NOT_ALLOWED,))
    schema = StructuredSchema({"risk": {"type": "enum", "choices": SPELLINGS}})
    each = compare(schema, text, finished=True, values={"risk": decided})
    assert each.rows[0].flags == ((Flag.SAME,) if written == decided else (Flag.DIFFERS,))
    assert each.counts[Flag.SAME] == (written == decided)


def test_a_string_that_is_cut_at_a_comma_is_not_two_members():
    """mangiucugna/json_repair#44"""
    shown = rows({"why": {"type": "boolean"}, "b": {"type": "boolean"}}, '{"why": "a, b: true')
    assert (shown["why"].text, shown["why"].flags) == ('"a, b: true', (Flag.OMITTED,))
    assert (shown["b"].text, shown["why"].lenient) == ("", "")


# --- while it streams ---


def drained(race):
    events = []
    while not race.finished:
        events += race.drain()
        time.sleep(0.001)
    return events


def drained_often(events, schema):
    """The same run, as a page sees it that drains after every event."""
    reading, told = Reading(Request(CONTEXT, schema)), []
    for event in events:
        if event.kind not in ("row", "judged", "end"):
            told += reading.follow([event])
    return told + reading.end(events[-1].ms, "done", "")


def final_rows(events):
    return {event.name: event for event in events if event.kind == "row"}


def written_freely(text, schema=SCHEMA):
    """The events of a real lane whose model writes the text, which begins with a brace and ends with its own."""
    engine = Engine(PreferringBackend(lexicon("qwen")), "free")
    engine.backend.intend(text.removeprefix(OPENING), before="assistant\n" + OPENING)
    events = drained(engine.race(CONTEXT, schema, mode="free", order=("ar",)))
    [end] = (event for event in events if event.kind == "lane_end")
    assert (end.text, end.how) == (text, "closed")
    return drained_often(events, schema)


def test_an_invalid_escape_is_reported_once_and_stops_nothing():
    """anthropics/anthropic-sdk-typescript#986"""
    events = written_freely('{\n"dir":"C:\\Hotel",\n"ok":true\n}')
    assert [event.outcome for event in events if event.kind == "judged"] == ["not_parsable"]
    assert (events[-1].state, events[-1].marks) == ("done", ("not_parsable",))
    shown = final_rows(events)
    assert (shown["dir"].text, shown["dir"].lenient) == ('"C:\\Hotel"', '"C:\\\\Hotel"')
    assert (shown["ok"].text, shown["ok"].flags) == ("true", ())


EMOJI = ["\\ud83d\\ude00", "\\uD83D\\uDE00", "😀", "x\\n\\u00e9\\ud83d\\ude00\\\\"]


@pytest.mark.parametrize("emoji", EMOJI)
@pytest.mark.parametrize("opening", ["", OPENING])
def test_every_cut_of_an_escape_is_drawn_without_a_flicker(emoji, opening):
    """ggml-org/llama.cpp#16526, assistant-ui/assistant-ui#6355, vercel/ai#15866"""
    text = opening + f'{{"mood":"{emoji}"}}'
    schema = {"mood": {"type": "enum", "choices": [json.loads(f'"{emoji}"'), "sad"]}}
    final = rows(schema, text, values={"mood": json.loads(f'"{emoji}"')})["mood"]
    assert final.flags == (Flag.SAME,) and "😀" in final.text and "\\ud" not in final.text.lower()
    for cut in range(len(text) + 1):
        for finished in (True, False):
            comparison = compare(StructuredSchema(schema), text[:cut], finished=finished)
            [shown] = comparison.rows
            assert final.text.startswith(shown.text) and not comparison.invented
            assert shown.lenient == "" and Flag.NOT_ALLOWED not in shown.flags


@pytest.mark.parametrize("half", ["\\ud83d", "\\ude00", "\\ud83d\\u0041", "\ud83d"])
def test_half_a_character_stays_an_escape_and_can_be_sent(half):
    """ggml-org/llama.cpp#16526"""
    text = f'{{"mood":"{half}","{half}":1}}'
    shown = list(rows({"mood": {"type": "boolean"}}, text).values())
    assert outcome(text) == "parsed"
    assert [row.flags for row in shown] == [(Flag.NOT_ALLOWED,), (Flag.INVENTED,)]
    for row in shown:
        assert "\\ud" in row.text + row.name and (row.text + row.name).encode("utf-8")


DRAFT = '{\nmaybe {"mood": "sad", "a": "C", "ok": True}</think>\n"a": "B"\n}'


def test_a_draft_is_withdrawn_from_the_board_when_the_answer_begins():
    """HKUDS/DeepTutor#675"""
    events = written_freely(DRAFT)
    told = [(event.name, event.text, event.flags) for event in events if event.kind == "row"]
    assert ("mood", '"sad"', ("invented",)) in told
    shown = final_rows(events)
    assert (shown["mood"].text, shown["mood"].flags) == ("", ())
    assert (shown["a"].text, shown["ok"].text, shown["ok"].flags) == ('"B"', "", ("omitted",))
    [judged] = (event for event in events if event.kind == "judged")
    assert (judged.outcome, judged.counts) == ("parsed", {"omitted": 1})


@pytest.mark.parametrize("name", LEXICONS)
@pytest.mark.parametrize("blank", ["\n", " ", "\t"])
def test_white_space_without_end_stops_at_the_limit_and_marks_the_speed_up(name, blank):
    """ollama/ollama#2577 (23 % of calls), jundot/omlx#2990, vllm-project/vllm#17393, waybarrios/vllm-mlx#547"""
    engine = Engine(PreferringBackend(lexicon(name)), "blank")
    opening = engine.prepare(Request(CONTEXT, SCHEMA)).plan.prompt.layout.opening
    text = ('{\n  "a": "B",' + blank * 5000).removeprefix(opening)
    engine.backend.intend(text, before="assistant\n" + opening)
    events = drained(engine.race(CONTEXT, SCHEMA, mode="json"))
    [end] = (event for event in events if event.kind == "lane_end" and event.lane == "ar")
    assert end.how == "limit" and end.text.rstrip() == '{\n  "a": "B",' and end.text.endswith(blank * 64)
    assert (events[-1].state, events[-1].marks) == ("done", ("limit", "truncated")) and events[-1].speed_up > 0
    assert [event.outcome for event in events if event.kind == "judged"][-1] == "truncated"
    shown = final_rows(events)
    assert (shown["a"].text, shown["a"].partial, shown["ok"].flags) == ('"B"', True, ("omitted",))


# --- the board ---


@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}")
@pytest.mark.parametrize("width", [1440, 390])
def test_the_board_says_that_a_reading_is_lenient_and_shows_no_draft(width):
    """mangiucugna/json_repair#128, HKUDS/DeepTutor#675"""
    hostile = "<img src=x onerror=window.__pwned=1>"
    long = {"type": "enum", "choices": [hostile * 6, "x"]}
    schema = StructuredSchema({**SCHEMA.to_json(), "tier": {"type": "boolean"}, "long": long})
    lenient = f'{{\n"a": \'C\', "ok": True, "tier": NaN, "long": \'{hostile * 6}\', "odd": None\n}}'
    for text, shown in [(lenient, {"a", "ok", "tier", "long", "odd"}), (DRAFT, {"a", "ok", "tier", "long"})]:
        with gr.Blocks() as replay:
            Board(Log().extended(event for event in written_freely(text, schema) if not event.live))
        with served(replay) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            page = browser.new_page(viewport={"width": width, "height": 900})
            complaints = []
            spy_on(page, address, complaints)
            page.goto(address)
            page.locator('.board[data-phase="done"]').wait_for(timeout=PATIENCE_MS)
            cells = page.locator(".board .row[data-field]").evaluate_all(
                "rows => rows.map((row) => [row.dataset.field, row.querySelector('.ar')])"
                ".map(([name, ar]) => [name, [ar.textContent, ar.title, ar.scrollHeight > ar.clientHeight]])"
            )
            heights = set(
                page.locator(".board .row[data-field]").evaluate_all("rows => rows.map((r) => r.offsetHeight)")
            )
            pwned = page.evaluate("window.__pwned")
            browser.close()
        cells = dict(cells)
        assert cells.keys() == shown and not pwned and complaints == []
        if text == DRAFT:
            assert cells["a"][:2] == ['"B"', '"B"']
            continue
        reading = "is no JSON; a lenient reader would take it for"
        assert cells["a"] == ["'C' ≈ \"C\", read leniently", f"'C'\n{reading}\n\"C\"", False]
        assert cells["odd"] == ["None ≈ null, read leniently", f"None\n{reading}\nnull", False]
        assert cells["tier"] == ["NaN", "NaN", False]
        assert hostile in cells["long"][1] and len(heights) == 1
