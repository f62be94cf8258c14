"""Pydantic models that are not bounded throughout, and classes that are no models: what is reported, in which words."""

import enum
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, conint, create_model

from core.schema import SchemaError, StructuredSchema, UnsupportedSchema
from tests.test_pydantic_import import TRUTH, TWO, Address, Color, Grade, answers, engine, expected, flat, model_of


class Cat(BaseModel):
    kind: Literal["cat"]
    indoor: bool


class Dog(BaseModel):
    kind: Literal["dog"]
    loud: bool


class Tree(BaseModel):
    leaf: bool
    left: Optional["Tree"] = None


# --- what is reported ---


@pytest.mark.parametrize(
    "annotation, pointer, reason",
    [
        (str, "/properties/answer", "free text"),
        (str | None, "/properties/answer/anyOf/0", "free text"),
        (Literal["a"] | str, "/properties/answer/anyOf/1", "free text"),
        (Annotated[str, Field(pattern="^[ab]$")], "/properties/answer", "free text ('pattern')"),
        (datetime, "/properties/answer", "free text ('date-time')"),
        (float, "/properties/answer", "a number; only integers between bounds are a closed list"),
        (Annotated[float, Field(ge=0, le=1)], "/properties/answer", "a number; only integers between bounds"),
        (Decimal, "/properties/answer/anyOf/0", "a number; only integers between bounds"),
        (int, "/properties/answer", "an integer without minimum and maximum"),
        (Annotated[int, Field(ge=0)], "/properties/answer", "an integer without maximum"),
        (conint(ge=1, le=257), "/properties/answer", "its bounds leave 257 integers; at most 256 become choices"),
        (conint(gt=1, lt=2), "/properties/answer", "no integer lies between its bounds"),
        (Literal["a", "b" * 257], "/properties/answer", "has 257 bytes; at most 256 are allowed"),
        (enum.Enum("Half", {"A": 0.5, "B": 1.5}), "/$defs/Half", "choice 0.5 is a float"),
        (dict[str, bool], "/properties/answer", "an open map: its keys are not listed"),
        (dict[Color, bool], "/properties/answer", "an open map: its keys are not listed"),
        (list[str], "/properties/answer/items", "free text"),
        (list, "/properties/answer/items", "any value is allowed"),
        (list[Address], "/properties/answer", "an array of objects or arrays: how many there are is open"),
        (tuple[Color, Color], "/properties/answer", "a tuple"),
        (Annotated[set[Color], Field(min_length=3)], "/properties/answer", "minItems is 3, and there are at most 2"),
        (Any, "/properties/answer", "any value is allowed"),
        (Callable[[], int], "/properties/answer", "any value is allowed"),
        (Cat | Dog, "/properties/answer", "several alternatives, at least one an object or array"),
        (Annotated[Cat | Dog, Field(discriminator="kind")], "/properties/answer", "several alternatives"),
        (Address | Literal["none"], "/properties/answer", "several alternatives"),
    ],
)  # fmt: skip
def test_what_is_not_bounded_is_reported_by_its_pointer(annotation, pointer, reason):
    model = create_model("Form", fine=(Color, ...), answer=(annotation, ...))
    with pytest.raises(
        UnsupportedSchema, match="^1 part of the schema cannot be decided: .*decides the rest: fine$"
    ) as e:
        StructuredSchema(model)
    [part] = e.value.parts
    assert (part.pointer, part.name) == (pointer, "answer") and reason in part.reason
    rest = StructuredSchema(model, on_unsupported="skip")
    assert flat(rest) == expected({"fine": TWO}) and rest.unsupported == (part,)
    assert engine().run_parallel("A text.", rest).values.keys() == {"fine"}


def test_a_recursive_model_is_decided_down_to_where_it_holds_itself():
    schema = StructuredSchema(model_of(Tree), on_unsupported="skip")
    assert flat(schema) == expected({"answer.leaf": TRUTH})
    [part] = schema.unsupported
    assert (part.name, part.reason) == ("answer.left", "recursion: the part holds itself")
    assert part.pointer == "/$defs/Tree/properties/left/anyOf/0"


def test_all_parts_are_reported_at_once():
    with pytest.raises(UnsupportedSchema, match="^3 parts of the schema") as refused:
        StructuredSchema(create_model("Form", a=(str, ...), b=(Address, ...), c=(int, ...), d=(dict[str, int], ...)))
    assert [part.name for part in refused.value.parts] == ["a", "c", "d"]


