"""The ar lane: greedy JSON after the same prompt, one token at a time, in three modes."""

import json

import llguidance.hf
import numpy as np
import pytest
import torch
from llguidance import LLMatcher
from llguidance.torch import allocate_token_bitmask, apply_token_bitmask_inplace, fill_next_token_bitmask
from transformers import AutoModelForCausalLM

from core.baseline import token_limit, write
from core.engine import Engine, Request
from core.grammar import MODES, GrammarError, Grammars, canonical_grammar
from core.prompt import LAYOUTS
from core.schema import StructuredSchema
from core.vocabulary import TokenizationError, Vocabulary
from tests.fakes import LEXICONS, SPACING, HashBackend, PreferringBackend, lexicon

SCHEMA = StructuredSchema({"risk": {"type": "enum", "choices": ["HIGH", "LOW"]}, "is_fraud": {"type": "boolean"}})
CONTEXT = "A text about nothing."
OPENING = "{\n"
STYLES = [(name, style) for name in LEXICONS for style in LAYOUTS if (name, style) != ("metaspace", "compact")]


def lane(engine, schema=SCHEMA, context=CONTEXT, mode="json", **options):
    """(events, lane_end) of the baseline alone."""
    events = list(engine.stream_baseline(context, schema, mode, **options))
    return events, next(event for event in events if event["kind"] == "lane_end")


def tokens_of(events):
    return [event for event in events if event["kind"] == "token"]


def layout_of(engine, schema=SCHEMA, style="pretty"):
    return engine.prepare(Request(CONTEXT, schema, style=style)).plan.prompt.layout


def written_by(name, text, mode="json"):
    """What comes out where the model means to write `text` after the opening brace."""
    engine = Engine(PreferringBackend(lexicon(name)), "preferring")
    opening = layout_of(engine).opening
    engine.backend.intend(("{\n" + text).removeprefix(opening), before="assistant\n" + opening)
    return lane(engine, mode=mode)


# --- what is written ---

ANSWERS = [
    '  "risk": "HIGH",\n  "is_fraud": true\n}',
    '  "risk": null,\n  "invented": [1, {"a": -1.5e3}],\n  "risk": "again"\n}',
    '  "risk": "👩\u200d👩\u200d👧 生气 שלום café",\n  "🇳🇴": "😀"\n}',
    '  "a}": "}",\n  "b": "\\"}\\\\"\n}',
    " }",
]


@pytest.mark.parametrize("mode", ["free", "json"])
@pytest.mark.parametrize("name", LEXICONS)
@pytest.mark.parametrize("answer", ANSWERS)
def test_the_lane_streams_the_text_that_the_model_writes_up_to_its_closing_brace(name, answer, mode):
    events, end = written_by(name, answer, mode)
    tokens = tokens_of(events)
    opening = next(event for event in events if event["kind"] == "run")["opening"]
    assert end["how"] == "closed"
    assert end["text"] == "{\n" + answer == opening + "".join(event["text"] for event in tokens)
    assert [event["tokens"] for event in tokens] == list(range(1, end["tokens"] + 1))
    if mode == "free":
        assert end["passes"] == end["tokens"]  # one for the prompt, and none after the last token
    json.loads(end["text"])


@pytest.mark.parametrize("name", LEXICONS)
def test_no_step_of_the_stream_shows_half_a_character(name):
    answer = '  "👩\u200d👩\u200d👧": "嬉しい 悲しい 😀😡 ﷽",\n  "is_fraud": true\n}'
    events, end = written_by(name, answer)
    texts = [event["text"] for event in tokens_of(events)]
    assert "\ufffd" not in "".join(texts) and end["text"] == "{\n" + answer
    assert "" in texts  # characters that are spread over tokens come with their last one
    for n in range(len(texts)):
        assert ("{\n" + answer).startswith("".join([OPENING if name != "smol" else "{", *texts[:n]]))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["qwen", "smol", "metaspace"])
