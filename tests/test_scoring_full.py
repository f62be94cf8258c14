"""`scoring="full"`: whole lines, against each line written out alone."""

import numpy as np
import pytest

from core.engine import Engine, Request
from core.schema import StructuredSchema
from tests import oracle
from tests.fakes import LEXICONS, TRAPS, HashBackend, lexicon

CONTEXT = "A text about nothing.\nIt has two lines, café and 生气."
SCHEMA = StructuredSchema(
    {
        "team": {"type": "enum", "choices": TRAPS["prefixes"]},
        "n": {"type": "enum", "choices": [1, 10, "1", True, None, -1]},
        "answer": {"type": "enum", "choices": TRAPS["trailing_punct"]},
        "long": {"type": "enum", "choices": ["nothing else in this order", "HIGH"]},
        "urgent": {"type": "boolean"},
    }
)


def oracle_scores(engine, name, schema, whole):
    prepared = engine.prepare(Request(CONTEXT, schema))
    tokens = lexicon(name)

    def forward(ids, n):
        return np.stack([engine.backend.log_probabilities(ids[: len(ids) - n + 1 + i]) for i in range(n)])

    prompt = prepared.plan.prompt
    return [
        oracle.field_scores(f, prompt, prepared.whole, tokens.encode, tokens.texts, forward, whole=whole)
        for f in schema
    ]


@pytest.mark.parametrize("name", LEXICONS)
def test_whole_lines_equal_each_line_scored_alone(name):
    engine = Engine(HashBackend(lexicon(name)), "hash")
    full = engine.run_parallel(CONTEXT, SCHEMA, scoring="full")
    for decision, scores in zip(full.decisions, oracle_scores(engine, name, SCHEMA, whole=True), strict=True):
        assert decision.scores == pytest.approx(scores, rel=1e-9)
        assert decision.winner == int(np.argmax(scores))
    assert full.to_json()["scoring"] == "full"


def test_a_whole_line_is_never_likelier_than_its_identifying_part():
    engine = Engine(HashBackend(lexicon("qwen")), "hash")
    full, identified = (engine.run_parallel(CONTEXT, SCHEMA, scoring=scoring) for scoring in ("full", "identify"))
    for whole, part in zip(full.decisions, identified.decisions, strict=True):
        assert all(a <= b + 1e-12 for a, b in zip(whole.scores, part.scores, strict=True))
        assert whole.levels == part.levels
    assert full.tree_tokens > identified.tree_tokens
    assert (full.passes, identified.passes) == (2, 1)


def test_best_first_and_whole_lines_go_together():
    for seed in range(5):
        engine = Engine(HashBackend(lexicon("smol"), seed=seed), "hash")
        found, whole = (
            engine.run_parallel(CONTEXT, SCHEMA, scoring="full", complete=complete) for complete in (False, True)
        )
        assert found.values == whole.values


def test_plans_of_both_scorings_are_kept_apart_and_share_a_head():
    engine = Engine(HashBackend(lexicon("qwen")), "hash")
    runs = [engine.run_parallel(CONTEXT, SCHEMA, scoring=scoring) for scoring in ("identify", "full", "identify")]
    assert [run.caches.head for run in runs] == ["miss", "hit", "hit"]
    assert [run.caches.plan for run in runs] == ["miss", "miss", "hit"]
    assert runs[0].decisions == runs[2].decisions != runs[1].decisions
    assert runs[0].tree_tokens == runs[2].tree_tokens
