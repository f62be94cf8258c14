"""Imports of JSON Schema: what is bounded is taken exactly, what is not is listed by its place."""

import json
import math
import re
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from core.engine import Engine, Request
from core.presets import load_presets
from core.prompt import instructions, literal
from core.result import Decision
from core.schema import FieldDefinition, SchemaError, StructuredSchema, choice_key
from core.shape import Items
from tests import oracle
from tests.fakes import HashBackend, lexicon

CONTEXT = "A text about nothing."
BOOL = {"type": "boolean"}


def members(**properties):
    return {"type": "object", "properties": properties}


def listed(*items, **more):
    return {"type": "array", "uniqueItems": True, "items": {"enum": list(items)}, **more}


def of(schema, **document):
    """An import whose one property is `a`."""
    return StructuredSchema.from_json_schema({**members(a=schema), **document})


def hashed(seed=0):
    return Engine(HashBackend(lexicon("qwen"), seed=seed), "hash")


def keys(choices):
    return list(map(choice_key, choices))


# --- one value of a closed list ---

#: (what stands there, its choices)
EXACT = [
    (BOOL, [True, False]),
    ({"type": ["boolean"]}, [True, False]),
    ({"enum": [False, True]}, [True, False]),
    ({"enum": ["b", "a"]}, ["b", "a"]),
    ({"type": "string", "enum": ["", " ", "NO"]}, ["", " ", "NO"]),
    ({"type": "string", "enum": ["abc", "abcd"], "minLength": 3, "maxLength": 4}, ["abc", "abcd"]),
    ({"type": "string", "format": "x", "enum": ["a", "b"], "default": "b", "examples": ["c"]}, ["a", "b"]),
    ({"enum": [3, 1, -2]}, [3, 1, -2]),
    ({"enum": [1.0, 2]}, [1, 2]),
    ({"type": "number", "enum": [1, 2.0]}, [1, 2]),
    ({"type": "integer", "enum": [4, 6], "minimum": 4, "multipleOf": 2}, [4, 6]),
    ({"enum": [1, "1", True, None, "true", "null"]}, [1, "1", True, None, "true", "null"]),
    ({"enum": [0, False]}, [0, False]),
    ({"enum": ["only"]}, ["only"]),
    ({"const": 7}, [7]),
    ({"const": None}, [None]),
    ({"type": "null"}, [None]),
    ({"type": "string", "const": "x"}, ["x"]),
    ({"anyOf": [{"const": "a"}, {"const": 2}]}, ["a", 2]),
    ({"anyOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]}, ["a", "b", "c"]),
    ({"oneOf": [{"const": 1}, {"const": True}, {"const": "1"}]}, [1, True, "1"]),
    ({"anyOf": [BOOL, {"enum": ["unknown"]}]}, [True, False, "unknown"]),
    ({"anyOf": [{"anyOf": [{"const": 1}]}, {"type": "integer", "minimum": 1, "maximum": 3}]}, [1, 2, 3]),
    ({"type": "string", "oneOf": [{"const": "a"}, {"const": "b"}]}, ["a", "b"]),
    ({"type": ["boolean", "integer"], "minimum": 0, "maximum": 1}, [True, False, 0, 1]),
    ({"allOf": [{"enum": ["a", "b"]}], "description": "beside"}, ["a", "b"]),
    ({"allOf": [{"allOf": [BOOL]}]}, [True, False]),
    ({"$comment": "c", "readOnly": True, "deprecated": True, "x-more": [1], **BOOL}, [True, False]),
]
#: Null, in all the ways in which people write it.
NULLABLE = [
    ({"type": ["boolean", "null"]}, [True, False, None]),
    ({"type": ["null", "boolean"]}, [True, False, None]),
    ({"type": ["string", "null"], "enum": ["a", None, "b"]}, ["a", None, "b"]),
    ({"type": "string", "enum": ["a", None]}, ["a", None]),
    ({"type": "string", "enum": ["a", None], "nullable": True}, ["a", None]),
    ({"type": "string", "enum": ["a", "b"], "nullable": False}, ["a", "b"]),
    ({"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}], "default": None}, ["a", "b", None]),
    ({"oneOf": [{"type": "null"}, {"enum": [1, 2]}]}, [None, 1, 2]),
    ({"oneOf": [{"enum": [1, 2]}, {"enum": [None]}]}, [1, 2, None]),
    ({"type": ["integer", "null"], "minimum": 1, "maximum": 2}, [1, 2, None]),
]
#: Null beside a list that leaves it out, which a validator refuses and people mean.
BESIDE = [
    ({"type": ["string", "null"], "enum": ["a", "b"]}, ["a", "b", None]),
    ({"type": "string", "enum": ["a", "b"], "nullable": True}, ["a", "b", None]),
    ({"enum": ["a", "b"], "x-nullable": True}, ["a", "b", None]),
    ({"const": "x", "nullable": True}, ["x", None]),
    ({"allOf": [{"enum": ["a", "b"]}], "nullable": True}, ["a", "b", None]),
]
RANGES = [
    ({"minimum": -1, "maximum": 2}, range(-1, 3)),
    ({"minimum": 0.5, "maximum": 3.9}, [1, 2, 3]),
    ({"minimum": 1, "exclusiveMinimum": True, "maximum": 3, "exclusiveMaximum": True}, [2]),
    ({"minimum": 1, "exclusiveMinimum": False, "maximum": 2}, [1, 2]),
    ({"exclusiveMinimum": 1, "exclusiveMaximum": 4}, [2, 3]),
    ({"exclusiveMinimum": 1.5, "exclusiveMaximum": 3.5}, [2, 3]),
    ({"minimum": 3, "exclusiveMinimum": 1, "maximum": 4, "exclusiveMaximum": 9}, [3, 4]),
    ({"minimum": -7, "maximum": 7, "multipleOf": 3}, [-6, -3, 0, 3, 6]),
    ({"minimum": 0, "maximum": 3, "multipleOf": 1.5}, [0, 3]),
    ({"minimum": 0, "maximum": 2, "multipleOf": 0.1}, [0, 1, 2]),
    ({"minimum": 5, "maximum": 5}, [5]),
    ({"minimum": 1, "maximum": 256}, range(1, 257)),
    ({"minimum": 10**200, "maximum": 10**200 + 1}, [10**200, 10**200 + 1]),
]
VALUES = [*EXACT, *NULLABLE, *BESIDE, *(({"type": "integer", **bounds}, list(found)) for bounds, found in RANGES)]
INPUTS = [json.dumps(schema)[:60] for schema, _ in VALUES]


@pytest.mark.parametrize("schema, choices", VALUES, ids=INPUTS)
def test_a_closed_list_is_taken_exactly_and_by_json_type(schema, choices):
    [field] = taken = of(schema)
    assert keys(field.choices) == keys(choices)
    kinds = {1: "const", 2: "boolean" if keys(choices) == keys([True, False]) else "enum"}
    assert field.field_type == kinds.get(len(choices), "enum")
    beside = ["null is allowed beside a list without it, so it can be null"]
    assert taken.unsupported == ()
    assert [note.reason for note in taken.notes] == beside * any(schema is other for other, _ in BESIDE)


@pytest.mark.parametrize(
    "target, place",
    [
        ("#/$defs/E", {"$defs": {"E": {"enum": ["a", "b"]}}}),
        ("#/definitions/E", {"definitions": {"E": {"enum": ["a", "b"]}}}),
        ("#/components/schemas/E", {"components": {"schemas": {"E": {"enum": ["a", "b"]}}}}),
        ("#/$defs/a~1b~0c", {"$defs": {"a/b~c": {"enum": ["a", "b"]}}}),
        ("#/$defs/~01", {"$defs": {"~1": {"enum": ["a", "b"]}}}),
        ("#/$defs/caf%C3%A9%20x%25", {"$defs": {"café x%": {"enum": ["a", "b"]}}}),
        ("#/$defs/%7E1", {"$defs": {"/": {"enum": ["a", "b"]}}}),
        ("#/$defs/E", {"$defs": {"E": {"$ref": "#/$defs/F"}, "F": {"allOf": [{"enum": ["a", "b"]}]}}}),
        ("#/$defs/E/anyOf/1", {"$defs": {"E": {"anyOf": [{"type": "string"}, {"enum": ["a", "b"]}]}}}),
        ("#/$defs/", {"$defs": {"": {"enum": ["a", "b"]}}}),
    ],
)
def test_a_reference_is_followed_to_where_it_points(target, place):
    assert of({"$ref": target}, **place)["a"].choices == ("a", "b")
    assert of({"$ref": target, "nullable": True}, **place)["a"].choices == ("a", "b", None)
    assert of({"anyOf": [{"$ref": target}, {"type": "null"}]}, **place)["a"].choices == ("a", "b", None)


STATE = "#/components/schemas/State"


def test_a_component_of_a_larger_document_is_named_by_a_reference_at_the_top():
    document = {
        "openapi": "3.0.3",
        "info": {"title": "Shop", "version": "1"},
        "components": {"schemas": {"State": {"enum": ["on", "off"]}, "Order": members(s={"$ref": STATE})}},
    }
    taken = StructuredSchema({**document, "$ref": "#/components/schemas/Order"})
    assert (taken.source, taken["s"].choices) == ("json_schema", ("on", "off"))
    assert StructuredSchema.from_json_schema(document, at="#/components/schemas/Order") == taken


@pytest.mark.parametrize(
    "document, place",
    [
        ({"openapi": "3.0.3", "components": {"schemas": {"Order": members(s=BOOL)}}}, "components/schemas"),
        ({"components": {"schemas": {"Order": members(s=BOOL)}}}, "components/schemas"),
        ({"definitions": {"Order": members(s=BOOL)}}, "definitions"),
        ({"$defs": {"Order": members(s=BOOL)}}, "$defs"),
    ],
)
def test_a_document_that_only_defines_others_is_refused_with_their_names(document, place):
    words = f'name one of \'Order\': "$ref": "#/{place}/NAME" at the top, at="#/{place}/NAME" in Python'
    with pytest.raises(SchemaError, match=re.escape(words)):
        StructuredSchema(document)


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda inner: {"type": "json_schema", "json_schema": {"name": "order", "strict": True, "schema": inner}},
        lambda inner: {"name": "order", "description": "An order.", "schema": inner},
        lambda inner: {"type": "function", "function": {"name": "order", "parameters": inner}},
        lambda inner: {"type": "function", "name": "order", "parameters": inner},
        lambda inner: {"name": "order", "input_schema": inner},
    ],
)
def test_a_schema_is_found_inside_the_response_format_or_tool_that_it_is_for(wrapped):
    inner = members(s={"$ref": "#/$defs/State"}) | {"$defs": {"State": {"enum": ["on", "off"]}}}
    assert StructuredSchema(wrapped(inner)) == StructuredSchema(inner)


def test_fields_named_as_a_tool_has_keys_are_fields():
    names = ["name", "schema", "parameters", "function", "json_schema"]
    assert [field.name for field in StructuredSchema({name: BOOL for name in names})] == names


def test_a_reference_by_the_documents_own_address_leads_into_it():
    document = members(s={"$ref": "https://x.example/s.json#/$defs/State"}) | {
        "$defs": {"State": {"enum": ["on", "off"]}}
    }
    assert StructuredSchema({"$id": "https://x.example/s.json", **document})["s"].choices == ("on", "off")
    with pytest.raises(SchemaError, match="leads to another document"):
        StructuredSchema({"$id": "https://x.example/t.json", **document})


@pytest.mark.parametrize(
    "at, words",
    [
        ("State", "at 'State' is no reference within the document; write it as #/components/schemas/NAME"),
        ("#State", "at '#State' is no reference"),
        ("/components/schemas/State", "is no reference"),
        ("#/components/schemas/Stat", "leads nowhere; there is 'State'"),
    ],
)
def test_a_place_that_is_none_is_refused_with_the_way_to_write_it(at, words):
    with pytest.raises(SchemaError, match=re.escape(words)):
        StructuredSchema.from_json_schema({"components": {"schemas": {"State": members(a=BOOL)}}}, at=at)


@pytest.mark.parametrize("given", ["ticket.json", Path("ticket.json")])
def test_a_path_in_the_place_of_a_schema_is_answered_with_who_reads_files(given):
    with pytest.raises(SchemaError, match="from_text reads a text, core.schema_file.read_schema a file"):
        StructuredSchema(given)


def test_an_array_of_bounded_size_is_noted():
    for bounds, words in (({"minItems": 1}, "1 to 2 items"), ({"maxItems": 1}, "0 to 1 items")):
        [note] = StructuredSchema(members(a=listed("x", "y", **bounds))).notes
        assert (note.name, note.reason) == ("a", f"{words} come back, the likeliest where it was decided otherwise")


def test_titles_of_alternatives_say_what_a_choice_means_in_the_prompt():
    taken = of(
        {
            "description": "How bad?",
            "oneOf": [
                {"const": 1, "title": "Minor", "description": "Can wait"},
                {"const": 2, "title": "Major"},
                {"const": "LOW_RISK", "title": "Low  risk"},
                {"const": None, "description": "nobody\nsays"},
            ],
        }
    )
    assert taken["a"].titles == ("Minor: Can wait", "Major", "", "nobody says")
    line = '- "a": How bad? Allowed values: 1 (Minor: Can wait), 2 (Major), "LOW_RISK", null (nobody says)'
    assert line in instructions(taken).splitlines()


# --- objects and arrays ---

NESTED = members(
    kind={"enum": ["x", "y"]},
    place=members(country={"enum": ["NO", "SE"], "description": "Where?"}, far=BOOL)
    | {"description": "The place", "required": ["far", "country"]},
    home={"anyOf": [members(own=BOOL), {"type": "null"}]},
    tags=listed("b", "a", 1, None, description="All that apply"),
    last=members(deep=members(n={"type": "integer", "minimum": 1, "maximum": 3})),
)


def test_nested_parts_are_decided_flat_and_come_back_nested_in_the_order_of_the_document():
    taken = StructuredSchema(NESTED)
    assert [field.name for field in taken] == [
        *("kind", "place.country", "place.far", "home", "home.own"),
        *("tags.b", "tags.a", "tags.1", "tags.null", "last.deep.n"),
    ]
    assert taken["place.country"].description == "The place. Where?"
    assert taken["home"].description == "Does the text say anything of this?"
    assert taken["tags.1"].description == "All that apply. Is 1 one of them?"
    homes = set()
    for seed in range(8):
        result = hashed(seed).run_parallel(CONTEXT, taken)
        flat, values = {d.name: d.value for d in result.decisions}, result.values
        homes.add(flat["home"])
        items = {"b": "tags.b", "a": "tags.a", 1: "tags.1", None: "tags.null"}
        assert json.dumps(values) == json.dumps(
            {
                "kind": flat["kind"],
                "place": {"country": flat["place.country"], "far": flat["place.far"]},
                "home": {"own": flat["home.own"]} if flat["home"] else None,
                "tags": [item for item, name in items.items() if flat[name]],
                "last": {"deep": {"n": flat["last.deep.n"]}},
            }
        )
        assert result.to_json()["values"] == values and json.loads(result.text) == flat
    assert homes == {True, False}


def test_what_is_not_required_can_be_null_where_the_document_says_what_is():
    more = {"a": {"enum": ["x", "y"]}, "b": BOOL | {"default": False}, "c": members(d=BOOL), "e": listed("x", "y")}
    free, bound = members(**more), members(**more) | {"required": ["e"]}
    assert StructuredSchema(free)["a"].choices == ("x", "y") and "c" not in StructuredSchema(free)
    taken = StructuredSchema(bound)
    assert taken["a"].choices == ("x", "y", None)
    assert (taken["b"].field_type, taken["c"].field_type) == ("boolean", "boolean")
    assert [(note.name, note.reason) for note in taken.notes] == [
        ("a", "not required, so it can be null"),
        ("c", "not required, so it can be null"),
    ]
    assert StructuredSchema({**bound, "required": [*more]}) == StructuredSchema(free)


def test_a_fixed_value_stays_fixed_where_it_is_not_required():
    [kind, _] = StructuredSchema(members(kind={"const": "a"}, b=BOOL) | {"required": ["b"]})
    assert (kind.field_type, kind.choices) == ("const", ("a",))


def test_a_nested_schema_and_a_flat_one_that_ask_the_same_share_what_is_cached():
    engine, nested = hashed(), StructuredSchema(NESTED)
    flat = StructuredSchema(nested.to_json())
    assert flat.key == nested.key and flat != nested
    results = [engine.run_parallel(CONTEXT, schema) for schema in (nested, flat, nested)]
    assert [result.cache for result in results] == ["miss", "hit", "hit"]
    assert results[0].values == results[2].values != results[1].values
    assert [result.decisions for result in results[1:]] == [results[0].decisions] * 2


@pytest.mark.parametrize("required", [{}, {"required": ["a"]}, {"required": []}])
def test_a_default_of_null_is_one_more_way_to_say_that_null_is_allowed(required):
    taken = StructuredSchema(members(a={"enum": ["x", "y"], "default": None}) | required)
    assert taken["a"].choices == ("x", "y", None)
    assert [note.reason for note in taken.notes] == ["null is its default, so it can be null"]


@pytest.mark.parametrize("order", list(permutations(["a.b", "a", "/a/b"])))
def test_names_that_hold_dots_and_slashes_are_kept_apart(order):
    parts = {"a.b": {"const": 1}, "/a/b": {"const": 2}, "a": members(b={"const": 3})}
    taken = StructuredSchema(members(**{name: parts[name] for name in order}))
    assert len(taken) == 3
    assert hashed().run_parallel(CONTEXT, taken).values == {"a.b": 1, "/a/b": 2, "a": {"b": 3}}


def test_a_schema_may_have_as_many_fields_and_choices_as_there_are():
    full = {f"f{i}": {"anyOf": [{"$ref": "#/$defs/e"}, {"type": "null"}]} for i in range(128)}
    taken = StructuredSchema({**members(**full), "$defs": {"e": {"enum": list(range(1023))}}})
    assert {len(field.choices) for field in taken} == {1024} and len(taken) == 128


def test_items_of_one_spelling_are_kept_apart():
    taken = of(listed(1, "1", True, "true"))
    assert [field.name for field in taken] == ["a.1", "/a/1", "a.true", "/a/true"]
    found = [hashed(seed).run_parallel(CONTEXT, taken).values["a"] for seed in range(12)]
    assert {key for values in found for key in keys(values)} == set(keys([1, "1", True, "true"]))


def test_an_array_that_may_repeat_its_items_is_noted():
    taken = of({"type": "array", "items": {"enum": ["x", "y"]}})
    assert [str(note) for note in taken.notes] == [
        "/properties/a (a): each item comes at most once, in the order listed"
    ]


@pytest.mark.parametrize(
    "nullable",
    [
        listed("x", "y") | {"type": ["array", "null"]},
        listed("x", "y", nullable=True),
        {"anyOf": [listed("x", "y"), {"type": "null"}]},
        {"oneOf": [{"const": None}, listed("x", "y")]},
        {"anyOf": [listed("x", "y") | {"type": ["null", "array"]}]},
    ],
    ids=json.dumps,
)
def test_an_array_that_may_be_null_is_null_where_nothing_of_it_is_true(nullable):
    results = [hashed(seed).run_parallel(CONTEXT, of(nullable)) for seed in range(16)]
    true = [[d.name.removeprefix("a.") for d in result.decisions if d.value] for result in results]
    assert [result.values["a"] for result in results] == [items or None for items in true]
    assert [] in true and ["x"] in true


def test_titles_of_items_are_in_their_questions():
    taken = of({"type": "array", "items": {"oneOf": [{"const": "A1", "title": "Fire"}, {"const": "B"}]}})
    assert [field.description for field in taken] == ['Is "A1" one of them? It means: Fire', 'Is "B" one of them?']


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("least, most", [(0, 4), (0, 2), (2, 4), (1, 3), (3, 3), (4, 4), (0, 0)])
def test_an_array_is_the_likeliest_of_all_sizes_that_are_allowed(seed, least, most):
    names = "abcd"
    random = np.random.default_rng(seed)
    shares = dict(zip(names, random.choice([*random.random(6), 0.5], len(names)), strict=True))
    decisions = {name: decided(name, share) for name, share in shares.items()}
    items = Items(tuple((name, name) for name in names), least, most, is_nullable=False, description="")

    def likelihood(chosen):
        return math.prod(share if name in chosen else 1 - share for name, share in shares.items())

    allowed = [list(chosen) for size in range(least, most + 1) for chosen in combinations(names, size)]
    found = items.value(decisions)
    assert found in allowed
    assert likelihood(found) == pytest.approx(max(map(likelihood, allowed)), rel=1e-12)
    nothing = all(share < 0.5 for share in shares.values())
    nullable = replace(items, is_nullable=True)
    assert nullable.value(decisions) == (None if nothing else found)


def decided(name, share):
    """A boolean whose true has this share."""
    scores = (math.log(share), math.log1p(-share))
    return Decision(name, (True, False), scores, (share, 1 - share), (1, 1), scores.index(max(scores)), 1.0)


def test_an_array_keeps_its_bounds_when_it_is_decided():
    bounded, free = (of(listed(*"abcdef", **bounds)) for bounds in ({"minItems": 2, "maxItems": 3}, {}))
    found = [
        [len(hashed(seed).run_parallel(CONTEXT, one).values["a"]) for seed in range(40)] for one in (bounded, free)
    ]
    assert found[0] == [min(max(size, 2), 3) for size in found[1]] and min(found[1]) < 2 and max(found[1]) > 3


# --- which of the forms it took ---


@pytest.mark.parametrize(
    "given, source",
    [
        (members(a=BOOL), "json_schema"),
        ({"properties": {"a": BOOL}}, "json_schema"),
        ({"properties": {"type": BOOL}}, "json_schema"),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", "properties": {"a": BOOL}}, "json_schema"),
        ({"type": ["object", "null"], "properties": {"a": BOOL}}, "json_schema"),
        ({"a": BOOL}, "fields"),
        ({"properties": BOOL, "type": BOOL, "required": BOOL}, "fields"),
        ({"type": {"type": "enum", "choices": ["a", "b"]}}, "fields"),
        ({"required": BOOL, "enum": BOOL, "$ref": BOOL, "anyOf": BOOL, "$defs": BOOL, "openapi": BOOL}, "fields"),
        ([FieldDefinition("type", "boolean")], "fields"),
    ],
)
def test_the_constructor_says_which_form_it_took(given, source):
    taken = StructuredSchema(given)
    assert taken.source == source
    names = given if isinstance(given, dict) else ["type"]
    assert [field.name for field in taken] == list(given.get("properties") if source == "json_schema" else names)
    assert hashed().run_parallel(CONTEXT, taken).to_json()["schema_source"] == source


# --- the schema of what comes back ---

BOUNDED = {
    **{f"value {text}": members(a=schema) for text, (schema, _) in zip(INPUTS, VALUES, strict=True)},
    "nested": NESTED,
    "optional": {**NESTED, "required": ["kind"]},
    "titles": members(a={"oneOf": [{"const": True, "title": "Yes, surely"}, {"const": False}]}),
    "nullable array": members(a={"anyOf": [listed("a", "b", "c", minItems=2), {"type": "null"}]}),
    "array of one": members(a=listed("a", minItems=1)),
    "cut array": members(a=listed(*"abcdef", minItems=1, maxItems=2)),
    "dots": members(**{"a.b": BOOL, "a": members(b=BOOL)}),
}


@pytest.mark.parametrize("document", BOUNDED.values(), ids=BOUNDED)
def test_outputs_of_every_import_are_valid_and_the_schema_of_outputs_is_the_same_import(document):
    assert_its_own_schema(StructuredSchema(document), seeds=range(3))


@pytest.mark.parametrize("preset", [pytest.param(preset, id=preset.id) for preset in load_presets()])
def test_outputs_of_every_preset_are_valid(preset):
    assert_its_own_schema(preset.schema, seeds=range(1))


def assert_its_own_schema(schema, seeds):
    written = schema.to_json_schema()
    Draft202012Validator.check_schema(written)
    validator = Draft202012Validator(json.loads(json.dumps(written)))
    for seed in seeds:
        values = hashed(seed).run_parallel(CONTEXT, schema).values
        validator.validate(json.loads(json.dumps(values)))
        assert not validator.is_valid({**values, "more": 1})
        for name in values:
            assert not validator.is_valid({key: value for key, value in values.items() if key != name})
            assert not validator.is_valid({**values, name: "none of the choices"})
    again = StructuredSchema(written)
    assert (again.source, again.unsupported) == ("json_schema", ())
    assert [note.name for note in again.notes] == [note.name for note in schema.notes if "come back" in note.reason]
    assert again.shape == schema.shape
    assert [(field.name, *keys(field.choices), field.titles) for field in again] == [
        (field.name, *keys(field.choices), field.titles) for field in schema
    ]


# --- a value that is always the same ---

CONSTS = StructuredSchema(
    {
        "version": {"type": "const", "choices": ["1.0"]},
        "team": {"type": "enum", "choices": ["BILLING", "BILLING_DISPUTE", "OTHER"], "depends_on": ["version"]},
        "none": {"type": "const", "choices": [None], "depends_on": ["team"]},
        "urgent": {"type": "boolean"},
        "late": {"type": "enum", "choices": [1, 10, "1"], "depends_on": ["none", "team"]},
    }
)
FREE = StructuredSchema({name: {**spec, "depends_on": []} for name, spec in CONSTS.to_json().items()})
WAYS = [
    {},
    {"cache": False},
    {"scoring": "full"},
    {"prior": "content_free"},
    {"style": "compact"},
    {"complete": False},
    {"scoring": "full", "prior": "content_free", "complete": False},
]


def test_a_schema_of_consts_alone_needs_no_pass():
    engine, schema = hashed(), of({"const": "x"})
    result = engine.run_parallel(CONTEXT, schema)
    [one] = result.decisions
    assert (result.values, result.passes, result.tree_tokens) == ({"a": "x"}, 0, 0)
    assert (one.probability, one.candidate_mass, one.levels, engine.backend.passes) == (1.0, 1.0, (0,), 0)
    assert result.to_json()["schema_match"] is True
    many = engine.decode_many([CONTEXT, "Another text."], schema)
    assert [(found.values, found.passes) for found in many] == [({"a": "x"}, 0)] * 2


@pytest.mark.parametrize("scoring", ["identify", "full"])
def test_no_token_of_a_const_is_read(scoring):
    others = StructuredSchema([field for field in FREE if field.field_type != "const"])
    alone, beside = (hashed().prepare(Request(CONTEXT, s, scoring=scoring)).plan for s in (others, FREE))
    assert beside.tree.tokens == alone.tree.tokens
    assert [len(trie.forks) > 0 for trie in beside.tries] == [False, True, False, True, True]


@pytest.mark.parametrize("schema", [CONSTS, FREE], ids=["waves", "one pass"])
@pytest.mark.parametrize("options", WAYS, ids=str)
def test_a_const_is_certain_whichever_way_the_others_are_read(schema, options):
    result = hashed().run_parallel(CONTEXT, schema, **options)
    assert list(result.values) == list(json.loads(result.text)) == [field.name for field in schema]
    for name in ("version", "none"):
        [one] = [d for d in result.decisions if d.name == name]
        assert (one.value, one.probability, one.unread_mass) == (schema[name].choices[0], 1.0, 0.0)
    many = hashed().decode_many([CONTEXT, "Another text.", CONTEXT], schema, **options)
    assert [many[0].decisions, many[2].decisions] == [result.decisions] * 2


@pytest.mark.parametrize("scoring", ["identify", "full"])
@pytest.mark.parametrize("schema", [CONSTS, FREE], ids=["waves", "one pass"])
def test_fields_beside_consts_have_the_scores_of_plain_forwards(schema, scoring):
    engine, tokens = hashed(), lexicon("qwen")
    result = engine.run_parallel(CONTEXT, schema, scoring=scoring, complete=True)
    prepared = engine.prepare(Request(CONTEXT, schema, scoring=scoring))
    prompt = prepared.plan.prompt

    def forward(ids, n):
        return np.stack([engine.backend.log_probabilities(ids[: len(ids) - n + 1 + i]) for i in range(n)])

    for field, decision in zip(schema, result.decisions, strict=True):
        if field.field_type == "const":
            continue
        before = [other.name for other in schema if other.name in field.depends_on]
        lines = "".join(prompt.layout.line(name, literal(result.values[name])) for name in before)
        ids = [*prepared.whole, *tokens.encode_after(prompt.before_line, lines)]
        scores = oracle.field_scores(field, prompt, ids, tokens.encode, tokens.texts, forward, whole=scoring == "full")
        assert decision.scores == pytest.approx(scores, rel=1e-9)


@pytest.mark.parametrize("mode", ["free", "json", "schema"])
def test_a_race_shows_consts_as_any_field(mode):
    expected = {d.name: (d.value, d.probability) for d in hashed().run_parallel(CONTEXT, CONSTS).decisions}
    events = list(hashed().race(CONTEXT, CONSTS, mode=mode).dicts())
    shown = {event["name"]: (event["value"], event["probability"]) for event in events if event["kind"] == "field"}
    assert shown == expected and shown["version"] == ("1.0", 1.0)
    assert events[-1]["kind"] == "end" and events[-1]["state"] == "done"