def test_whatever_the_model_likes_in_json_mode_it_writes_a_json_object_so_far(name, seed):
    _, end = lane(Engine(HashBackend(lexicon(name), seed=seed), "hash"))
    assert "\ufffd" not in end["text"]
    if end["how"] == "closed":
        assert isinstance(json.loads(end["text"]), dict)
    else:
        assert end["how"] == "limit"
        with pytest.raises(json.JSONDecodeError, match="line"):
            json.loads(end["text"])


@pytest.mark.parametrize("name", LEXICONS)
def test_nothing_is_enforced_in_free_mode(name):
    answer = '  risk = HIGH; {"draft": 1}, and so on\n}'
    _, end = written_by(name, answer, "free")
    assert (end["how"], end["text"], end["forced"]) == ("closed", "{\n" + answer, 0)


def test_a_tag_that_is_one_token_is_seen_in_a_free_answer_and_a_control_token_is_not():
    tokens = lexicon("qwen")
    tag, control = (tokens.chat.convert_tokens_to_ids(text) for text in ("<tool_call>", "<|im_start|>"))
    ids = [tag, control, *tokens.encode_after(OPENING, ' "a": 1}')]
    free = constraint("free", tokens)
    written = list(write(Scripted(ids), free, Vocabulary(tokens.chat), frozenset(), 100))
    assert [w.text for w in written[:2]] == ["<tool_call>", ""] and written[-1].how == "closed"


# --- the schema enforced ---

MIXED = StructuredSchema(
    {
        "a b": {"type": "enum", "choices": ["A", "A+", "AB", "", " A"]},
        'say "}"': {"type": "enum", "choices": ['"north"', "south\n", "生气", "C:\\new", "a|b", "/x/", "%y"]},
        "none": {"type": "enum", "choices": [1, "1", 10, True, None, "null"]},
        "ok": {"type": "boolean"},
    }
)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("schema", [SCHEMA, MIXED], ids=["plain", "mixed"])
@pytest.mark.parametrize("name, style", STYLES)
def test_whatever_the_model_likes_the_schema_is_filled_in_as_the_layout_spells_it(name, style, schema, seed):
    engine = Engine(HashBackend(lexicon(name), seed=seed), "hash")
    events, end = lane(engine, schema, mode="schema", style=style)
    assert end["how"] == "closed"
    values = json.loads(end["text"])
    assert list(values) == [field.name for field in schema]
    for field in schema:
        assert any(type(values[field.name]) is type(c) and values[field.name] == c for c in field.choices)
    members = [(name, json.dumps(value, ensure_ascii=False)) for name, value in values.items()]
    assert end["text"] == layout_of(engine, schema, style).text(members)


@pytest.mark.parametrize("name, style", STYLES)
def test_keys_and_punctuation_are_forced_and_cost_no_pass_of_their_own(name, style):
    engine = Engine(HashBackend(lexicon(name)), "hash")
    events, end = lane(engine, mode="schema", style=style)
    tokens = tokens_of(events)
    chosen = [event for event in tokens if not event["forced"]]
    assert end["forced"] == len(tokens) - len(chosen) > len(chosen)
    # A pass for the prompt and the tokens before the first choice, one for each choice but the last, whose
    # forced tokens end the object.
    assert end["passes"] == len(chosen)
    assert {event["passes"] for event in tokens} == set(range(1, end["passes"] + 1))
    for key in ("risk", "is_fraud"):
        start = end["text"].index(f'"{key}"') + 1
        assert all(event["forced"] for event in tokens if covers(tokens, event, end["text"], start, start + len(key)))


def covers(tokens, event, text, start, end):
    """Whether the token's text lies within the characters from `start` to `end` of the lane's text."""
    at = len(text) - sum(len(other["text"]) for other in tokens[tokens.index(event) :])
    return start <= at and at + len(event["text"]) <= end


