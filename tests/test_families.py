"""Every family of models by the backend alone: what it reads and writes against plain forwards of the same weights.

The plain forwards are the library's, in a model loaded anew, eager and without a cache.
"""

from functools import cache

import numpy as np
import pytest
import torch
import transformers

from core import pass_memory, probe, torch_forest, torch_masks, torch_probe
from core.backend import ModelUnsupported, TreeBatch
from core.small_config import NotSmall
from core.torch_attention import ATTENTION
from core.torch_body import fingerprint
from tests.families import CLOSE, FAMILIES, HAS_MLX, IDS, IN_MLX, PATHS, SHAPE, TEXT, Family, checkpoint, loaded, saved

OTHER = [27, 18, 28, 18, 284, 59, 45, 23, 53, 60, 2, 8]
STEPWISE = {"mamba", "jamba"}  # in torch they go on from a state by single tokens only


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
    def folder(name):
        return checkpoint(tmp_path_factory.mktemp("family"), name)

    @cache
    def made(name, framework="torch"):
        return Family.of(name, folder(name), framework)

    return made


WITHOUT_MLX = pytest.mark.skipif(not HAS_MLX, reason="mlx is not installed")
EACH = [
    *(pytest.param((name, "torch"), id=name) for name in FAMILIES),
    *(pytest.param((name, "mlx"), id=f"{name} in mlx", marks=WITHOUT_MLX) for name in IN_MLX),
]


@pytest.fixture(params=EACH)
def asked(request):
    """A family's name and a framework's."""
    return request.param


@pytest.fixture
def each(asked, family):
    return family(*asked)


def test_a_family_is_read_the_way_that_is_right_for_it(each, asked):
    assert each.backend.identity.strategy == FAMILIES[asked[0]][2]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_tree_is_read_with_the_attention_made_for_it(family, name):
    attention = family(name).backend.model.config.get_text_config()._attn_implementation
    assert (attention == ATTENTION) == (FAMILIES[name][2] == "tree" and name != "falcon")


def test_every_node_of_a_tree_is_what_a_plain_forward_of_its_path_gives(each):
    expected = each.after(*TEXT)
    each.assert_close(each.read(each.backend.prefill(TEXT), [])[0], expected)
    each.assert_close(each.read(each.backend.prefill(TEXT[:5]), TEXT[5:])[0], expected)
    each.assert_close(each.read(each.backend.prefill(TEXT[9:], each.backend.prefill(TEXT[:9])), [])[0], expected)
    each.assert_close(each.read(None, TEXT)[0], expected)


def test_what_is_kept_of_a_read_is_the_prefix_after_its_text(each):
    prefix = each.backend.prefill(TEXT[:4])
    read, kept = each.read(prefix, TEXT[4:], keep=True)
    assert (prefix.length, kept.length) == (4, len(TEXT))
    each.assert_close(read, each.after(*TEXT))
    each.assert_close(each.read(kept, [])[0], each.after(*TEXT))
    each.assert_close(each.read(kept, OTHER)[0], each.after(*TEXT, *OTHER))
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
    seal, before = prefix.seal(), [array.tolist() for array in arrays(prefix)]
    each.read(prefix, [])
    _, kept = each.read(prefix, OTHER, keep=True)
    each.backend.prefill(OTHER, prefix)
    decoder = each.backend.decoder(prefix)
    for _ in range(3):
        decoder.append([decoder.choose()])
    decoder.append(OTHER)
    assert prefix.seal() == seal != kept.seal()
    assert before and before == [array.tolist() for array in arrays(prefix)]


def arrays(*held):
    """The arrays that anything holds, of either framework."""
    for each in held:
        if hasattr(each, "ndim"):
            yield each
        elif isinstance(each, list | tuple):
            yield from arrays(*each)
        elif isinstance(each, dict):
            yield from arrays(*each.values())
        elif hasattr(each, "__dict__"):
            yield from arrays(*vars(each).values())


