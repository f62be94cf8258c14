"""The schema's text as rows of a table: nothing of it is lost, and what is wrong stands at its row."""

from __future__ import annotations

import json

import pytest

from core.presets import load_presets
from core.schema import StructuredSchema
from core.ui.sheet import NO_ROW, Sheet
from core.ui.views import schema_text
from tests.scripted import NASTY, TICKET

PRESETS = (*load_presets(), NASTY)


def read(sheet: Sheet) -> str:
    """The rows as JSON, put together without the code under test."""
    rows = []
    for row in sheet.rows:
        parts = [
            f"{json.dumps(key)}: {value if isinstance(value, str) else '[' + ', '.join(value) + ']'}"
            for key, value in row.parts
        ]
        rows.append(f"{row.name}: {row.whole or '{' + ', '.join(parts) + '}'}")
    return "{" + ", ".join(rows) + "}"


def pairs(text: str) -> object:
    """A JSON text with each name, also one that stands there twice, and each digit."""
    return json.loads(text, object_pairs_hook=tuple, parse_int=str, parse_float=str, parse_constant=str)


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.id)
def test_a_presets_rows_are_its_schema(preset) -> None:
    sheet = Sheet.of(schema_text(preset.schema))
    assert (sheet.state, sheet.faults, sheet.reason) == ("fields", (), "")
    assert StructuredSchema.from_text(read(sheet)) == preset.schema


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"": {}}',
        '{"a": 5, "b": [1], "c": null, "d": "boolean"}',
        '{"a": {"type": "boolean"}, "a": {"type": "enum", "choices": ["x"]}}',
        '{"a": {"type": "enum", "choices": [1, "1", true, null, 12345678901234567890123, 1.0, 1e5, -0, NaN]}}',
        '{"a": {"description": "b", "type": ["boolean"], "note": {"x": [{"y": 2}]}, "type": "enum", "choices": "x"}}',
        '{"a": {"type": "enum", "choices": ["\\ud800", "\\u202e", "</script>"], "titles": ["", 1], "depends_on": 7}}',
    ],
)
def test_an_unfinished_text_is_kept_to_the_letter(text: str) -> None:
    sheet = Sheet.of(text)
    assert sheet.state == "fields"
    assert pairs(read(sheet)) == pairs(text)
    assert sheet.faults
    assert sheet.to_json().isascii()  # half a character has no bytes


@pytest.mark.parametrize(
    "text, faults",
    [
        ("{}", {NO_ROW: "the schema has no fields; add at least one"}),
        ('{"": {"type": "boolean"}}', {0: "a field has an empty name; give it one"}),
        ('{"a": {"type": "enum", "choices": ["x"]}}', {0: "field 'a': only one choice, 'x'; an enum needs at least 2"}),
        ('{"a": {"type": "enum", "choices": []}, "b": {}}', {0: "no choices", 1: "field 'b': no type; use 'boolean'"}),
        (
            '{"a": {"type": "boolean"}, "b": {"type": "boolean"}, "a": {"type": "boolean"}}',
            {2: "field 'a' appears twice; each name must be unique"},
        ),
        ('{"a": {"type": "enum", "choices": ["x", "x"]}}', {0: "choice 'x' appears twice"}),
        ('{"a": {"type": "enum", "choices": ["x", 1.5]}}', {0: "choice 1.5 is a float"}),
        ('{"a": {"type": "const", "choices": [1, 2]}}', {0: "2 choices; a const has exactly 1"}),
        ('{"a": {"type": "text"}}', {0: "type 'text' is unknown"}),
        ('{"a": 5}', {0: "field 'a': expected an object with 'type', got 5"}),
        ('{"a": {"type": "boolean", "type": "enum"}}', {0: "'type' appears twice in one object"}),
        (
            '{"a": {"type": "boolean", "depends_on": ["c"]}, "b": {"type": "boolean", "depends_on": ["d"]}}',
            {0: "field 'a': depends_on names 'c', which is no field", 1: "field 'b': depends_on names 'd'"},
        ),
        ('{"a": {"type": "enum"}, "b": {"type": "boolean", "depends_on": ["a"]}}', {0: "no choices"}),
        ('{"a": {"type": "boolean", "depends_on": ["a"]}}', {0: "'a' -> 'a' depend on each other in a circle"}),
        (
            '{"a": {"type": "boolean", "depends_on": ["b"]}, "b": {"type": "boolean", "depends_on": ["a"]}}',
            {NO_ROW: "'a' -> 'b' -> 'a' depend on each other in a circle"},
        ),
        (json.dumps({f"f{i}": {"type": "boolean"} for i in range(129)}), {NO_ROW: "129 fields; at most 128"}),
    ],
)
def test_a_fault_stands_at_its_row(text: str, faults: dict[int, str]) -> None:
    found = {fault.row: fault.text for fault in Sheet.of(text).faults}
    assert found.keys() == faults.keys()
    for row, words in faults.items():
        assert words in found[row]


def test_an_empty_text_is_a_table_to_begin() -> None:
    sheet = Sheet.of(" \n")
    assert (sheet.state, sheet.rows) == ("fields", ())
    assert "not valid JSON" in sheet.faults[0].text


@pytest.mark.parametrize(
    "text, reason",
    [
        ('{"a": ', "not valid JSON"),
        ("[1]", "a schema is an object of fields, got [1]"),
        ("a: {type: enum, choices: [SE, NO]}", "quote it"),
        ('{"type": "object"}', "cannot be decided"),
        ('{"a": ' + "[" * 900 + "]" * 900 + "}", "nested too deeply"),
        ('{"a": ' + "[" * 9000 + "]" * 9000 + "}", "nested too deeply"),
    ],
)
def test_what_is_no_table_says_why(text: str, reason: str) -> None:
    sheet = Sheet.of(text)
    assert (sheet.state, sheet.rows) == ("unreadable", ())
    assert reason in sheet.reason


@pytest.mark.parametrize(
    "text, kind, names",
    [
        (json.dumps(TICKET), "JSON Schema", None),
        ("a: {type: boolean}\nb: {type: enum, choices: [x, '1']}", "YAML", ["a", "b"]),
    ],
)
def test_what_writing_back_would_change_is_locked_with_its_reason(text: str, kind: str, names) -> None:
    sheet = Sheet.of(text)
    schema = StructuredSchema.from_text(text, on_unsupported="skip")
    assert sheet.state == "locked"
    assert sheet.reason.startswith(f"This text is {'a ' * (kind != 'YAML')}{kind}.") and "lost" in sheet.reason
    assert [json.loads(row.name) for row in sheet.rows] == (names or [field.name for field in schema])
    assert StructuredSchema.from_text(read(sheet)).key == schema.key