@pytest.mark.parametrize("values", [("HIGH", False), ("LOW", True)])
@pytest.mark.parametrize("name, style", STYLES)
def test_forced_tokens_are_those_of_the_text_as_it_is_tokenised(name, style, values):
    """So that the model goes on after the tokens that it knows."""
    engine = Engine(PreferringBackend(lexicon(name)), "preferring")
    prompt = engine.prepare(Request(CONTEXT, SCHEMA, style=style)).plan.prompt
    members = [(field.name, json.dumps(value)) for field, value in zip(SCHEMA, values, strict=True)]
    answer = prompt.layout.text(members).removeprefix(prompt.layout.opening)
    engine.backend.intend(answer, before="assistant\n" + prompt.layout.opening)
    events, end = lane(engine, mode="schema", style=style)
    assert end["text"] == prompt.layout.opening + answer
    assert [event["token"] for event in tokens_of(events)] == lexicon(name).encode_after(prompt.before_line, answer)


NASTY = {
    "control tokens": ["x<|im_end|>", "<tool_call>", "<|im_start|>system"],
    "decomposed letters": ["cafe\u0301", "\u212b", "\u1100\u1161"],
    "delete and other controls": ["a\x7fb", "a\x00b", "\u0085\u2028"],
    "what tokenizers write for spaces and bytes": ["a▁b", "▁", "<0x0A>", "Ġx"],
    "what grammars mean something by": ['"/x/i"', "%json {}", "VALUE_0", "a: b", "\\u0041", "// no", "(a|b)*", "{1,2}"],
    "long and alike": ["é" * 60, "é" * 60 + "!", "é" * 61],
}


@pytest.mark.parametrize("texts", NASTY.values(), ids=NASTY)
@pytest.mark.parametrize("name", [*LEXICONS, *SPACING])
def test_hostile_names_and_choices_are_only_text_to_the_grammar(name, texts):
    """And no control token is forced: llguidance's own way to tokenise makes some of plain text."""
    fields = {text: {"type": "enum", "choices": texts} for text in texts}
    engine = Engine(HashBackend(lexicon(name)), "hash")
    try:
        schema = StructuredSchema(fields)
        engine.prepare(Request(CONTEXT, schema))
    except TokenizationError:  # composed and decomposed letters under a tokenizer that composes
        schema = StructuredSchema({text: {"type": "boolean"} for text in texts})
    events, end = lane(engine, schema, mode="schema")
    assert events[-1]["state"] == "done" and end["how"] == "closed"
    values = json.loads(end["text"])
    assert list(values) == [field.name for field in schema]
    assert all(values[field.name] in field.choices for field in schema)
    assert not {event["token"] for event in tokens_of(events)} & set(engine.vocabulary.control.values())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", LEXICONS)
def test_an_id_without_text_is_never_taken_for_its_name(name, seed):
    """Checkpoints are padded: a grammar's tokenizer must call those ids something."""
    size = len(lexicon(name).chat)
    schema = StructuredSchema({"f": {"type": "enum", "choices": [*(f"<[{size + n}]>" for n in range(5)), "x"]}})
    _, end = lane(Engine(HashBackend(lexicon(name), seed=seed), "hash"), schema, mode="schema")
    assert json.loads(end["text"])["f"] in schema["f"].choices


def test_a_character_that_no_token_spells_is_refused_by_name(monkeypatch):
    vocabulary = Vocabulary(lexicon("qwen").chat)
    monkeypatch.setattr(vocabulary, "encode", lambda text: [])  # as tokenizers do that leave such characters out
    del vocabulary._ids[b"\xf1"]
    with pytest.raises(TokenizationError, match=r"no tokens for a character in 'ab.*'; use other words"):
        vocabulary.spelled("ab\U00050000")


REFUSED = [
    '{\n  "is_fraud": true,\n  "risk": "LOW"\n}',
    '{\n  "risk":  "LOW",\n  "is_fraud": true\n}',
    '{\n  "risk": "L\\u004fW",\n  "is_fraud": true\n}',
    '{\n  "risk": "LOW",\n  "is_fraud": "true"\n}',
    '{\n  "risk": "LOW"\n}',
    '{\n  "risk": "LOW",\n  "is_fraud": true\n}\n',
    '{"risk": "LOW", "is_fraud": true}',
]


