"""Pydantic models as schemas: what is asked of each shape, and that the model takes every answer.

What is reported and refused is in tests/test_pydantic_refusals.py, Pydantic 1 in tests/test_pydantic_1.py.
"""

import dataclasses
import enum
import json
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Generic, Literal, Optional, TypeVar, Union

import jsonschema
import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter, conint, create_model
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import NotRequired, TypedDict

from core.engine import Engine
from core.schema import StructuredSchema, choice_key
from tests.fakes import HashBackend, lexicon

CONTEXTS = ["-", "A red bicycle.", "Nothing of all that.", "x" * 50, "自行车", "One.\nTwo.", "ten", "Oslo"]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Mood(str, enum.Enum):
    """How the writer feels."""

    GLAD = "glad"
    SAD = "sad"


class Size(enum.IntEnum):
    ONE = 1
    TEN = 10


class Renamed(enum.Enum):
    RED = "red"
    CRIMSON = "red"
    BLUE = "blue"


class Loose(enum.Enum):
    ONE = 1
    TEXT = "1"
    NOTHING = None


class Address(BaseModel):
    """Where the goods go."""

    country: Literal["NO", "SE"]
    is_home: bool = Field(description="Is it a home?")


Kind = TypeVar("Kind")


class Box(BaseModel, Generic[Kind]):
    inner: Kind


Grade = RootModel[Literal["A+", "A"]]


@cache
def engine():
    return Engine(HashBackend(lexicon("qwen")), "hash")


def model_of(annotation, *default):
    return create_model("Form", answer=(annotation, *(default or (...,))))


def flat(schema):
    """The fields as (name, choices), types told apart."""
    return [(field.name, [choice_key(choice) for choice in field.choices]) for field in schema]


def expected(fields):
    return [(name, [choice_key(choice) for choice in choices]) for name, choices in fields.items()]


def as_text(value):
    """JSON with arrays sorted: a set comes back in any order."""
    if isinstance(value, list):
        return json.dumps(sorted(map(as_text, value)))
    if isinstance(value, dict):
        return json.dumps({name: as_text(member) for name, member in value.items()})
    return json.dumps(value)


def answers(model, schema=None):
    """What the engine says of each text; all of it valid by the model, by its JSON and by the schema of the output."""
    schema = schema or StructuredSchema(model)
    validator = jsonschema.Draft202012Validator(schema.to_json_schema())
    found = []
    for context in CONTEXTS:
        values = engine().run_parallel(context, schema).values
        validator.validate(values)
        adapter = TypeAdapter(model)
        for taken in (adapter.validate_python(values), adapter.validate_json(json.dumps(values))):
            assert as_text(adapter.dump_python(taken, mode="json", by_alias=True)) == as_text(values)
        found.append(values)
    return found


# --- one value ---

