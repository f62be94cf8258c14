"""Many contexts on one schema: shared passes give the answers of one at a time."""

import pytest

from core import engine as engine_module
from core import packing, plans
from core.engine import Engine, Request
from core.packing import forest, packs
from core.request import PromptTooLong, RequestError
from core.schema import StructuredSchema
from core.vocabulary import TokenizationError
from tests.fakes import LEXICONS, TRAPS, TWINS, HashBackend, lexicon

CONTEXTS = [f"Text number {i}, {'longer ' * (i % 5)}it says {word}." for i, word in enumerate(TRAPS["unicode"][:14])]
SCHEMA = StructuredSchema(
    {
        "team": {"type": "enum", "choices": TRAPS["prefixes"]},
        "n": {"type": "enum", "choices": [1, 10, "1", None]},
        "urgent": {"type": "boolean"},
    }
)


def hashed(name="qwen", **options):
    return Engine(HashBackend(lexicon(name), **options), "hash")


def alone(contexts=CONTEXTS, schema=SCHEMA, name="qwen", **options):
    engine = hashed(name)
    return [engine.run_parallel(context, schema, **options).decisions for context in contexts]


@pytest.mark.parametrize("name", LEXICONS)
@pytest.mark.parametrize(
    "options", [{}, {"cache": False}, {"prior": "content_free"}, {"scoring": "full"}, {"complete": False}]
)
def test_many_contexts_get_the_answers_of_one_at_a_time(name, options):
    found = hashed(name).decode_many(CONTEXTS, SCHEMA, **options)
    assert [result.decisions for result in found] == alone(name=name, **options)
    assert len({result.text for result in found}) > 3


def test_contexts_share_passes_and_each_result_says_with_how_many(monkeypatch):
    engine = hashed()
    found = engine.decode_many(CONTEXTS, SCHEMA)
    first, *others = found
    assert (first.passes, first.cache, first.shared) == (2, "miss", 1)
    assert {result.cache for result in others} == {"hit"} and {result.passes for result in others} == {1}
    tokens = [result.prompt_tokens - len(prepared(engine).plan.prompt.head) + result.tree_tokens for result in others]
    assert max(result.shared for result in others) > 3
    total = sum(1 / result.shared for result in others)
    assert engine.backend.passes == 2 + round(total)
    assert total < sum(tokens) / packing.PACK_TOKENS + 2
    for result in others:
        assert result.elapsed_ms == pytest.approx(sum(result.phases.values()))
    assert found[-1].to_json()["shared_by"] == found[-1].shared


def prepared(engine, context="A text.", schema=SCHEMA):
    return engine.prepare(Request(context, schema))


def test_a_second_call_finds_the_head():
    engine = hashed()
    engine.decode_many(CONTEXTS[:2], SCHEMA)
    before = engine.backend.passes
    found = engine.decode_many(CONTEXTS[:3], SCHEMA)
    assert {result.cache for result in found} == {"hit"} and engine.backend.passes - before == 1


def test_without_a_cache_the_head_is_read_once_and_nothing_is_kept():
    engine = hashed()
    found = engine.decode_many(CONTEXTS[:4], SCHEMA, cache=False)
    assert {result.cache for result in found} == {"off"} and engine.backend.passes == 3
    assert engine.run_parallel(CONTEXTS[0], SCHEMA).cache == "miss"


@pytest.mark.parametrize("room", [1, 60, 200])
def test_packs_hold_no_more_than_a_pass_has_room_for(room):
    engine = hashed(room=room)
    found = engine.decode_many(CONTEXTS, SCHEMA)
    assert [result.decisions for result in found] == alone()
    assert (max(result.shared for result in found) > 1) == (room > 100)
    largest = max(len(prepared(engine, context).after_head) for context in CONTEXTS)
    assert all(nodes <= max(room, largest + 60) for nodes in engine.backend.nodes_read)


def test_fields_that_depend_on_others_are_decided_one_context_at_a_time():
    schema = StructuredSchema({**SCHEMA.to_json(), "late": {"type": "boolean", "depends_on": ["team"]}})
    found = hashed().decode_many(CONTEXTS[:4], schema)
    assert [result.decisions for result in found] == alone(CONTEXTS[:4], schema)
    assert {result.shared for result in found} == {1}


def test_models_without_a_tree_pass_decide_one_context_at_a_time():
    found = hashed(strategy="rows").decode_many(CONTEXTS[:4], SCHEMA)
    assert [result.decisions for result in found] == alone(CONTEXTS[:4])
    assert {(result.shared, result.strategy) for result in found} == {(1, "rows")}
    assert [result.passes for result in found] == [3, 2, 2, 2]


BAD = ["", "half \ud83d", "long " * 400, None]


def test_a_bad_context_is_an_error_in_its_place_or_raised():
    engine = hashed(window=700)
    contexts = [CONTEXTS[0], BAD[0], CONTEXTS[1], BAD[1], BAD[2], CONTEXTS[2], BAD[3]]
    found = engine.decode_many(contexts, SCHEMA, return_exceptions=True)
    good = [found[i].decisions for i in (0, 2, 5)]
    assert good == alone(CONTEXTS[:3])
    assert [type(found[i]) for i in (1, 3, 4, 6)] == [RequestError, RequestError, PromptTooLong, RequestError]
    for bad in BAD[:3]:
        with pytest.raises(ValueError, match="empty|half a character|the request needs"):
            engine.decode_many([CONTEXTS[0], bad], SCHEMA)


