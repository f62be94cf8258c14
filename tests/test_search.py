"""Reading less than everything: best-first, in pieces, and what is said of the rest."""

import math

import numpy as np
import pytest

from core.engine import Engine, Request
from core.schema import FieldDefinition, StructuredSchema
from core.search import Asked, contenders, fitting, node_count, pays
from tests.fakes import LEXICONS, TRAPS, HashBackend, PreferringBackend, lexicon

CONTEXT = "A text about nothing.\nIt has two lines, café and 生气."
CODES = [f"{a}{b}{c}.{d}" for a in "12" for b in "0468" for c in "1359" for d in "07"]
SCHEMA = StructuredSchema(
    {
        "code": {"type": "enum", "choices": CODES},
        "n": {"type": "enum", "choices": [1, 10, 100, 101, "1", True, None]},
        "team": {"type": "enum", "choices": TRAPS["prefixes"]},
        "urgent": {"type": "boolean"},
    }
)


def hashed(name="qwen", **options):
    return Engine(HashBackend(lexicon(name), **options), "hash")


def assert_says_no_more_than_it_knows(found, whole, temperature=1.0):
    """Against a complete read: the same winners, and every bound holds."""
    for some, every in zip(found.decisions, whole.decisions, strict=True):
        assert some.winner == every.winner
        assert math.fsum(p for p in some.probabilities if p is not None) + some.unread_mass == pytest.approx(1.0)
        unread = math.fsum(p for p, q in zip(every.probabilities, some.probabilities, strict=True) if q is None)
        assert unread <= some.unread_mass + 1e-9
        for score, probability, true_score, true_probability in zip(
            some.scores, some.probabilities, every.scores, every.probabilities, strict=True
        ):
            assert (score is None) == (probability is None)
            if score is not None:
                assert score <= true_score + 1e-9
                assert probability <= true_probability + 1e-9
                assert probability >= true_probability * (1 - some.unread_mass) - some.unread_mass - 1e-9
        assert some.candidate_mass >= every.candidate_mass - 1e-9
        assert some.unread == sum(p is None for p in some.probabilities)


# --- best-first ---


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", LEXICONS)
def test_best_first_finds_the_winner_of_a_complete_read_and_bounds_the_rest(name, seed):
    found = hashed(name, seed=seed).run_parallel(CONTEXT, SCHEMA, complete=False)
    whole = hashed(name, seed=seed).run_parallel(CONTEXT, SCHEMA, complete=True)
    assert (found.reading, whole.reading) == ("best-first", "complete")
    assert whole.decisions[0].unread == 0 == whole.decisions[0].unread_mass
    assert_says_no_more_than_it_knows(found, whole)


@pytest.mark.parametrize("temperature", [0.2, 1.0, 5.0])
def test_what_is_unread_is_bounded_at_every_temperature(temperature):
    for seed in range(10):
        found = hashed(seed=seed).run_parallel(CONTEXT, SCHEMA, temperature, complete=False)
        whole = hashed(seed=seed).run_parallel(CONTEXT, SCHEMA, temperature, complete=True)
        assert_says_no_more_than_it_knows(found, whole, temperature)


def test_a_clear_answer_leaves_most_of_a_large_field_unread():
    engine = Engine(PreferringBackend(lexicon("qwen")), "preferring")
    engine.backend.intend('  "code": "205.7",\n', before="assistant\n{\n")
    schema = StructuredSchema({"code": {"type": "enum", "choices": CODES}})
    found = engine.run_parallel(CONTEXT, schema, complete=False)
    decision, read = found.decisions[0], sum(engine.backend.nodes_read)
    whole = engine.run_parallel(CONTEXT, schema, complete=True)
    assert decision.value == whole.decisions[0].value == "205.7"
    assert read < whole.tree_tokens * 0.75 and decision.unread > len(CODES) / 2
    assert decision.probability == pytest.approx(whole.decisions[0].probability, abs=decision.unread_mass)
    assert None not in [p for _, p in decision.top()]
    telemetry = found.to_json()["field_telemetry"]["code"]
    assert telemetry["unread_choices"] == decision.unread and telemetry["unread_mass"] == decision.unread_mass


def test_passes_and_nodes_of_a_best_first_read_are_counted():
    engine = hashed()
    engine.run_parallel(CONTEXT, SCHEMA, complete=True)
    engine.backend.nodes_read.clear()
    before = engine.backend.passes
    warm = engine.run_parallel(CONTEXT, SCHEMA, complete=False)
    assert warm.passes == engine.backend.passes - before == len(engine.backend.nodes_read) > 1
    assert warm.tree_tokens == sum(engine.backend.nodes_read)
    assert set(warm.phases) == {"plan", "context + tree", "tree", "scoring", "assembly"}