TWO, TRUTH = ("red", "blue"), (True, False)
SINGLE = {
    "Literal of one": (Literal["tram"], ("tram",)),
    "Literal of true": (Literal[True], (True,)),
    "Literal of several": (Literal["a", "b", "c"], ("a", "b", "c")),
    "Literal of numbers": (Literal[1, 10, 3], (1, 10, 3)),
    "Literal with None": (Literal["a", None], ("a", None)),
    "None alone": (None, (None,)),
    "Literal[True, False]": (Literal[True, False], TRUTH),
    "Literal[False, True]": (Literal[False, True], TRUTH),
    "bool": (bool, TRUTH),
    "Optional bool": (Optional[bool], (True, False, None)),
    "one, text, true, null": (Literal[1, "1", True, None], (1, "1", True, None)),
    "zero, false, one, true": (Literal[0, False, 1, True], (0, False, 1, True)),
    "texts that look like other types": (Literal["true", "null", "1", ""], ("true", "null", "1", "")),
    "Literal of members": (Literal[Mood.SAD, Mood.GLAD], ("sad", "glad")),
    "Enum": (Color, TWO),
    "str Enum": (Mood, ("glad", "sad")),
    "IntEnum": (Size, (1, 10)),
    "Enum with two names for a value": (Renamed, TWO),
    "Enum of several types": (Loose, (1, "1", None)),
    "Enum of one": (enum.Enum("Only", {"ONE": "only"}), ("only",)),
    "Optional Enum": (Optional[Color], (*TWO, None)),
    "Enum | None": (Color | None, (*TWO, None)),
    "None | Literal": (None | Literal["a", "b"], ("a", "b", None)),
    "Optional Literal of one": (Literal["a"] | None, ("a", None)),
    "union of Literals": (Union[Literal["a", "b"], Literal["c"]], ("a", "b", "c")),
    "union of Literals that overlap": (Literal["a", "b"] | Annotated[Literal["b", "c"], "x"], ("a", "b", "c")),
    "union of Enums": (Color | Size, (*TWO, 1, 10)),
    "bool or Enum": (bool | Color, (*TRUTH, *TWO)),
    "Enum or range": (Color | Annotated[int, Field(ge=0, le=2)], (*TWO, 0, 1, 2)),
    "ge, le": (Annotated[int, Field(ge=1, le=5)], (1, 2, 3, 4, 5)),
    "gt, lt, multiple_of": (Annotated[int, Field(gt=0, lt=10, multiple_of=3)], (3, 6, 9)),
    "conint": (conint(ge=-1, le=1), (-1, 0, 1)),
    "Optional range": (Annotated[int, Field(ge=0, le=1)] | None, (0, 1, None)),
    "256 numbers": (conint(ge=1, le=256), tuple(range(1, 257))),
    "RootModel": (Grade, ("A+", "A")),
}


@pytest.mark.parametrize("annotation, choices", SINGLE.values(), ids=SINGLE)
def test_a_bounded_field_has_the_choices_of_its_type_and_the_model_takes_each_answer(annotation, choices):
    model = model_of(annotation)
    schema = StructuredSchema(model)
    assert flat(schema) == expected({"answer": choices}) and schema.source == "pydantic"
    kind = "const" if len(choices) == 1 else "boolean" if choices == TRUTH else "enum"
    assert schema["answer"].field_type == kind and (schema.unsupported, schema.notes) == ((), ())
    assert all(choice_key(values["answer"]) in map(choice_key, choices) for values in answers(model))


@pytest.mark.parametrize("annotation, choices", SINGLE.values(), ids=SINGLE)
def test_the_schema_of_the_output_takes_each_choice_and_nothing_else(annotation, choices):
    validator = jsonschema.Draft202012Validator(StructuredSchema(model_of(annotation)).to_json_schema())
    for value in (*choices, "else", 257, 1.5, [], {}):
        is_choice = not isinstance(value, float | list | dict) and choice_key(value) in map(choice_key, choices)
        assert validator.is_valid({"answer": value}) == is_choice, value
    assert not validator.is_valid({}) and not validator.is_valid({"answer": choices[0], "more": 1})


@pytest.mark.parametrize(
    "annotation, default, choices",
    [
        (Color, Color.RED, TWO),
        (Size, Size.TEN, (1, 10)),
        (bool, False, TRUTH),
        (Literal["a", "b"], "b", ("a", "b")),
        (Literal["a", "b"], Field(default_factory=lambda: "a"), ("a", "b")),
        (Color | None, None, (*TWO, None)),
        (Color | None, Color.RED, (*TWO, None)),
    ],
)
def test_a_default_makes_null_no_choice_only_the_type_does(annotation, default, choices):
    model = model_of(annotation, default)
    assert flat(StructuredSchema(model)) == expected({"answer": choices})
    assert answers(model)


def test_a_model_of_nothing_but_fixed_values_is_answered_without_a_pass():
    class Fixed(BaseModel):
        version: Literal[2]
        kind: Literal["ticket"]

    before = engine().backend.passes
    result = engine().run_parallel("A text.", StructuredSchema(Fixed))
    assert result.values == {"version": 2, "kind": "ticket"} and Fixed.model_validate(result.values)
    assert [decision.probability for decision in result.decisions] == [1.0, 1.0]
    assert result.passes == engine().backend.passes - before == 0


