"""The public shape of a result, and verdicts that are read off the text."""

import dataclasses
import json
import math

import pytest

from core.prompt import LAYOUTS, literal
from core.result import TOP_CHOICES, CacheReport, Decision, Result
from core.schema import FieldDefinition, StructuredSchema, choice_key


def decision(name, choices, scores, levels=None):
    weights = [math.exp(score - max(scores)) for score in scores]
    return Decision(
        name=name,
        choices=tuple(choices),
        scores=tuple(scores),
        probabilities=tuple(weight / sum(weights) for weight in weights),
        levels=tuple(levels or [1] * len(choices)),
        winner=scores.index(max(scores)),
        candidate_mass=math.fsum(map(math.exp, scores)),
    )


DECISIONS = (
    decision("risk", ["HIGH", "LOW", "NONE"], [-3.0, -1.0, -2.0], levels=[1, 2, 3]),
    decision("is_fraud", [True, False], [-0.5, -0.7]),
    decision("tier", [1, "1", True, None], [-9.0, -8.0, -7.0, -6.0]),
)


def result(text=None, decisions=DECISIONS, phases=None):
    written = LAYOUTS["pretty"][0].text((d.name, literal(d.value)) for d in decisions)
    fields = [FieldDefinition(d.name, "boolean" if d.name == "is_fraud" else "enum", "", d.choices) for d in decisions]
    return Result(
        schema=StructuredSchema(fields),
        decisions=decisions,
        text=written if text is None else text,
        phases=phases or {"plan": 0.5, "context + tree": 20.0, "scoring": 1.0, "assembly": 0.25},
        passes=1,
        prompt_tokens=120,
        tree_tokens=14,
        caches=CacheReport("hit", "miss", "off", entries=3, bytes=1000, evicted=1),
        strategy="tree",
        scoring="identify",
        reading="complete",
        prior="none",
        shared=1,
        model="tiny",
        why="asked for by name",
        backend="torch",
        device="cpu",
        dtype="float32",
    )


def test_the_public_dict_has_the_documented_shape():
    shape = result().to_json()
    assert set(shape) == {
        *("mode", "elapsed_ms", "prefill_ms", "suffix_eval_ms", "phases", "sequential_forward_passes", "is_valid_json"),
        *(
            "schema_match",
            "values",
            "parsed_json",
            "field_telemetry",
            "model",
            "why",
            "backend",
            "device",
            "dtype",
            "strategy",
        ),
        *("schema_source", "unsupported", "notes"),
        *("cache", "cache_detail", "prompt_tokens", "tree_tokens", "scoring", "reading", "prior", "shared_by"),
        *("clock", "sent_tokens", "server_queue_ms"),
    }
    assert shape["mode"] == "parallel_constrained"
    assert shape["values"] == {"risk": "LOW", "is_fraud": True, "tier": None}
    assert list(shape["values"]) == ["risk", "is_fraud", "tier"]
    assert shape["parsed_json"]["is_fraud"] == {"value": True, "prob": pytest.approx(1 / (1 + math.exp(-0.2)))}
    assert shape["field_telemetry"]["risk"] == {
        "confidence": shape["parsed_json"]["risk"]["prob"],
        "cardinality": 3,
        "candidate_mass": pytest.approx(math.exp(-1) + math.exp(-2) + math.exp(-3)),
        "levels": 2,
        "unread_choices": 0,
        "unread_mass": 0.0,
        "unasked_tokens": 0,
        "unasked_mass": 0.0,
        "top_choices": [
            {"choice": choice, "probability": DECISIONS[0].probabilities[i]}
            for i, choice in [(1, "LOW"), (2, "NONE"), (0, "HIGH")]
        ],
    }
    assert (shape["is_valid_json"], shape["schema_match"]) == (True, True)
    assert (shape["sequential_forward_passes"], shape["prompt_tokens"], shape["tree_tokens"]) == (1, 120, 14)
    assert json.loads(json.dumps(shape, allow_nan=False)) == shape


