"""What is kept for the next request: plans, heads and priors, checked when they are found."""

from dataclasses import replace

import numpy as np
import pytest

from core.engine import Engine, Request
from core.plans import Shelf
from core.schema import StructuredSchema
from tests.fakes import HashBackend, HashPrefix, lexicon

CONTEXT = "A text about nothing."


def enum(*choices, name="risk", description=""):
    return StructuredSchema({name: {"type": "enum", "choices": list(choices), "description": description}})


SCHEMA = enum("HIGH", "LOW", "HIGHEST")


def hashed(**options):
    return Engine(HashBackend(lexicon("qwen")), "hash", **options)


# --- the store ---


def shelf(entries=3, size=100):
    return Shelf(entries, size, len, hash)


def test_the_least_recently_used_goes_first_and_is_counted():
    store = shelf()
    for key in "abc":
        store.keep(key, key)
    assert store.find("a") == ("a", "hit")
    store.keep("d", "d")
    assert [store.find(key)[1] for key in "abcd"] == ["hit", "miss", "hit", "hit"]
    assert (len(store), store.nbytes, store.evicted) == (3, 3, 1)


def test_bytes_bound_the_store_too():
    store = shelf(size=10)
    for key in ("aaaa", "bbbb", "cccc"):
        store.keep(key, key)
    assert (len(store), store.nbytes, store.evicted) == (2, 8, 1)
    store.keep("d", "x" * 11)
    assert store.find("d") == (None, "miss") and len(store) == 2
    store.keep("bbbb", "b" * 9)
    assert (store.find("bbbb"), len(store), store.nbytes) == (("b" * 9, "hit"), 1, 9)


def test_a_value_that_was_changed_is_found_out_and_made_again():
    store = Shelf(3, 100, len, lambda value: hash(tuple(value)))
    value = [1, 2, 3]
    store.keep("a", value)
    value[0] = 9
    assert store.find("a") == (None, "fallback")
    assert store.find("a") == (None, "miss")


# --- in results ---


def states(result):
    return result.caches.plan, result.caches.head, result.caches.prior


def test_hit_miss_and_off_are_told_for_plan_head_and_prior():
    engine = hashed()
    runs = [engine.run_parallel(CONTEXT, SCHEMA, **options) for options in ({}, {}, {"cache": False})]
    assert [states(run) for run in runs] == [("miss", "miss", "off"), ("hit", "hit", "off"), ("off", "off", "off")]
    runs = [engine.run_parallel(CONTEXT, SCHEMA, prior="content_free") for _ in range(2)]
    assert [states(run) for run in runs] == [("hit", "hit", "miss"), ("hit", "hit", "hit")]
    detail = runs[1].to_json()["cache_detail"]
    head = len(engine.prepare(Request(CONTEXT, SCHEMA)).plan.prompt.head)
    assert detail == {"plan": "hit", "prior": "hit", "entries": 1, "bytes": 8 * head, "evicted": 0}
    assert runs[1].to_json()["cache"] == "hit"


def test_a_throwaway_schema_leaves_nothing_behind():
    engine = hashed()
    first = engine.run_parallel(CONTEXT, SCHEMA, cache=False)
    assert (first.caches.entries, first.caches.bytes) == (0, 0)
    assert states(engine.run_parallel(CONTEXT, SCHEMA)) == ("miss", "miss", "off")


def test_evictions_are_counted_in_the_result():
    engine = hashed(cache_entries=1)
    results = [engine.run_parallel(CONTEXT, enum("x", "y", name=name)) for name in "abc"]
    assert [result.caches.evicted for result in results] == [0, 1, 2]
    assert [result.caches.entries for result in results] == [1, 1, 1]


