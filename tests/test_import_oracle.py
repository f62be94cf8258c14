"""The oracle of "taken exactly": a JSON Schema validator on the source document.

Hypothesis builds bounded documents together with values that may or may not fit. All that an import can
bring forth must be valid, and all of the values that are valid must be among it. Left out are the forms
in which an import means more than the validator: flags such as `nullable`, null for what is not
required, arrays that may repeat an item, no items beside null.
"""

import json
from itertools import combinations, product
from math import prod
from urllib.parse import quote

from hypothesis import assume, event, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from core.result import Decision
from core.schema import StructuredSchema, UnsupportedSchema
from tests.test_properties import checked

SCALARS = ["a", "b", "ab", "", "1", "true", "null", 0, 1, -1, 2, 10, True, False, None]
FOREIGN = [*SCALARS, "other", 7, 1.5, [], ["a"], {}]
NUMBERS = range(-12, 13)
#: At most so many values are tried, and so many ways to decide.
MAX_VALUES, MAX_DECISIONS = 300, 1_000
LISTS = {"anyOf", "oneOf", "const", "enum"}
#: Conditions that may or may not change what a part allows; an import refuses them or takes them exactly.
CONDITIONS = [
    *({"minimum": 1}, {"maximum": 0}, {"exclusiveMinimum": 0}, {"exclusiveMaximum": 2}, {"multipleOf": 2}),
    *({"minLength": 1}, {"maxLength": 1}, {"pattern": "a"}, {"not": {"const": 1}}, {"const": "a"}, {"enum": ["a", 1]}),
    *({"anyOf": [{"const": 1}, {"const": "a"}]}, {"oneOf": [{"const": True}, {"const": False}]}, {"allOf": [{}]}),
    *({"minItems": 1}, {"maxItems": 1}, {"contains": {"const": "a"}}, {"if": {"const": 1}, "then": False}),
    *({"minProperties": 2}, {"propertyNames": {"maxLength": 1}}, {"dependentRequired": {"p0": ["z"]}}, {"format": "x"}),
]


def key(value):
    return json.dumps(value)


def types_of(values):
    names = {bool: "boolean", int: "integer", str: "string", type(None): "null"}
    return list(dict.fromkeys(names[type(value)] for value in values))


class Builder:
    """Draws parts of one document, each as (schema, values to try)."""

    def __init__(self, draw, conditions):
        self.draw, self.conditions = draw, conditions
        self.definitions = {}

    def one_of(self, *ways):
        return self.draw(st.sampled_from(ways))()

    def maybe(self):
        return self.draw(st.booleans())

    def document(self):
        schema, values = self.members(depth=2)
        return {**schema, "$defs": self.definitions}, values

    def part(self, depth):
        ways = [self.scalar, self.scalar, self.scalar, self.array]
        schema, values = self.one_of(*ways, *([lambda: self.object(depth - 1)] * 2 if depth else []))
        wrapped = self.wrapped(schema | self.condition(schema))
        return wrapped | ({} if "allOf" in wrapped else self.condition(schema)), values

    def condition(self, schema):
        """One more; no list beside a type that allows null, to which we add null and the validator does not."""
        is_nullable = isinstance(schema.get("type"), list) and "null" in schema["type"]
        fitting = [one for one in CONDITIONS if not (is_nullable and LISTS & one.keys())]
        return self.draw(st.sampled_from([{}, *fitting])) if self.conditions and self.maybe() else {}

    def wrapped(self, schema):
        """The same behind a reference, or in an allOf of its own."""
        way = self.draw(st.sampled_from(["as it is", "as it is", "reference", "allOf"]))
        if way == "allOf":
            return {"allOf": [schema], "title": "joined"}
        if way == "reference":
            name = f"{len(self.definitions)}/~%é x"
            self.definitions[name] = schema
            return {"$ref": "#/$defs/" + quote(name.replace("~", "~0").replace("/", "~1"))}
        return schema

    def foreign(self):
        return self.draw(st.lists(st.sampled_from(FOREIGN), max_size=3))

    def listed(self, least=1, pool=SCALARS):
        return self.draw(st.lists(st.sampled_from(pool), min_size=least, max_size=4, unique_by=key))

    # scalars

    def scalar(self):
        ways = [self.boolean, self.enum, self.const, self.range, self.any_of, self.one_of_lists, self.or_null]
        schema, values = self.one_of(*ways)
        return schema, values + self.foreign()

    def boolean(self):
        return {"type": self.draw(st.sampled_from(["boolean", ["boolean"], ["boolean", "null"]]))}, [True, False, None]

    def enum(self):
        values = self.listed()
        types = types_of(values)
        return {"enum": values} | ({"type": types[0] if len(types) == 1 else types} if self.maybe() else {}), values

    def const(self):
        [value] = self.draw(st.lists(st.sampled_from(SCALARS), min_size=1, max_size=1))
        return {"const": value}, [value]

    def range(self):
        numbers = st.integers(-3, 3) | st.sampled_from([-0.5, 1.5])
        low, step = self.draw(numbers), self.draw(st.sampled_from([None, 1, 2, 3, 0.5, 1.5]))
        high = low + self.draw(st.sampled_from([0, 0.5, 1, 2, 3, 4]))
        low_key = self.draw(st.sampled_from(["minimum", "exclusiveMinimum"]))
        high_key = self.draw(st.sampled_from(["maximum", "exclusiveMaximum"]))
        schema = {low_key: low, high_key: high} | ({"multipleOf": step} if step else {})
        assume(any(map(Draft202012Validator(schema).is_valid, NUMBERS)))
        kinds = self.draw(st.sampled_from(["integer", ["integer", "null"], ["boolean", "integer"]]))
        return {"type": kinds, **schema}, [*range(-5, 6), None, True]

    def any_of(self):
        parts = [
            self.one_of(self.boolean, self.enum, self.const, self.range) for _ in range(self.draw(st.integers(1, 3)))
        ]
        return {"anyOf": [self.wrapped(schema) for schema, _ in parts]}, [value for _, own in parts for value in own]

    def one_of_lists(self):
        values = self.listed(least=2)
        cut = self.draw(st.integers(1, len(values) - 1))
        again = values[:1] if self.conditions and self.maybe() else []
        return {"oneOf": [self.wrapped({"enum": own}) for own in (values[:cut], values[cut:] + again)]}, values

    def or_null(self):
        values = self.listed(pool=SCALARS[:-1])
        keyword = self.draw(st.sampled_from(["anyOf", "oneOf"]))
        null = self.draw(st.sampled_from([{"type": "null"}, {"const": None}, {"enum": [None]}]))
        return {keyword: self.draw(st.permutations([{"enum": values}, null]))}, [*values, None]

    # arrays and objects

    def array(self):
        items = self.listed()
        schema = {"type": "array", "uniqueItems": True, "items": self.wrapped({"enum": items})}
        if self.maybe():
            schema["minItems"] = self.draw(st.integers(0, len(items)))
        if self.maybe():
            schema["maxItems"] = self.draw(st.integers(schema.get("minItems", 0), len(items) + 1))
        subsets = [list(chosen) for size in range(len(items) + 1) for chosen in combinations(items, size)]
        values = [*subsets, [items[0]] * 2, ["other"], None, items[0]]
        if self.maybe():
            schema = self.nullable(schema)
            values.remove([])
        return schema, values

    def object(self, depth):
        schema, values = self.members(depth)
        values = [*values, None, [], {}]
        return (self.nullable(schema) if self.maybe() else schema), values

    def members(self, depth):
        parts = {f"p{i}": self.part(depth) for i in range(self.draw(st.integers(1, 2)))}
        own = {name: list({key(value): value for value in values}.values()) for name, (_, values) in parts.items()}
        assume(prod(map(len, own.values())) <= MAX_VALUES)
        schema = {
            "type": "object",
            "properties": {name: schema for name, (schema, _) in parts.items()},
            "required": self.draw(st.permutations([*parts])),
        }
        closed = {"additionalProperties": False} if self.maybe() else {}
        values = [dict(zip(own, chosen, strict=True)) for chosen in product(*own.values())]
        return schema | closed, [*values, {name: all_[0] for name, all_ in [*own.items()][1:]}]

    def nullable(self, schema):
        if self.maybe():
            with_null = schema | {"type": [schema["type"], "null"]}
            return {"anyOf": [with_null]} if self.maybe() else with_null
        return {self.draw(st.sampled_from(["anyOf", "oneOf"])): self.draw(st.permutations([schema, {"type": "null"}]))}