# --- several values ---

AT_MOST_ONE = "each item comes at most once, in the order listed"
SEVERAL = {
    "list": (list[Color], TWO, {0, 1, 2}, AT_MOST_ONE),
    "Sequence": (Sequence[Literal["a", "b"]], ("a", "b"), {0, 1, 2}, AT_MOST_ONE),
    "tuple of any length": (tuple[Color, ...], TWO, {0, 1, 2}, AT_MOST_ONE),
    "set": (set[Color], TWO, {0, 1, 2}, None),
    "set of numbers": (set[Size], (1, 10), {0, 1, 2}, None),
    "frozenset": (frozenset[Literal["a", "b", 1]], ("a", "b", 1), {0, 1, 2, 3}, None),
    "set of one": (set[Literal["tram"]], ("tram",), {0, 1}, None),
    "list that may hold null": (set[Color | None], (*TWO, None), {0, 1, 2, 3}, None),
    "exactly one": (Annotated[list[Color], Field(min_length=1, max_length=1)], TWO, {1}, AT_MOST_ONE),
    "one or two of three": (
        *(Annotated[set[Literal["a", "b", "c"]], Field(min_length=1, max_length=2)], ("a", "b", "c"), {1, 2}, None),
    ),
    "at least two of three": (Annotated[set[Literal[1, 2, 3]], Field(min_length=2)], (1, 2, 3), {2, 3}, None),
    "at most one of two": (Annotated[set[Mood], Field(max_length=1)], ("glad", "sad"), {0, 1}, None),
}


@pytest.mark.parametrize("annotation, items, sizes, note", SEVERAL.values(), ids=SEVERAL)
def test_a_list_is_one_boolean_for_each_item_and_keeps_its_length(annotation, items, sizes, note):
    model = model_of(annotation)
    schema = StructuredSchema(model)
    labels = [item if isinstance(item, str) else json.dumps(item) for item in items]
    assert flat(schema) == expected({f"answer.{label}": TRUTH for label in labels})
    is_sized = sizes != set(range(len(items) + 1))
    assert [remark.reason for remark in schema.notes if "items come back" not in remark.reason] == [note] * bool(note)
    assert is_sized == any("items come back" in remark.reason for remark in schema.notes)
    found = [values["answer"] for values in answers(model)]
    assert {len(one) for one in found} <= sizes and len(set(map(as_text, found))) > 1
    assert all(one == [item for item in items if item in one] for one in found)


@pytest.mark.parametrize("annotation", [list[Color] | None, set[Color] | None, frozenset[Color] | None])
@pytest.mark.parametrize("default", [(), (None,)])
def test_an_optional_list_without_items_is_null(annotation, default):
    model = model_of(annotation, *default)
    assert flat(StructuredSchema(model)) == expected({"answer.red": TRUTH, "answer.blue": TRUTH})
    found = [values["answer"] for values in answers(model)]
    assert None in found and ["red", "blue"] in found and [] not in found


# --- models in models ---


def test_a_nested_model_is_decided_flat_and_comes_back_nested():
    model = model_of(Address)
    assert flat(StructuredSchema(model)) == expected({"answer.country": ("NO", "SE"), "answer.is_home": TRUTH})
    assert {tuple(values["answer"]) for values in answers(model)} == {("country", "is_home")}


@pytest.mark.parametrize("default", [(), (None,)])
def test_an_optional_model_is_asked_about_first_and_null_where_there_is_none(default):
    model = model_of(Address | None, *default)
    schema = StructuredSchema(model)
    assert flat(schema) == expected({"answer": TRUTH, "answer.country": ("NO", "SE"), "answer.is_home": TRUTH})
    assert schema["answer"].description == "Where the goods go. Does the text say anything of this?"
    assert {values["answer"] is None for values in answers(model)} == {True, False}


