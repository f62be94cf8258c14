"""`python -m core.decode`: one text against one schema, wherever both stand."""

import io
import json
import re
import sys

import pytest

from core.decode import main
from core.engine import Engine
from core.presets import FOLDER, Preset
from core.schema import StructuredSchema
from tests.fakes import HashBackend, lexicon

FIELDS = {"risk": {"type": "enum", "choices": ["HIGH", "LOW"]}, "is_fraud": {"type": "boolean"}}
IMPORT = {
    "type": "object",
    "required": ["words", "topics", "sender"],
    "properties": {
        "words": {"type": "string"},
        "topics": {"type": "array", "items": {"enum": ["bill", "account"]}, "maxItems": 1},
        "sender": {
            "type": "object",
            "properties": {"country": {"enum": ["NO", "SE", None]}, "kind": {"const": "person"}},
        },
    },
}
MODULE = """
from typing import Literal
from pydantic import BaseModel

class Sender(BaseModel):
    country: Literal["NO", "SE"]

class Ticket(BaseModel):
    sender: Sender
"""
COUNTRIES = "name,code\nNorway,NO\nNamibia,NA\n"


def hashed():
    return Engine(HashBackend(lexicon("qwen")), "hash", why="a test")


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs the command on a hash, in a folder of schemas: its exit code, the printed result, what it has said."""
    monkeypatch.setattr(Engine, "load", lambda *_, **__: hashed())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fields.json").write_text(json.dumps(FIELDS))
    (tmp_path / "import.json").write_text(json.dumps(IMPORT))
    (tmp_path / "preset.json").write_text(json.dumps({"context": "A text.", "schema": FIELDS}))
    (tmp_path / "countries.csv").write_text(COUNTRIES)

    def ran(*arguments):
        code = main(arguments)
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return ran


def answers(result):
    """What does not depend on the clock or on what ran before."""
    return {key: result[key] for key in ("values", "parsed_json", "field_telemetry", "notes", "unsupported")}


@pytest.mark.parametrize("arguments", [[], ["--text", "Another text."], ["--text", "-"]])
def test_a_preset_brings_a_text_and_another_may_be_given(command, monkeypatch, arguments):
    monkeypatch.setattr(sys, "stdin", io.StringIO("A piped text.\n"))
    code, result, said = command("preset.json", *arguments)
    text = {(): "A text.", ("--text", "-"): "A piped text.\n"}.get(tuple(arguments), "Another text.")
    alone = hashed().run_parallel(text, StructuredSchema(FIELDS)).to_json()
    assert (code, said, result["schema_source"]) == (0, "", "fields")
    assert answers(result) == answers(alone)


def test_the_options_of_the_command_are_those_of_the_engine(command):
    options = ["--scoring", "full", "--prior", "content_free", "--style", "compact", "--reading", "complete"]
    code, result, _ = command("fields.json", "--text", "A text.", "--temperature", "2", *options)
    alone = hashed().run_parallel(
        "A text.",
        StructuredSchema(FIELDS),
        2.0,
        scoring="full",
        prior="content_free",
        style="compact",
        complete=True,
    )
    assert code == 0 and answers(result) == answers(alone.to_json())


def test_the_values_of_an_import_are_nested_and_what_was_left_out_is_said(command):
    code, result, said = command("import.json", "--text", "A text.", "--on-unsupported", "skip")
    schema = StructuredSchema(IMPORT, on_unsupported="skip")
    assert code == 0 and answers(result) == answers(hashed().run_parallel("A text.", schema).to_json())
    assert list(result["values"]) == ["topics", "sender"]
    assert result["values"]["sender"].keys() == {"country", "kind"} and len(result["values"]["topics"]) <= 1
    assert list(result["parsed_json"]) == ["topics.bill", "topics.account", "sender.country", "sender.kind"]
    assert result["parsed_json"]["sender.kind"] == {"value": "person", "prob": 1.0}
    assert result["schema_source"] == "json_schema"
    assert said.splitlines() == [
        "left out: /properties/words (words): free text",
        "note: /properties/topics (topics): 0 to 1 items come back, the likeliest where it was decided otherwise",
        "note: /properties/topics (topics): each item comes at most once, in the order listed",
    ]
    [left_out], [_, note] = result["unsupported"], result["notes"]
    assert left_out == {"pointer": "/properties/words", "name": "words", "reason": "free text"}
    assert (note["pointer"], note["name"]) == ("/properties/topics", "topics")


def test_a_column_and_a_pydantic_model_are_schemas_too(command, tmp_path, monkeypatch):
    code, result, _ = command("countries.csv#code", "--text", "A text.")
    assert code == 0 and result["values"]["code"] in ("NO", "NA")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "decode_models.py").write_text(MODULE)
    code, result, _ = command("decode_models:Ticket", "--text", "A text.")
    assert code == 0 and result["schema_source"] == "pydantic"
    assert result["values"]["sender"]["country"] in ("NO", "SE")


def test_a_preset_of_the_page_gives_one_value_to_each_of_its_fields(command):
    code, result, _ = command(str(FOLDER / "fintech_fraud.json"))
    assert code == 0
    assert list(result["values"]) == [field.name for field in Preset.load(FOLDER / "fintech_fraud.json").schema]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["fields.json"], "fields.json has no text of its own; give --text"),
        (["fields.json", "--text", ""], "fields.json has no text of its own; give --text"),
        (["import.json", "--on-unsupported", "skip"], "import.json has no text of its own"),
        (["countries.csv#code"], "countries.csv#code has no text of its own"),
        (["preset.json", "--text", "A text.", "--on-unsupported", "guess"], "invalid choice: 'guess'"),
        (["preset.json", "--text"], "expected one argument"),
        ([], "the following arguments are required: SCHEMA"),
    ],
)
def test_wrong_usage_ends_with_2(command, capsys, arguments, words):
    with pytest.raises(SystemExit, match="^2$"):
        command(*arguments)
    said = capsys.readouterr().err
    assert said.startswith("usage: python -m core.decode") and words in said and "left out" not in said


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["none.json"], r"none\.json: No such file or directory; give a JSON or YAML file"),
        (["import.json"], r"import\.json: 1 part .* /properties/words \(words\): free text; on_unsupported=.skip."),
        (["countries.csv#land"], r"countries\.csv: no column 'land'; the columns are 'name', 'code'"),
        (["countries.csv"], r"countries\.csv: is a table; name the column of choices: countries\.csv#COLUMN"),
        (["none_such:Ticket"], "none_such:Ticket: ModuleNotFoundError: "),
        (['{"risk": {"type": "boolean"}}' * 20], "File name too long; give a JSON or YAML file"),
        (["fields.json", "--temperature", "0"], "temperature 0.0 must be a finite number above 0"),
        (["fields.json", "--text", " "], "the context is empty"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_prints_no_result(command, arguments, words):
    text = [] if "--text" in arguments else ["--text", "A text."]
    code, result, said = command(*arguments, *text)
    assert (code, result) == (1, None)
    assert re.match(f"error: .*{words}", said) and said.count("\n") == 1


def test_a_bad_schema_is_refused_before_a_model_is_loaded(command, monkeypatch):
    monkeypatch.delattr(Engine, "load")
    assert command("import.json", "--text", "A text.")[0] == 1