def test_values_keep_their_json_type():
    values = result().to_json()["values"]
    assert [type(values[name]) for name in values] == [str, bool, type(None)]
    assert result(decisions=(decision("n", [1, True, "1"], [-3.0, -1.0, -2.0]),)).to_json()["values"]["n"] is True


@pytest.mark.parametrize(
    "phases, prefill_ms, suffix_eval_ms",
    [
        ({"plan": 1.0, "head + context": 40.0, "tree": 20.0, "scoring": 2.0}, 40.0, 20.0),
        ({"plan": 1.0, "head": 30.0, "context": 10.0, "tree": 20.0}, 40.0, 20.0),
        ({"plan": 1.0, "context + tree": 20.0, "scoring": 2.0}, 0.0, 20.0),
        ({"plan": 1.0, "context": 10.0, "tree": 20.0}, 10.0, 20.0),
    ],
)
def test_times_are_told_apart_by_what_shares_a_pass(phases, prefill_ms, suffix_eval_ms):
    shape = result(phases=phases).to_json()
    assert (shape["prefill_ms"], shape["suffix_eval_ms"]) == (prefill_ms, suffix_eval_ms)
    assert shape["phases"] == phases
    assert shape["elapsed_ms"] == math.fsum(phases.values())


CANONICAL = result().text


@pytest.mark.parametrize(
    "text, is_valid_json, schema_match",
    [
        (CANONICAL, True, True),
        (CANONICAL.replace("\n", " "), True, True),
        (CANONICAL[:-1], False, False),
        (CANONICAL + "}", False, False),
        ("", False, False),
        (CANONICAL.replace('"LOW"', "LOW"), False, False),
        (CANONICAL.replace('"LOW"', "NaN"), False, False),
        (CANONICAL.replace('"LOW"', '"low"'), True, False),
        (CANONICAL.replace('"LOW"', '"LOW "'), True, False),
        (CANONICAL.replace('"LOW"', '"HIGH"'), True, True),  # another choice is still in the schema
        (CANONICAL.replace("true", '"true"'), True, False),
        (CANONICAL.replace("true", "1"), True, False),
        (CANONICAL.replace("null", "0"), True, False),
        (CANONICAL.replace("null", "1.0"), True, False),
        (CANONICAL.replace("null", "1"), True, True),
        (CANONICAL.replace("null", "[]"), True, False),
        (CANONICAL.replace('"tier"', '"rank"'), True, False),
        (CANONICAL.replace('  "is_fraud": true,\n', ""), True, False),
        (CANONICAL.replace("{\n", '{\n  "more": 1,\n'), True, False),
        ('{"is_fraud": true, "risk": "LOW", "tier": null}', True, False),  # another order
        (CANONICAL.replace("{\n", '{\n  "risk": "LOW",\n'), True, False),  # a key twice
        ("[]", True, False),
        ('["risk", "is_fraud", "tier"]', True, False),
        ("7", True, False),
        ('"risk"', True, False),
    ],
)
def test_the_two_verdicts_are_read_off_the_text(text, is_valid_json, schema_match):
    shape = result(text).to_json()
    assert (shape["is_valid_json"], shape["schema_match"]) == (is_valid_json, schema_match)


def test_the_top_choices_are_the_likeliest_and_equals_keep_their_order():
    many = decision("code", [f"c{i}" for i in range(20)], [-5.0] * 9 + [-1.0] + [-5.0] * 10)
    assert [choice for choice, _ in many.top()] == ["c9", *(f"c{i}" for i in range(TOP_CHOICES - 1))]
    assert many.top(2) == (("c9", many.probability), ("c0", many.probabilities[0]))


@pytest.mark.parametrize("value", [DECISIONS[0], result()])
def test_a_result_cannot_be_changed(value):
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign"):
        value.model = "other"


def test_choices_of_one_spelling_are_told_apart_in_the_telemetry():
    top = result().to_json()["field_telemetry"]["tier"]["top_choices"]
    assert [choice_key(entry["choice"]) for entry in top] == [
        ("NoneType", None),
        ("bool", True),
        ("str", "1"),
        ("int", 1),
    ]
