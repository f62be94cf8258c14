"""TorchBackend on tiny random models: the tree pass against plain forwards of the same weights."""

import copy
import math

import numpy as np
import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM

from core import torch_attention, torch_head
from core.backend import BackendMissing, ModelUnsupported, TreeBatch
from core.engine import Engine, Request
from core.engine_torch import TorchBackend
from core.schema import StructuredSchema
from tests import oracle
from tests.fakes import ARCHITECTURES, TRAPS, lexicon

SCHEMA = StructuredSchema(
    {
        "team": {"type": "enum", "choices": ["BILLING", "BILLING_DISPUTE", "BILL", "OTHER"]},
        "urgent": {"type": "boolean", "description": "Is it?"},
        "answer": {"type": "enum", "choices": ["Yes", "Yes.", "No"]},
        "blood": {"type": "enum", "choices": TRAPS["blood_types"]},
        "n": {"type": "enum", "choices": [1, 10, "1", True, None]},
        "code": {"type": "enum", "choices": TRAPS["cwe"]},
    }
)
#: The paths of some fields, as trees have them.
FIELDS = [[[60, 61, 62], [60, 61, 70], [60, 80]], [[5], [6, 7]], [[300, 9, 9, 9, 9], [300, 9, 9, 5, 6], [300, 4]]]
CONTEXT = "A text about nothing.\nIt has two lines, café and 生气."
CLOSE = 1e-4  # float32: the same sums in another order


