"""MLX: what is its own. What it shares with torch is in test_families, by the same tests."""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from transformers import Cohere2Config, Gemma3TextConfig, LlamaConfig

mx = pytest.importorskip("mlx.core", reason="mlx is not installed")
pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")

import mlx.nn as nn  # noqa: E402

from core import conformance, mlx_probe, mlx_tree, mlx_window, probe  # noqa: E402
from core.backend import ModelUnsupported, TreeBatch  # noqa: E402
from core.engine import Engine  # noqa: E402
from core.mlx_config import as_mlx_reads_it  # noqa: E402
from core.mlx_probe import READERS  # noqa: E402
from core.mlx_tree import PerToken  # noqa: E402
from core.pass_memory import PASS_BYTES  # noqa: E402
from core.small_config import NotSmall  # noqa: E402
from tests import families  # noqa: E402
from tests.families import IDS, SHAPE, TEXT, TREE, Family, checkpoint, loaded, saved  # noqa: E402

EVERY = [np.arange(100)] * len(TREE.tokens)
NODES = range(len(TREE.tokens))
FULL, SLIDING = "full_attention", "sliding_attention"
#: Families whose windows mlx-lm does not keep.
UNKEPT = (
    "qwen2, upper layers slide", "phi 3 that slides", "mistral that slides", "starcoder 2 that slides", "gemma 2",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return cache(lambda name: checkpoint(tmp_path_factory.mktemp("mlx"), name))


@pytest.fixture(scope="module")
def llama(folder):
    return Family.of("llama", folder("llama"), "mlx")


def changed(folder, copy, **values):
    """A copy of a checkpoint with other values in its configuration."""
    shutil.copytree(folder, copy)
    config = json.loads((folder / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | values))
    return copy


# --- the same decisions ---


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gemma 3", "lfm2", "falcon-h1"])
def test_torch_and_mlx_decide_alike(folder, name):
    """`lfm2` and `falcon-h1` are hybrids. Scores are those at the forks, summed along a choice's line."""
    torch_engine, mlx_engine = (Engine(loaded(folder(name), framework), name) for framework in ("torch", "mlx"))
    assert mlx_engine.backend.identity.strategy == torch_engine.backend.identity.strategy
    for text in conformance.TEXTS:
        one, other = (
            engine.run_parallel(text, conformance.SMALL, complete=True) for engine in (torch_engine, mlx_engine)
        )
        assert one.values == other.values
        for a, b in zip(one.decisions, other.decisions, strict=True):
            assert a.scores == pytest.approx(b.scores, abs=1e-3)
            assert a.candidate_mass == pytest.approx(b.candidate_mass, rel=1e-3)


@pytest.mark.parametrize("name", ["llama", "gemma 3", "lfm2"])
def test_a_small_model_keeps_every_promise_in_mlx(folder, name):
    verdicts = dict(conformance.run(Engine(loaded(folder(name), "mlx"), name), conformance.CHECKS))
    assert {check: verdict.level for check, verdict in verdicts.items()} == dict.fromkeys(conformance.CHECKS, "PASS")
    assert "allowed 0.001 in float32" in verdicts["oracle"].measured


# --- what a load proves ---


def by_place(self, start, causal):
    """Positions as if a tree were a line."""
    return list(range(start, start + causal + len(self.tokens)))


def blind(self, causal):
    """As if everything behind a text saw everything before it, siblings too."""
    return np.tri(causal + len(self.tokens), dtype=bool)


def at_one_place(self, x, offset=0, **given):
    return self.rotary(x, offset=offset if not isinstance(offset, mx.array) else offset[0], **given)


@pytest.mark.parametrize(
    "owner, method, wrong",
    [(TreeBatch, "positions", by_place), (TreeBatch, "sight", blind), (PerToken, "__call__", at_one_place)],
)
def test_a_tree_that_is_read_wrongly_is_found_out_and_rows_are_read(folder, monkeypatch, caplog, owner, method, wrong):
    monkeypatch.setattr(owner, method, wrong)
    with caplog.at_level("INFO", logger="core.mlx_probe"):
        family = Family.of("llama", folder("llama"), "mlx")
    assert family.backend.identity.strategy == "rows"
    assert "reading llama by rows: tree within" in caplog.text and "; rows within" in caplog.text
    family.assert_close(family.read(family.backend.prefill(TEXT), [])[0], family.after(*TEXT))


def test_a_model_that_no_way_of_reading_is_right_for_is_refused(folder, monkeypatch):
    monkeypatch.setattr(TreeBatch, "positions", by_place)
    monkeypatch.delitem(READERS, "rows")
    with pytest.raises(
        ModelUnsupported, match=r"^llama models are not read right by mlx-lm \(tree within .*\); use "
    ) as e:
        loaded(folder("llama"), "mlx")
    assert "\n" not in str(e.value)


def test_a_model_that_cannot_be_made_small_is_tried_itself(folder, monkeypatch):
    def not_small(self, **changed):
        raise NotSmall("it is one of its kind")

    monkeypatch.setattr(mlx_probe.Kind, "small", not_small)
    assert loaded(folder("llama"), "mlx").identity.strategy == "tree"
    halves = loaded(folder("llama"), "mlx", dtype="bfloat16")
    assert halves.identity.strategy == "rows"  # bf16 cannot tell a tree that is a little wrong


def test_weights_that_are_not_read_as_the_model_reads_them_are_refused(folder, monkeypatch):
    monkeypatch.setattr(probe, "share_moved", lambda *_: 0.9)
    with pytest.raises(ModelUnsupported, match="llama model is not read as its own forward reads it"):
        loaded(folder("llama"), "mlx")


@pytest.mark.parametrize("name", ["falcon", "gpt-2", "granite hybrid"])
def test_what_mlx_lm_cannot_load_is_refused_in_a_line(folder, name):
    with pytest.raises(ModelUnsupported, match="^mlx-lm cannot load .*; use --backend torch$") as e:
        loaded(folder(name), "mlx")
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    "values, words",
    [
        ({"model_type": "none_such"}, "ValueError"),
        ({"rope_scaling": {"rope_type": "llama3"}, "rope_parameters": None}, "KeyError"),
        ({"layer_types": None, "rope_parameters": {"chunked_attention": {"rope_theta": 1e4}}}, "rotary settings by"),
        ({"vocab_size": 7}, "cannot load odd"),
        ({"max_position_embeddings": -5}, "do not state how many tokens they can read"),
        ({"sliding_window": -3, "model_type": "mistral"}, "sliding_window -3 is no window"),
    ],
)
def test_a_configuration_that_mlx_lm_stumbles_over_is_refused_in_a_line(folder, tmp_path, values, words):
    with pytest.raises(ModelUnsupported, match=words) as e:
        loaded(changed(folder("llama"), tmp_path / "odd", **values), "mlx")
    assert "\n" not in str(e.value)


