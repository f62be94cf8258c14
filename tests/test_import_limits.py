"""What is taken, left out and listed at the edges of an import, and that no document costs more than it is worth."""

import enum
import json
import threading
from datetime import date
from typing import Annotated, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import AliasPath, BaseModel, ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from core.engine import Engine
from core.schema import SchemaError, StructuredSchema, UnsupportedSchema
from core.schema_file import read_schema
from tests.fakes import HashBackend, lexicon

E = {"enum": ["a", "b"]}
CONTEXT = "A text about nothing."


def members(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


def skipped(given):
    return StructuredSchema(given, on_unsupported="skip")


def listed(schema):
    return [(remark.pointer, remark.reason) for remark in schema.unsupported]


# --- a model's own word ---


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Day(enum.Enum):
    FIRST = date(2024, 1, 1)
    SECOND = date(2024, 1, 2)


class TwoOfOneName(BaseModel):
    a: Literal["p"] = Field(alias="x")
    x: Literal["q", "r"]


class Sub(BaseModel):
    colour: Literal[Colour.RED, Colour.BLUE]
    fine: bool


@pytest.mark.parametrize(
    "annotation, name, words",
    [
        (Literal[Colour.RED, Colour.BLUE], "part", "the model refuses one of its values"),
        (Literal[b"a", b"b"], "part", "the model refuses one of its values"),
        (Annotated[set[Literal[1, True]], Field(min_length=2)], "part", "the model refuses one of its values"),
        (Annotated[Literal["a", "b"], Field(validation_alias=AliasPath("n", 0))], "n.0", "the model asks for it"),
        (Annotated[Literal["a", "b"], SkipJsonSchema()], "part", "the model asks for it, and its JSON Schema does not"),
        (Sub, "part.colour", "the model refuses one of its values"),
        (Sub | None, "part.colour", "the model refuses one of its values"),
    ],
)
def test_what_a_model_refuses_of_its_own_schema_is_left_out_and_listed(annotation, name, words):
    model = type("Model", (BaseModel,), {"__annotations__": {"fine": bool, "part": annotation}})
    with pytest.raises(UnsupportedSchema, match=words):
        StructuredSchema(model)
    schema = skipped(model)
    assert [remark.name for remark in schema.unsupported] == [name] and words in schema.unsupported[0].reason
    assert "fine" in schema


def test_two_fields_of_one_name_are_refused_because_one_value_cannot_be_both():
    with pytest.raises(SchemaError, match="x.*the model refuses"):
        StructuredSchema(TwoOfOneName)


def test_a_strict_model_takes_the_values_as_json_and_its_fields_are_decided():
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        colour: Colour
        colours: set[Colour]

    schema = StructuredSchema(Strict)
    result = Engine(HashBackend(lexicon("qwen")), "hash").run_parallel(CONTEXT, schema)
    assert Strict.model_validate_json(json.dumps(result.values)).colour.value == result.values["colour"]


def test_a_rule_between_fields_is_no_reason_against_any_of_them():
    class Ruled(BaseModel):
        a: Literal["x", "y"]
        b: Literal["x", "y"]

        @model_validator(mode="after")
        def agree(self):
            if self.a != self.b:
                raise ValueError("a and b differ")
            return self

    assert [field.name for field in StructuredSchema(Ruled)] == ["a", "b"]


def test_choices_of_an_object_that_may_be_missing_are_tried_while_it_is_there():
    class Maybe(BaseModel):
        sub: Sub | None

    assert [remark.name for remark in skipped(Maybe).unsupported] == ["sub.colour"]


def test_an_enum_of_dates_is_taken_by_its_json_only_where_the_model_takes_that():
    model = type("Model", (BaseModel,), {"__annotations__": {"fine": bool, "day": Day}})
    schema = skipped(model)
    values = Engine(HashBackend(lexicon("qwen")), "hash").run_parallel(CONTEXT, schema).values
    given = values if "day" in values else values | {"day": Day.FIRST}
    assert model.model_validate(given).fine == values["fine"]


# --- a schema's own place ---


def test_a_reference_inside_a_part_of_an_address_of_its_own_is_listed_and_not_guessed():
    inner = {"$id": "https://x.example/a", "$defs": {"x": {"enum": [1, 2]}}, **members(q={"$ref": "#/$defs/x"})}
    document = members(p={"$ref": "#/$defs/A"}, r=E) | {"$id": "https://x.example/root"}
    document["$defs"] = {"A": inner, "x": {"enum": ["wrong"]}}
    schema = skipped(document)
    assert [field.name for field in schema] == ["r"]
    assert listed(schema) == [
        ("/$defs/A/properties/q", "a reference within a part that has an $id of its own is not followed")
    ]


@pytest.mark.parametrize("keyword", ["additionalProperties", "unevaluatedProperties"])
@pytest.mark.parametrize("way", [lambda a: {"$ref": "#/$defs/A"}, lambda a: {"allOf": [a]}])
@pytest.mark.parametrize("is_outside", [True, False])
def test_a_closed_object_on_one_side_of_a_reference_forbids_the_other_and_is_listed(way, keyword, is_outside):
    has, closed = members(a=E), {"type": "object", keyword: False}
    a, beside = (has, {keyword: False}) if is_outside else (closed, {"properties": has["properties"]})
    document = members(p=way(a) | beside, r=E) | {"$defs": {"A": a}}
    [(_, reason)] = listed(skipped(document))
    assert reason == f"{keyword} on one side of a reference forbids the properties on the other"


@pytest.mark.parametrize(
    "part, pointer",
    [
        ({"$ref": "#/$defs/Base", "properties": {"x": {"type": "string"}}}, "/properties/p/properties/x"),
        ({"allOf": [{"type": "object"}], "properties": {"x": {"type": "string"}}}, "/properties/p/properties/x"),
        ({"$ref": "#/$defs/Whole", "minimum": 0, "maximum": "9"}, "/properties/p"),
    ],
)
def test_a_pointer_leads_to_where_the_keyword_stands_also_beside_a_reference(part, pointer):
    document = members(p=part, r=E) | {"$defs": {"Base": {"type": "object"}, "Whole": {"type": "integer"}}}
    assert [found for found, _ in listed(skipped(document))] == [pointer]


def test_the_same_base_may_be_extended_inside_itself():
    base = {"$ref": "#/$defs/B", "properties": {"x": {"$ref": "#/$defs/B", "properties": {"y": E}}}}
    assert [field.name for field in StructuredSchema(members(a=base) | {"$defs": {"B": {"type": "object"}}})] == [
        "a.x.y"
    ]


# --- conditions ---


@pytest.mark.parametrize(
    "part",
    [
        {"type": "boolean", "pattern": "^true|false$"},
        {"enum": ["a", "b"], "minProperties": 2},
        {"type": "integer", "minimum": 0, "maximum": 3, "contains": {"const": 1}},
        members(b=E) | {"pattern": "x"},
        {"type": "array", "uniqueItems": True, "items": E, "minProperties": 1},
    ],
)
def test_a_condition_on_another_type_says_nothing_and_loses_nothing(part):
    schema = StructuredSchema(members(a=part))
    values = Engine(HashBackend(lexicon("qwen")), "hash").run_parallel(CONTEXT, schema).values
    Draft202012Validator(members(a=part)).validate(values)


@pytest.mark.parametrize(
    "part, words",
    [
        ({"type": "integer", "minimum": 0, "maximum": 10, "divisibleBy": 5}, "'divisibleBy' is a condition"),
        ({"enum": ["a", "b"], "disallow": [{"enum": ["a"]}]}, "'disallow' is a condition"),
        ({"enum": ["a", "b"], "extends": {"enum": ["a"]}}, "'extends' is a condition"),
        (members(b=E) | {"extends": members(c=E)}, "extends on an object"),
        ({"type": "null", "enum": ["b", "c"]}, "'b' is listed and not of type null"),
        ({"type": "null", "const": "b"}, "'b' is listed and not of type null"),
        ({"type": "string", "properties": {"b": E}}, "free text"),
        (members(b=E) | {"unevaluatedProperties": E}, "an open map beside the properties"),
    ],
)
def test_older_and_rarer_conditions_are_listed(part, words):
    with pytest.raises(UnsupportedSchema, match=words):
        StructuredSchema(members(a=part))


# --- room ---


def test_fields_for_which_there_is_no_room_are_listed_and_the_others_decided():
    items = {"type": "array", "uniqueItems": True, "items": {"enum": list(range(100))}}
    schema = skipped(members(useful=E, first=items, second=items, **{f"p{i}": E for i in range(40)}))
    assert len(schema) == 128 and "useful" in schema and "first.7" in schema and "p26" in schema
    assert schema.unsupported[0].reason == "needs 100 of the 128 fields that a schema has, and 27 are left"
    assert [remark.name for remark in schema.unsupported] == ["second", *(f"p{i}" for i in range(27, 40))]


def test_an_outer_description_that_does_not_fit_goes_with_a_note_and_the_own_one_stays():
    inner = members(a=E | {"description": "i" * 600}, b=E)
    schema = StructuredSchema(members(o=inner | {"description": "o" * 600}))
    assert [len(field.description) for field in schema] == [600, 600]
    assert schema["o.a"].description == "i" * 600 and schema["o.b"].description == "o" * 600
    [note] = schema.notes
    assert (note.name, note.reason[:34]) == ("o.a", "the description of what is around ")


HALF = members(**{"\ud800x": {"type": "string"}, "a": E})


def test_half_a_character_in_a_name_that_is_left_out_can_be_written_as_json():
    schema = skipped(HALF)
    shape = Engine(HashBackend(lexicon("qwen")), "hash").run_parallel(CONTEXT, schema).to_json()
    assert json.dumps(shape, ensure_ascii=False).encode()
    assert shape["unsupported"][0]["name"] == "\\ud800x"


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(members(a=E, **{"n" * 60_000: members(**{f"q{i}": E for i in range(1_500)})}), id="long name"),
        pytest.param(members(a=E) | {"required": [f"r{i}" for i in range(100_000)]}, id="unknown names"),
        pytest.param(
            {
                "x": [0] * 100_000 + [E],
                **members(**{f"p{i}": {"anyOf": [{"$ref": "#/x/100000"}] * 30} for i in range(40)}),
            },
            id="a long way to what is referred to",
        ),
    ],
)
def test_a_small_document_makes_no_large_work(document):
    """Seconds, or megabytes of remarks, before there were limits; the time is the time limit's to judge."""
    done = threading.Event()
    sizes = []

    def take():
        try:
            schema = skipped(document)
            sizes.append(sum(len(str(remark)) for remark in schema.unsupported))
        except SchemaError as refused:
            sizes.append(len(str(refused)))
        done.set()

    threading.Thread(target=take, daemon=True).start()
    assert done.wait(30) and sizes[0] < 2_000_000


def test_a_file_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("core.schema_file.MAX_CHARACTERS", 1_000)
    (tmp_path / "large.json").write_text('{"a": "' + "x" * 1_000)
    with pytest.raises(SchemaError, match=r"large.json: has more than 1000 characters; put the part"):
        read_schema(tmp_path / "large.json")


def test_what_a_module_prints_is_no_part_of_the_output(tmp_path, monkeypatch, capsys):
    (tmp_path / "chatty_models.py").write_text(
        "from pydantic import BaseModel\nprint('hello')\nclass Ticket(BaseModel):\n    urgent: bool\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert [field.name for field in read_schema("chatty_models:Ticket")[0]] == ["urgent"]
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "hello\n")
