"""What holds for every schema and every text: Hypothesis looks for the ones that nobody thought of.

The same examples on every run.
"""

import json
import math
from functools import cache

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from core import engine as engine_module
from core.engine import Engine, Request
from core.prompt import LAYOUTS
from core.schema import FieldDefinition, SchemaError, StructuredSchema
from core.vocabulary import TokenizationError
from tests import oracle
from tests.fakes import ADDED, LEXICONS, SPECIAL, HashBackend, lexicon


def checked(examples):
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


CLOSE = 1e-3  # float32: a score is a sum over up to thirty tokens

# --- schemas and texts ---

#: What strings break on: JSON's own characters, digits, white space, scripts, twins, control tokens.
PIECES = [
    *'"\\\n\r\t\0/{}[],:.?!-+_ aAbBeE01259',
    *(
        "\u00e9",
        "e\u0301",
        "\u0301",
        "\u00a0",
        "\u200b",
        "\u2028",
        "\ufeff",
        "\u202e",
        "▁",
        "生",
        "气",
        "😀",
        "👩\u200d🚀",
    ),
    *("true", "false", "null", "Yes", "HIGH", "CWE-79", '",\n', '"\n}', "\\u0041", "${x}", "{{x}}", "</script>"),
    *SPECIAL,
    ADDED,
]
NAMES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join) | st.text(min_size=1, max_size=6)
TEXTS = st.just("") | NAMES
CHOICES = TEXTS | st.integers(-12, 120) | st.integers(-(10**30), 10**30) | st.sampled_from([True, False, None])


@st.composite
def families(draw):
    """Choices that are beginnings of one another, and the same values as texts."""
    stem = draw(TEXTS)
    longer = [stem + draw(TEXTS) for _ in range(draw(st.integers(1, 4)))]
    number = draw(st.integers(0, 20))
    last = draw(st.sampled_from([[True], ["true", True], [None], ["null"], [stem + "e\u0301", stem + "\u00e9"]]))
    return [stem, *longer, number, number * 10, str(number), *last]


CHOICE_LISTS = st.one_of(
    st.lists(CHOICES, min_size=2, max_size=12, unique_by=json.dumps),
    families().map(lambda choices: list({json.dumps(choice): choice for choice in choices}.values())),
).filter(lambda choices: len(choices) > 1)


@st.composite
def schemas(draw, dependent=True):
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    order = draw(st.permutations(names))  # a field may depend on one that stands below it
    fields = []
    for name in names:
        description = draw(st.just("") | TEXTS)
        before = order[: order.index(name)] if dependent else []
        depends_on = draw(st.just([]) | st.lists(st.sampled_from(before), unique=True)) if before else []
        choices = draw(CHOICE_LISTS | st.none())
        kind = "boolean" if choices is None else "enum"
        fields.append(FieldDefinition(name, kind, description, tuple(choices or ()), tuple(depends_on)))
    return StructuredSchema(fields)


CONTEXTS = st.lists(TEXTS, max_size=4).map(lambda texts: " ".join([*texts, "text"]))


@cache
def engine_on(name):
    return Engine(HashBackend(lexicon(name)), "hash")


tiny_engine = cache(lambda backend: Engine(backend, "tiny"))


def melts(name, schema):
    """Whether the tokenizer makes one line of two choices, or one token of a name and the values after it."""
    for layout in LAYOUTS["pretty"]:
        for field in schema:
            own = [json.dumps(choice, ensure_ascii=False) for choice in field.choices]
            texts = own + [f'"{text}"' for text in own if not text.startswith('"') and f'"{text}"' not in own]
            lines = [layout.line(field.name, text) for text in texts]
            tokens = [tuple(lexicon(name).encode_after(layout.opening, line)) for line in lines]
            if len(set(tokens)) < len(tokens) or len({ids[0] for ids in tokens}) > 1:
                return True
    return False


def decided(name, schema, context, **options):
    """The result, where the tokenizer can tell the schema's choices apart; else the example is none."""
    try:
        return engine_on(name).run_parallel(context, schema, **options)
    except TokenizationError as refused:
        assert melts(name, schema), refused
        event("refused: choices or names melt")
        assume(False)


def keyed(values):
    return [(name, json.dumps(value)) for name, value in values.items()]


def assert_sound(result, schema):
    """All that has to be true of any answer whatsoever."""
    assert list(result.values) == [field.name for field in schema]
    for field, decision in zip(schema, result.decisions, strict=True):
        assert json.dumps(decision.value) in list(map(json.dumps, field.choices))
        given_out = [p for p in decision.probabilities if p is not None]
        assert math.fsum([*given_out, decision.unread_mass]) == pytest.approx(1.0, abs=1e-6)
        assert decision.probability == max(given_out)
        assert 0 <= decision.candidate_mass <= 1
    members = json.loads(result.text, object_pairs_hook=list)
    assert [(key, json.dumps(value)) for key, value in members] == keyed(result.values)
    shape = result.to_json()
    assert (shape["is_valid_json"], shape["schema_match"]) == (True, True)
    json.dumps(shape, allow_nan=False)


# --- properties ---


@checked(120)
@given(name=st.sampled_from(LEXICONS), schema=schemas(), context=CONTEXTS, whole=st.booleans())
def test_every_answer_is_a_declared_choice_in_json_that_parses_to_it(name, schema, context, whole):
    result = decided(name, schema, context, scoring="full" if whole else "identify", complete=True)
    assert_sound(result, schema)
    assert all(decision.unread == 0 for decision in result.decisions)