# --- configurations that mlx-lm reads otherwise ---


@pytest.mark.parametrize(
    "config, read",
    [
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e5}}, {"rope_theta": 1e5}),
        ({"rope_parameters": {"rope_theta": 1e5}, "rope_theta": 7.0}, {"rope_theta": 1e5}),
        ({"rope_parameters": {"rope_theta": 1e5}, "rope_theta": None}, {"rope_theta": 1e5}),
        (
            {"rope_parameters": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e5}},
            {
                "rope_theta": 1e5,
                "rope_scaling": {"rope_type": "linear", "type": "linear", "factor": 8.0, "rope_theta": 1e5},
            },
        ),
        (
            {"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}},
            {"rope_theta": 1e6, "rope_local_base_freq": 1e4},
        ),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, {"partial_rotary_factor": 0.5}),
        ({"layer_types": [SLIDING, SLIDING, FULL] * 2}, {"sliding_window_pattern": 3}),
        ({"layer_types": [SLIDING, FULL, SLIDING]}, {"sliding_window_pattern": 2}),
        ({"layer_types": [FULL, SLIDING]}, {"sliding_window_pattern": None}),
        ({"layer_types": [FULL] * 2}, {"sliding_window_pattern": None}),
        ({"num_local_experts": 4}, {"num_local_experts": 4, "num_experts": 4}),
        ({"text_config": {"rope_parameters": {"rope_theta": 1e5}}}, {}),
    ],
)  # fmt: skip
def test_older_names_stand_beside_the_newer(config, read):
    found = as_mlx_reads_it(config, config, {"num_experts": "num_local_experts"})
    assert {name: found.get(name) for name in read} == read
    assert found.get("text_config", {"rope_theta": 1e5})["rope_theta"] == 1e5