@pytest.mark.parametrize("text", REFUSED)
def test_the_grammar_allows_no_other_spelling(text):
    tokens = lexicon("qwen")
    grammar = LLMatcher(llguidance.hf.from_tokenizer(tokens.chat), canonical_grammar(SCHEMA, LAYOUTS["pretty"][0]))
    ids = tokens.encode(text)
    assert grammar.validate_tokens(ids) < len(ids)


def test_a_schema_too_large_for_a_grammar_ends_the_run_in_one_line_and_is_not_kept():
    tokens = lexicon("qwen")
    choices = [f"{n:04} {n * 7919 % 1009}" for n in range(1024)]
    schema = StructuredSchema({f"f{n}": {"type": "enum", "choices": choices} for n in range(128)})
    grammars = Grammars(Vocabulary(tokens.chat), len(tokens.chat) + 5, frozenset([tokens.chat.eos_token_id]))
    for _ in range(2):
        with pytest.raises(GrammarError, match="grammar failed .*; use baseline mode free, or fewer choices$"):
            grammars.start("schema", schema, LAYOUTS["pretty"][0])


@pytest.mark.parametrize("name", LEXICONS)
@pytest.mark.parametrize("values", [("HIGH", False), ("LOW", True)])
def test_both_lanes_give_what_the_model_means(name, values):
    engine = Engine(PreferringBackend(lexicon(name)), "preferring")
    layout = layout_of(engine)
    lines = [layout.line(field.name, json.dumps(value)) for field, value in zip(SCHEMA, values, strict=True)]
    answer = "".join(lines).removesuffix(layout.after) + layout.end
    engine.backend.intend(answer, *lines, before="assistant\n" + layout.opening)
    for mode in MODES:
        _, end = lane(engine, mode=mode)
        assert end["text"] == engine.run_parallel(CONTEXT, SCHEMA).text == layout.opening + answer, mode


