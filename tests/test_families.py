"""Every family of models by the backend alone: what it reads and writes against plain forwards of the same weights.

The plain forwards are the library's, in a model loaded anew, eager and without a cache.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from core import pass_memory, torch_forest, torch_masks, torch_probe, torch_rows
from core.backend import ModelUnsupported, TreeBatch
from core.engine_torch import TorchBackend
from core.torch_attention import ATTENTION
from core.torch_body import fingerprint
from core.torch_small import NotSmall
from tests.fakes import lexicon

CLOSE = 1e-4  # float32: the same sums in another order
TOKENS = lexicon("qwen").chat

_SHAPE = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.3,
}  # fmt: skip
_NARROW = {"head_dim": 8}
_WINDOW = {"sliding_window": 6}  # shorter than any text here
_MIXED = {"layer_types": ["sliding_attention", "full_attention"]}
_DELTA = _NARROW | {
    "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 8, "linear_value_head_dim": 8,
}  # fmt: skip
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}

_MAMBA = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "initializer_range": 0.3}
_HYBRID = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 4}

FAMILIES: dict[str, tuple[str, dict, str]] = {
    "llama": ("LlamaConfig", _SHAPE, "tree"),
    "qwen2": ("Qwen2Config", _SHAPE, "tree"),
    "qwen2, upper layers slide": (
        "Qwen2Config",
        _SHAPE | _WINDOW | {"use_sliding_window": True, "max_window_layers": 1},
        "tree",
    ),
    "qwen3": ("Qwen3Config", _SHAPE | _NARROW, "tree"),
    "gemma": ("GemmaConfig", _SHAPE | _NARROW, "tree"),
    "gemma 2": (
        "Gemma2Config",
        _SHAPE | _NARROW | _WINDOW | _MIXED | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
        "tree",
    ),
    "gemma 3": ("Gemma3TextConfig", _SHAPE | _NARROW | _WINDOW | _MIXED, "tree"),
    "phi 3": ("Phi3Config", _SHAPE, "tree"),
    "phi 3 that slides": ("Phi3Config", _SHAPE | _WINDOW, "tree"),
    "mistral that slides": ("MistralConfig", _SHAPE | _WINDOW, "tree"),
    "starcoder 2 that slides": ("Starcoder2Config", _SHAPE | _WINDOW, "tree"),
    "granite": (
        "GraniteConfig",
        _SHAPE
        | {
            "logits_scaling": 8.0,
            "embedding_multiplier": 2.0,
            "attention_multiplier": 0.3,
            "residual_multiplier": 0.5,
        },
        "tree",
    ),
    "cohere": ("CohereConfig", _SHAPE | {"logit_scale": 0.3}, "tree"),
    "smollm 3": ("SmolLM3Config", _SHAPE | {"no_rope_layers": [1, 0]}, "tree"),
    "gpt-neox": ("GPTNeoXConfig", _SHAPE, "tree"),
    "falcon": ("FalconConfig", _SHAPE, "tree"),
    "gpt-2": ("GPT2Config", _SHAPE, "tree"),
    "opt": ("OPTConfig", _SHAPE | {"ffn_dim": 64, "word_embed_proj_dim": 32}, "tree"),
    "bloom": ("BloomConfig", _SHAPE | {"seq_length": 512}, "rows"),
    "mixtral": ("MixtralConfig", _SHAPE | {"num_local_experts": 4}, "tree"),
    "qwen3-moe": ("Qwen3MoeConfig", _SHAPE | _NARROW | _EXPERTS, "tree"),
    "gpt-oss": ("GptOssConfig", _SHAPE | _NARROW | _WINDOW | _MIXED | {"num_local_experts": 4}, "tree"),
    "gemma 4": (
        "Gemma4TextConfig",
        _SHAPE
        | _NARROW
        | _WINDOW
        | {
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "global_head_dim": 16,
            "num_kv_shared_layers": 2,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 900,
        },
        "tree",
    ),
    "lfm2": ("Lfm2Config", _SHAPE | {"layer_types": ["conv", "full_attention"]}, "rows"),
    "qwen3-next": ("Qwen3NextConfig", _SHAPE | _DELTA | _EXPERTS | {"shared_expert_intermediate_size": 16}, "rows"),
    "qwen3.5": ("Qwen3_5TextConfig", _SHAPE | _DELTA, "rows"),
    "mamba 2": (
        "Mamba2Config",
        _MAMBA | {"num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 4},
        "rows",
    ),
    "mamba": ("MambaConfig", _MAMBA, "rows"),
    "bamba": ("BambaConfig", _SHAPE | _HYBRID | {"attn_layer_indices": [1]}, "rows"),
    "falcon-h1": (
        "FalconH1Config",
        _SHAPE | _NARROW | _HYBRID | {"mamba_d_ssm": 64, "lm_head_multiplier": 0.3, "mamba_n_groups": 1},
        "rows",
    ),
    "granite hybrid": (
        "GraniteMoeHybridConfig",
        _SHAPE
        | _HYBRID
        | {
            "layer_types": ["mamba", "attention"],
            "num_local_experts": 0,
            "shared_intermediate_size": 32,
            "logits_scaling": 4.0,
        },
        "rows",
    ),
    "jamba": (
        "JambaConfig",
        _SHAPE
        | {
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "num_experts": 2,
            "mamba_d_state": 8,
            "use_mamba_kernels": False,
        },
        "rows",
    ),
}
STEPWISE = {"mamba", "jamba"}  # go on from a state by single tokens only

TEXT = [3, 1, 4, 1, 59, 26, 5, 35, 8, 97, 93, 23, 84, 62, 64]
OTHER = [27, 18, 28, 18, 284, 59, 45, 23, 53, 60, 2, 8]
PATHS = [(7, 2, 5, 3), (7, 2, 6), (7, 4), (8, 2, 5, 7, 9), (8, 2)]
TREE, _ = TreeBatch.of(PATHS)
NODES = range(len(TREE.tokens))


@dataclass(eq=False)
class Family:
    backend: TorchBackend
    plain: torch.nn.Module
    strategy: str
    steps: bool

    @torch.inference_mode()
    def truth(self, ids):
        """Log-probabilities (n, V) of what follows each of the ids, by the library alone."""
        return self.plain(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double().log_softmax(-1).numpy()

    @cache
    def after(self, *text):
        """What a read of every node after the text has to be."""
        rows = {}
        for path in PATHS:
            written = self.truth([*text, *path])[len(text) :]
            rows |= {path[: depth + 1]: row for depth, row in enumerate(written)}
        return [rows[tuple(TREE.tokens[step] for step in TREE.path(node))] for node in NODES]

    def read(self, prefix, ids, tree=TREE, **options):
        every = np.arange(self.backend.identity.vocab_size)
        nodes = range(len(tree.tokens))
        return self.backend.read(prefix, ids, tree, nodes, [every] * len(nodes), **options)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tiny models gain nothing from more, and on a busy machine two that wait for each other take 40 times as long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    @cache
    def made(name):
        kind, values, strategy = FAMILIES[name]
        folder = saved(tmp_path_factory.mktemp("family"), getattr(transformers, kind)(**values, **IDS))
        plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        return Family(loaded(folder), plain.eval(), strategy, name in STEPWISE)

    return made


def loaded(folder, dtype="float32"):
    return TorchBackend.load(folder, dtype=dtype, device="cpu")


IDS = {
    "vocab_size": len(TOKENS) + 5,
    "bos_token_id": None,
    "pad_token_id": None,
    "eos_token_id": TOKENS.eos_token_id,
}


def saved(folder, config):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 and "norm" not in name:  # biases, sinks
            torch.nn.init.normal_(parameter)
    model.save_pretrained(folder)
    TOKENS.model_max_length = 512
    TOKENS.save_pretrained(folder)
    return folder


@pytest.fixture(params=FAMILIES)
def each(request, family):
    return family(request.param)


def assert_close(read, expected):
    for row, truth in zip(read, expected, strict=True):
        assert row == pytest.approx(truth, abs=CLOSE)


def test_a_family_is_read_the_way_that_is_right_for_it(each):
    assert each.backend.identity.strategy == each.strategy
    attention = each.backend.model.config.get_text_config()._attn_implementation
    assert (attention == ATTENTION) == (each.strategy == "tree" and each.backend.model.config.model_type != "falcon")


def test_every_node_of_a_tree_is_what_a_plain_forward_of_its_path_gives(each):
    expected = each.after(*TEXT)
    assert_close(each.read(each.backend.prefill(TEXT), [])[0], expected)
    assert_close(each.read(each.backend.prefill(TEXT[:5]), TEXT[5:])[0], expected)
    assert_close(each.read(each.backend.prefill(TEXT[9:], each.backend.prefill(TEXT[:9])), [])[0], expected)
    assert_close(each.read(None, TEXT)[0], expected)


def test_what_is_kept_of_a_read_is_the_prefix_after_its_text(each):
    prefix = each.backend.prefill(TEXT[:4])
    read, kept = each.read(prefix, TEXT[4:], keep=True)
    assert (prefix.length, kept.length) == (4, len(TEXT))
    assert_close(read, each.after(*TEXT))
    assert_close(each.read(kept, [])[0], each.after(*TEXT))
    assert_close(each.read(kept, OTHER)[0], each.after(*TEXT, *OTHER))
    assert each.read(kept, [], keep=True)[1] is kept
    assert each.read(prefix, TEXT[4:])[1] is None


def test_one_context_leaves_nothing_behind_for_the_next(each):
    head = each.backend.prefill(TEXT)
    cold, _ = each.read(head, OTHER)
    each.read(head, OTHER[::-1], keep=True)
    each.backend.decoder(head).append(OTHER)
    again, _ = each.read(head, OTHER)
    assert all(map(np.array_equal, cold, again))


def test_a_prefix_is_the_same_after_all_that_is_done_on_top_of_it(each):
    prefix = each.backend.prefill(TEXT)
    seal, before = prefix.seal(), [tensor.clone() for tensor in tensors(prefix)]
    each.read(prefix, [])
    _, kept = each.read(prefix, OTHER, keep=True)
    each.backend.prefill(OTHER, prefix)
    decoder = each.backend.decoder(prefix)
    for _ in range(3):
        decoder.append([decoder.choose()])
    decoder.append(OTHER)
    assert prefix.seal() == seal != kept.seal()
    assert before and all(map(torch.equal, tensors(prefix), before))


def tensors(prefix):
    layers = prefix.layers if hasattr(prefix, "layers") else [vars(layer).values() for layer in prefix.cache.layers]
    values = [value for layer in layers for value in layer] + [prefix.hidden]
    flat = [part for value in values for part in (value.values() if isinstance(value, dict) else [value])]
    return [value for value in flat if isinstance(value, torch.Tensor)]


def test_a_damaged_prefix_does_not_keep_its_seal(each):
    prefix = each.backend.prefill(TEXT)
    seal = prefix.seal()
    with torch.inference_mode():
        next(tensor for tensor in tensors(prefix) if tensor.ndim > 2)[..., -1, -1].add_(1.0)
    assert prefix.seal() != seal


def test_a_decoder_writes_what_plain_forwards_write(each):
    written, decoder = list(TEXT), each.backend.decoder(each.backend.prefill(TEXT))
    for forced in ([], [], OTHER, [], []):
        token = decoder.choose()
        assert token == each.truth(written)[-1].argmax()
        decoder.append([token, *forced])
        written += [token, *forced]


def test_passes_are_those_of_the_body(each):
    counted = []
    hook = each.backend.model.get_decoder().register_forward_pre_hook(lambda *_: counted.append(1))
    before = each.backend.passes
    each.read(each.backend.prefill(TEXT), OTHER, keep=True)
    each.backend.decoder(each.backend.prefill(TEXT)).append(OTHER)
    hook.remove()
    expected = 3 + max(map(len, PATHS)) + len(OTHER) if each.steps else 5 if each.strategy == "rows" else 4
    assert each.backend.passes - before == len(counted) == expected


# --- several contexts in one pass ---


FOREST = [[list(range(base, base + 30)) + path for path in ([1, 2], [1, 3], [4])] for base in (50, 100, 150, 200)]


@pytest.mark.parametrize("name", ["llama", "gemma 3", "gemma 2", "gpt-oss", "lfm2"])
def test_trees_in_rows_of_their_own_are_read_as_in_one_row(family, monkeypatch, name):
    backend = family(name).backend
    prefix = backend.prefill(TEXT)
    tree, ends = TreeBatch.of(path for component in FOREST for path in component)
    read = {}
    for gain in (0.0, float("inf")):
        monkeypatch.setattr(torch_forest, "GAIN", gain)
        before = backend.passes
        read[gain], _ = backend.read(prefix, [], tree, ends, [np.arange(400)] * len(ends))
        assert backend.passes == before + 1
    for apart, packed in zip(read[0.0], read[float("inf")], strict=True):
        assert apart == pytest.approx(packed, abs=CLOSE)
    truth = family(name).truth([*TEXT, *FOREST[2][1]])[-1]
    assert read[0.0][7] == pytest.approx(truth[:400], abs=CLOSE)


def test_long_contexts_get_rows_of_their_own_and_the_fields_of_one_do_not():
    assert torch_forest.is_cheaper_apart(300, [82] * 8)
    assert not torch_forest.is_cheaper_apart(1000, [7] * 28)  # triage
    assert not torch_forest.is_cheaper_apart(300, [82])


# --- memory ---


def test_a_tree_that_has_no_room_is_read_in_several_passes(family, monkeypatch):
    lfm2 = family("lfm2")
    prefix, before = lfm2.backend.prefill(TEXT), lfm2.backend.passes
    monkeypatch.setattr(torch_rows, "PASS_BYTES", 1)
    assert_close(lfm2.read(prefix, [])[0], lfm2.after(*TEXT))
    assert lfm2.backend.passes - before == len(PATHS) - 1  # one of them is a part of another


@pytest.mark.parametrize("name", ["llama", "gemma 2", "lfm2"])
def test_room_is_what_a_pass_has_memory_for(family, monkeypatch, name):
    backend = family(name).backend
    rooms = [backend.room(length) for length in (0, 1_000, 10_000, 1_000_000)]
    assert rooms == sorted(rooms, reverse=True) and rooms[0] > rooms[2] > rooms[3] >= 1
    monkeypatch.setattr(pass_memory, "PASS_BYTES", 4 << 30)
    assert backend.room(0) == pytest.approx(2 * rooms[0], rel=0.1)  # masks are squares
    monkeypatch.setattr(pass_memory, "PASS_BYTES", 1)
    assert backend.room(10) == 1


def test_layers_that_see_all_keep_the_fast_kernel_where_others_slide():
    masks = torch_masks.Masks(
        {"full_attention": None, "sliding_attention": 6}, torch.float32, torch.device("cpu"), False
    )
    assert masks.causal(0, 6) == {"full_attention": None, "sliding_attention": None}
    longer = masks.causal(0, 7)
    assert longer["full_attention"] is None and longer["sliding_attention"].shape == (1, 1, 7, 7)
    seen = (longer["sliding_attention"][0, 0] == 0).sum(-1)
    assert seen.tolist() == [1, 2, 3, 4, 5, 6, 6]


def test_a_window_counts_positions_and_not_places():
    masks = torch_masks.Masks({"sliding_attention": 4}, torch.float32, torch.device("cpu"), False)
    tree, ends = TreeBatch.of([(1,), (2,), (3,), (4, 5)])
    seen = masks.trees(3, 0, [tree])[0, 0] == 0
    assert seen[ends[3]].tolist() == [False, True, True, False, False, False, True, True]


# --- what a load proves, and says ---


def test_the_log_says_how_a_model_is_read_and_why(tmp_path, caplog):
    with caplog.at_level("INFO", logger="core.torch_probe"):
        saved(tmp_path, transformers.Lfm2Config(**FAMILIES["lfm2"][1], **IDS))
        assert loaded(tmp_path).passes == 0
    assert "reading lfm2 by rows: " in caplog.text and "of plain forwards (2 random layers)" in caplog.text


def test_the_text_model_of_a_multimodal_one_is_read(tmp_path):
    narrow = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    config = transformers.Gemma3Config(
        text_config=FAMILIES["gemma 3"][1] | IDS | {"final_logit_softcapping": None},
        vision_config=narrow, mm_tokens_per_image=4, image_token_id=300, boi_token_id=301, eoi_token_id=302,
    )  # fmt: skip
    saved(tmp_path, config)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager").eval()
    both = Family(loaded(tmp_path), plain, "tree", False)
    assert both.backend.identity.strategy == "tree"
    assert_close(both.read(both.backend.prefill(TEXT), [])[0], both.after(*TEXT))


def test_a_model_that_no_way_of_reading_is_right_for_is_refused(tmp_path):
    """Its sdpa attention forgets the slopes, its eager attention does not, and it cannot be told which to take."""
    saved(tmp_path, transformers.FalconConfig(**_SHAPE, **IDS, alibi=True))
    with pytest.raises(
        ModelUnsupported, match=r"^falcon models are not read right \(.*\); use another model.*Qwen"
    ) as e:
        loaded(tmp_path)
    assert "\n" not in str(e.value)


def test_a_model_that_cannot_be_made_small_is_tried_itself(tmp_path, monkeypatch):
    def not_small(config):
        raise NotSmall("it is one of its kind")

    monkeypatch.setattr(torch_probe, "small_config", not_small)
    saved(tmp_path, transformers.LlamaConfig(**_SHAPE, **IDS))
    assert loaded(tmp_path).identity.strategy == "tree"
    assert loaded(tmp_path, "bfloat16").identity.strategy == "rows"  # bf16 cannot tell a tree that is a little wrong


def test_weights_that_are_not_read_as_the_model_reads_them_are_refused(tmp_path, monkeypatch):
    saved(tmp_path, transformers.LlamaConfig(**_SHAPE, **IDS))
    monkeypatch.setattr(torch_probe, "share_moved", lambda *_: 0.9)
    with pytest.raises(ModelUnsupported, match="llama model is not read as its own forward reads it"):
        loaded(tmp_path)


def test_a_fingerprint_is_of_configuration_and_weights(tmp_path):
    config = transformers.LlamaConfig(**_SHAPE, **IDS)
    one, two = (loaded(saved(tmp_path / name, config)) for name in ("one", "two"))
    assert one.identity.fingerprint == two.identity.fingerprint
    changed = {fingerprint(two.model)}
    two.model.config.rms_norm_eps = 1e-3
    changed.add(fingerprint(two.model))
    two.model.lm_head.weight.data[-1, -1] += 1
    changed.add(fingerprint(two.model))
    assert len(changed) == 3
    assert loaded(tmp_path / "one", "bfloat16").identity.fingerprint not in changed