@pytest.mark.parametrize(
    "parameters, words",
    [
        ({"full_attention": {}, "chunked_attention": {}}, "by full_attention, chunked_attention are unknown"),
        ({"sliding_attention": {"rope_theta": 1e4}}, "rotary settings by sliding_attention"),
        (
            {"full_attention": {}, "sliding_attention": {"rope_type": "linear"}},
            "scales no rotary base of sliding layers",
        ),
    ],
)
def test_rotary_settings_that_mlx_lm_cannot_be_told_are_refused(parameters, words):
    with pytest.raises(ModelUnsupported, match=words):
        as_mlx_reads_it({}, {"rope_parameters": parameters}, {})


def test_what_a_configuration_does_not_state_is_what_transformers_takes_for_it():
    full = {"tie_word_embeddings": True, "rope_parameters": {"rope_theta": 1e6}, "head_dim": None, "bias": True}
    found = as_mlx_reads_it({"rope_scaling": None, "bias": False}, full, {})
    assert found == {
        "tie_word_embeddings": True, "rope_theta": 1e6, "bias": False, "rope_scaling": None,
        "rope_parameters": {"rope_theta": 1e6},
    }  # fmt: skip


LONG = {
    "rope_type": "longrope", "rope_theta": 1e4, "factor": 64.0, "original_max_position_embeddings": 32,
    "short_factor": [1.0, 1.1, 1.3, 1.5], "long_factor": [1.0, 2.0, 4.0, 8.0],
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 1e4}


@pytest.mark.parametrize(
    "name, values",
    [
        ("llama", {"hidden_act": "gelu"}),
        ("qwen3", {"hidden_act": "relu"}),
        ("cohere", {"hidden_act": "gelu"}),
        ("llama", {"rope_parameters": LONG}),
        ("qwen2", {"rope_parameters": YARN | {"attention_factor": 1.7}}),
        ("gemma 3", {"final_logit_softcapping": 3.0}),
        ("gemma 3", {"use_bidirectional_attention": True}),
        ("falcon-h1", {"key_multiplier": 0.3}),
    ],
)
def test_a_model_that_mlx_lm_computes_otherwise_than_transformers_is_refused(folder, tmp_path, name, values):
    """mlx-lm leaves out what it does not know, without a word: log-probabilities are then off by 0.06 to 6."""
    with pytest.raises(
        ModelUnsupported, match=r"^mlx-lm computes this \w+ model otherwise than transformers .* apart\)"
    ):
        loaded(changed(folder(name), tmp_path / "other", **values), "mlx")


@pytest.mark.parametrize(
    "values",
    [
        {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}},
        {"rope_parameters": {"rope_theta": 300.0}, "rope_theta": 5e5},
        {"rope_parameters": {"type": "linear", "factor": 4.0, "rope_theta": 1e4}},
        {"rope_parameters": None, "rope_theta": 300.0, "rope_scaling": {"type": "linear", "factor": 4.0}},
        {"rope_parameters": YARN},
        {"rms_norm_eps": 0.5},
    ],
)
def test_rotary_settings_in_any_form_are_those_of_transformers(folder, tmp_path, values):
    """mlx-lm takes a base of 10,000 where it finds none: transformers 5 writes it where mlx-lm does not look."""
    other = Family.of("llama", changed(folder("llama"), tmp_path / "other", **values), "mlx")
    other.assert_close(other.read(other.backend.prefill(TEXT), [])[0], other.after(*TEXT))
    assert np.abs(Family.of("llama", folder("llama")).truth(TEXT) - other.truth(TEXT)).max() > 0.02


def test_what_cannot_be_compared_is_loaded_and_the_log_says_so(folder, monkeypatch, caplog):
    def not_small(config):
        raise NotSmall("it is one of its kind")

    monkeypatch.setattr("core.torch_small.small_config", not_small)
    with caplog.at_level("INFO", logger="core.mlx_reference"):
        loaded(folder("llama"), "mlx")
    assert "llama in mlx-lm is not compared with transformers: it is one of its kind" in caplog.text