@pytest.mark.parametrize("count", [2, 255, 1024])
def test_a_grammar_of_many_choices_allows_each_of_them_and_nothing_else(count):
    tokens, layout = lexicon("qwen"), LAYOUTS["pretty"][0]
    schema = StructuredSchema({"code": {"type": "enum", "choices": [f"CODE-{n}.{n % 7}" for n in range(count)]}})
    grammar = LLMatcher(llguidance.hf.from_tokenizer(tokens.chat), canonical_grammar(schema, layout))
    for value in (f"CODE-0.{count % 7 or 1}x", "CODE", f"CODE-{count}.0"):
        ids = tokens.encode(layout.text([("code", json.dumps(value))]))
        assert grammar.validate_tokens(ids) < len(ids)
    for n in range(0, count, max(1, count // 9)):
        ids = tokens.encode(layout.text([("code", f'"CODE-{n}.{n % 7}"')]))
        assert grammar.validate_tokens(ids) == len(ids)


def test_a_grammar_that_was_compiled_once_is_as_it_was():
    engine = Engine(HashBackend(lexicon("qwen")), "hash")
    runs = [lane(engine, mode="schema", cache=cache)[1]["text"] for cache in (True, True, False)]
    assert len(set(runs)) == 1
    assert engine.grammars._kept.cache_info().hits == 1


# --- what each mode reports ---


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cache", [True, False])
def test_a_lane_reports_what_it_counted(mode, cache):
    engine = Engine(HashBackend(lexicon("qwen"), pass_s=0.001), "hash")
    events, end = lane(engine, mode=mode, cache=cache)
    tokens = tokens_of(events)
    run = next(event for event in events if event["kind"] == "run")
    assert (run["mode"], run["style"], run["cache"]) == (mode, "pretty", "miss" if cache else "off")
    assert end["tokens"] == len(tokens) and end["passes"] == engine.backend.passes
    assert end["forced"] == sum(event["forced"] for event in tokens)
    assert end["first_token_ms"] == tokens[0]["ms"]
    seconds = (tokens[-1]["ms"] - tokens[0]["ms"]) / 1e3
    assert end["tokens_per_s"] == pytest.approx((len(tokens) - 1) / seconds, rel=0.01)


@pytest.mark.parametrize("mode", MODES)
def test_the_phases_of_a_lane_are_its_engine_time(mode):
    events, end = lane(Engine(HashBackend(lexicon("qwen"), pass_s=0.001), "hash"), mode=mode)
    phases = {event["phase"]: event["took_ms"] for event in events if event["kind"] == "phase"}
    assert list(phases) == ["prefill", "decode", "mask", "detokenise"]
    assert sum(phases.values()) == pytest.approx(end["ms"], abs=0.01)
    assert phases["decode"] >= (end["passes"] - 1) * 1.0


# --- how it ends ---


@pytest.mark.parametrize("mode", ["free", "json"])
@pytest.mark.parametrize("name", LEXICONS)
def test_a_lane_that_does_not_end_is_stopped_at_twice_the_canonical_tokens_plus_64(name, mode):
    engine = Engine(PreferringBackend(lexicon(name)), "endless")
    plan = engine.prepare(Request(CONTEXT, SCHEMA)).plan
    opening = plan.prompt.layout.opening
    engine.backend.intend(("{\n" + '  "x": "' + "A" * 5000).removeprefix(opening), before="assistant\n" + opening)
    _, end = lane(engine, mode=mode)
    canonical = sum(max(len(form.tokens) for form in trie.forms) for trie in plan.tries) + 1
    assert (end["how"], end["tokens"]) == ("limit", 2 * canonical + 64)
    assert token_limit(canonical) == end["tokens"]


def test_the_limit_never_leaves_the_models_window():
    room = Engine(HashBackend(lexicon("qwen")), "wide").prepare(Request(CONTEXT, SCHEMA))
    window = len(room.whole) + 50
    engine = Engine(PreferringBackend(lexicon("qwen"), window=window), "narrow")
    engine.backend.intend('  "x": "' + "A" * 5000, before="assistant\n{\n")
    _, end = lane(engine)
    assert (end["how"], end["tokens"]) == ("limit", 50)


class Scripted:
    """A decoder that says what it is told; counts what is appended."""

    def __init__(self, tokens):
        self.tokens, self.appended = list(tokens), []

    def choose(self, mask=None):
        return self.tokens[len(self.appended)]

    def append(self, ids):
        self.appended += ids


def constraint(mode, tokens, schema=SCHEMA):
    size = len(tokens.chat) + 5
    grammars = Grammars(Vocabulary(tokens.chat), size, frozenset([tokens.chat.eos_token_id]))
    return grammars.start(mode, schema, LAYOUTS["pretty"][0])


def scripted(text, end=(), limit=1000, mode="json"):
    tokens = lexicon("qwen")
    ids = [*tokens.encode_after(OPENING, text), *end]
    decoder, ends = Scripted(ids), frozenset([tokens.chat.eos_token_id])
    return (
        list(write(decoder, constraint(mode, tokens), Vocabulary(tokens.chat), ends, limit)),
        decoder,
        ids,
    )


@pytest.mark.parametrize("mode", ["free", "json"])
def test_an_end_of_turn_ends_the_lane_without_a_text(mode):
    written, decoder, ids = scripted('  "a": 1', end=[lexicon("qwen").chat.eos_token_id], mode=mode)
    assert [w.how for w in written] == [None] * (len(ids) - 1) + ["end_of_turn"]
    assert (written[-1].token, written[-1].text) == (ids[-1], "")
    assert decoder.appended == ids[:-1]


@pytest.mark.parametrize("mode", ["free", "json"])
def test_the_closing_brace_ends_the_lane_whatever_would_follow(mode):
    written, decoder, ids = scripted('  "a": {"b": 1}\n}', mode=mode)
    assert written[-1].how == "closed" and all(w.how is None for w in written[:-1])
    assert "".join(w.text for w in written) == '  "a": {"b": 1}\n}'
    assert decoder.appended == ids[:-1]


@pytest.mark.parametrize(
    "answer, closes",
    [
        ('  "a": "}"\n', False),
        ('  "a": "\\"}"\n', False),
        ('  "a": "\\\\"}', True),
        ('  {"a": 1}', False),
        ('  {"a": 1}}', True),
        ('  "a": "}', False),
        ("  'a': 1}", True),
        (" }", True),
        ("```json\n{\n}\n```", False),
        ("", False),
    ],
)
def test_a_free_answer_is_complete_when_its_first_brace_is_closed_outside_of_strings(answer, closes):
    tokens = lexicon("qwen")
    free = constraint("free", tokens)
    for token in tokens.encode_after(OPENING, answer):
        free.advance(token)
    assert free.closed == closes and free.bits() is None


def test_the_limit_is_marked_on_the_last_token_and_nothing_is_read_after_it():
    written, decoder, ids = scripted('  "a": "' + "x" * 50, limit=7)
    assert [w.how for w in written] == [None] * 6 + ["limit"]
    assert decoder.appended == ids[:6]


class FirstAllowed(Scripted):
    """A decoder that takes the first token that the mask allows."""

    def __init__(self):
        super().__init__([])

    def choose(self, mask=None):
        return int(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))[0])


