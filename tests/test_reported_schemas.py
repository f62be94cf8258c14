"""Schemas that people reported other engines to have refused or misread, each with the outcome that a user expects.

The docstrings tell where: project and issue. Choices out of an import are also in tests/test_cases.py.
"""

import enum
import json
from typing import Literal, Optional

import jsonschema
import pydantic
import pytest

from core.engine import Engine, Request
from core.schema import FieldDefinition, SchemaError, StructuredSchema, UnsupportedSchema, choice_key
from tests.fakes import LEXICONS, HashBackend, PreferringBackend, lexicon
from tests.test_cases import CONTEXT, answer, intend, line, one_field, share


def importing(keywords, name="risk"):
    return StructuredSchema.from_json_schema({"type": "object", "properties": {name: keywords}, "required": [name]})


def model_of(annotation):
    return pydantic.create_model("Form", risk=(annotation, ...))


def assert_each_wins(schema, choices, name="qwen"):
    """The field has these choices, and each comes back in its own type where the model means to write it."""
    assert [choice_key(choice) for choice in schema["risk"].choices] == [choice_key(choice) for choice in choices]
    for choice in choices:
        for ending in (",\n", "\n}"):
            engine = Engine(PreferringBackend(lexicon(name)), "preferring")
            intend(engine, schema, choice, ending=ending)
            result = engine.run_parallel(CONTEXT, schema)
            assert choice_key(result.values["risk"]) == choice_key(choice)
            assert result.text == f'{{\n  "risk": {json.dumps(choice)}\n}}'
            jsonschema.validate(result.values, schema.to_json_schema())


def head_of(schema):
    """The words of the prompt before the user's text."""
    plan = Engine(HashBackend(lexicon("qwen")), "hash").prepare(Request(CONTEXT, schema)).plan
    return b"".join(lexicon("qwen").texts[token] for token in plan.prompt.head).decode()


@pytest.mark.parametrize("keywords", [{"type": "string", "enum": []}, {"enum": []}])
def test_an_empty_enum_is_refused_by_its_name(keywords):
    """It was accepted, and the output was no JSON. mlc-ai/xgrammar#639"""
    with pytest.raises(
        UnsupportedSchema, match="^1 part .*: /properties/x \\(x\\): no choices; an enum needs at least 2$"
    ):
        importing(keywords, "x")
    with pytest.raises(SchemaError, match="^field 'x': no choices; an enum needs at least 2$"):
        StructuredSchema({"x": {"type": "enum", "choices": []}})


@pytest.mark.parametrize(
    "schema",
    [
        importing({"const": "tram", "type": "string"}),
        importing({"enum": ["tram"]}),
        importing({"anyOf": [{"const": "tram"}]}),
        StructuredSchema.from_pydantic(model_of(Literal["tram"])),
    ],
)
def test_a_literal_of_one_value_is_that_value_and_takes_no_pass(schema):
    """It was refused, or dropped. googleapis/python-genai#264, pydantic/pydantic-ai#1444"""
    engine = Engine(HashBackend(lexicon("qwen")), "hash")
    before = engine.backend.passes
    result = engine.run_parallel(CONTEXT, schema)
    [decision] = result.decisions
    assert (result.values, decision.probability, result.passes) == ({"risk": "tram"}, 1.0, 0)
    assert engine.backend.passes == before and result.text == '{\n  "risk": "tram"\n}'


@pytest.mark.parametrize("name", LEXICONS)
@pytest.mark.parametrize(
    "schema",
    [
        StructuredSchema(model_of(Optional[Literal["a", "b"]])),
        importing({"anyOf": [{"enum": ["a", "b"], "type": "string"}, {"type": "null"}]}),
        importing({"type": ["string", "null"], "enum": ["a", "b"]}),
        importing({"type": "string", "nullable": True, "enum": ["a", "b"]}),
    ],
    ids=["Optional", "anyOf", "flattened", "OpenAPI 3.0"],
)
def test_null_is_a_choice_of_an_optional_enum_also_where_it_was_flattened(schema, name):
    """The type was flattened to string or null and the enum was not, so that a value had to be invented.

    livekit/agents#5080
    """
    assert_each_wins(schema, ["a", "b", None], name)