def plain_forward(folder):
    """(ids, n) -> log-probabilities, by the library's own forward without a cache."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()

    @torch.inference_mode()
    def forward(ids, n):
        return model(input_ids=torch.tensor([ids])).logits[0, -n:].double().log_softmax(-1).numpy()

    return forward


def assert_equal_oracle(results, prepared, name, forward):
    prompt, tokens = prepared.plan.prompt, lexicon(name)
    for i, field in enumerate(prepared.request.schema):
        scores = oracle.field_scores(field, prompt, prepared.whole, tokens.encode, tokens.texts, forward)
        for decision in (result.decisions[i] for result in results):
            assert decision.scores == pytest.approx(scores, abs=CLOSE)
            assert decision.probabilities == pytest.approx(oracle.probabilities(scores), abs=CLOSE)
            assert scores[decision.winner] == pytest.approx(max(scores), abs=2 * CLOSE)


def prompt_ids(backend, schema=SCHEMA):
    return Engine(backend, "tiny").prepare(Request(CONTEXT, schema)).whole


def bits(prefix):
    return [tensor.clone() for layer in prefix.layers for tensor in layer] + [prefix.hidden.clone()]


def same_bits(prefix, before):
    return all(map(torch.equal, [*(t for layer in prefix.layers for t in layer), prefix.hidden], before))


class Passes:
    """Counts the calls of a model's body by a hook of the test's own."""

    def __init__(self, backend):
        self.count = 0
        self._hook = backend.model.get_decoder().register_forward_pre_hook(lambda *_: self._add())

    def _add(self):
        self.count += 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._hook.remove()


# --- the same number by two roads ---


# A Qwen2 goes with Qwen's tokenizer: transformers gives it that pre-tokenizer whatever tokenizer.json says.
@pytest.mark.parametrize(
    "architecture, name",
    [("llama", "qwen"), ("llama", "smol"), ("llama", "metaspace"), ("qwen2", "qwen"), ("phi", "smol")],
)
def test_the_tree_pass_equals_plain_forwards_cold_and_warm(tiny, checkpoint, architecture, name):
    engine, forward = Engine(tiny(architecture, name), "tiny"), plain_forward(checkpoint(architecture, name))
    cold = engine.run_parallel(CONTEXT, SCHEMA)
    engine.run_parallel("Another text.", SCHEMA)
    warm = engine.run_parallel(CONTEXT, SCHEMA)
    assert (cold.cache, warm.cache) == ("miss", "hit")
    assert_equal_oracle((cold, warm), engine.prepare(Request(CONTEXT, SCHEMA)), name, forward)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_fields_numbers_do_not_depend_on_what_rides_in_the_same_pass(tiny, architecture):
    backend = tiny(architecture)
    prefix, every = backend.prefill(prompt_ids(backend)), np.arange(backend.identity.vocab_size)
    tree, ends = TreeBatch.of(path for field in FIELDS for path in field)
    together, _ = backend.read(prefix, [], tree, ends, [every] * len(ends))
    for field in FIELDS:
        alone, ends = TreeBatch.of(field)
        apart, _ = backend.read(prefix, [], alone, ends, [every] * len(ends))
        for row in apart:
            assert row == pytest.approx(together.pop(0), abs=CLOSE)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_running_twice_gives_the_same_bits(tiny, architecture):
    engine = Engine(tiny(architecture), "tiny")
    for cache in (False, True):
        engine.run_parallel(CONTEXT, SCHEMA, cache=cache)
        first, second = (engine.run_parallel(CONTEXT, SCHEMA, cache=cache).decisions for _ in range(2))
        assert first == second


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_prefix_made_in_two_pieces_equals_one_made_at_once(tiny, architecture):
    backend = tiny(architecture)
    ids = prompt_ids(backend)
    whole = backend.prefill(ids)
    for cut in (1, len(ids) // 2, len(ids) - 1):
        pieced = backend.prefill(ids[cut:], backend.prefill(ids[:cut]))
        assert pieced.length == whole.length == len(ids)
        for one, other in zip(bits(pieced), bits(whole), strict=True):
            assert torch.allclose(one, other, atol=CLOSE)


# --- prefixes never change ---


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_prefix_is_bit_identical_after_all_that_is_done_on_top_of_it(tiny, architecture):
    backend = tiny(architecture)
    prefix = backend.prefill(prompt_ids(backend))
    before, length = bits(prefix), prefix.length
    tree, ends = TreeBatch.of(path for field in FIELDS for path in field)
    backend.read(prefix, [5, 6, 7], tree, ends, [np.arange(9)] * len(ends))
    assert same_bits(prefix, before)
    backend.prefill([5, 6, 7], prefix)
    assert same_bits(prefix, before)
    decoder = backend.decoder(prefix)
    for _ in range(5):
        decoder.append([decoder.choose()])
    decoder.append([5, 6, 7])
    assert same_bits(prefix, before) and prefix.length == length


def test_a_head_cut_from_a_prefix_has_memory_of_its_own(tiny):
    backend = tiny("llama")
    ids = prompt_ids(backend)
    prefix = backend.prefill(ids)
    head, alone = prefix.head(100), backend.prefill(ids[:100])
    assert (head.length, head.nbytes) == (100, alone.nbytes) and head.nbytes < prefix.nbytes
    for cut, whole, made in zip(head.layers, prefix.layers, alone.layers, strict=True):
        for one, of, other in zip(cut, whole, made, strict=True):
            assert one.untyped_storage().data_ptr() != of.untyped_storage().data_ptr()
            assert one.untyped_storage().nbytes() == one.nbytes
            assert torch.allclose(one, other, atol=CLOSE)


# --- one pass, no copy ---


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_cold_request_is_two_passes_and_a_warm_one_is_one(tiny, architecture):
    engine = Engine(tiny(architecture), "tiny")
    for expected in (2, 1, 1):
        with Passes(engine.backend) as hook:
            result = engine.run_parallel(CONTEXT, SCHEMA)
        assert hook.count == result.passes == expected


class Shapes(TorchDispatchMode):
    """The shape of every tensor that any operation makes, and of those that it fills with others' values."""

    def __init__(self):
        super().__init__()
        self.seen, self.copied = set(), set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for value in made if isinstance(made, tuple | list) else (made,):
            if isinstance(value, torch.Tensor):
                self.seen.add(tuple(value.shape))
                if func.overloadpacket in (torch.ops.aten.cat, torch.ops.aten.clone, torch.ops.aten.new_empty):
                    self.copied.add(tuple(value.shape))
        return made


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_tensor_of_a_read_has_a_row_per_field_or_keys_per_query_head(tiny, architecture):
    backend = tiny(architecture)
    tree, ends = TreeBatch.of(path for field in FIELDS for path in field)
    prefix = backend.prefill(prompt_ids(backend))
    with Shapes() as shapes:
        backend.read(prefix, [], tree, ends, [np.arange(9)] * len(ends))
    sight, heads = prefix.length + len(tree.tokens), backend.model.config.num_key_value_heads
    keys = {shape for shape in shapes.seen if len(shape) == 4 and shape[2] == sight}
    assert keys == {(1, heads, sight, 8)}
    assert {shape[0] for shape in shapes.seen if len(shape) == 4} == {1}
    largest = 4 * len(tree.tokens) * sight  # the mask, for the query heads of one key head
    assert max(map(math.prod, shapes.seen)) <= max(largest, backend.identity.vocab_size * 32)


# --- float32 at the forks ---


def log_probabilities(backend, hidden, wanted):
    with torch.inference_mode():
        return backend.head.log_probabilities(hidden, wanted)