@pytest.mark.parametrize("seed", range(6))
def test_with_a_prior_the_bound_allows_for_the_smallest_prior_below(seed):
    found = hashed(seed=seed).run_parallel(CONTEXT, SCHEMA, complete=False, prior="content_free")
    whole = hashed(seed=seed).run_parallel(CONTEXT, SCHEMA, complete=True, prior="content_free")
    assert_says_no_more_than_it_knows(found, whole)


def test_a_choice_that_might_still_tie_is_read():
    class Flat(HashBackend):
        def logits(self, prompt, after):
            return np.zeros(self.identity.vocab_size)

    schema = StructuredSchema({"x": {"type": "enum", "choices": ["10", "11", "20", "21"]}})
    found = Engine(Flat(lexicon("smol")), "flat").run_parallel(CONTEXT, schema, complete=False)
    assert found.decisions[0].unread == 0 and found.decisions[0].value == "10"


def test_contenders_are_all_forks_before_anything_is_read_and_none_after_everything_is():
    plan = hashed()._plans.plan(Request(CONTEXT, SCHEMA, cache=False))[0]
    asked = Asked(plan.tries[0])
    likelihoods = dict((fork, likelihood) for likelihood, fork in contenders(asked))
    assert set(likelihoods) == set(range(len(plan.tries[0].forks)))
    assert likelihoods[0] == 1.0 == max(likelihoods.values())
    for path in plan.tries[0].paths:
        way = [likelihoods[fork] for fork, _ in path]
        assert way == sorted(way, reverse=True)
    asked.masses = [np.log(np.full(fork.branches, 1 / fork.branches)) for fork in plan.tries[0].forks]
    assert list(contenders(asked)) == []


@pytest.mark.parametrize("overhead, best_first", [(0.0, True), (1.0, True), (10_000.0, False), (math.inf, False)])
def test_what_a_pass_costs_decides_how_much_is_read(overhead, best_first):
    engine = hashed()
    engine.pass_overhead = overhead
    assert pays(engine._plans.plan(Request(CONTEXT, SCHEMA, cache=False))[0], overhead) == best_first
    assert engine.run_parallel(CONTEXT, SCHEMA).reading == ("best-first" if best_first else "complete")
    assert engine.run_parallel(CONTEXT, SCHEMA, complete=True).reading == "complete"


def test_a_schema_of_booleans_is_read_at_once_however_cheap_a_pass_is():
    flags = StructuredSchema([FieldDefinition(f"flag_{i}", "boolean") for i in range(20)])
    engine = hashed()
    engine.pass_overhead = 20.0
    assert engine.run_parallel(CONTEXT, flags).reading == "complete"


# --- in pieces ---


@pytest.mark.parametrize("room", [1, 7, 20, 60])
@pytest.mark.parametrize("name", LEXICONS)
@pytest.mark.parametrize("cache", [True, False])
def test_a_tree_that_does_not_fit_is_read_in_pieces_with_the_same_scores(name, room, cache):
    whole = hashed(name).run_parallel(CONTEXT, SCHEMA)
    engine = hashed(name, room=room)
    for _ in range(2):
        pieces = engine.run_parallel(CONTEXT, SCHEMA, cache=cache)
        assert pieces.decisions == whole.decisions
        prefills = "head + context" in pieces.phases
        assert pieces.passes == prefills + len(engine.backend.nodes_read)
        assert len(engine.backend.nodes_read) > 1 or room == 60 and not prefills
        assert len(engine.backend.nodes_read) >= whole.tree_tokens / max(room, 24)
        engine.backend.nodes_read.clear()


def test_a_pass_never_spans_more_than_the_window():
    whole = hashed().run_parallel(CONTEXT, SCHEMA)
    needed = whole.prompt_tokens + hashed().prepare(Request(CONTEXT, SCHEMA)).plan.canonical_tokens
    engine = hashed(window=needed)
    result = engine.run_parallel(CONTEXT, SCHEMA)
    assert result.decisions == whole.decisions
    assert result.passes > whole.passes
    assert all(whole.prompt_tokens + nodes <= needed for nodes in engine.backend.nodes_read)


def test_the_paths_that_fit_are_counted_with_what_they_share():
    paths = [(1, 2, 3), (1, 2, 4), (1, 5), (6, 7, 8)]
    assert node_count(paths) == 8
    assert [fitting(paths, limit) for limit in (1, 3, 4, 5, 7, 8)] == [1, 1, 2, 3, 3, 4]
    assert fitting([], 5) == 0


# --- unresolved fields share passes ---


def test_fields_that_are_still_open_are_read_in_the_same_pass():
    asked = StructuredSchema({f"code_{i}": {"type": "enum", "choices": CODES} for i in range(6)})
    engine = hashed()
    alone = [engine.run_parallel(CONTEXT, StructuredSchema([field]), complete=False).passes for field in asked]
    together = engine.run_parallel(CONTEXT, asked, complete=False)
    assert together.passes < sum(alone) / 2