@pytest.mark.parametrize("name", LEXICONS)
def test_null_in_an_enum_is_null_and_not_its_name(name):
    """It made the library fail. everit-org/json-schema#126, RicoSuter/NJsonSchema#575, natesilva/jayschema#39"""
    assert_each_wins(importing({"enum": ["a", "b", None]}), ["a", "b", None], name)
    assert_each_wins(importing({"type": "string", "enum": ["null", None, "None"]}), ["null", None, "None"], name)


class Level(enum.IntEnum):
    ONE = 1
    TWO = 2


@pytest.mark.parametrize("name", LEXICONS)
@pytest.mark.parametrize(
    "schema, choices",
    [
        (StructuredSchema(model_of(Level)), [1, 2]),
        (StructuredSchema(model_of(Literal[1, 10, 3])), [1, 10, 3]),
        (importing({"type": "integer", "enum": [15, 90]}), [15, 90]),
        (importing({"type": "integer", "minimum": 9, "maximum": 11}), [9, 10, 11]),
    ],
    ids=["IntEnum", "Literal", "enum", "range"],
)
def test_integers_stay_integers_and_are_told_apart_by_what_follows(schema, choices, name):
    """They were refused, or came back as strings.

    pydantic/pydantic-ai#1553, ArcReel/ArcReel#209, NousResearch/hermes-agent#14104
    """
    assert_each_wins(schema, choices, name)


def test_an_integer_that_begins_another_gets_the_mass_of_its_end():
    """pydantic/pydantic-ai#1553"""
    schema = StructuredSchema(model_of(Literal[1, 10, 3]))
    one, ten = answer(schema, 1), answer(schema, 10)
    assert share(one, 1) > 0.8 > 0.1 > share(one, 10) and share(ten, 10) > 0.8 > 0.1 > share(ten, 1)


@pytest.mark.parametrize("name", LEXICONS)
@pytest.mark.parametrize("choices", [[0, 1], [True, False], [1, True, "1"], [0, False, "false", None]])
def test_true_is_not_one(choices, name):
    """Python takes them for equal, and a lookup merged them.

    agronholm/typeguard#233, huggingface/huggingface_hub#3992, koxudaxi/datamodel-code-generator#704
    """
    assert_each_wins(importing({"enum": choices}), choices, name)
    assert_each_wins(importing({"anyOf": [{"const": choice} for choice in choices]}), choices, name)
    assert_each_wins(StructuredSchema(model_of(Literal[tuple(choices)])), choices, name)


@pytest.mark.parametrize(
    "keywords, titles",
    [
        ({"enum": ["x", "y"]}, ()),
        ({"oneOf": [{"const": "x", "title": "X"}, {"const": "y"}]}, ()),
        ({"oneOf": [{"const": "x", "title": "Excellent"}, {"const": "y"}]}, ("Excellent", "")),
        ({"anyOf": [{"const": "x"}, {"enum": ["y"], "description": "Why?"}]}, ("", "Why?")),
        ({"type": ["string"], "enum": ["x", "y"]}, ()),
        ({"type": ["string", "integer"], "enum": ["x", "y"]}, ()),
    ],
)
def test_an_enum_without_a_type_and_a_choice_of_constants_are_closed_lists(keywords, titles):
    """They fell through to any value at all. leehack/mcp_dart#108"""
    schema = importing(keywords)
    assert schema["risk"].titles == titles
    assert all(title in head_of(schema) for title in titles)
    assert_each_wins(schema, ["x", "y"])


