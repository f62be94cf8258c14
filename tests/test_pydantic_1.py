"""Models of Pydantic 1: the JSON Schema that it wrote, and its classes."""

import enum
import json
from typing import Literal, Optional

import jsonschema
import pytest

from core.schema import StructuredSchema
from tests.test_pydantic_import import CONTEXTS, TRUTH, TWO, as_text, engine, expected, flat

#: As `Ticket.schema()` wrote it: `allOf` around a reference with a default or a description, `Optional` without null.
DOCUMENT = {
    "title": "Ticket",
    "type": "object",
    "properties": {
        "color": {"$ref": "#/definitions/Color"},
        "kind": {"title": "Kind", "enum": ["ticket"], "type": "string"},
        "secondColor": {"description": "Which?", "default": "red", "allOf": [{"$ref": "#/definitions/Color"}]},
        "thirdColor": {"$ref": "#/definitions/Color"},
        "address": {"$ref": "#/definitions/Address"},
        "other": {"$ref": "#/definitions/Address"},
        "colors": {"type": "array", "items": {"$ref": "#/definitions/Color"}, "uniqueItems": True},
        "level": {"title": "Level", "exclusiveMinimum": 0, "maximum": 3, "type": "integer"},
    },
    "required": ["color", "kind", "address", "colors", "level"],
    "definitions": {
        "Color": {"title": "Color", "description": "An enumeration.", "enum": ["red", "blue"]},
        "Address": {
            "title": "Address",
            "description": "Where the goods go.",
            "type": "object",
            "properties": {"country": {"title": "Country", "enum": ["NO", "SE"], "type": "string"}},
            "required": ["country"],
        },
    },
}
FIELDS = {
    "color": TWO,
    "kind": ("ticket",),
    "secondColor": TWO,
    "thirdColor": (*TWO, None),
    "address.country": ("NO", "SE"),
    "other": TRUTH,
    "other.country": ("NO", "SE"),
    "colors.red": TRUTH,
    "colors.blue": TRUTH,
    "level": (1, 2, 3),
}
DESCRIPTIONS = {
    "secondColor": "Which?",
    "address.country": "Where the goods go.",
    "other": "Where the goods go. Does the text say anything of this?",
    "other.country": "Where the goods go.",
    "colors.red": 'Is "red" one of them?',
    "colors.blue": 'Is "blue" one of them?',
}


@pytest.fixture(scope="module")
def v1():
    return pytest.importorskip("pydantic.v1", reason="this Pydantic carries no Pydantic 1")


@pytest.fixture(scope="module")
def ticket(v1):
    class Color(enum.Enum):
        RED = "red"
        BLUE = "blue"

    class Address(v1.BaseModel):
        """Where the goods go."""

        country: Literal["NO", "SE"]

    class Ticket(v1.BaseModel):
        color: Color
        kind: Literal["ticket"]
        second: Color = v1.Field(Color.RED, alias="secondColor", description="Which?")
        third: Optional[Color] = v1.Field(alias="thirdColor")
        address: Address
        other: Address | None
        colors: set[Color]
        level: v1.conint(gt=0, le=3)

    return Ticket


def described(schema):
    return {field.name: field.description for field in schema if field.description}


def test_the_document_is_read_with_its_definitions_and_optional_parts():
    schema = StructuredSchema(DOCUMENT)
    assert (schema.source, flat(schema), described(schema)) == ("json_schema", expected(FIELDS), DESCRIPTIONS)
    assert [(note.name, note.reason) for note in schema.notes] == [
        ("thirdColor", "not required, so it can be null"),
        ("other", "not required, so it can be null"),
    ]
    validator = jsonschema.Draft202012Validator(schema.to_json_schema())
    for context in CONTEXTS:
        values = engine().run_parallel(context, schema).values
        validator.validate(values)
        given = {name: value for name, value in values.items() if value is not None}
        jsonschema.Draft7Validator(DOCUMENT).validate(given)


def test_the_class_is_read_as_its_document_and_takes_each_answer(ticket):
    schema = StructuredSchema(ticket)
    assert (schema.source, flat(schema), described(schema)) == ("pydantic", expected(FIELDS), DESCRIPTIONS)
    found = [engine().run_parallel(context, schema).values for context in CONTEXTS]
    for values in found:
        taken = json.loads(ticket.parse_obj(values).json(by_alias=True))
        assert as_text(taken) == as_text(values)
    assert {values["other"] is None for values in found} == {True, False}


def test_the_class_keeps_the_document_that_it_had(v1):
    class Kept(v1.BaseModel):
        urgent: bool | None

    before = json.dumps(Kept.schema())
    StructuredSchema(Kept)
    assert json.dumps(Kept.schema()) == before


def test_where_all_is_optional_null_is_a_choice_of_each(v1):
    class Loose(v1.BaseModel):
        mood: Literal["glad", "sad"] | None
        urgent: bool | None
        level: Literal[1, 2] = 1

    schema = StructuredSchema.from_pydantic(Loose)
    fields = {"mood": ("glad", "sad", None), "urgent": (True, False, None), "level": (1, 2)}
    assert flat(schema) == expected(fields)
    found = [engine().run_parallel(context, schema).values for context in CONTEXTS]
    assert [Loose.parse_obj(values).dict() for values in found] == found