def test_more_keys_may_be_forbidden_or_allowed_but_not_asked_for():
    def form(**config):
        return create_model("Form", __config__=ConfigDict(**config), answer=(Color, ...))

    for model in (form(extra="forbid"), form(extra="allow"), form(extra="ignore")):
        assert flat(StructuredSchema(model)) == expected({"answer": TWO})
        assert answers(model)

    class Typed(BaseModel):
        model_config = ConfigDict(extra="allow")
        __pydantic_extra__: dict[str, int]
        answer: Color

    with pytest.raises(UnsupportedSchema, match="/additionalProperties: an open map beside the properties"):
        StructuredSchema(Typed)


class Channel(enum.Enum):
    MAIL = "mail"
    PHONE = "phone"


class Customer(BaseModel):
    name: str
    email: str | None = None
    tier: Literal["free", "pro", "enterprise"] = "free"
    since: datetime | None = None


class SupportTicket(BaseModel):
    """A message to the help desk."""

    id: int
    subject: str = Field(max_length=200)
    body: str
    channel: Channel
    priority: Annotated[int, Field(ge=1, le=4, description="1 is the most urgent.")]
    topics: set[Literal["billing", "login", "bug"]] = Field(default_factory=set)
    customer: Customer
    refund: Decimal | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


def test_of_a_real_ticket_the_useful_part_is_decided_and_the_rest_is_listed():
    with pytest.raises(UnsupportedSchema, match="^8 parts of the schema.*channel, priority, topics.billing") as refused:
        StructuredSchema(SupportTicket)
    schema = StructuredSchema.from_pydantic(SupportTicket, on_unsupported="skip")
    assert flat(schema) == expected(
        {
            "channel": ("mail", "phone"),
            "priority": (1, 2, 3, 4),
            **{f"topics.{topic}": TRUTH for topic in ("billing", "login", "bug")},
            "customer.tier": ("free", "pro", "enterprise"),
        }
    )
    open_parts = ["id", "subject", "body", "customer.name", "customer.email", "customer.since", "refund", "metadata"]
    assert [part.name for part in schema.unsupported] == open_parts and schema.unsupported == refused.value.parts
    shape = engine().run_parallel("My invoice is wrong.", schema).to_json()
    assert [part["name"] for part in shape["unsupported"]] == open_parts and shape["schema_source"] == "pydantic"
    filled = {"id": 7, "subject": "s", "body": "b"} | shape["values"]
    filled["customer"] |= {"name": "n"}
    taken = SupportTicket.model_validate(filled)
    assert (taken.channel.value, taken.customer.tier) == (filled["channel"], shape["values"]["customer"]["tier"])


# --- what is no model ---


Unresolved = create_model("Unresolved", color=("Nowhere", ...))


class Broken(BaseModel):
    model_config = ConfigDict(json_schema_extra=lambda schema: schema["missing"])
    color: Color


class Empty(BaseModel):
    pass


@pytest.mark.parametrize(
    "given, message",
    [
        (Unresolved, "Unresolved'> gives no JSON Schema: `Unresolved` is not fully defined; you .*`Nowhere`"),
        (Broken, "Broken'> gives no JSON Schema: 'missing'"),
        (Address(country="NO", is_home=True), "a Pydantic model is a class, got Address\\(.*; give the class"),
        (dict, "<class 'dict'> is no Pydantic model; give a model, fields or a JSON Schema"),
        (Color, "<enum 'Color'> is no Pydantic model"),
        (Grade, "the schema is no object; make it a property"),
        (RootModel[list[Color]], "the schema is no object; make it a property"),
        (Empty, "its keys are not listed"),
        (model_of(str), "1 part of the schema cannot be decided: /properties/answer \\(answer\\): free text$"),
    ],
)  # fmt: skip
def test_what_gives_no_fields_is_refused_in_clear_words(given, message):
    for door in (StructuredSchema, StructuredSchema.from_pydantic):
        with pytest.raises(SchemaError, match=message) as refused:
            door(given)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("given", [list[Color], Color | None, "Form", {"a": bool}, None])
def test_a_type_that_is_no_class_is_refused_as_a_model(given):
    with pytest.raises(SchemaError, match="a Pydantic model is a class, got .*; give the class"):
        StructuredSchema.from_pydantic(given)