@pytest.mark.parametrize(
    "config, slides",
    [
        (Gemma3TextConfig(**SHAPE | {"num_hidden_layers": 12, "head_dim": 8, "sliding_window": 6}), 6),
        (Cohere2Config(**SHAPE | {"num_hidden_layers": 8, "sliding_window": 6}), 4),
    ],
    ids=["gemma 3", "cohere 2"],
)
def test_layers_are_read_in_the_order_in_which_real_models_have_them(tmp_path, config, slides):
    """The small models that a proof is made with must have a whole pattern too."""
    config.update(IDS)
    assert config.layer_types == ([SLIDING] * (slides - 1) + [FULL]) * (config.num_hidden_layers // slides)
    real = Family.of("gemma 3", saved(tmp_path, config), "mlx")
    real.close = 5e-3  # 12 layers
    assert (real.backend.identity.strategy, real.backend.identity.window) == ("tree", 2048)
    real.assert_close(real.read(real.backend.prefill(TEXT), [])[0], real.after(*TEXT))


@pytest.mark.parametrize("name", UNKEPT)
def test_a_window_that_mlx_lm_does_not_keep_is_the_most_that_a_text_may_have(folder, name, caplog):
    with caplog.at_level("INFO", logger="core.engine_mlx"):
        family = Family.of(name, folder(name), "mlx")
    assert family.backend.identity.window == 6
    assert "mlx-lm keeps no sliding window of" in caplog.text and "texts may have 6 tokens at most" in caplog.text
    paths = [(7, 2), (7, 4, 5), (8,)]
    tree, ends = TreeBatch.of(paths)
    within, beyond = (family.read(family.backend.prefill(text), [], tree)[0] for text in (TEXT[:3], TEXT))
    for path, end in zip(paths, ends, strict=True):
        assert np.abs(within[end] - family.truth([*TEXT[:3], *path])[-1]).max() < 3e-3
    assert np.abs(beyond[ends[0]] - family.truth([*TEXT, *paths[0]])[-1]).max() > 0.1


def test_a_window_of_which_no_small_model_tells_is_taken_for_unkept(folder, monkeypatch):
    def not_small(self, **changed):
        raise NotSmall("it is one of its kind")

    monkeypatch.setattr(mlx_window.Kind, "small", not_small)
    assert loaded(folder("gemma 3"), "mlx").identity.window == 6


def test_windows_that_are_kept_or_not_used_leave_the_window_as_it_is(folder, tmp_path):
    unused = changed(folder("qwen2"), tmp_path / "unused", use_sliding_window=False, sliding_window=6)
    for each in (folder("gemma 3"), folder("llama"), unused):
        assert loaded(each, "mlx").identity.window == 2048


def test_layers_that_slide_in_another_order_than_stated_are_refused(folder, tmp_path):
    turned = changed(folder("gemma 3"), tmp_path / "turned", layer_types=["full_attention", "sliding_attention"])
    with pytest.raises(
        ModelUnsupported, match="other layers of this gemma3_text model slide than its config.json says"
    ):
        loaded(turned, "mlx")


# --- quantised weights ---


@pytest.fixture(scope="module")
def quantised(folder, tmp_path_factory):
    return cache(
        lambda name: families.quantised(folder(name), tmp_path_factory.mktemp("quantised") / "model", group_size=32)
    )


@pytest.mark.parametrize("name", ["llama", "qwen2", "lfm2"])
def test_four_bit_weights_stay_as_they_are_and_are_read_as_their_own_forward_reads_them(quantised, name):
    backend = loaded(quantised(name), "mlx")
    assert backend.identity.dtype == "float32, 4-bit weights"
    packed = [module for module in backend.model.modules() if isinstance(module, nn.QuantizedLinear)]
    assert packed and all(module.weight.dtype == mx.uint32 for module in packed)
    for strategy in {backend.identity.strategy, "rows"}:
        reader = READERS[strategy](backend.model)
        hidden, _ = reader.read(reader.prefill(TEXT, None), [], TREE, NODES, keep=False)
        rows = backend.head.log_probabilities(hidden, EVERY)
        for node, row in zip(NODES, rows, strict=True):
            path = [TREE.tokens[step] for step in TREE.path(node)]
            logits = np.array(backend.model(mx.array([[*TEXT, *path]]))[0, -1], dtype=np.float64)
            assert row == pytest.approx((logits - np.logaddexp.reduce(logits))[:100], abs=1e-4)


@pytest.mark.parametrize("bits", [0, 7, 8])
def test_the_number_of_bits_is_that_of_the_weights_and_not_what_is_stated(quantised, tmp_path, bits):
    stated = {"bits": bits, "group_size": 32}
    other = changed(quantised("llama"), tmp_path / "other", quantization=stated, quantization_config=stated)
    assert loaded(other, "mlx").identity.dtype == "float32, 4-bit weights"


def test_they_keep_every_promise_to_the_precision_that_they_compute_in(quantised):
    verdicts = dict(conformance.run(Engine(loaded(quantised("llama"), "mlx"), "4-bit"), conformance.CHECKS))
    assert {check: verdict.level for check, verdict in verdicts.items()} == dict.fromkeys(conformance.CHECKS, "PASS")
    assert "allowed 0.001 in float32, 4-bit weights" in verdicts["oracle"].measured


def test_torch_says_that_it_does_not_read_them(quantised):
    with pytest.raises(ModelUnsupported, match="^model is quantised for MLX; use --backend mlx or the original model$"):
        loaded(quantised("llama"))


def test_another_number_of_bits_is_another_model(folder, quantised):
    assert loaded(quantised("llama"), "mlx").identity.fingerprint != loaded(folder("llama"), "mlx").identity.fingerprint


# --- what a load sets for the process ---


def test_products_of_float32_keep_their_precision_and_freed_memory_is_given_back(folder):
    loaded(folder("llama"), "mlx")
    assert os.environ["MLX_ENABLE_TF32"] == "0"
    assert mx.set_cache_limit(PASS_BYTES) == PASS_BYTES


# --- one pass ---


def test_a_long_text_is_read_in_chunks(llama, monkeypatch):
    monkeypatch.setattr(mlx_tree, "CHUNK", 4)
    before = llama.backend.passes
    prefix = llama.backend.prefill(TEXT)
    assert llama.backend.passes - before == 4
    llama.assert_close(llama.read(prefix, [])[0], llama.after(*TEXT))


def test_a_pass_is_evaluated_once_and_only_the_rows_asked_for_leave_it(llama, monkeypatch):
    evaluated, evaluate = [], mx.eval
    prefix, reader = llama.backend.prefill(TEXT), llama.backend.reader
    monkeypatch.setattr(mx, "eval", lambda *args: evaluated.append(1) or evaluate(*args))
    hidden, _ = reader.read(prefix, [], TREE, [3, 7], keep=False)
    assert hidden.shape == (2, SHAPE["hidden_size"]) and len(evaluated) == 1
    for number, (ids, keep) in enumerate([(TEXT, True), ([], True), (TEXT, False)], 2):
        reader.read(prefix, ids, TREE, [3], keep)
        assert len(evaluated) == number


@pytest.mark.parametrize("keep", [False, True])
def test_a_pass_copies_the_prefix_neither_for_branches_nor_for_all_layers_at_once(tmp_path, keep):
    deep = LlamaConfig(**SHAPE | {"num_hidden_layers": 8}, **IDS)
    backend = loaded(saved(tmp_path, deep), "mlx")
    prefix = backend.prefill(list(range(100, 400)) * 6)
    tree, ends = TreeBatch.of([(1,), (2,), (3, 4)])
    prefix.seal()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    backend.reader.read(prefix, [], tree, ends, keep=keep)
    assert 0 < mx.get_peak_memory() - before < prefix.nbytes / 3


@pytest.mark.parametrize("piece", [1, 7 * 4 * SHAPE["hidden_size"], 1 << 30])
@pytest.mark.parametrize("name", ["llama", "gemma 3", "cohere"])  # a head of its own, a tied one, one with a scale
def test_the_head_is_the_same_in_pieces(folder, monkeypatch, name, piece):
    family = Family.of(name, folder(name), "mlx")
    monkeypatch.setattr("core.mlx_head.HEAD_PIECE", piece)
    family.assert_close(family.read(family.backend.prefill(TEXT), [])[0], family.after(*TEXT))


def test_forks_are_read_in_float32_where_the_weights_have_16_bits(folder):
    backend = loaded(folder("llama"), "mlx", dtype="bfloat16")
    hidden, _ = backend.reader.read(backend.prefill(TEXT), [], TREE, [0], keep=False)
    weights = np.array(backend.model.lm_head.weight.astype(mx.float32), dtype=np.float64)
    logits = weights @ np.array(hidden[0].astype(mx.float32), dtype=np.float64)
    [row] = backend.head.log_probabilities(hidden, [np.arange(len(weights))])
    assert row == pytest.approx(logits - np.logaddexp.reduce(logits), abs=1e-5)


@pytest.mark.parametrize("name", ["llama", "gemma 3"])  # a head of its own, a tied one
def test_forks_are_read_in_float32_where_the_head_has_4_bits_and_scales_of_16(quantised, name):
    backend = loaded(quantised(name), "mlx", dtype="bfloat16")
    hidden, _ = backend.reader.read(backend.prefill(TEXT), [], TREE, [0], keep=False)
    weights = backend.model.model.embed_tokens if name == "gemma 3" else backend.model.lm_head
    assert weights.scales.dtype == mx.bfloat16
    scales, biases = (array.astype(mx.float32) for array in (weights.scales, weights.biases))
    rows = np.array(mx.dequantize(weights.weight, scales, biases, group_size=32, bits=4), dtype=np.float64)
    logits = rows @ np.array(hidden[0].astype(mx.float32), dtype=np.float64)
    [row] = backend.head.log_probabilities(hidden, [np.arange(len(rows))])
    assert row == pytest.approx(logits - np.logaddexp.reduce(logits), abs=1e-5)


# --- the other lane ---


def test_a_decoders_cache_grows_past_its_room_and_the_prefix_is_never_written_to(llama, monkeypatch):
    monkeypatch.setattr(mlx_tree, "DECODER_ROOM", 2)
    prefix = llama.backend.prefill(TEXT)
    seal = prefix.seal()
    first, second = (llama.backend.decoder(prefix) for _ in range(2))
    written = list(TEXT)
    for _ in range(7):
        token = first.choose()
        assert token == llama.truth(written)[-1].argmax()
        first.append([token])
        second.append([TEXT[0]])
        written.append(token)
    assert prefix.seal() == seal


def test_a_mask_leaves_only_its_tokens(llama):
    decoder = llama.backend.decoder(llama.backend.prefill(TEXT))
    size, best = llama.backend.identity.vocab_size, decoder.choose()
    bits = np.zeros(-(-size // 32) * 32, dtype=np.uint8)
    bits[[5, best]] = 1
    packed = np.packbits(bits, bitorder="little").view(np.uint32)
    assert decoder.choose(packed) == best
    bits[best] = 0
    assert decoder.choose(np.packbits(bits, bitorder="little").view(np.uint32)) == 5


@pytest.mark.parametrize("mode", ["free", "json", "schema"])
def test_the_baseline_writes_the_same_text_in_both_frameworks(folder, mode):
    ends = []
    for framework in ("torch", "mlx"):
        engine = Engine(loaded(folder("qwen2"), framework), "qwen2")
        events = engine.race(conformance.TEXTS[0], conformance.SMALL, order=("ar",), mode=mode).wait()
        ends.append(next(event for event in events if event.kind == "lane_end"))
    one, other = ends
    assert (one.how, one.tokens, one.passes, one.text) == (other.how, other.tokens, other.passes, other.text)


# --- threads ---


@pytest.mark.parametrize("name", ["llama", "lfm2"])
def test_nothing_that_is_still_to_be_computed_belongs_to_the_thread_that_imported_or_loaded(folder, name):
    """An array that another thread began to compute has no stream on this one."""
    loading = ThreadPoolExecutor(1).submit(lambda: Engine(loaded(folder(name), "mlx"), name)).result()
    assert loading.run_parallel(conformance.TEXTS[0], conformance.SMALL).values
    [*_, end] = loading.race(conformance.TEXTS[0], conformance.SMALL).wait()
    assert end.state == "done"


def test_a_run_is_stopped_between_two_tokens_and_its_clock_runs_forward(folder):
    engine = Engine.load(str(folder("llama")), backend="mlx", dtype="float32", offline=True)
    race, events = engine.race(conformance.TEXTS[0], conformance.SMALL, mode="free", order=("ar", "pcd")), []
    while sum(event.kind == "token" for event in events) < 3 and not race.finished:
        events += race.drain()
    race.cancel()
    events += race.wait()
    tokens = [event for event in events if event.kind == "token"]
    assert events[-1].state == "stopped" and len(tokens) < 160  # what the other tests see of an unstopped one
    assert [event.ms for event in tokens] == sorted({event.ms for event in tokens})


def test_a_failure_inside_ends_the_run_with_its_reason_and_the_next_one_is_answered(folder):
    engine = Engine.load(str(folder("llama")), backend="mlx", dtype="float32", offline=True)
    read = engine.backend.read

    def broken(*args, **options):
        raise RuntimeError("[metal::malloc] Unable to allocate 9000000000 bytes.")

    engine.backend.read = broken
    [*_, end] = engine.race(conformance.TEXTS[0], conformance.SMALL).wait()
    assert (end.kind, end.state) == ("end", "failed") and end.message.startswith("out of memory: ")
    engine.backend.read = read
    [*_, end] = engine.race(conformance.TEXTS[0], conformance.SMALL).wait()
    assert end.state == "done"