@checked(80)
@given(name=st.sampled_from(LEXICONS), schema=schemas(), context=CONTEXTS)
def test_reading_best_first_finds_the_winners_of_a_complete_read(name, schema, context):
    complete = decided(name, schema, context, complete=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engine_module, "LEAST_ALLOWANCE", 0)  # so few choices would all be read at once
        searched = decided(name, schema, context, complete=False)
    assert_sound(searched, schema)
    assert keyed(searched.values) == keyed(complete.values)
    event(f"best-first leaves {'some' if any(d.unread for d in searched.decisions) else 'none'} unread")


@checked(80)
@given(
    name=st.sampled_from([*LEXICONS, "nfc"]),
    before=TEXTS,
    after=TEXTS,
    pair=st.sampled_from([("\u00e9", "e\u0301"), (" ", "▁"), ("1", "10"), ("a", "A")]),
    others=st.lists(TEXTS, max_size=3),
)
def test_choices_are_refused_only_where_the_tokenizer_makes_one_of_two(name, before, after, pair, others):
    choices = dict.fromkeys([*(before + text + after for text in pair), *others])
    schema = StructuredSchema([FieldDefinition("risk", "enum", "", tuple(choices))])
    if melts(name, schema):
        with pytest.raises(TokenizationError, match="field 'risk': choices .* become the same tokens; rename one"):
            engine_on(name).prepare(Request("text", schema))
    else:
        assert_sound(engine_on(name).run_parallel("text", schema), schema)
    assert melts(name, schema) >= (name == "nfc" and "\u00e9" in pair)
    event(f"refused: {melts(name, schema)}")


@checked(50)
@given(
    name=st.sampled_from(LEXICONS),
    schema=schemas(dependent=False),
    contexts=st.lists(CONTEXTS, min_size=2, max_size=4),
    cache=st.booleans(),
)
def test_many_contexts_at_once_get_the_answers_of_one_at_a_time(name, schema, contexts, cache):
    alone = [decided(name, schema, context) for context in contexts]
    together = engine_on(name).decode_many(contexts, schema, cache=cache)
    assert [result.decisions for result in together] == [result.decisions for result in alone]
    assert [result.text for result in together] == [result.text for result in alone]


@checked(50)
@given(
    name=st.sampled_from(LEXICONS),
    schema=schemas(dependent=False),
    context=CONTEXTS,
    temperature=st.floats(1e-3, 1e3),
)
def test_a_temperature_changes_the_probabilities_as_it_should_and_no_winner(name, schema, context, temperature):
    neutral, other = (decided(name, schema, context, temperature=t, complete=True) for t in (1.0, temperature))
    assert_sound(other, schema)
    assert keyed(other.values) == keyed(neutral.values)
    for decision, sharpened in zip(neutral.decisions, other.decisions, strict=True):
        assert sharpened.scores == decision.scores
        assert sharpened.probabilities == pytest.approx(oracle.probabilities(decision.scores, temperature))


@checked(120)
@given(schema=schemas())
def test_a_schema_comes_back_from_its_json(schema):
    text = json.dumps(schema.to_json())
    again = StructuredSchema.from_text(text)
    assert again == schema and again.digest == schema.digest and hash(again) == hash(schema)
    assert json.dumps(again.to_json()) == text
    assert [field.choices for field in again] == [field.choices for field in schema]


@checked(80)
@given(choices=CHOICE_LISTS, twice=st.integers(0, 11), at=st.integers(0, 12))
def test_a_choice_given_twice_is_refused_wherever_it_stands(choices, twice, at):
    choices.insert(at, choices[twice % len(choices)])
    with pytest.raises(SchemaError, match="appears twice; each choice must be unique"):
        FieldDefinition("risk", "enum", "", tuple(choices))


@checked(80)
@given(name=st.sampled_from(LEXICONS), schema=schemas(), context=CONTEXTS)
def test_nothing_that_users_write_makes_a_control_token(name, schema, context):
    try:
        prepared = engine_on(name).prepare(Request(context, schema))
    except TokenizationError as refused:
        assert melts(name, schema), refused
        return
    control = lexicon(name).chat.added_tokens_decoder
    ids = [*prepared.whole, *prepared.plan.tree.tokens]
    assert [str(control[i]) for i in ids if i in control] == [
        *("<|im_start|>", "<|im_end|>", "<|im_start|>", "<|im_end|>", "<|im_start|>")
    ]


@checked(12)
@given(data=st.data(), kind=st.sampled_from([("llama", "qwen"), ("phi", "smol"), ("llama", "metaspace")]))
def test_all_of_it_holds_on_a_model_with_weights(tiny, data, kind):
    name = kind[1]
    schema, context = data.draw(schemas(dependent=False)), data.draw(CONTEXTS)
    assume(not melts(name, schema))
    engine = tiny_engine(tiny(*kind))
    off, cold, warm = (
        engine.run_parallel(context, schema, complete=True, cache=cache) for cache in (False, True, True)
    )
    searched = engine.run_parallel(context, schema, complete=False)
    assert warm.cache == "hit"
    for result in (off, cold, warm, searched):
        assert_sound(result, schema)
    for decision, *others, quick in zip(*(r.decisions for r in (off, cold, warm, searched)), strict=True):
        for other in others:
            assert other.scores == pytest.approx(decision.scores, abs=CLOSE)
        for winner in (*(other.winner for other in others), quick.winner):
            assert decision.scores[winner] == pytest.approx(max(decision.scores), abs=2 * CLOSE)