class Overflowing(HashBackend):
    """Gives no numbers for one of the contexts."""

    def __init__(self, lexicon, bad, **options):
        super().__init__(lexicon, **options)
        self.bad = lexicon.encode(bad)

    def logits(self, prompt, after):
        logits = super().logits(prompt, after)
        path = [*prompt, *after]
        is_bad = any(path[i : i + len(self.bad)] == self.bad for i in range(len(path)))
        return logits * float("nan") if is_bad else logits


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("bad", [0, 3])
def test_a_context_without_finite_scores_spoils_no_other(bad):
    contexts = CONTEXTS[:6]
    contexts[bad] = "the text says HIGH HIGH HIGH"
    engine = Engine(Overflowing(lexicon("qwen"), " HIGH HIGH HIGH"), "overflowing")
    found = engine.decode_many(contexts, SCHEMA, return_exceptions=True)
    assert isinstance(found[bad], ArithmeticError) and "field 'team'" in str(found[bad])
    others = [i for i in range(6) if i != bad]
    assert [found[i].decisions for i in others] == alone([contexts[i] for i in others])


@pytest.mark.parametrize("prior", ["none", "content_free"])
def test_a_long_context_costs_the_others_nothing(monkeypatch, prior):
    monkeypatch.setattr(engine_module, "DENSE_PAIRS", 200_000)
    long = "word " * 600
    engine = hashed()
    found = engine.decode_many([long, *CONTEXTS, long], SCHEMA, prior=prior)
    assert [result.cache for result in found] == ["off", "miss", *["hit"] * (len(CONTEXTS) - 1), "off"]
    assert max(result.shared for result in found) > 3
    extra = {"none": 0, "content_free": 1}[prior]
    assert [result.passes for result in found[:: len(found) - 1]] == [2, 2]  # the prior was there already
    assert found[1].passes == 2 + extra
    assert [result.decisions for result in found[1:-1]] == alone(prior=prior)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_first_context_that_fails_costs_the_others_nothing():
    bad = "the text says HIGH HIGH HIGH"
    engine = Engine(Overflowing(lexicon("qwen"), " HIGH HIGH HIGH"), "overflowing")
    found = engine.decode_many([bad, *CONTEXTS], SCHEMA, return_exceptions=True)
    assert isinstance(found[0], ArithmeticError)
    assert [result.decisions for result in found[1:]] == alone()
    assert max(result.shared for result in found[1:]) > 3


def test_a_plan_is_compiled_once_for_all_contexts(monkeypatch):
    calls = []
    compiled = plans.compile_plan
    monkeypatch.setattr(plans, "compile_plan", lambda *args: calls.append(args) or compiled(*args))
    hashed().decode_many(CONTEXTS, SCHEMA, cache=False)
    assert len(calls) == 1


def test_one_text_is_not_taken_for_a_list_of_letters():
    with pytest.raises(ValueError, match="contexts is one text; give a list of texts, or use run_parallel"):
        hashed().decode_many("abc", SCHEMA)


def test_nothing_asked_is_nothing_answered():
    engine = hashed()
    assert engine.decode_many([], SCHEMA) == [] and engine.backend.passes == 0


@pytest.mark.parametrize(
    "options, message",
    [
        ({"temperature": 0}, "temperature 0 must be"),
        ({"scoring": "half"}, "scoring 'half' is unknown; use one of: identify, full"),
        ({"prior": True}, "prior True is unknown; use one of: none, content_free"),
        ({"complete": 1}, "complete 1 is unknown; use one of: None, True, False"),
        ({"cache": 1}, "cache 1 is unknown; use one of: True, False"),
    ],
)
def test_bad_options_are_refused_before_anything_is_read(options, message):
    engine = hashed()
    for ask in (engine.decode_many, engine.run_parallel):
        with pytest.raises(ValueError, match=message):
            ask(CONTEXTS[:1] if ask == engine.decode_many else CONTEXTS[0], SCHEMA, **options)
    assert engine.backend.passes == 0


def test_a_schema_that_cannot_be_tokenised_is_one_error():
    twins = StructuredSchema({"x": {"type": "enum", "choices": TWINS}})
    with pytest.raises(TokenizationError, match="become the same tokens"):
        hashed("nfc").decode_many(CONTEXTS, twins)


def test_the_trees_of_a_pack_stand_behind_their_own_contexts():
    engine = hashed()
    engine.run_parallel("A text.", SCHEMA)
    pack = [prepared(engine, context) for context in CONTEXTS[:3]]
    tree, ends = forest(pack)
    forks = [fork for one in pack for fork in one.plan.forks]
    expected = [[*one.after_head, *fork.path] for one in pack for fork in one.plan.forks]
    assert [[tree.tokens[node] for node in tree.path(end)] for end in ends] == expected
    assert len(ends) == len(forks)
    for node, (parent, depth) in enumerate(zip(tree.parents, tree.depths, strict=True)):
        assert parent < node and depth == (tree.depths[parent] + 1 if parent >= 0 else 0)


def test_requests_are_packed_in_order_and_none_is_lost():
    engine = hashed()
    engine.run_parallel("A text.", SCHEMA)
    asked = [prepared(engine, context) for context in CONTEXTS]
    for room in (1, 100, 200, 10_000):
        groups = list(packs(asked, room))
        assert [one for group in groups for one in group] == asked