@pytest.mark.parametrize("name", LEXICONS)
def test_names_and_choices_that_differ_by_case_alone_are_different(name):
    """Two keys collided. speakeasy-api/speakeasy#352"""
    month = {"enum": ["May", "MAY", "may"]}
    schema = StructuredSchema.from_json_schema({"type": "object", "properties": {"Priority": month, "priority": month}})
    assert [field.name for field in schema] == ["Priority", "priority"]
    for upper, lower in (("May", "MAY"), ("may", "May"), ("MAY", "may")):
        engine = Engine(PreferringBackend(lexicon(name)), "preferring")
        opening = engine.prepare(Request(CONTEXT, schema)).plan.prompt.layout.opening
        lines = [
            line(engine, one_field("x", "y", name=key), value)
            for key, value in (("Priority", upper), ("priority", lower))
        ]
        engine.backend.intend(*lines, before="assistant\n" + opening)
        result = engine.run_parallel(CONTEXT, schema)
        assert list(result.values.items()) == [("Priority", upper), ("priority", lower)]


@pytest.mark.parametrize("name", LEXICONS)
def test_choices_that_are_made_at_run_time_are_a_list_in_which_blanks_count(name):
    """Links and codes came from a database, and a class was asked for. dottxt-ai/outlines#1585"""
    rows = ["https://example.org/a", "DE", "DE ", " DE", ""]
    for schema in (
        StructuredSchema([FieldDefinition("risk", "enum", choices=list(rows))]),
        StructuredSchema({"risk": {"type": "enum", "choices": list(rows)}}),
        importing({"enum": list(rows)}),
    ):
        assert_each_wins(schema, rows, name)


@pytest.mark.parametrize(
    "rows, twice", [(["DE", "FR", "DE"], "'DE'"), (["DE ", "DE", "DE "], "'DE '"), ([7, "7", 7], "7")]
)
def test_a_choice_that_a_list_holds_twice_is_named(rows, twice):
    """dottxt-ai/outlines#1585"""
    with pytest.raises(SchemaError, match=f"^field 'code': choice {twice} appears twice; each choice must be unique$"):
        StructuredSchema([FieldDefinition("code", "enum", choices=rows)])
    with pytest.raises(SchemaError, match=f"/properties/code \\(code\\): choice {twice} appears twice"):
        importing({"enum": rows}, "code")


FIELDS_IN_YAML = """\
country:
  type: enum
  choices: [{}]
"""
SCHEMA_IN_YAML = """\
properties:
  country:
    enum:
      - {}
"""


@pytest.mark.parametrize("written", ["NO", "No", "no", "off", "Yes", "012", "1:30", "0x1F", "1_000"])
@pytest.mark.parametrize("text", [FIELDS_IN_YAML, SCHEMA_IN_YAML], ids=["fields", "JSON Schema"])
def test_a_country_that_yaml_takes_for_false_is_to_be_quoted(text, written):
    """NO is false in YAML 1.1. countries/countries#417, openENTRANCE/openentrance#348, carmen-ruby/carmen#62"""
    between = ", " if "[" in text else "\n      - "
    at = 3 if "[" in text else 5
    with pytest.raises(SchemaError, match=f"line {at}: '{written}' is a .* quote it") as refused:
        StructuredSchema.from_text(text.format(between.join(["SE", written, "DK"])))
    assert "False" not in str(refused.value)
    quoted = StructuredSchema.from_text(text.format(between.join(["SE", f'"{written}"', "DK"])))
    assert quoted["country"].choices == ("SE", written, "DK")
    assert answer(quoted, written).value == written


@pytest.mark.parametrize("name", LEXICONS)
@pytest.mark.parametrize("choices", [["150", "250", "1250"], ["1", "10", "100"], ["0102", "102", "1.0", "1"]])
def test_texts_that_look_like_numbers_are_texts(choices, name):
    """They gave a vague error about a regular expression. strapi/strapi#9221"""
    assert_each_wins(importing({"type": "string", "enum": choices}), choices, name)
