"""What of a JSON Schema cannot be decided: listed by place with the reason, the rest taken if asked for.

And hostile documents, which are refused on one line.
"""

import json
import math

import pytest

from core.schema import SchemaError, StructuredSchema, UnsupportedSchema
from tests.test_schema_import import BOOL, CONTEXT, hashed, listed, members

TEXT = {"type": "string"}

# --- what is left out ---

#: (what stands there, the pointer below its property, words of the reason)
OPEN = [
    (TEXT, "", "free text"),
    ({"type": "string", "format": "date"}, "", "free text ('date')"),
    ({"type": "string", "pattern": "^a$"}, "", "free text ('pattern')"),
    ({"type": ["string", "null"]}, "", "free text"),
    ({"enum": ["a", "b"], "pattern": "^a"}, "", "'pattern' is a condition"),
    ({"type": "number", "minimum": 0, "maximum": 1}, "", "a number; only integers between bounds"),
    ({"type": "integer"}, "", "an integer without minimum and maximum"),
    ({"type": "integer", "minimum": 0}, "", "an integer without maximum"),
    ({"type": "integer", "exclusiveMinimum": True, "maximum": 3}, "", "an integer without minimum"),
    ({"type": "integer", "minimum": 0, "maximum": 256}, "", "257 integers; at most 256"),
    ({"type": "integer", "minimum": 3, "maximum": 2}, "", "no integer lies between"),
    ({"type": "integer", "minimum": 1, "maximum": 5, "multipleOf": 7}, "", "no integer lies between"),
    ({"type": "integer", "minimum": 0, "maximum": 5, "multipleOf": 0}, "", "multipleOf is 0 and not above 0"),
    ({"type": "integer", "minimum": "0", "maximum": 5}, "", "minimum is '0' and no number"),
    ({"type": "integer", "minimum": False, "maximum": 5}, "", "minimum is False and no number"),
    ({"enum": [0.5, 1]}, "", "choice 0.5 is a float"),
    ({"enum": []}, "", "no choices"),
    ({"enum": "ab"}, "", "enum 'ab' is no list"),
    ({"enum": ["a", "b", "a"]}, "", "choice 'a' appears twice"),
    ({"enum": [1, 1.0]}, "", "choice 1 appears twice"),
    ({"enum": [{"a": 1}, "b"]}, "", "choice {'a': 1} is a dict"),
    ({"enum": [["a"], "b"]}, "", "choice ['a'] is a list"),
    ({"const": ["a"]}, "", "choice ['a'] is a list"),
    ({"enum": ["x" * 257, "y"]}, "", "has 257 bytes; at most 256"),
    ({"enum": list(range(1025))}, "", "1025 choices; at most 1024"),
    ({"enum": ["a", 1], "type": "string"}, "", "1 is listed and not of type string"),
    ({"enum": [1, True], "type": "integer"}, "", "True is listed and not of type integer"),
    ({"enum": [1, 5], "minimum": 2}, "", "1 is listed and outside of the bounds"),
    ({"enum": [3, 4], "multipleOf": 2}, "", "3 is listed and outside of the bounds"),
    ({"enum": ["a", "bb"], "minLength": 2}, "", "'a' is listed and not of the length"),
    ({"type": "text"}, "", "type 'text' is unknown"),
    ({"type": 7}, "", "type 7 is unknown"),
    ({}, "", "any value is allowed"),
    (True, "", "any value is allowed"),
    (False, "", "no value is allowed"),
    ("string", "", "'string' is no schema"),
    (None, "", "None is no schema"),
    ({**BOOL, "description": "d" * 1025}, "", "description has 1025 bytes; at most 1024"),
    ({"allOf": [BOOL, {"enum": [True]}]}, "", "allOf joins several"),
    ({"allOf": []}, "", "allOf joins several"),
    ({"enum": ["a"], "not": {"const": "a"}}, "", "'not' is a condition"),
    ({**BOOL, "if": {}, "then": {}}, "", "'if' is a condition"),
    ({"enum": ["a"], "const": "a"}, "", "'const' and 'enum' stand beside one another"),
    ({"anyOf": []}, "", "anyOf [] is no list of schemas"),
    ({"anyOf": [BOOL, TEXT]}, "/anyOf/1", "free text"),
    ({"anyOf": [BOOL, True]}, "/anyOf/1", "any value is allowed"),
    ({"anyOf": [{"const": [1]}, {"const": 2}]}, "/anyOf/0", "choice [1] is a list"),
    ({"oneOf": [{"enum": ["a", "b"]}, {"enum": ["b"]}]}, "/oneOf/1", "'b' is in two schemas of a oneOf"),
    ({"oneOf": [members(x=BOOL), members(y=BOOL)]}, "", "several alternatives, at least one an object or array"),
    ({"anyOf": [BOOL, listed("a")]}, "", "several alternatives, at least one an object or array"),
    ({"anyOf": [listed("a", "b"), {"type": "null"}], "minItems": 1}, "", "'minItems' and 'anyOf' stand beside"),
    ({"$ref": "other.json#/A"}, "", "leads to another document; put that into $defs"),
    ({"$ref": "https://example.com/a"}, "", "leads to another document"),
    ({"$ref": 7}, "", "the reference 7 leads to another document"),
    ({"$ref": "#name"}, "", "names an anchor"),
    ({"$ref": "#/$defs/NONE"}, "", "leads nowhere"),
    ({"$ref": "#/required/x"}, "", "leads nowhere"),
    ({"$ref": "#"}, "", "recursion"),
    ({"$ref": "#/properties/a"}, "", "recursion"),
    ({"$dynamicRef": "#x"}, "", "'$dynamicRef' is a condition"),
    ({"type": "object"}, "", "an open map: its keys are not listed"),
    ({"type": "object", "additionalProperties": False}, "", "it has no properties"),
    ({"additionalProperties": TEXT}, "", "an open map"),
    ({"type": "object", "patternProperties": {"a": BOOL}}, "/patternProperties", "patternProperties on an object"),
    (members(b=BOOL) | {"additionalProperties": TEXT}, "/additionalProperties", "an open map beside"),
    (members(b=BOOL) | {"minProperties": 1}, "/minProperties", "minProperties on an object"),
    (members(b=BOOL) | {"anyOf": [{"required": ["b"]}]}, "/anyOf", "anyOf on an object"),
    (members(b=BOOL) | {"required": ["b", "c"]}, "/required/1", "no property says what it is"),
    (members(b=BOOL) | {"required": [7]}, "/required/0", "no property says what it is"),
    ({"type": "object", "properties": [BOOL]}, "", "is no object of schemas"),
    (members(b=BOOL, **{"n" * 127: BOOL}), f"/properties/{'n' * 127}", "has 129 bytes; at most 128"),
    ({"type": "array"}, "", "an array of anything"),
    ({"type": "array", "items": True}, "", "an array of anything"),
    ({"type": "array", "items": [BOOL]}, "", "a tuple"),
    ({"type": "array", "prefixItems": [BOOL], "items": BOOL}, "", "a tuple"),
    ({"type": "array", "items": TEXT}, "/items", "free text"),
    ({"type": "array", "items": members(b=BOOL)}, "", "an array of objects or arrays"),
    ({"type": "array", "items": listed("a")}, "", "an array of objects or arrays"),
    (listed("a", "b", contains={"const": "a"}), "", "'contains' is a condition"),
    (listed("a", "b", enum=[["a"]]), "", "'enum' is a condition"),
    (listed("a", "a"), "/items", "choice 'a' appears twice"),
    (listed("a", 0.5), "/items", "choice 0.5 is a float"),
    (listed("a", "b", minItems=3), "", "minItems is 3, and there are at most 2 different items"),
    (listed("a", "b", minItems=2, maxItems=1), "", "minItems is 2, and there are at most 1"),
    (listed("a", "b", maxItems=1.5), "", "maxItems is 1.5 and no count"),
    (listed(*range(129)), "", "needs 129 of the 128 fields that a schema has, and 127 are left"),
]  # fmt: skip