@pytest.mark.parametrize("limit", range(1, 12))
def test_a_limit_that_falls_among_forced_tokens_cuts_them(limit):
    tokens = lexicon("qwen")
    start, vocabulary = constraint("schema", tokens), Vocabulary(tokens.chat)
    forced = start.forced()
    written = list(write(FirstAllowed(), start, vocabulary, frozenset(), limit, forced))
    assert [w.how for w in written] == [None] * (limit - 1) + ["limit"]
    assert [w.forced for w in written][: len(forced)] == [True] * min(limit, len(forced))


def test_a_character_that_is_cut_by_the_limit_is_left_out():
    text = '  "a": "😀'
    whole, _, _ = scripted(text + '"}')
    at = next(n for n, w in enumerate(whole) if "😀" in w.text)
    written, _, _ = scripted(text + '"}', limit=at)
    assert "".join(w.text for w in written) == '  "a": "' and written[-1].how == "limit"


# --- the mask ---


@pytest.mark.parametrize("name", LEXICONS)
def test_the_grammar_goes_on_after_the_prompts_own_brace(name):
    tokens = lexicon(name)
    size = len(tokens.chat) + 5
    mask = constraint("json", tokens)
    allowed = np.unpackbits(mask.bits().view(np.uint8), bitorder="little")[:size].astype(bool)
    assert not mask.closed
    starts = {text.lstrip()[:1] for text, ok in zip(tokens.texts, allowed, strict=False) if ok}
    assert starts <= {b"", b'"', b"}"} and {b'"', b"}"} <= starts
    assert not any(allowed[i] for i in tokens.chat.added_tokens_decoder)
    assert not allowed[len(tokens.chat) :].any()  # padded logits


# --- against a plain loop ---


def plain_loop(folder, ids, name, steps, grammar, opening):
    """Greedy tokens under the same grammar, each from a whole forward without a cache, none of them forced."""
    tokens = lexicon(name)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    size = model.config.vocab_size
    guide = llguidance.hf.from_tokenizer(tokens.chat, n_vocab=size)
    matcher = LLMatcher(guide, grammar)
    matcher.consume_tokens(guide.tokenize_str(opening))
    bits, written = allocate_token_bitmask(1, size), []
    with torch.inference_mode():
        while len(written) < steps and not matcher.is_accepting():
            logits = model(input_ids=torch.tensor([[*ids, *written]])).logits[:, -1]
            fill_next_token_bitmask(matcher, bits)
            apply_token_bitmask_inplace(logits, bits)
            written.append(int(logits.argmax()))
            matcher.consume_token(written[-1])
    return written


