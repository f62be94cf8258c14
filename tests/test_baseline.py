"""The ar lane: greedy JSON after the same prompt, one token at a time."""

import json

import llguidance.hf
import numpy as np
import pytest
import torch
from llguidance import LLMatcher
from llguidance.torch import allocate_token_bitmask, apply_token_bitmask_inplace, fill_next_token_bitmask
from transformers import AutoModelForCausalLM

from core.baseline import Grammar, token_limit, write
from core.engine import Engine, Request
from core.schema import StructuredSchema
from core.vocabulary import Vocabulary
from tests.fakes import LEXICONS, HashBackend, PreferringBackend, lexicon

SCHEMA = StructuredSchema({"risk": {"type": "enum", "choices": ["HIGH", "LOW"]}, "is_fraud": {"type": "boolean"}})
CONTEXT = "A text about nothing."
OPENING = "{\n"


def lane(engine, schema=SCHEMA, context=CONTEXT):
    """(events, lane_end) of the baseline alone."""
    events = list(engine.stream_baseline(context, schema))
    return events, next(event for event in events if event["kind"] == "lane_end")


def written_by(name, text):
    """What comes out where the model means to write `text` after the opening brace."""
    engine = Engine(PreferringBackend(lexicon(name)), "preferring")
    opening = engine.prepare(Request(CONTEXT, SCHEMA)).plan.prompt.layout.opening
    engine.backend.intend(("{\n" + text).removeprefix(opening), before="assistant\n" + opening)
    return lane(engine)


# --- what is written ---

ANSWERS = [
    '  "risk": "HIGH",\n  "is_fraud": true\n}',
    '  "risk": null,\n  "invented": [1, {"a": -1.5e3}],\n  "risk": "again"\n}',
    '  "risk": "👩\u200d👩\u200d👧 生气 שלום café",\n  "🇳🇴": "😀"\n}',
    '  "a}": "}",\n  "b": "\\"}\\\\"\n}',
    " }",
]


@pytest.mark.parametrize("name", LEXICONS)
@pytest.mark.parametrize("answer", ANSWERS)
def test_the_lane_streams_the_text_that_the_model_writes_up_to_its_closing_brace(name, answer):
    events, end = written_by(name, answer)
    tokens = [event for event in events if event["kind"] == "token"]
    opening = next(event for event in events if event["kind"] == "run")["opening"]
    assert end["how"] == "closed"
    assert end["text"] == "{\n" + answer == opening + "".join(event["text"] for event in tokens)
    assert [event["tokens"] for event in tokens] == list(range(1, end["tokens"] + 1))
    assert end["passes"] == end["tokens"]  # one for the prompt, and none after the last token
    json.loads(end["text"])


@pytest.mark.parametrize("name", LEXICONS)
def test_no_step_of_the_stream_shows_half_a_character(name):
    answer = '  "👩\u200d👩\u200d👧": "嬉しい 悲しい 😀😡 ﷽",\n  "is_fraud": true\n}'
    events, end = written_by(name, answer)
    texts = [event["text"] for event in events if event["kind"] == "token"]
    assert "\ufffd" not in "".join(texts) and end["text"] == "{\n" + answer
    assert "" in texts  # characters that are spread over tokens come with their last one
    for n in range(len(texts)):
        assert ("{\n" + answer).startswith("".join([OPENING if name != "smol" else "{", *texts[:n]]))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["qwen", "smol", "metaspace"])
def test_whatever_the_model_likes_what_it_writes_is_a_json_object_so_far(name, seed):
    _, end = lane(Engine(HashBackend(lexicon(name), seed=seed), "hash"))
    assert "\ufffd" not in end["text"]
    if end["how"] == "closed":
        assert isinstance(json.loads(end["text"]), dict)
    else:
        assert end["how"] == "limit"
        with pytest.raises(json.JSONDecodeError, match="line"):
            json.loads(end["text"])


# --- how it ends ---


@pytest.mark.parametrize("name", LEXICONS)
def test_a_lane_that_does_not_end_is_stopped_at_twice_the_canonical_tokens_plus_64(name):
    engine = Engine(PreferringBackend(lexicon(name)), "endless")
    plan = engine.prepare(Request(CONTEXT, SCHEMA)).plan
    opening = plan.prompt.layout.opening
    engine.backend.intend(("{\n" + '  "x": "' + "A" * 5000).removeprefix(opening), before="assistant\n" + opening)
    _, end = lane(engine)
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


def scripted(text, end=(), limit=1000):
    tokens = lexicon("qwen")
    ids = [*tokens.encode_after(OPENING, text), *end]
    decoder = Scripted(ids)
    grammar = Grammar(tokens.chat, len(tokens.chat) + 5, frozenset([tokens.chat.eos_token_id]))
    mask, ends = grammar.start(OPENING), frozenset([tokens.chat.eos_token_id])
    return list(write(decoder, mask, Vocabulary(tokens.chat), ends, limit)), decoder, ids


