"""Schemas: what is accepted, what is refused, and in which words."""

import json

import pytest

from core.schema import FieldDefinition, SchemaError, StructuredSchema, choice_key


def enum(*choices, name="risk", description=""):
    return FieldDefinition(name, "enum", description, choices)


# --- what is kept ---


def test_fields_and_choices_keep_their_order():
    schema = StructuredSchema({"z": {"type": "boolean"}, "a": {"type": "enum", "choices": ["y", "x", "b"]}})
    assert [field.name for field in schema] == ["z", "a"]
    assert schema["a"].choices == ("y", "x", "b")


def test_a_boolean_is_decided_between_true_and_false_in_this_order():
    assert list(map(choice_key, FieldDefinition("ok", "boolean").choices)) == [("bool", True), ("bool", False)]


def test_a_boolean_may_list_its_own_two_values_in_any_order():
    field = FieldDefinition("ok", "boolean", choices=(False, True))
    assert list(map(choice_key, field.choices)) == [("bool", True), ("bool", False)]


@pytest.mark.parametrize(
    "choices",
    [
        (1, True, "1", "true", None, "null", "None"),
        (0, False, "0", "", "false"),
        ("May", "MAY", "may"),
        ("high", "high ", " high", "high\u00a0"),
        ("caf\u00e9", "cafe\u0301"),
        ("NO", "no"),
        (-1, 1, 10**255),
        ("${7*7}", "{{x}}", "<img src=x onerror=alert(1)>", "a\0b", "\\", '"', "<|im_end|>", "שלום", "👩\u200d🚀"),
    ],
)
def test_choices_are_told_apart_by_type_and_exact_text(choices):
    assert list(map(choice_key, enum(*choices).choices)) == list(map(choice_key, choices))


@pytest.mark.parametrize("names", [["Priority", "priority"], ["priority", "Priority"]])
def test_names_that_differ_by_case_are_two_names(names):
    schema = StructuredSchema({name: {"type": "boolean"} for name in names})
    assert [field.name for field in schema] == names
    assert "PRIORITY" not in schema


@pytest.mark.parametrize(
    "spec",
    [
        {"risk": {"type": "enum", "choices": ["HIGH", 1, True, None], "description": "How bad?"}},
        {"ok": {"type": "boolean"}},
        {"${x}": {"type": "enum", "choices": ["{{y}}", "z"]}, "__proto__": {"type": "boolean", "description": "שלום"}},
    ],
)
def test_to_json_gives_back_what_the_constructor_takes(spec):
    assert json.dumps(StructuredSchema(spec).to_json()) == json.dumps(spec)
    assert StructuredSchema.from_text(json.dumps(spec)) == StructuredSchema(spec)


@pytest.mark.parametrize(
    "other",
    [
        {"b": {"type": "boolean"}, "a": {"type": "enum", "choices": [1, 2]}},
        {"a": {"type": "enum", "choices": [2, 1]}, "b": {"type": "boolean"}},
        {"a": {"type": "enum", "choices": [1, 2], "description": "d"}, "b": {"type": "boolean"}},
        {"a": {"type": "enum", "choices": [True, 2]}, "b": {"type": "boolean"}},
        {"a": {"type": "enum", "choices": ["1", 2]}, "b": {"type": "boolean"}},
        {"A": {"type": "enum", "choices": [1, 2]}, "b": {"type": "boolean"}},
        {"a": {"type": "enum", "choices": [1, 2]}},
    ],
)
def test_order_types_and_descriptions_are_part_of_what_a_schema_is(other):
    schema = StructuredSchema({"a": {"type": "enum", "choices": [1, 2]}, "b": {"type": "boolean"}})
    assert schema != StructuredSchema(other)
    assert len({schema, StructuredSchema(schema.to_json()), StructuredSchema(other)}) == 2


@pytest.mark.parametrize(
    "field",
    [
        lambda: enum(*map(str, range(1024))),
        lambda: enum("x" * 256, "y"),
        lambda: enum("é" * 128, "y"),
        lambda: enum("a", "b", name="n" * 128),
        lambda: enum("a", "b", description="d" * 1024),
        lambda: enum("a", "b", name='\n\0\\ "{{x}}'),
    ],
)
def test_what_just_fits_the_limits_is_accepted(field):
    assert field().choices


def test_a_schema_takes_128_fields():
    assert len(StructuredSchema([FieldDefinition(f"f{i}", "boolean") for i in range(128)])) == 128


# --- what is refused ---