@pytest.mark.parametrize("schema, below, reason", OPEN, ids=[json.dumps(schema)[:60] for schema, *_ in OPEN])
def test_what_cannot_be_decided_is_named_by_its_place_with_the_reason(schema, below, reason):
    document = members(ok=BOOL, a=schema)
    with pytest.raises(UnsupportedSchema, match="1 part of the schema cannot be decided") as refused:
        StructuredSchema.from_json_schema(document)
    [part] = refused.value.parts
    assert (part.pointer, part.name.partition(".")[0]) == (f"/properties/a{below}", "a")
    assert reason in part.reason and str(part) in str(refused.value) and "\n" not in str(refused.value)
    rest = StructuredSchema.from_json_schema(document, on_unsupported="skip")
    assert rest.unsupported == (part,)
    assert {field.name.partition(".")[0] for field in rest} - {"a"} == {"ok"}


@pytest.mark.parametrize(
    "beside, target, word",
    [
        ({"type": "string"}, BOOL, "type"),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, "enum"),
        ({"minimum": 2}, {"type": "integer", "minimum": 1, "maximum": 3}, "minimum"),
    ],
)
def test_what_stands_on_both_ends_of_a_reference_is_not_guessed(beside, target, word):
    document = {**members(ok=BOOL, a={"$ref": "#/$defs/T", **beside}), "$defs": {"T": target}}
    with pytest.raises(UnsupportedSchema, match=f"/\\$defs/T \\(a\\): '{word}' stands here and beside the reference"):
        StructuredSchema(document)