def test_a_damaged_prefix_does_not_keep_its_seal(each):
    prefix = each.backend.prefill(TEXT)
    seal = prefix.seal()
    with torch.inference_mode():
        array = next(array for array in arrays(prefix) if array.ndim > 2)
        array[..., -1, -1] = array[..., -1, -1] + 1.0
    assert prefix.seal() != seal


def test_a_decoder_writes_what_plain_forwards_write(each):
    written, decoder = list(TEXT), each.backend.decoder(each.backend.prefill(TEXT))
    for forced in ([], [], OTHER, [], []):
        token = decoder.choose()
        assert token == each.truth(written)[-1].argmax()
        decoder.append([token, *forced])
        written += [token, *forced]


def test_passes_are_those_of_the_body(each, asked, monkeypatch):
    name, framework = asked
    model, counted = each.backend.model, []
    body = type(model.get_decoder() if framework == "torch" else model.model)
    run = body.__call__
    monkeypatch.setattr(body, "__call__", lambda self, *args, **kwargs: counted.append(1) or run(self, *args, **kwargs))
    before = each.backend.passes
    each.read(each.backend.prefill(TEXT), OTHER, keep=True)
    each.backend.decoder(each.backend.prefill(TEXT)).append(OTHER)
    steps = framework == "torch" and name in STEPWISE
    expected = 3 + max(map(len, PATHS)) + len(OTHER) if steps else 5 if FAMILIES[name][2] == "rows" else 4
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
    monkeypatch.setattr(pass_memory, "PASS_BYTES", 1)
    lfm2.assert_close(lfm2.read(prefix, [])[0], lfm2.after(*TEXT))
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
        checkpoint(tmp_path, "lfm2")
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
    both = Family.of("gemma 3", tmp_path)
    assert both.backend.identity.strategy == "tree"
    both.assert_close(both.read(both.backend.prefill(TEXT), [])[0], both.after(*TEXT))


def test_a_model_that_no_way_of_reading_is_right_for_is_refused(tmp_path):
    """Its sdpa attention forgets the slopes, its eager attention does not, and it cannot be told which to take."""
    saved(tmp_path, transformers.FalconConfig(**SHAPE, **IDS, alibi=True))
    with pytest.raises(
        ModelUnsupported, match=r"^falcon models are not read right \(.*\); use another model.*Qwen"
    ) as e:
        loaded(tmp_path)
    assert "\n" not in str(e.value)


def test_a_model_that_cannot_be_made_small_is_tried_itself(tmp_path, monkeypatch):
    def not_small(config):
        raise NotSmall("it is one of its kind")

    monkeypatch.setattr(torch_probe, "small_config", not_small)
    saved(tmp_path, transformers.LlamaConfig(**SHAPE, **IDS))
    assert loaded(tmp_path).identity.strategy == "tree"
    assert (
        loaded(tmp_path, dtype="bfloat16").identity.strategy == "rows"
    )  # bf16 cannot tell a tree that is a little wrong


def test_weights_that_are_not_read_as_the_model_reads_them_are_refused(tmp_path, monkeypatch):
    saved(tmp_path, transformers.LlamaConfig(**SHAPE, **IDS))
    monkeypatch.setattr(probe, "share_moved", lambda *_: 0.9)
    with pytest.raises(ModelUnsupported, match="llama model is not read as its own forward reads it"):
        loaded(tmp_path)


def test_a_fingerprint_is_of_configuration_and_weights(tmp_path):
    config = transformers.LlamaConfig(**SHAPE, **IDS)
    one, two = (loaded(saved(tmp_path / name, config)) for name in ("one", "two"))
    assert one.identity.fingerprint == two.identity.fingerprint
    changed = {fingerprint(two.model)}
    two.model.config.rms_norm_eps = 1e-3
    changed.add(fingerprint(two.model))
    two.model.lm_head.weight.data[-1, -1] += 1
    changed.add(fingerprint(two.model))
    assert len(changed) == 3
    assert loaded(tmp_path / "one", dtype="bfloat16").identity.fingerprint not in changed