def test_a_model_that_is_used_twice_is_asked_about_twice():
    class Order(BaseModel):
        ship_to: Address = Field(description="Shipping.")
        bill_to: Address | None

    schema = StructuredSchema(Order)
    assert [field.name for field in schema] == [
        *("ship_to.country", "ship_to.is_home", "bill_to", "bill_to.country", "bill_to.is_home")
    ]
    assert schema["ship_to.country"].description == "Shipping."
    found = answers(Order)
    assert any(values["bill_to"] and values["bill_to"] != values["ship_to"] for values in found)


def test_inherited_and_generic_fields_are_fields():
    class Base(BaseModel):
        urgent: bool

    class Ticket(Base):
        box: Box[Color]
        level: Box[conint(ge=0, le=2)]

    assert flat(StructuredSchema(Ticket)) == expected({"urgent": TRUTH, "box.inner": TWO, "level.inner": (0, 1, 2)})
    assert answers(Ticket)


def test_a_property_whose_name_is_another_ones_path_keeps_a_name_of_its_own():
    class Twins(BaseModel):
        home: bool = Field(alias="address.is_home")
        address: Address

    schema = StructuredSchema(Twins)
    assert [field.name for field in schema] == ["address.is_home", "address.country", "/address/is_home"]
    assert answers(Twins)


# --- names and descriptions ---


def test_names_are_those_of_the_json_not_of_the_attributes():
    class Named(BaseModel):
        a: bool = Field(alias="A-1")
        b: Color = Field(validation_alias="bee", serialization_alias="other")
        c: bool = Field(validation_alias=pydantic.AliasChoices("sea", "c"))

    schema = StructuredSchema(Named)
    assert flat(schema) == expected({"A-1": TRUTH, "bee": TWO, "sea": TRUTH})
    for context in CONTEXTS:
        values = engine().run_parallel(context, schema).values
        taken = Named.model_validate(values)
        assert [taken.a, taken.b.value, taken.c] == list(values.values())


def test_an_alias_generator_names_members_of_nested_models_too():
    class Camel(BaseModel):
        model_config = ConfigDict(alias_generator=to_camel, extra="forbid")

    class Inner(Camel):
        is_home: bool

    class Outer(Camel):
        hair_color: Color
        last_address: Inner | None

    schema = StructuredSchema(Outer)
    assert [field.name for field in schema] == ["hairColor", "lastAddress", "lastAddress.isHome"]
    assert {tuple(values) for values in answers(Outer)} == {("hairColor", "lastAddress")}


def test_descriptions_come_from_annotations_docstrings_and_titles():
    class Described(BaseModel):
        """The form itself."""

        model_config = ConfigDict(use_attribute_docstrings=True)

        annotated: Annotated[Color, Field(description="Which  one\nis it?")]
        over_the_enum: Mood = Field(description="How the reader feels.")
        of_the_enum: Mood
        optional: Mood | None
        titled: Color = Field(title="Hue of the hull")
        titled_as_named: bool
        moods: set[Mood] = Field(description="All that are felt")
        address: Address
        documented: bool
        """Is it said here?"""

    schema = StructuredSchema(Described)
    assert {field.name: field.description for field in schema} == {
        "annotated": "Which one is it?",
        "over_the_enum": "How the reader feels.",
        "of_the_enum": "How the writer feels.",
        "optional": "How the writer feels.",
        "titled": "Hue of the hull",
        "titled_as_named": "",
        "moods.glad": 'All that are felt. Is "glad" one of them?',
        "moods.sad": 'All that are felt. Is "sad" one of them?',
        "address.country": "Where the goods go.",
        "address.is_home": "Where the goods go. Is it a home?",
        "documented": "Is it said here?",
    }


# --- classes that are no BaseModel ---


@dataclasses.dataclass
class Plain:
    color: Color
    urgent: bool = True


@pydantic_dataclass
class Checked:
    color: Color
    urgent: bool


class Typed(TypedDict):
    color: Color
    urgent: NotRequired[bool]


@pytest.mark.parametrize("kind", [Plain, Checked, Typed])
def test_a_dataclass_or_a_typed_dictionary_is_taken_as_a_model(kind):
    schema = StructuredSchema(kind)
    assert flat(schema) == expected({"color": TWO, "urgent": TRUTH}) and schema.source == "pydantic"
    assert answers(kind)