@st.composite
def documents(draw, conditions=False):
    return Builder(draw, conditions).document()


def producible(schema, shares):
    """All that the decisions of the schema's fields can become."""
    assume(prod(len(field.choices) for field in schema) <= MAX_DECISIONS)
    found = {}
    for winners in product(*(range(len(field.choices)) for field in schema)):
        decisions = {
            field.name: decided(field, winner, shares[i % len(shares)])
            for i, (field, winner) in enumerate(zip(schema, winners, strict=True))
        }
        value = schema.shape.value(decisions)
        found[key(value)] = value
    return found


def decided(field, winner, share):
    others = (1 - share) / max(1, len(field.choices) - 1)
    shares = tuple(share if i == winner else others for i in range(len(field.choices)))
    return Decision(field.name, field.choices, shares, shares, (1,) * len(shares), winner, 1.0)


SHARES = st.lists(st.sampled_from([0.5, 0.6, 0.7, 0.8, 0.9]), min_size=1, max_size=6)


def assert_exact(schema, document, values, shares):
    validator = Draft202012Validator(document)
    found = producible(schema, shares)
    for value in found.values():
        assert validator.is_valid(value), value
    for value in values:
        if validator.is_valid(value):
            assert key(value) in found, value
    event(f"at least {len(found) // 10 * 10} values")


@checked(250)
@given(drawn=documents(), shares=SHARES)
def test_what_an_import_can_bring_forth_is_what_the_document_allows(drawn, shares):
    document, values = drawn
    Draft202012Validator.check_schema(document)
    assert_exact(StructuredSchema.from_json_schema(document), document, values, shares)


@checked(500)
@given(drawn=documents(conditions=True), shares=SHARES)
def test_more_conditions_are_refused_or_taken_exactly(drawn, shares):
    document, values = drawn
    try:
        schema = StructuredSchema.from_json_schema(document)
    except UnsupportedSchema as refused:
        event(f"refused: {refused.parts[0].reason[:40]}")
        return
    assert_exact(schema, document, values, shares)


@checked(150)
@given(drawn=documents(), shares=SHARES)
def test_the_schema_of_outputs_allows_what_can_come_out_and_nothing_else(drawn, shares):
    document, values = drawn
    schema = StructuredSchema.from_json_schema(document)
    assert_exact(schema, schema.to_json_schema(), values, shares)