def exact(backend, hidden):
    head = backend.model.get_output_embeddings()
    logits = hidden.double() @ head.weight.double().T
    return (logits + head.bias.double() if head.bias is not None else logits).log_softmax(-1).detach().numpy()


@pytest.mark.parametrize("architecture, dtype", [("llama", "float32"), ("llama", "bfloat16"), ("phi", "float32")])
def test_a_head_read_in_pieces_equals_a_projection_in_double_precision(tiny, monkeypatch, architecture, dtype):
    backend = tiny(architecture, dtype=dtype)
    size = backend.identity.vocab_size
    hidden = torch.randn(5, 32, generator=torch.Generator().manual_seed(1)).to(backend.model.dtype)
    ids = [
        np.array([0, size - 1, 7, 99, 100, 101]),
        np.array([size - 1]),
        np.arange(size),
        np.array([6, 6]),
        np.array([1]),
    ]
    for piece in (1, 7, 100, size - 1, size, size + 1, 100_000):
        monkeypatch.setitem(torch_head.HEAD_PIECE, "cpu", 4 * 32 * piece)
        read = log_probabilities(backend, hidden, ids)
        assert [row.dtype for row in read] == [np.float32] * 5
        for row, expected, wanted in zip(read, exact(backend, hidden), ids, strict=True):
            assert row == pytest.approx(expected[wanted], abs=2e-5)


def test_a_near_tie_that_bf16_logits_cannot_see_is_told_apart(tiny):
    backend = tiny("llama", dtype="bfloat16")
    model = copy.deepcopy(backend.model)
    hidden = torch.ones(1, 32, dtype=torch.bfloat16)
    with torch.no_grad():
        model.get_output_embeddings().weight[10:13] = 0.5
        model.get_output_embeddings().weight[11, 0] = 0.515625  # a logit of 16.015625 instead of 16
        model.get_output_embeddings().weight[12, 0] = 0.484375
    near = TorchBackend(model, backend.tokenizer)
    own = model.get_output_embeddings()(hidden)[0]
    assert own[10] == own[11] == own[12]  # bf16 has steps of 1/8 here
    a, b, c = log_probabilities(near, hidden, [np.array([10, 11, 12])])[0]
    assert b - a == pytest.approx(0.015625, abs=1e-5) and a - c == pytest.approx(0.015625, abs=1e-5)


def test_a_bf16_model_decides_every_field(tiny):
    result = Engine(tiny("qwen2", dtype="bfloat16"), "tiny").run_parallel(CONTEXT, SCHEMA)
    assert result.dtype == "bfloat16"
    for decision in result.decisions:
        assert math.fsum(decision.probabilities) == pytest.approx(1.0)
        assert all(map(math.isfinite, decision.scores))


# --- the decoder ---


def test_a_decoder_that_outgrows_its_room_writes_what_plain_forwards_write(tiny, checkpoint, monkeypatch):
    monkeypatch.setattr(torch_attention, "DECODER_ROOM", 4)
    backend, forward = tiny("llama"), plain_forward(checkpoint("llama", "qwen"))
    ids = prompt_ids(backend)
    decoder, written = backend.decoder(backend.prefill(ids)), []
    for _ in range(15):
        written.append(decoder.choose())
        decoder.append(written[-1:])
    expected = list(ids)
    for _ in range(15):
        expected.append(int(forward(expected, 1)[0].argmax()))
    assert written == expected[len(ids) :]


def test_a_token_copies_nothing_of_the_cache_but_itself(tiny):
    backend = tiny("llama")
    decoder = backend.decoder(backend.prefill(prompt_ids(backend)))
    decoder.append([5])  # the first one makes room
    for _ in range(5):
        with Shapes() as shapes:
            decoder.append([decoder.choose()])
        assert not any(len(shape) == 4 and shape[2] > 1 for shape in shapes.copied)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tokens_appended_at_once_leave_the_state_of_tokens_appended_singly(tiny, architecture):
    backend = tiny(architecture)
    prefix = backend.prefill(prompt_ids(backend))
    at_once, singly = backend.decoder(prefix), backend.decoder(prefix)
    with Passes(backend) as hook:
        at_once.append([5, 60, 7, 80])
    assert hook.count == 1
    for token in (5, 60, 7, 80):
        singly.append([token])
    written = [[], []]
    for decoder, tokens in zip((at_once, singly), written, strict=True):
        for _ in range(6):
            tokens.append(decoder.choose())
            decoder.append(tokens[-1:])
    assert written[0] == written[1]