ANY_OBJECT = LLMatcher.grammar_from_json_schema({"type": "object"})


@pytest.mark.parametrize("architecture, name", [("llama", "smol"), ("qwen2", "qwen"), ("phi", "smol")])
def test_the_lane_writes_what_a_plain_loop_without_a_cache_writes(tiny, checkpoint, architecture, name):
    engine = Engine(tiny(architecture, name), "tiny")
    prepared = engine.prepare(Request(CONTEXT, SCHEMA))
    opening = prepared.plan.prompt.layout.opening
    expected = plain_loop(checkpoint(architecture, name), prepared.whole, name, 20, ANY_OBJECT, opening)
    for cache in ("miss", "hit"):
        events, end = lane(engine)
        assert end["cache"] == cache
        assert [event["token"] for event in tokens_of(events)][:20] == expected
        assert len(expected) > 3


@pytest.mark.parametrize("architecture, name", [("llama", "smol"), ("qwen2", "qwen"), ("phi", "smol")])
def test_each_choice_of_the_schema_mode_is_the_one_of_a_plain_forward(tiny, checkpoint, architecture, name):
    """Forced tokens ride in the pass of another: the model must go on as if it had read them one by one."""
    engine = Engine(tiny(architecture, name), "tiny")
    prepared = engine.prepare(Request(CONTEXT, SCHEMA))
    layout = prepared.plan.prompt.layout
    events, end = lane(engine, mode="schema")
    tokens, written = tokens_of(events), []
    model = AutoModelForCausalLM.from_pretrained(checkpoint(architecture, name), dtype=torch.float32).eval()
    guide = llguidance.hf.from_tokenizer(lexicon(name).chat, n_vocab=model.config.vocab_size)
    for event in tokens:
        matcher = LLMatcher(guide, canonical_grammar(SCHEMA, layout))
        matcher.consume_tokens([*guide.tokenize_str(layout.opening), *written])
        bits = allocate_token_bitmask(1, model.config.vocab_size)
        fill_next_token_bitmask(matcher, bits)
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([[*prepared.whole, *written]])).logits[:, -1]
        apply_token_bitmask_inplace(logits, bits)
        if not event["forced"]:
            assert event["token"] == int(logits.argmax())
        assert torch.isfinite(logits[0, event["token"]])  # what is forced is allowed, too
        written.append(event["token"])
    assert end["how"] == "closed" and end["forced"] > len(tokens) / 2


@pytest.mark.parametrize("mode", MODES)
def test_the_lane_leaves_its_prefix_as_it_was(tiny, mode):
    backend = tiny("llama")
    engine = Engine(backend, "tiny")
    prepared = engine.prepare(Request(CONTEXT, SCHEMA))
    prefix = backend.prefill(prepared.whole)
    before = [tensor.clone() for layer in prefix.layers for tensor in layer]
    start = engine.grammars.start(mode, SCHEMA, prepared.plan.prompt.layout)
    written = list(write(backend.decoder(prefix), start, engine.vocabulary, backend.identity.end_ids, 40))
    assert len(written) > 3
    assert all(map(torch.equal, [tensor for layer in prefix.layers for tensor in layer], before))


# --- stopping ---


@pytest.mark.parametrize("mode", ["free", "json"])
def test_closing_the_stream_stops_the_engine_within_one_token(mode):
    engine = Engine(PreferringBackend(lexicon("qwen"), pass_s=0.02), "slow")
    engine.backend.intend('  "x": "' + "A" * 5000, before="assistant\n{\n")
    stream = engine.stream_baseline(CONTEXT, SCHEMA, mode)
    next(event for event in stream if event["kind"] == "token")
    passes = engine.backend.passes
    stream.close()
    engine.run_parallel(CONTEXT, SCHEMA, cache=False)  # waits for its turn, then takes two passes
    assert engine.backend.passes - passes <= 2 + 1