def test_the_whole_list_is_told_at_once_and_the_useful_part_can_be_taken():
    document = members(
        risk={"enum": ["LOW", "HIGH"]},
        name=TEXT,
        **{"a/b~c": members(price={"type": "number"}, ok=BOOL), "list": {"type": "array", "items": TEXT}},
    )
    with pytest.raises(UnsupportedSchema, match=r"skip\) decides the rest: risk, a/b~c.ok$") as refused:
        StructuredSchema(document)
    places = [(part.pointer, part.name) for part in refused.value.parts]
    assert places == [
        ("/properties/name", "name"),
        ("/properties/a~1b~0c/properties/price", "a/b~c.price"),
        ("/properties/list/items", "list"),
    ]
    shape = hashed().run_parallel(CONTEXT, StructuredSchema(document, on_unsupported="skip")).to_json()
    assert [(part["pointer"], part["name"]) for part in shape["unsupported"]] == places
    assert all(part["reason"] for part in shape["unsupported"]) and shape["schema_source"] == "json_schema"
    assert list(shape["values"]) == ["risk", "a/b~c"] and list(shape["values"]["a/b~c"]) == ["ok"]


@pytest.mark.parametrize("choose", ["error", "skip"])
def test_a_document_with_nothing_to_decide_is_refused_in_any_case(choose):
    with pytest.raises(UnsupportedSchema, match="^1 part of .*: /properties/a \\(a\\): free text$"):
        StructuredSchema(members(a=TEXT), on_unsupported=choose)


@pytest.mark.parametrize(
    "document, message",
    [
        ({"type": "string"}, "the schema is no object; make it a property"),
        ({"enum": ["a", "b"]}, "the schema is no object"),
        ({"$ref": "#/$defs/A"}, "#: the reference '#/\\$defs/A' leads nowhere"),
        ({"$ref": "#"}, "#: recursion"),
        ({"type": "object"}, "#: an open map"),
        (members(**{f"p{i}": BOOL for i in range(129)}), "needs 1 of the 128 fields that a schema has, and 0 are left"),
        ([BOOL], "a JSON Schema is an object, got"),
        ("{}", "a JSON Schema is an object, got '{}'"),
    ],
)
def test_a_document_that_is_no_object_is_refused(document, message):
    with pytest.raises(SchemaError, match=message):
        StructuredSchema.from_json_schema(document)


