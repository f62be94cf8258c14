"""core/conversion.py and core/gguf_tokenizer.py: tiny random GGUF files against transformers' own loading."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from core import conversion, hub
from core.gguf_tokenizer import check_tokens
from core.models import ModelError, resolve
from core.token_ids import PUBLISHED_IDS
from tests import fakes

ROOT = Path(__file__).parents[1]


def gguf_file(path: Path, architecture: str, split: str, head_width: int = 16) -> Path:
    """A tiny random GGUF as llama.cpp's converter writes it, with the vocabulary of one of the test tokenizers."""
    writer = GGUFWriter(path, architecture)
    names = _add_vocabulary(writer, split)
    writer.add_context_length(256)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_eps(1e-5) if architecture == "starcoder2" else writer.add_layer_norm_rms_eps(1e-5)
    random = np.random.default_rng(0)
    for name, shape in _tensors(architecture, len(names), head_width).items():
        values = random.standard_normal(shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, values)
        else:
            kind = GGMLQuantizationType.Q8_0
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_vocabulary(writer: GGUFWriter, split: str) -> list[str]:
    content = json.loads(fakes.lexicon("nfc" if split == "qwen2" else "smol").chat.backend_tokenizer.to_str())
    ids = content["model"]["vocab"] | {token["content"]: token["id"] for token in content["added_tokens"]}
    names = [*sorted(ids, key=ids.get), "[PAD]"]
    kinds = {fakes.ADDED: 4, "[PAD]": 5} | dict.fromkeys(fakes.SPECIAL, 3)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(names)
    writer.add_token_types([kinds.get(name, 1) for name in names])
    writer.add_token_merges([" ".join(pair) for pair in content["model"]["merges"]])
    writer.add_bos_token_id(ids["<|endoftext|>"])
    writer.add_eos_token_id(ids["<|im_end|>"])
    writer.add_chat_template(fakes.CHATML)
    return names


def _tensors(architecture: str, tokens: int, width: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (tokens, 64), "output_norm.weight": (64,)}
    layer = {"attn_q": (4 * width, 64), "attn_k": (2 * width, 64), "attn_v": (2 * width, 64)}
    layer |= {
        "attn_output": (64, 4 * width),
        "attn_norm": (64,),
        "ffn_norm": (64,),
        "ffn_up": (96, 64),
        "ffn_down": (64, 96),
    }
    if architecture != "starcoder2":
        layer |= {"ffn_gate": (96, 64)}
    if architecture == "qwen3":
        layer |= {"attn_q_norm": (width,), "attn_k_norm": (width,)}
    biased = {"qwen2": ["attn_q", "attn_k", "attn_v"], "starcoder2": list(layer)}.get(architecture, [])
    if architecture == "starcoder2":
        shapes["output_norm.bias"] = (64,)
    for block in range(2):
        shapes |= {f"blk.{block}.{name}.weight": shape for name, shape in layer.items()}
        shapes |= {f"blk.{block}.{name}.bias": layer[name][:1] for name in biased}
    return shapes | ({} if architecture == "llama" else {"output.weight": (tokens, 64)})


@pytest.mark.parametrize(
    "architecture, split", [("llama", "smollm"), ("qwen2", "qwen2"), ("qwen3", "qwen2"), ("starcoder2", "starcoder")]
)
def test_conversion_gives_the_tensors_that_transformers_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: str, split: str
):
    monkeypatch.setattr(conversion, "_SHARD_BYTES", 50_000)
    monkeypatch.setattr(conversion, "_SLAB_VALUES", 1_000)
    # transformers 5.24 takes 128 for the width of Qwen3's heads, whatever the file says
    width, folder = 128 if architecture == "qwen3" else 16, tmp_path / "out"
    folder.mkdir()
    path = gguf_file(tmp_path / "it.gguf", architecture, split, width)
    conversion.convert_here(path, folder, "", lambda part: None)
    unpacked = GgufConfig(dequantize=True)
    straight = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="it.gguf", dtype=torch.bfloat16, quantization_config=unpacked
    )
    ours = AutoModelForCausalLM.from_pretrained(folder)
    expected, given = straight.state_dict(), ours.state_dict()
    assert given.keys() == expected.keys()
    assert [name for name in given if not torch.equal(given[name], expected[name])] == []
    assert ours.dtype == torch.bfloat16 and ours.config.vocab_size == straight.config.vocab_size
    assert ours.config.architectures == [type(straight).__name__]


