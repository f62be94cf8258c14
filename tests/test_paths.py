"""The path of a decision: the winner's line as tokens, each fork with what the model said there."""

import gc
import math
import re
import weakref

import numpy as np
import pytest

from core import parallel
from core.engine import Engine, Request
from core.lane_clock import LaneClock
from core.result import TOP_CHOICES
from core.schema import StructuredSchema
from core.trace import LISTED_CHOICES, from_line, to_lines
from tests import oracle
from tests.fakes import LEXICONS, TRAPS, HashBackend, lexicon

CONTEXT = "A text about nothing.\nIt has two lines, café and 生气."


def enum(*choices, on=()):
    return {"type": "enum", "choices": list(choices), "depends_on": list(on)}


CODES = [f"{a}{b}{c}.{d}" for a in "12" for b in "0468" for c in "1359" for d in "07"]
#: Strings can be written in one way alone, so that a line has the whole score of its choice.
STRINGS = StructuredSchema(
    {
        "team": enum(*TRAPS["prefixes"]),
        "answer": enum(*TRAPS["trailing_punct"]),
        "code": enum(*CODES),
        "form": {"type": "const", "choices": ["A-1"]},
    }
)
CHAIN = StructuredSchema({**STRINGS.to_json(), "late": enum("HIGH", "HIGHEST", "LOW", on=["team", "form"])})
#: A bare value may also come in quotes, so that its line has a part of it.
SCALARS = StructuredSchema({"urgent": {"type": "boolean"}, "n": enum(1, 10, 100, 101, "1", True, None)})


def decided(schema, name="qwen", seed=0, context=CONTEXT, **options):
    """The `field` events of a lane, what it has found, and the engine with the request."""
    engine, events = Engine(HashBackend(lexicon(name), seed=seed), "hash"), []
    prepared = engine.prepare(Request(context, schema, **options))

    def lane(job):
        return engine.parallel(prepared, LaneClock(lambda: None), job, events.append)

    outcome = engine.owner.submit(lane).result()
    fields = {event.name: event for event in events if event.kind == "field"}
    assert list(fields) == [field.name for field in schema]
    return fields, outcome, engine, prepared


def product(path):
    return math.prod(share for _, share in path if share is not None)


def depths(path):
    """The tokens that stand at forks which were read."""
    return [depth for depth, (_, share) in enumerate(path) if share is not None]


@pytest.mark.parametrize("schema", [STRINGS, SCALARS], ids=["strings", "scalars"])
@pytest.mark.parametrize("name", LEXICONS)
def test_each_fork_on_the_line_has_what_a_plain_forward_gives_its_branch_and_no_other_token_has_any(schema, name):
    fields, outcome, engine, prepared = decided(schema, name)
    tokens, prompt = lexicon(name), prepared.plan.prompt
    for field, decision in zip(schema, outcome.decisions, strict=True):
        forms = oracle.forms_of(field, prompt, tokens.encode, tokens.texts)
        line = next(form for form in forms if form.choice == decision.winner)
        expected = [None] * len(line.tokens)
        for path in oracle.forks_on(line, forms):
            after = engine.backend.log_probabilities([*prepared.whole, *path])
            branch = oracle.branches_at(path, forms, tokens.texts)[line.tokens[len(path)]]
            expected[len(path)] = pytest.approx(float(np.exp(after[branch]).sum()), rel=1e-9)
        found = fields[field.name].path
        assert [share for _, share in found] == expected
        assert len(depths(found)) == fields[field.name].levels


OPTIONS = [{}, {"style": "compact"}, {"scoring": "full"}, {"prior": "content_free"}, {"cache": False}]


@pytest.mark.parametrize("options", [*OPTIONS, {"complete": False}, {"complete": False, "scoring": "full"}], ids=str)
@pytest.mark.parametrize("schema", [STRINGS, CHAIN], ids=["apart", "waves"])
@pytest.mark.parametrize("seed", range(4))
def test_the_shares_on_a_line_multiply_to_the_score_of_its_choice(schema, options, seed):
    fields, outcome, *_ = decided(schema, seed=seed, **options)
    for decision in outcome.decisions:
        path = fields[decision.name].path
        assert product(path) == pytest.approx(math.exp(decision.scores[decision.winner]), rel=1e-9)
        assert (depths(path) == []) == (decision.name == "form")