def test_two_decoders_on_one_prefix_do_not_see_each_other(tiny):
    backend = tiny("llama")
    prefix = backend.prefill(prompt_ids(backend))
    alone = backend.decoder(prefix)
    alone.append([5])
    expected = alone.choose()
    one, other = backend.decoder(prefix), backend.decoder(prefix)
    one.append([5])
    other.append([300])
    assert one.choose() == expected


def test_a_mask_leaves_the_likeliest_of_the_allowed_tokens(tiny, checkpoint):
    backend = tiny("llama")
    ids = prompt_ids(backend)
    decoder, likely = backend.decoder(backend.prefill(ids)), plain_forward(checkpoint("llama", "qwen"))(ids, 1)[0]
    last = backend.identity.vocab_size - 1
    for allowed in ([7], [0, 31, 32, 63, last], list(range(100, 200)), [last]):
        mask = np.zeros(last // 32 + 1, dtype=np.int32)
        for token in allowed:
            mask.view(np.uint32)[token // 32] |= np.uint32(1 << token % 32)
        assert decoder.choose(mask) == max(allowed, key=lambda token: likely[token])


def test_a_mask_that_is_shorter_than_the_logits_allows_nothing_beyond_it(tiny):
    backend = tiny("llama")
    prefix = backend.prefill(prompt_ids(backend))
    for token in range(100):  # until the likeliest token lies beyond the mask's first word
        decoder = backend.decoder(prefix)
        decoder.append([token])
        if decoder.choose() >= 32:
            break
    assert decoder.choose() >= 32 > decoder.choose(np.full(1, -1, dtype=np.int32))


# --- loading ---


def test_the_backend_says_what_runs(tiny):
    identity = tiny("llama", dtype="bfloat16").identity
    assert (identity.backend, identity.device.split()[0], identity.dtype) == ("torch", "cpu", "bfloat16")
    assert (identity.window, identity.vocab_size) == (8192, len(lexicon("qwen").chat) + 5)
    assert identity.end_ids == {lexicon("qwen").chat.eos_token_id}


def test_what_a_backend_proves_at_load_is_not_counted(checkpoint):
    assert TorchBackend.load(checkpoint("llama", "qwen"), dtype="float32", device="cpu").passes == 0


def test_an_unknown_dtype_is_refused_with_the_known_ones(checkpoint):
    with pytest.raises(BackendMissing, match="dtype 'int4' is unknown; use auto, bfloat16, float16, float32"):
        TorchBackend.load(checkpoint("llama", "qwen"), dtype="int4", device="cpu")


SMALL = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "initializer_range": 0.3,
    "max_position_embeddings": 2048, "bos_token_id": None, "pad_token_id": None,
}  # fmt: skip


@pytest.mark.parametrize(
    "config, options",
    [
        ("Qwen3Config", {"head_dim": 8}),
        ("GemmaConfig", {"head_dim": 8}),
        ("MixtralConfig", {"num_local_experts": 4}),
        ("MistralConfig", {"sliding_window": None}),
        ("Gemma2Config", {"head_dim": 8}),
        ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0}),
        ("Qwen3NextConfig", {"head_dim": 8, "layer_types": ["linear_attention", "full_attention"]}),
        ("Lfm2Config", {"layer_types": ["conv", "full_attention"]}),
        ("MistralConfig", {"sliding_window": 16}),
        ("Phi3Config", {"sliding_window": 16}),
        ("Starcoder2Config", {"sliding_window": 16}),
        ("GraniteConfig", {"logits_scaling": 8.0}),
        ("CohereConfig", {"logit_scale": 0.1}),
    ],
)
def test_a_model_is_read_right_or_refused(tmp_path, config, options):
    """Sliding windows, soft caps, scaled logits and recurrent layers run without an error and give other numbers."""
    tokens = lexicon("qwen")
    made = getattr(transformers, config)(
        **SMALL, vocab_size=len(tokens.chat) + 5, eos_token_id=tokens.chat.eos_token_id, **options
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(made, dtype=torch.float32).save_pretrained(tmp_path)
    tokens.chat.save_pretrained(tmp_path)
    try:
        engine = Engine(TorchBackend.load(tmp_path, dtype="float32", device="cpu"), "tiny")
    except ModelUnsupported as refused:
        assert made.model_type in str(refused) and "\n" not in str(refused)
        return
    result = engine.run_parallel(CONTEXT, SCHEMA)
    assert_equal_oracle((result,), engine.prepare(Request(CONTEXT, SCHEMA)), "qwen", plain_forward(tmp_path))
