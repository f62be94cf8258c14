"""Fields that depend on others: decided later, with the earlier answers written before their lines."""

import json
from dataclasses import replace

import numpy as np
import pytest

from core.engine import Engine, Request
from core.prompt import literal
from core.request import PromptTooLong
from core.schema import SchemaError, StructuredSchema
from core.vocabulary import TokenizationError
from tests import oracle
from tests.fakes import LEXICONS, TRAPS, HashBackend, lexicon

CONTEXT = "A text about nothing.\nIt has two lines, café and 生气."


def enum(*choices, on=()):
    return {"type": "enum", "choices": list(choices), "depends_on": list(on)}


CHAIN = StructuredSchema(
    {
        "route": enum("HIGH", "LOW", "HIGHEST", on=["team", "urgent"]),
        "team": enum(*TRAPS["prefixes"]),
        "urgent": {"type": "boolean"},
        "code": enum(1, 10, "1", None, on=["route"]),
        "answer": enum("Yes", "Yes.", "No", on=["team"]),
    }
)


def oracle_winner(engine, name, schema, field, values):
    """The scores of one field after the lines of what it depends on."""
    prepared, tokens = engine.prepare(Request(CONTEXT, schema)), lexicon(name)
    prompt = prepared.plan.prompt
    lines = [
        prompt.layout.line(other.name, literal(values[other.name]))
        for other in schema
        if other.name in field.depends_on
    ]
    lead = tokens.encode_after(prompt.before_line, "".join(lines))

    def forward(ids, n):
        return np.stack([engine.backend.log_probabilities(ids[: len(ids) - n + 1 + i]) for i in range(n)])

    return oracle.field_scores(field, prompt, [*prepared.whole, *lead], tokens.encode, tokens.texts, forward)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", LEXICONS)
@pytest.mark.parametrize("complete", [True, False])
def test_a_field_is_scored_after_the_answers_that_it_depends_on(name, seed, complete):
    engine = Engine(HashBackend(lexicon(name), seed=seed), "hash")
    result = engine.run_parallel(CONTEXT, CHAIN, complete=complete)
    for field, decision in zip(CHAIN, result.decisions, strict=True):
        scores = oracle_winner(engine, name, CHAIN, field, result.values)
        assert decision.winner == int(np.argmax(scores))
        if complete:
            assert decision.scores == pytest.approx(scores, rel=1e-9)


def test_waves_are_passes_and_are_counted_cold_and_warm():
    engine = Engine(HashBackend(lexicon("qwen")), "hash")
    cold, warm = (engine.run_parallel(CONTEXT, CHAIN) for _ in range(2))
    assert (cold.passes, warm.passes) == (4, 3)
    assert cold.decisions == warm.decisions
    assert list(cold.values) == [field.name for field in CHAIN] == list(json.loads(cold.text))
    assert set(warm.phases) == {"plan", "context + tree", "tree", "scoring", "assembly"}


def test_an_answer_changes_what_depends_on_it_and_nothing_else():
    first = Engine(HashBackend(lexicon("qwen")), "hash").run_parallel(CONTEXT, CHAIN)
    free = StructuredSchema({name: {**spec, "depends_on": []} for name, spec in CHAIN.to_json().items()})
    apart = Engine(HashBackend(lexicon("qwen")), "hash").run_parallel(CONTEXT, free)
    # The head of both is the same text, so what depends on nothing is the same too.
    assert [d.scores for d in first.decisions[1:3]] == [d.scores for d in apart.decisions[1:3]]
    assert all(a.scores != b.scores for a, b in zip(first.decisions[3:], apart.decisions[3:], strict=True))


@pytest.mark.parametrize("room", [1, 15])
def test_waves_in_pieces_have_the_same_scores(room):
    whole = Engine(HashBackend(lexicon("smol")), "hash").run_parallel(CONTEXT, CHAIN)
    pieces = Engine(HashBackend(lexicon("smol"), room=room), "hash").run_parallel(CONTEXT, CHAIN)
    assert pieces.decisions == whole.decisions and pieces.passes > whole.passes


def test_the_window_has_room_for_the_lines_before_the_deepest_field():
    long = ["nothing else in this order and " * 6 + end for end in ("a", "b")]
    deep = StructuredSchema({"first": enum(*long), "last": enum("Yes", "No", on=["first"])})
    engine = Engine(HashBackend(lexicon("qwen")), "hash")
    prepared = engine.prepare(Request(CONTEXT, deep))
    last = prepared.plan.tries[1]
    lead = max(len(prepared.plan.lead(last, {"first": choice}, engine.vocabulary)) for choice in (0, 1))
    assert prepared.plan.deepest == lead + len(last.forks[0].path)
    needed = prepared.prompt_tokens + max(prepared.plan.canonical_tokens, prepared.plan.deepest)
    fits = Engine(HashBackend(lexicon("qwen"), window=needed), "hash").run_parallel(CONTEXT, deep)
    assert fits.decisions == engine.run_parallel(CONTEXT, deep).decisions
    with pytest.raises(PromptTooLong, match="by 1 tokens"):
        Engine(HashBackend(lexicon("qwen"), window=needed - 1), "hash").run_parallel(CONTEXT, deep)


def test_lines_that_melt_into_one_another_are_refused():
    engine = Engine(HashBackend(lexicon("qwen")), "hash")
    plan = engine.prepare(Request(CONTEXT, CHAIN)).plan
    route, team, *others = plan.tries
    longer = replace(team, forms=tuple(replace(form, tokens=(*form.tokens, 5)) for form in team.forms))
    broken = replace(plan, tries=(route, longer, *others))
    with pytest.raises(TokenizationError, match="field 'route': its line melts with the one before it; remove its dep"):
        broken.lead(route, {"team": 0, "urgent": 0}, engine.vocabulary)


@pytest.mark.parametrize(
    "dependencies, message",
    [
        ({"a": ["b"], "b": ["a"]}, "fields 'a' -> 'b' -> 'a' depend on each other in a circle; remove one of these"),
        ({"a": ["a"]}, "fields 'a' -> 'a' depend on each other in a circle"),
        ({"x": [], "a": ["b", "x"], "b": ["c"], "c": ["a"]}, "fields 'a' -> 'b' -> 'c' -> 'a' depend on each other"),
        ({"a": ["z"]}, "field 'a': depends_on names 'z', which is no field; the fields are 'a'"),
        ({"a": ["b", "b"], "b": []}, "field 'a': depends_on names 'b' twice; once is enough"),
        ({"a": "b", "b": []}, "field 'a': depends_on must be a list of field names, got 'b'"),
        ({"a": None}, "field 'a': depends_on must be a list of field names, got None"),
        ({"a": [7]}, "field 'a': depends_on holds 7; it is a list of field names"),
        ({"a": [["b"]], "b": []}, "field 'a': depends_on holds \\['b'\\]"),
    ],
)
def test_dependencies_that_cannot_be_kept_are_refused(dependencies, message):
    spec = {name: {"type": "boolean", "depends_on": on} for name, on in dependencies.items()}
    with pytest.raises(SchemaError, match=message):
        StructuredSchema(spec)


def test_dependencies_are_part_of_a_schemas_identity_and_of_its_json():
    free = StructuredSchema({"a": {"type": "boolean"}, "b": {"type": "boolean"}})
    bound = StructuredSchema({"a": {"type": "boolean"}, "b": {"type": "boolean", "depends_on": ["a"]}})
    assert free != bound and free.digest != bound.digest
    assert StructuredSchema(bound.to_json()) == bound
    assert [[field.name for field in wave] for wave in bound.waves] == [["a"], ["b"]]