def test_an_end_of_turn_ends_the_lane_without_a_text():
    written, decoder, ids = scripted('  "a": 1', end=[lexicon("qwen").chat.eos_token_id])
    assert [w.how for w in written] == [None] * (len(ids) - 1) + ["end_of_turn"]
    assert (written[-1].token, written[-1].text) == (ids[-1], "")
    assert decoder.appended == ids[:-1]


def test_the_closing_brace_ends_the_lane_whatever_would_follow():
    written, decoder, ids = scripted('  "a": {"b": 1}\n}')
    assert written[-1].how == "closed" and all(w.how is None for w in written[:-1])
    assert "".join(w.text for w in written) == '  "a": {"b": 1}\n}'
    assert decoder.appended == ids[:-1]


def test_the_limit_is_marked_on_the_last_token_and_nothing_is_read_after_it():
    written, decoder, ids = scripted('  "a": "' + "x" * 50, limit=7)
    assert [w.how for w in written] == [None] * 6 + ["limit"]
    assert decoder.appended == ids[:6]


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
    mask = Grammar(tokens.chat, size, frozenset([tokens.chat.eos_token_id])).start("{")
    allowed = np.unpackbits(mask.bits().view(np.uint8), bitorder="little")[:size].astype(bool)
    assert not mask.closed
    starts = {text.lstrip()[:1] for text, ok in zip(tokens.texts, allowed, strict=False) if ok}
    assert starts <= {b"", b'"', b"}"} and {b'"', b"}"} <= starts
    assert not any(allowed[i] for i in tokens.chat.added_tokens_decoder)
    assert not allowed[len(tokens.chat) :].any()  # padded logits


# --- against a plain loop ---


def plain_loop(folder, ids, name, steps):
    """Greedy tokens under the same grammar, each from a whole forward without a cache."""
    tokens = lexicon(name)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    size = model.config.vocab_size
    guide = llguidance.hf.from_tokenizer(tokens.chat, n_vocab=size)
    matcher = LLMatcher(guide, LLMatcher.grammar_from_json_schema({"type": "object"}))
    matcher.consume_tokens(guide.tokenize_str("{"))
    bits, written = allocate_token_bitmask(1, size), []
    with torch.inference_mode():
        while len(written) < steps and not matcher.is_accepting():
            logits = model(input_ids=torch.tensor([[*ids, *written]])).logits[:, -1]
            fill_next_token_bitmask(matcher, bits)
            apply_token_bitmask_inplace(logits, bits)
            written.append(int(logits.argmax()))
            matcher.consume_token(written[-1])
    return written


@pytest.mark.parametrize("architecture, name", [("llama", "smol"), ("qwen2", "qwen"), ("phi", "smol")])
def test_the_lane_writes_what_a_plain_loop_without_a_cache_writes(tiny, checkpoint, architecture, name):
    engine = Engine(tiny(architecture, name), "tiny")
    expected = plain_loop(
        checkpoint(architecture, name), engine.prepare(Request(CONTEXT, SCHEMA)).whole, name, steps=20
    )
    for cache in ("miss", "hit"):
        events, end = lane(engine)
        assert end["cache"] == cache
        assert [event["token"] for event in events if event["kind"] == "token"][:20] == expected
        assert len(expected) > 3


def test_the_lane_leaves_its_prefix_as_it_was(tiny):
    backend = tiny("llama")
    engine = Engine(backend, "tiny")
    prepared = engine.prepare(Request(CONTEXT, SCHEMA))
    prefix = backend.prefill(prepared.whole)
    before = [tensor.clone() for layer in prefix.layers for tensor in layer]
    mask = engine.grammar.start(prepared.plan.prompt.layout.opening)
    written = list(write(backend.decoder(prefix), mask, engine.vocabulary, backend.identity.end_ids, 40))
    assert len(written) > 3
    assert all(map(torch.equal, [tensor for layer in prefix.layers for tensor in layer], before))


# --- stopping ---


def test_closing_the_stream_stops_the_engine_within_one_token():
    engine = Engine(PreferringBackend(lexicon("qwen"), pass_s=0.02), "slow")
    engine.backend.intend('  "x": "' + "A" * 5000, before="assistant\n{\n")
    stream = engine.stream_baseline(CONTEXT, SCHEMA)
    next(event for event in stream if event["kind"] == "token")
    passes = engine.backend.passes
    stream.close()
    engine.run_parallel(CONTEXT, SCHEMA, cache=False)  # waits for its turn, then takes two passes
    assert engine.backend.passes - passes <= 2 + 1