@pytest.mark.parametrize(
    "name, field_type, description, choices, message",
    [
        ("risk", "enum", "", (), "^field 'risk': no choices; an enum needs at least 2$"),
        ("risk", "enum", "", ("LOW",), "only one choice, 'LOW'"),
        ("risk", "enum", "", ("LOW", "LOW"), "choice 'LOW' appears twice"),
        ("risk", "enum", "", (1, 2, 1), "choice 1 appears twice"),
        ("risk", "enum", "", (True, 1, True), "choice True appears twice"),
        ("risk", "enum", "", (1.0, 2), "choice 1.0 is a float; a choice is a string, an integer, true, false or null"),
        ("risk", "enum", "", (float("nan"), 2), "choice nan is a float"),
        ("risk", "enum", "", (["a"], "b"), "choice \\['a'\\] is a list"),
        ("risk", "enum", "", ({"a": 1}, "b"), "is a dict"),
        ("risk", "enum", "", "HIGH", "choices must be a list, got 'HIGH'"),
        ("risk", "enum", "", None, "choices must be a list, got None"),
        ("risk", "enum", "", 7, "choices must be a list, got 7"),
        ("risk", "enum", "", {"a": 1}, "choices must be a list"),
        ("risk", "enum", "", ("x" * 257, "y"), "has 257 bytes; at most 256 are allowed"),
        ("risk", "enum", "", ("é" * 129, "y"), "has 258 bytes; at most 256"),
        ("risk", "enum", "", (10**256, 1), "more than 256 digits"),
        ("risk", "enum", "", (-(10**256), 1), "more than 256 digits"),
        ("risk", "enum", "", ("\ud83d", "y"), "half a character"),
        ("risk", "enum", "", tuple(map(str, range(1025))), "1025 choices; at most 1024"),
        ("risk", "boolean", "", ("yes", "no"), "a boolean has no choices of its own, got \\('yes', 'no'\\)"),
        ("risk", "boolean", "", (1, 0), "a boolean has no choices of its own"),
        ("risk", "string", "", (), "type 'string' is unknown; use 'boolean' or 'enum'"),
        ("risk", None, "", ("a", "b"), "type None is unknown"),
        ("risk", ["enum"], "", ("a", "b"), "is unknown"),
        ("", "boolean", "", (), "empty name"),
        ("n" * 129, "boolean", "", (), "has 129 bytes; at most 128"),
        ("\ud83d", "boolean", "", (), "half a character"),
        (7, "boolean", "", (), "field name 7 must be a string, got 7"),
        ("risk", "boolean", "d" * 1025, (), "^field 'risk': the description has 1025 bytes; at most 1024 are allowed$"),
        ("risk", "boolean", None, (), "the description must be a string, got None"),
        ("risk", "boolean", "\udc00", (), "half a character"),
    ],
)  # fmt: skip
def test_a_field_refuses_what_it_cannot_decide(name, field_type, description, choices, message):
    with pytest.raises(SchemaError, match=message) as refused:
        FieldDefinition(name, field_type, description, choices)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 250


@pytest.mark.parametrize(
    "fields, message",
    [
        ({}, "the schema has no fields"),
        ([], "the schema has no fields"),
        ("risk", "a schema is an object of fields, got 'risk'"),
        (None, "a schema is an object of fields, got None"),
        (7, "a schema is an object of fields, got 7"),
        ([{"type": "boolean"}], "a schema is a list of FieldDefinition"),
        ({"risk": "boolean"}, "field 'risk': expected an object with 'type', got 'boolean'"),
        ({"risk": {}}, "field 'risk': no type"),
        ({"risk": {"type": "boolean", "enum": ["a"]}}, "unknown key 'enum'; a field has type, choices, titles, desc"),
        ({1: {"type": "boolean"}}, "must be a string"),
        ([FieldDefinition("a", "boolean"), FieldDefinition("a", "boolean")], "field 'a' appears twice"),
        ({f"f{i}": {"type": "boolean"} for i in range(129)}, "the schema has 129 fields; at most 128 are allowed"),
        ({"x" * 70: {"type": "x"}}, "xxx\\.\\.\\.: type 'x' is unknown"),
    ],
)
def test_a_schema_refuses_what_it_cannot_decide(fields, message):
    with pytest.raises(SchemaError, match=message):
        StructuredSchema(fields)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "not valid JSON: Expecting value at line 1, column 1"),
        ("{\n  'a': 1}", "at line 2, column 3"),
        ("[]", "a schema is an object of fields, got \\[\\]"),
        ("null", "a schema is an object of fields, got None"),
        ('{"a": {"type": "boolean"}, "a": {"type": "boolean"}}', "'a' appears twice in one object"),
        ('{"a": {"type": "boolean", "type": "enum"}}', "'type' appears twice"),
        ('{"a": {"type": "enum", "choices": [1.5, 2]}}', "choice 1.5 is a float"),
        ('{"a": {"type": "enum", "choices": [NaN, 2]}}', "choice nan is a float"),
        ('{"a": {"type": "enum", "choices": ["\\ud83d", "b"]}}', "half a character"),
        ('{"a": {"type": "enum", "choices": [' + "1" * 5000 + ", 2]}}", "a number is too long"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' * 100_000, "nested too deeply"),
    ],
)
def test_a_json_text_that_is_no_schema_is_refused_on_one_line(text, message):
    with pytest.raises(SchemaError, match=message) as refused:
        StructuredSchema.from_text(text)
    assert "\n" not in str(refused.value)


def test_a_checked_field_cannot_be_changed():
    field = enum("a", "b")
    with pytest.raises(AttributeError, match="cannot assign"):
        field.choices = ("c",)


def test_a_list_of_dependencies_that_is_longer_than_any_schema_is_refused_at_once():
    with pytest.raises(SchemaError, match="field 'a': depends_on has 30000 names; a schema has at most 128 fields"):
        StructuredSchema({"a": {"type": "boolean", "depends_on": [f"n{i}" for i in range(30_000)]}})
