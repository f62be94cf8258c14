"""Schema files: a schema is read from where people keep it, and an error begins with that place."""

import json
import sys
from textwrap import dedent

import pytest

from core.field import SchemaError
from core.schema import FieldDefinition, StructuredSchema
from core.schema_file import column_choices, print_remarks, read_schema

FIELDS = {
    "risk": {"type": "enum", "choices": ["HIGH", "NO", 1, None]},
    "is_fraud": {"type": "boolean", "depends_on": ["risk"]},
}
SCHEMA = StructuredSchema(FIELDS)
FIELDS_YAML = """\
risk:
  type: enum
  choices: [HIGH, 'NO', 1, null]
is_fraud:
  type: boolean
  depends_on:
  - risk
"""
JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "level": {"enum": ["LOW", "HIGH"]},
        "address": {"$ref": "#/$defs/Address"},
    },
    "$defs": {"Address": {"type": "object", "properties": {"is_home": {"type": "boolean"}}}},
}
OPENAPI = """\
openapi: 3.1.0
info: {title: Tickets, version: '1.0'}
components:
  schemas:
    Level:
      type: string
      enum: [low, high]
    Ticket:
      type: object
      required: [level, urgent]
      properties:
        level: {$ref: '#/components/schemas/Level'}
        urgent: {type: boolean}
    Note:
      type: object
      properties:
        urgent: {type: boolean}
        words: {type: string}
    a/b:
      type: object
      properties:
        level: {$ref: '#/components/schemas/Level'}
"""


def written(folder, name, content):
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def refused(place, words):
    with pytest.raises(SchemaError, match=words) as refusal:
        read_schema(place)
    message = str(refusal.value)
    assert message.startswith(str(place).partition("#")[0]) and message.isprintable()
    return message


# --- files ---


@pytest.mark.parametrize(
    "name, content, text",
    [
        ("schema.json", json.dumps(FIELDS), ""),
        ("schema.json", "\ufeff" + json.dumps(FIELDS), ""),
        ("schema.yaml", FIELDS_YAML, ""),
        ("schema.yml", "\ufeff# risks\n---\n" + FIELDS_YAML, ""),
        ("schema.yaml", json.dumps(FIELDS), ""),
        ("schema.json", FIELDS_YAML, ""),
        ("schema", FIELDS_YAML, ""),
        ("preset.json", json.dumps({"context": "A text.", "schema": FIELDS, "title": "A preset"}), "A text."),
        ("preset.yaml", "context: |\n  A\n  text.\nschema:\n  " + FIELDS_YAML.replace("\n", "\n  "), "A\ntext.\n"),
        ("preset.json", json.dumps({"context": "", "schema": FIELDS}), ""),
        ("a#b.json", json.dumps(FIELDS), ""),
        ("a:b", json.dumps(FIELDS), ""),
        ("a b.csv.json", json.dumps(FIELDS), ""),
    ],
)
def test_fields_stand_in_a_file_of_their_own_or_in_a_preset_in_json_or_yaml(tmp_path, monkeypatch, name, content, text):
    file = written(tmp_path, name, content)
    assert read_schema(file) == read_schema(str(file)) == (SCHEMA, text)
    monkeypatch.chdir(tmp_path)
    assert read_schema(name) == (SCHEMA, text)


def test_a_schema_may_have_fields_called_context_and_schema(tmp_path):
    fields = {"context": {"type": "boolean"}, "schema": {"type": "boolean"}}
    schema, text = read_schema(written(tmp_path, "schema.json", json.dumps(fields)))
    assert [field.name for field in schema] == ["context", "schema"] and text == ""


@pytest.mark.parametrize("preset", [False, True])
def test_a_json_schema_may_stand_wherever_fields_may(tmp_path, preset):
    content = {"context": "A text.", "schema": JSON_SCHEMA} if preset else JSON_SCHEMA
    schema, text = read_schema(written(tmp_path, "schema.json", json.dumps(content)))
    assert schema.source == "json_schema" and text == ("A text." if preset else "")
    assert schema == StructuredSchema.from_json_schema(JSON_SCHEMA)
    assert [field.name for field in schema] == ["level", "address.is_home"]