def test_a_shape_that_transformers_misreads_is_refused(tmp_path: Path):
    path = gguf_file(tmp_path / "it.gguf", "qwen3", "qwen2", head_width=16)
    with pytest.raises(ModelError, match=r"attn_\w.weight has shape \(64, 64\) in the file and \(512, 64\) in transf"):
        conversion.convert_here(path, tmp_path, "", lambda part: None)


@pytest.mark.parametrize("split, lexicon", [("smollm", "smol"), ("qwen2", "nfc")])
def test_conversion_gives_the_tokenizer_that_the_model_was_trained_with(tmp_path: Path, split: str, lexicon: str):
    true, folder = fakes.lexicon(lexicon).chat, tmp_path / "out"
    folder.mkdir()
    conversion.convert_here(gguf_file(tmp_path / "it.gguf", "llama", split), folder, "", lambda part: None)
    ours = AutoTokenizer.from_pretrained(folder)
    for line in [*PUBLISHED_IDS["smollm2"], "a<tool_call>", " ½ 1234 cafe\u0301"]:
        assert ours.encode(line) == true.encode(line), line
    assert ours.get_vocab() == true.get_vocab()  # without [PAD]
    assert {str(token): token.special for token in ours.added_tokens_decoder.values()} == {
        str(token): token.special for token in true.added_tokens_decoder.values()
    }
    assert ours.eos_token == "<|im_end|>" and ours.chat_template == fakes.CHATML and ours.model_max_length == 256
    ends = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    assert ends == true.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])


def test_a_vocabulary_that_would_be_split_wrongly_is_refused(tmp_path: Path):
    path = gguf_file(tmp_path / "it.gguf", "llama", "bloom")
    with pytest.raises(ModelError, match="pre-tokenizer 'bloom' is not known here and would give wrong tokens; use"):
        conversion.convert_here(path, tmp_path, "", lambda part: None)


def test_the_probe_of_a_tokenizer_names_line_and_ids():
    wrong = fakes.lexicon("qwen").chat
    with pytest.raises(
        ModelError, match=r"the qwen2.5 tokenizer gives \(.*\) for '\{\\n  \"risk.* published one \(515, 220"
    ):
        check_tokens(wrong, "qwen2.5")


def test_a_gguf_file_is_converted_once_into_the_cache_by_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("PCD_CACHE", str(cache))
    path, parts = gguf_file(tmp_path / "it.gguf", "llama", "smollm"), []
    model = resolve(str(path), offline=True, progress=lambda stage, part: parts.append(part))
    assert model.directory == cache / f"gguf-{sha256(path.read_bytes()).hexdigest()[:16]}"
    assert parts[-1] == 1.0 and hub.is_model_folder(model.directory)
    assert {file.name for file in tmp_path.iterdir()} == {"it.gguf", "cache"}
    renamed = path.rename(tmp_path / "same.gguf")
    started = time.perf_counter()
    assert resolve(str(renamed), offline=True).directory == model.directory
    assert time.perf_counter() - started < 1.0  # no second child


def test_a_file_that_is_no_gguf_is_told_in_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PCD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "it.gguf").write_bytes(b"no such thing" * 10)
    with pytest.raises(
        ModelError, match=r"^\S+it.gguf cannot be converted: ValueError: .*; give a Hugging Face folder"
    ):
        resolve(str(tmp_path / "it.gguf"))
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []


def test_the_child_dies_with_its_parent(tmp_path: Path):
    command = [sys.executable, "-m", "core.conversion", str(tmp_path / "a.gguf"), str(tmp_path), ""]
    code = (
        "from subprocess import DEVNULL, PIPE, Popen\n"
        f"print(Popen({command!r}, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL).pid)"
    )
    os.mkfifo(tmp_path / "a.gguf")  # to read from it blocks for ever
    parent = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    child, deadline = int(parent.stdout), time.perf_counter() + 10
    while _is_alive(child) and time.perf_counter() < deadline:
        time.sleep(0.05)
    assert not _is_alive(child)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


# --- the embedded model itself ---


@pytest.mark.model
def test_the_embedded_model_has_its_own_tokens_and_answers():
    ready = resolve("smollm2-135m")
    tokenizer = AutoTokenizer.from_pretrained(ready.directory)
    check_tokens(tokenizer, "smollm2")
    model = AutoModelForCausalLM.from_pretrained(ready.directory)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        written = model.generate(ids, max_new_tokens=20, do_sample=False)[0, ids.shape[1] :]
    assert tokenizer.decode(written) == "The capital of France is Paris.<|im_end|>"