@pytest.mark.parametrize("seed", range(6))
def test_a_best_first_read_tells_what_it_has_read_and_nothing_else(seed):
    some, found, *_ = decided(SCALARS, seed=seed, complete=False)
    every, whole, *_ = decided(SCALARS, seed=seed, complete=True)
    for field, decision in zip(SCALARS, found.decisions, strict=True):
        pairs = list(zip(some[field.name].path, every[field.name].path, strict=True))
        assert all(one == other or one == (other[0], None) for one, other in pairs)
        read = [(choice, share) for choice, share in zip(field.choices, decision.probabilities) if share is not None]
        assert sorted(map(repr, some[field.name].top)) == sorted(map(repr, read))
    assert [d.winner for d in found.decisions] == [d.winner for d in whole.decisions]


@pytest.mark.parametrize(
    "name, style", [*((name, "pretty") for name in LEXICONS), ("qwen", "compact"), ("smol", "compact")]
)
def test_the_tokens_make_the_line_that_the_canonical_json_holds(name, style):
    fields, outcome, _, prepared = decided(CHAIN, name, style=style)
    layout = prepared.plan.prompt.layout
    for decision in outcome.decisions:
        texts = [text for text, _ in fields[decision.name].path]
        assert "".join(texts) == layout.line(decision.name, f'"{decision.value}"')
        assert "" not in texts


def test_a_constant_has_a_line_without_forks_and_is_alone_on_its_list():
    fields, *_ = decided(STRINGS)
    form = fields["form"]
    assert depths(form.path) == [] and "".join(text for text, _ in form.path) == '  "form": "A-1",\n'
    assert form.top == (("A-1", 1.0),)


def test_parts_of_a_character_are_seen():
    schema = StructuredSchema({"mood": enum("😡", "😀")})
    (event,) = decided(schema)[0].values()
    texts = [text for text, _ in event.path]
    assert any("\\x" in text for text in texts)
    whole = re.sub(rb"\\x(..)", lambda byte: bytes.fromhex(byte[1].decode()), "".join(texts).encode())
    assert whole.decode() == f'  "mood": "{event.value}",\n'
    assert from_line(to_lines([event])).path == event.path


@pytest.mark.parametrize("count", [TOP_CHOICES + 1, 255, LISTED_CHOICES, LISTED_CHOICES + 1, 400])
def test_an_event_lists_the_read_choices_likeliest_first_and_the_public_json_eight(count):
    schema = StructuredSchema({"code": enum(*(f"c{i}" for i in range(count)))})
    fields, outcome, *_ = decided(schema, complete=True)
    top, (decision,) = fields["code"].top, outcome.decisions
    assert len(top) == min(count, LISTED_CHOICES) and top[0] == (decision.value, decision.probability)
    assert [share for _, share in top] == sorted(decision.probabilities, reverse=True)[: len(top)]
    assert dict(top).items() <= dict(zip(decision.choices, decision.probabilities, strict=True)).items()
    listed = [(entry["choice"], entry["probability"]) for entry in decision.to_json()["top_choices"]]
    assert listed == list(top[:TOP_CHOICES])


def test_paths_are_made_once_the_clock_has_stopped_and_nothing_of_them_is_kept(monkeypatch):
    engine = Engine(HashBackend(lexicon("qwen")), "hash")
    prepared, clock = engine.prepare(Request(CONTEXT, CHAIN)), LaneClock(lambda: None)
    made, asked = [], []
    path_of = parallel.path_of

    def watched(one, *given):
        asked.append(weakref.ref(one))
        made.append((clock.tick_ms(), clock.elapsed_ms))  # None: no clock runs
        return path_of(one, *given)

    monkeypatch.setattr(parallel, "path_of", watched)
    outcome = engine.owner.submit(lambda job: engine.parallel(prepared, clock, job, lambda event: None)).result()
    assert made == [(None, clock.elapsed_ms)] * len(CHAIN) and len(outcome.decisions) == len(CHAIN)
    gc.collect()
    assert [one() for one in asked] == [None] * len(CHAIN)