@pytest.mark.parametrize(
    "content, words",
    [
        (b"[]", "a schema is an object of fields, got \\[\\]"),
        (b"- a", "a schema is an object of fields, got \\['a'\\]"),
        (b"risk", "a schema is an object of fields, got 'risk'"),
        (b"", "not valid JSON: Expecting value"),
        (b"# nothing", "a schema is an object of fields, got None"),
        (b"{}", "no fields"),
        (b"{", "not valid JSON"),
        (b"a: [", "not valid YAML"),
        (b"risk: {type: enum, choices: [HIGH,\n NO]}", "line 2: 'NO' is a bool to YAML .*; quote it"),
        (b'{"a": {"type": "boolean"}, "a": {"type": "boolean"}}', "'a' appears twice"),
        (b'{"context": "A", "schema": {"a": {"type": "boolean", "type": "enum"}}}', "'type' appears twice"),
        (b'{"context": "A", "schema": []}', "a schema is an object of fields, got \\[\\]"),
        (b'{"context": "A", "schema": "x"}', "a schema is an object of fields"),
        (b'{"context": "A", "schema": null}', "a schema is an object of fields"),
        (b'{"context": "A"}', "field 'context': expected an object with 'type'"),
        (b'{"a": {"type": "text"}}', "type 'text' is unknown"),
        (b'{"type": "object", "properties": {"a": {"type": "string"}}}', "/properties/a \\(a\\): free text"),
        (b"\xff", "is no text in UTF-8"),
        ("risk: {type: boolean}".encode("utf-16"), "is no text in UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)  # fmt: skip
def test_a_file_without_a_good_schema_is_refused(tmp_path, content, words):
    refused(written(tmp_path, "schema.json", content), words)


@pytest.mark.parametrize(
    "place, words",
    [
        ("none.json", "No such file or directory; give a JSON or YAML file"),
        ("none.json#/a", "No such file or directory"),
        ("none.csv#code", "No such file or directory"),
        (".", "Is a directory; give a JSON or YAML file"),
        ("x" * 5000, "File name too long; give a JSON or YAML file"),
        ('{"risk":\n {"type": "boolean"}}', "No such file or directory"),
    ],
)
def test_a_place_where_nothing_stands_is_refused_with_what_a_place_is(tmp_path, monkeypatch, place, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SchemaError, match=f"{words}.*") as refusal:
        read_schema(place)
    message = str(refusal.value)
    assert message.isprintable() and len(message) < 600
    assert message.startswith(place.partition("\n")[0][:300].partition("#")[0])


HALF = {"type": "object", "properties": {"urgent": {"type": "boolean"}, "words": {"type": "string"}}}


@pytest.mark.parametrize(
    "content, part",
    [
        (HALF, ""),
        ({"context": "A text.", "schema": HALF}, ""),
        ({"components": {"schemas": {"Note": HALF}}}, "#/components/schemas/Note"),
    ],
)
def test_what_cannot_be_decided_is_left_out_where_that_was_asked_for_and_said(tmp_path, capsys, content, part):
    schema, _ = read_schema(f"{written(tmp_path, 'half.json', json.dumps(content))}{part}", "skip")
    assert [field.name for field in schema] == ["urgent"]
    print_remarks(schema)
    assert capsys.readouterr().err == f"left out: {part[1:]}/properties/words (words): free text\n"


def test_notes_are_printed_after_what_was_left_out_and_nothing_else_is(capsys):
    half = {"type": "object", "required": ["b"], "properties": {"a": {"type": "boolean"}, "b": {"type": "number"}}}
    print_remarks(StructuredSchema(half, on_unsupported="skip"))
    print_remarks(SCHEMA)
    left_out, note = capsys.readouterr().err.splitlines()
    assert left_out.startswith("left out: /properties/b (b): a number")
    assert note == "note: /properties/a (a): not required, so it can be null"


# --- a part of a file ---


@pytest.mark.parametrize(
    "pointer, names",
    [
        ("/components/schemas/Ticket", ["level", "urgent"]),
        ("/components/schemas/a~1b", ["level"]),
        ("/components/schemas/%54icket", ["level", "urgent"]),
    ],
)
@pytest.mark.parametrize("name", ["openapi.yaml", "open#api.yml"])
def test_a_pointer_names_a_component_of_an_openapi_document(tmp_path, name, pointer, names):
    place = f"{written(tmp_path, name, OPENAPI)}#{pointer}"
    schema, text = read_schema(place)
    assert [field.name for field in schema] == names and (schema.source, text) == ("json_schema", "")
    assert schema["level"].choices == ("low", "high")


@pytest.mark.parametrize("pointer", ["/$defs/Address", "/properties/address"])
def test_a_pointer_names_a_part_of_a_json_schema_that_is_one_itself(tmp_path, pointer):
    schema, _ = read_schema(f"{written(tmp_path, 'schema.json', json.dumps(JSON_SCHEMA))}#{pointer}")
    assert [field.name for field in schema] == ["is_home"]


def test_an_empty_pointer_names_the_whole_file(tmp_path):
    assert read_schema(f"{written(tmp_path, 'schema.json', json.dumps(FIELDS))}#") == (SCHEMA, "")


@pytest.mark.parametrize(
    "part, words",
    [
        ("/components/schemas/Nobody", "'#/components/schemas/Nobody' leads nowhere"),
        ("/components/schemas/a%2Fb", "leads nowhere"),
        ("Ticket", "at '#Ticket' is no reference within the document; write it as #/"),
        ("/components/schemas/Level", "the schema is no object"),
        ("/components/schemas/Note", "/components/schemas/Note/properties/words \\(words\\): free text"),
        ("/info/title", "'Tickets' is no schema"),
    ],
)
def test_a_pointer_to_what_is_no_object_to_decide_is_refused(tmp_path, part, words):
    file = written(tmp_path, "openapi.yaml", OPENAPI)
    assert refused(f"{file}#{part}", words).startswith(f"{file}#{part}: ")


# --- columns ---

CODES = ["NA", "NO", "007", " blank ", "null", "true", "1e3", "no", "ca,fé"]


def table_of(folder, name, cells):
    if name.endswith("jsonl"):
        return written(folder, name, "".join(json.dumps({"id": 1, "code": cell}) + "\n" for cell in cells))
    between = "\t" if name.endswith("tsv") else ","
    rows = [["id", "code"], *(["1", f'"{cell}"'] for cell in cells)]
    return written(folder, name, "\ufeff" + "\n\n".join(between.join(row) for row in rows))


@pytest.mark.parametrize("name", ["codes.csv", "codes.CSV", "codes.tsv", "codes.jsonl", "a#b.csv", "a:b.csv"])
def test_the_cells_of_a_column_are_choices_as_they_stand_there(tmp_path, name):
    file = table_of(tmp_path, name, CODES)
    assert read_schema(f"{file}#code") == (StructuredSchema([FieldDefinition("code", "enum", choices=CODES)]), "")
    assert column_choices(file, "code") == tuple(CODES)


def test_a_column_whose_name_holds_a_hash_is_found(tmp_path):
    file = written(tmp_path, "codes.csv", "c#,C\nx,1\ny,2\n")
    schema, _ = read_schema(f"{file}#c#")
    assert schema["c#"].choices == ("x", "y")


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("codes.csv", 'id,code\n1,NO\n2,""\n', "row 2: column 'code' is empty; remove the row"),
        ("codes.csv", "id,code\n1,NO\n2\n", "row 2: the row has 1 cells and the header names 2 columns"),
        ("codes.csv", "id,code\n1,NO\n2,NA\n3,NO\n", "row 3: column 'code' has 'NO' again"),
        ("codes.csv", "id,code\n1,NO\n", "field 'code': only one choice, 'NO'"),
        ("codes.csv", "id,code\n", "field 'code': no choices"),
        ("codes.csv", "", "is empty; its first line names the columns"),
        ("codes.csv", "id,Code\n1,NO\n", "no column 'code'; the columns are 'id', 'Code'"),
        ("codes.csv", "code,code\n1,NO\n", "2 columns 'code'"),
        ("codes.csv", "code\n" + "\n".join(map(str, range(1025))), "field 'code': 1025 choices; at most 1024"),
        ("codes.csv", "code\nNO\n" + "x" * 257, "has 257 bytes; at most 256"),
        ("codes.csv", b"code\nNO\ncaf\xe9\n", "row 2: column 'code' holds bytes that are not UTF-8"),
        ("codes.csv", "code\nNO\n".encode("utf-16"), "is UTF-16; save it as UTF-8"),
        ("codes.jsonl", '{"code": "NO"}\n{"id": 1}\n', "row 2: no column 'code'; the row has 'id'"),
        ("codes.jsonl", '{"code": "NO"}\n{"code": 7}\n', "row 2: column 'code' is a number and no string"),
        ("codes.jsonl", '{"code": "NO"}\n{', "row 2: not valid JSON"),
    ],
)
def test_a_column_that_gives_no_closed_list_is_refused_with_the_row_and_the_column(tmp_path, name, content, words):
    file = written(tmp_path, name, content)
    assert refused(f"{file}#code", words).count(str(file)) == 1


@pytest.mark.parametrize("place", ["codes.csv", "codes.csv#"])
def test_a_table_without_a_column_is_refused_with_the_way_to_name_one(tmp_path, place):
    table_of(tmp_path, "codes.csv", CODES)
    assert "is a table; name the column of choices: codes.csv#COLUMN" in refused(tmp_path / place, "is a table")


@pytest.mark.parametrize(
    "content, words",
    [
        (None, "codes.csv: No such file or directory"),
        ("code\nNO\nNO\n", "codes.csv: data row 2: column 'code' has 'NO' again"),
        ("id,code\n1\n", "codes.csv: data row 1: the row has 1 cells"),
        ("id\n1\n", "codes.csv: no column 'code'"),
    ],
)
def test_choices_of_a_column_that_are_none_are_one_kind_of_error_that_names_the_file(tmp_path, content, words):
    file = tmp_path / "codes.csv" if content is None else written(tmp_path, "codes.csv", content)
    with pytest.raises(SchemaError, match=words):
        column_choices(file, "code")


# --- models ---


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that can be imported; `shop.models` by default."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def made(content):
        (tmp_path / "shop").mkdir()
        written(tmp_path, "shop/__init__.py", "")
        written(tmp_path, "shop/models.py", dedent(content))

    yield made
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "shop":
            del sys.modules[name]


MODELS = """
    from dataclasses import dataclass
    from typing import Literal, Optional
    from pydantic import BaseModel

    class Ticket(BaseModel):
        level: Literal["low", "high"]
        urgent: bool

    class Note(BaseModel):
        urgent: bool
        words: str

    @dataclass
    class Plain:
        level: Optional[Literal["low", "high"]]

    class Nothing:
        pass

    a_ticket = Ticket(level="low", urgent=True)
"""


def test_a_module_and_a_class_name_a_pydantic_model(module):
    module(MODELS)
    schema, text = read_schema("shop.models:Ticket")
    assert (schema.source, text) == ("pydantic", "")
    assert schema == StructuredSchema(
        {"level": {"type": "enum", "choices": ["low", "high"]}, "urgent": {"type": "boolean"}}
    )
    assert read_schema("shop.models:Plain")[0]["level"].choices == ("low", "high", None)
    assert [field.name for field in read_schema("shop.models:Note", "skip")[0]] == ["urgent"]


@pytest.mark.parametrize(
    "place, words",
    [
        ("shop.models:Nobody", "AttributeError: .*'Nobody'"),
        ("shop.none:Ticket", "ModuleNotFoundError: .*No module named 'shop.none'.*; give a JSON or YAML file"),
        ("none_such:Ticket", "ModuleNotFoundError: .*none_such"),
        (".models:Ticket", "TypeError: "),
        ("shop.models:Nothing", "is no Pydantic model; give a model, fields or a JSON Schema"),
        ("shop.models:a_ticket", "a Pydantic model is a class, got .*; give the class"),
        ("shop.models:Note", "1 part of the schema cannot be decided: /properties/words \\(words\\): free text"),
    ],
)
def test_a_place_that_names_no_model_to_decide_is_refused(module, place, words):
    module(MODELS)
    assert refused(place, words).startswith(f"{place}: ")


@pytest.mark.parametrize(
    "content, words",
    [
        ("1 / 0", "ZeroDivisionError: 'division by zero'"),
        ("def", "SyntaxError: "),
        ("raise RuntimeError('first line\\nsecond \\x1b[2J line')", "RuntimeError: "),
        ("raise SystemExit('no arguments')", "SystemExit: 'no arguments'"),
        ("import none_such", "ModuleNotFoundError: .*none_such"),
    ],
)
def test_a_module_that_raises_is_one_line(module, content, words):
    module(content)
    assert refused("shop.models:Ticket", words).startswith("shop.models:Ticket: ")


def test_a_file_that_is_there_is_read_and_no_module_imported(tmp_path, monkeypatch, module):
    module("raise AssertionError('imported')")
    written(tmp_path, "shop.models:Ticket", json.dumps(FIELDS))
    monkeypatch.chdir(tmp_path)
    assert read_schema("shop.models:Ticket") == (SCHEMA, "")