# --- hostile documents ---


def nested(wrap, schema=BOOL, times=10_000):
    for _ in range(times):
        schema = wrap(schema)
    return schema


def doubled(join):
    """Forty definitions, each of which holds the next one twice."""
    definitions = {f"d{i}": join({"$ref": f"#/$defs/d{i + 1}"}) for i in range(40)}
    return {**members(a={"$ref": "#/$defs/d0"}), "$defs": {**definitions, "d40": TEXT}}


HOSTILE = {
    "exponential anyOf": doubled(lambda ref: {"anyOf": [ref, ref]}),
    "exponential objects": doubled(lambda ref: members(x=ref, y=ref)),
    "wide list, many times": {
        **members(a={"anyOf": [{"$ref": "#/$defs/e"}] * 3_000}),
        "$defs": {"e": {"enum": list(range(100_000))}},
    },
    "full list, many times": {
        **members(a={"anyOf": [{"$ref": "#/$defs/e"}] * 900}),
        "$defs": {"e": {"enum": list(range(1024))}},
    },
    "deep objects": members(a=nested(lambda schema: members(a=schema))),
    "deep anyOf": members(a=nested(lambda schema: {"anyOf": [schema]})),
    "deep allOf": members(a=nested(lambda schema: {"allOf": [schema]})),
    "deep arrays": members(a=nested(lambda schema: {"type": "array", "items": schema})),
    "deep choice": members(a={"enum": [nested(lambda value: [value]), 1]}),
    "deep type": members(a={"type": nested(lambda value: [value])}),
    "circle of references": {
        **members(a={"$ref": "#/$defs/x"}),
        "$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}},
    },
    "huge choice": members(a={"enum": [10**5000, 1]}),
    "huge choice with a step": members(a={"enum": [10**5000, 1], "multipleOf": 2}),
    "huge choice with a title": members(a={"anyOf": [{"const": 10**5000, "title": "x"}, BOOL]}),
    "huge item": members(a=listed(10**5000)),
    "huge bound": members(a={"type": "integer", "minimum": -(10**5000), "maximum": 10**5000}),
    "huge count": members(a=listed("a", minItems=10**5000)),
    "huge required": {**members(a=BOOL), "required": [10**5000]},
    "huge name": {"properties": {10**5000: BOOL}, "type": "object"},
    "nan": members(a={"enum": [math.nan, 1]}),
    "inf with a step": members(a={"type": "number", "enum": [math.inf, 1], "multipleOf": 2}),
    "infinite bounds": members(a={"type": "integer", "minimum": -math.inf, "maximum": math.nan}),
    "nan item": members(a=listed(math.nan)),
    "control characters": members(**{"a\n\r\x1b[2J\u202e": TEXT}),
    "lone surrogate name": members(**{"\ud83d": BOOL}),
    "lone surrogate choice": members(a={"enum": ["\ud83d", "b"]}),
    "lone surrogate item": members(a=listed("\udc00")),
    "lone surrogate reference": members(a={"$ref": "#/\ud83d"}),
    "names that are no strings": {"type": "object", "properties": {1: BOOL, None: BOOL}},
    "definitions that are no strings": {"$defs": {10**5000: BOOL}, "type": "object"},
    "unhashable": members(a={"anyOf": [{"enum": [[], {}]}, BOOL]}),
    "unhashable required": {**members(a=BOOL), "required": [["a"], {}]},
    "empty name": members(**{"": BOOL}),
}


@pytest.mark.parametrize("document", HOSTILE.values(), ids=HOSTILE)
def test_hostile_documents_are_refused_on_one_line(document):
    with pytest.raises(SchemaError) as refused:
        StructuredSchema(document)
    assert str(refused.value).isprintable() and len(str(refused.value)) < 1_000_000