def test_a_damaged_head_is_read_again_with_the_same_result_and_then_found():
    engine = hashed()
    whole = engine.run_parallel(CONTEXT, SCHEMA)
    [(key, entry)] = engine._plans._heads._entries.items()
    halved = HashPrefix(entry.value.ids[: entry.value.length // 2])
    engine._plans._heads._entries[key] = replace(entry, value=halved)
    again, after = (engine.run_parallel(CONTEXT, SCHEMA) for _ in range(2))
    assert [states(run)[1] for run in (whole, again, after)] == ["miss", "fallback", "hit"]
    assert again.decisions == whole.decisions == after.decisions
    assert (again.passes, after.passes) == (2, 1)


def test_a_damaged_plan_is_compiled_again():
    engine = hashed()
    whole = engine.run_parallel(CONTEXT, SCHEMA)
    [(key, entry)] = engine._plans._plans._entries.items()
    trie = entry.value.tries[0]
    changed = replace(entry.value, tries=(replace(trie, forks=trie.forks[:-1]),))
    engine._plans._plans._entries[key] = replace(entry, value=changed)
    again, after = (engine.run_parallel(CONTEXT, SCHEMA) for _ in range(2))
    assert [states(run)[0] for run in (again, after)] == ["fallback", "hit"]
    assert again.decisions == whole.decisions == after.decisions


def test_a_key_holds_all_that_a_head_was_made_from():
    engine = hashed()
    keys = {
        engine._plans.key(Request(CONTEXT, schema))
        for schema in (SCHEMA, enum("LOW", "HIGH", "HIGHEST"), enum("HIGH", "LOW"))
    }
    other = Engine(HashBackend(lexicon("qwen"), seed=1), "another model")
    narrow = HashBackend(lexicon("qwen"))
    narrow.identity = replace(narrow.identity, dtype="float32")
    chat = lexicon("qwen").chat
    own = chat.chat_template
    try:
        chat.chat_template = own.replace("\n", " ")
        template = hashed()
    finally:
        chat.chat_template = own
    keys |= {one._plans.key(Request(CONTEXT, SCHEMA)) for one in (other, Engine(narrow, "hash"), template)}
    keys.add(engine._plans.key(Request(CONTEXT, SCHEMA, style="compact")))
    assert len(keys) == 7
    assert engine._plans.key(Request(CONTEXT, SCHEMA), "full") not in keys


# --- priors ---


@pytest.mark.parametrize("complete", [True, False])
def test_a_prior_is_what_the_schema_scores_on_a_text_without_content(complete):
    engine = hashed()
    blank = hashed().run_parallel("N/A", SCHEMA)
    plain = hashed().run_parallel(CONTEXT, SCHEMA)
    found = engine.run_parallel(CONTEXT, SCHEMA, prior="content_free", complete=complete)
    decision = found.decisions[0]
    assert decision.prior == pytest.approx(blank.decisions[0].scores, rel=1e-12)
    adjusted = np.array(plain.decisions[0].scores) - np.array(decision.prior)
    assert decision.winner == int(np.argmax(adjusted))
    assert decision.candidate_mass == pytest.approx(plain.decisions[0].candidate_mass)
    if complete:
        weights = np.exp(adjusted - adjusted.max())
        assert decision.probabilities == pytest.approx(weights / weights.sum())
    telemetry = found.to_json()["field_telemetry"]["risk"]["top_choices"]
    assert [entry["prior"] for entry in telemetry] == [
        decision.prior[decision.choices.index(e["choice"])] for e in telemetry
    ]
    assert found.to_json()["prior"] == "content_free"


def test_a_prior_is_read_once_for_a_schema():
    engine = hashed()
    runs = [engine.run_parallel(CONTEXT, SCHEMA, prior="content_free") for _ in range(2)]
    assert [run.passes for run in runs] == [3, 1]  # blank prompt, its tree, then context and tree in one
    assert runs[0].decisions == runs[1].decisions
    assert "prior" in runs[0].phases and "prior" not in runs[1].phases
    off = engine.run_parallel(CONTEXT, SCHEMA, prior="content_free", cache=False)
    assert off.passes == 3 and off.decisions == runs[0].decisions


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_prior_without_finite_numbers_is_an_error_and_not_kept():
    class Overflowing(HashBackend):
        def logits(self, prompt, after):
            is_blank = "N/A" in bytes(b for token in prompt for b in lexicon("qwen").texts[token]).decode(
                errors="ignore"
            )
            return super().logits(prompt, after) * (np.nan if is_blank else 1.0)

    engine = Engine(Overflowing(lexicon("qwen")), "overflowing")
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="field 'risk': the model gives no finite scores"):
            engine.run_parallel(CONTEXT, SCHEMA, prior="content_free")
    assert engine.run_parallel(CONTEXT, SCHEMA).values


def test_a_plan_cannot_be_changed_in_place():
    fork = hashed().prepare(Request(CONTEXT, SCHEMA)).plan.forks[0]
    for array in (fork.tokens, fork.branch):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_a_prior_can_change_the_winner():
    changed = 0
    for seed in range(20):
        engine = Engine(HashBackend(lexicon("qwen"), seed=seed), "hash")
        changed += (
            engine.run_parallel(CONTEXT, SCHEMA).values
            != engine.run_parallel(CONTEXT, SCHEMA, prior="content_free").values
        )
    assert 0 < changed < 20
