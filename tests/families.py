"""A tiny random checkpoint of each family of models: written once, read by every backend."""

import importlib.util
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM

from core.backend import Backend, TreeBatch
from core.engine_torch import TorchBackend
from tests.fakes import lexicon

TOKENS = lexicon("qwen").chat
VOCABULARY = len(TOKENS) + 5  # checkpoints are padded

SHAPE = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 2048, "initializer_range": 0.3,
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
    "llama": ("LlamaConfig", SHAPE, "tree"),
    "qwen2": ("Qwen2Config", SHAPE, "tree"),
    "qwen2, upper layers slide": (
        "Qwen2Config",
        SHAPE | _WINDOW | {"use_sliding_window": True, "max_window_layers": 1},
        "tree",
    ),
    "qwen3": ("Qwen3Config", SHAPE | _NARROW, "tree"),
    "gemma": ("GemmaConfig", SHAPE | _NARROW, "tree"),
    "gemma 2": (
        "Gemma2Config",
        SHAPE | _NARROW | _WINDOW | _MIXED | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
        "tree",
    ),
    "gemma 3": ("Gemma3TextConfig", SHAPE | _NARROW | _WINDOW | _MIXED, "tree"),
    "phi 3": ("Phi3Config", SHAPE, "tree"),
    "phi 3 that slides": ("Phi3Config", SHAPE | _WINDOW, "tree"),
    "mistral that slides": ("MistralConfig", SHAPE | _WINDOW, "tree"),
    "starcoder 2 that slides": ("Starcoder2Config", SHAPE | _WINDOW, "tree"),
    "granite": (
        "GraniteConfig",
        SHAPE
        | {
            "logits_scaling": 8.0,
            "embedding_multiplier": 2.0,
            "attention_multiplier": 0.3,
            "residual_multiplier": 0.5,
        },
        "tree",
    ),
    "cohere": ("CohereConfig", SHAPE | {"logit_scale": 0.3}, "tree"),
    "smollm 3": ("SmolLM3Config", SHAPE | {"no_rope_layers": [1, 0]}, "tree"),
    "gpt-neox": ("GPTNeoXConfig", SHAPE, "tree"),
    "falcon": ("FalconConfig", SHAPE, "tree"),
    "gpt-2": ("GPT2Config", SHAPE, "tree"),
    "opt": ("OPTConfig", SHAPE | {"ffn_dim": 64, "word_embed_proj_dim": 32}, "tree"),
    "bloom": ("BloomConfig", SHAPE | {"seq_length": 512}, "rows"),
    "mixtral": ("MixtralConfig", SHAPE | {"num_local_experts": 4}, "tree"),
    "qwen3-moe": ("Qwen3MoeConfig", SHAPE | _NARROW | _EXPERTS, "tree"),
    "gpt-oss": ("GptOssConfig", SHAPE | _NARROW | _WINDOW | _MIXED | {"num_local_experts": 4}, "tree"),
    "gemma 4": (
        "Gemma4TextConfig",
        SHAPE
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
    "lfm2": (
        "Lfm2Config",
        SHAPE | {"layer_types": ["conv", "full_attention"], "block_dim": 32},  # a width's older name: mlx-lm reads it
        "rows",
    ),
    "qwen3-next": ("Qwen3NextConfig", SHAPE | _DELTA | _EXPERTS | {"shared_expert_intermediate_size": 16}, "rows"),
    "qwen3.5": ("Qwen3_5TextConfig", SHAPE | _DELTA, "rows"),
    "mamba 2": (
        "Mamba2Config",
        _MAMBA | {"num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 4},
        "rows",
    ),
    "mamba": ("MambaConfig", _MAMBA, "rows"),
    "bamba": ("BambaConfig", SHAPE | _HYBRID | {"attn_layer_indices": [1]}, "rows"),
    "falcon-h1": (
        "FalconH1Config",
        SHAPE | _NARROW | _HYBRID | {"mamba_d_ssm": 64, "lm_head_multiplier": 0.3, "mamba_n_groups": 1},
        "rows",
    ),
    "granite hybrid": (
        "GraniteMoeHybridConfig",
        SHAPE
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
        SHAPE
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

IDS = {
    "vocab_size": VOCABULARY,
    "bos_token_id": None,
    "pad_token_id": None,
    "eos_token_id": TOKENS.eos_token_id,
}


def checkpoint(folder: Path, name: str) -> Path:
    """The checkpoint of a family in FAMILIES, as a Hugging Face folder in float32."""
    kind, values, _ = FAMILIES[name]
    return saved(folder, getattr(transformers, kind)(**values, **IDS))


def saved(folder: Path, config: Any) -> Path:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 and "norm" not in name:  # biases, sinks
            torch.nn.init.normal_(parameter)
    model.save_pretrained(folder)
    TOKENS.model_max_length = 2048
    TOKENS.save_pretrained(folder)
    return folder


def quantised(source: Path, target: Path, group_size: int) -> Path:
    """The same model in 4 bits, as mlx-lm writes it."""
    from mlx_lm.utils import load_model, quantize_model, save_config, save_model

    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))
    model, config = quantize_model(*load_model(source), group_size=group_size, bits=4)
    save_model(target, model)
    save_config(config, target / "config.json")
    return target


# --- the same weights by a backend and by the library ---

TEXT = [3, 1, 4, 1, 59, 26, 5, 35, 8, 97, 93, 23, 84, 62, 64]
PATHS = [(7, 2, 5, 3), (7, 2, 6), (7, 4), (8, 2, 5, 7, 9), (8, 2)]
TREE, _ = TreeBatch.of(PATHS)
NODES = range(len(TREE.tokens))

CLOSE = 1e-4  # float32: the same sums in another order
#: In MLX these differ by more: mlx-lm rounds their scale of the embeddings to bf16, in float32 too.
CLOSE_IN_MLX = {"gemma": 3e-3, "gemma 3": 1e-3}

HAS_MLX = importlib.util.find_spec("mlx_lm") is not None
#: Families that mlx-lm reads as transformers does, whatever the length of the text.
IN_MLX = (
    "llama", "qwen2", "qwen3", "gemma", "gemma 3", "phi 3", "granite", "cohere", "smollm 3", "mixtral", "qwen3-moe",
    "lfm2", "falcon-h1", "jamba",
)  # fmt: skip


@dataclass(eq=False)
class Family:
    """A backend that has loaded a checkpoint, and the library's own model: loaded anew, eager and without a cache."""

    backend: Backend
    plain: torch.nn.Module
    close: float = CLOSE

    @classmethod
    def of(cls, name: str, folder: Path, framework: str = "torch") -> "Family":
        plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        close = CLOSE_IN_MLX.get(name, CLOSE) if framework == "mlx" else CLOSE
        return cls(loaded(folder, framework), plain.eval(), close)

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

    def assert_close(self, read, expected):
        for row, truth in zip(read, expected, strict=True):
            assert np.abs(row - truth).max() <= self.close


def loaded(folder: Path, framework: str = "torch", dtype: str = "float32") -> Backend:
    if framework == "torch":
        return TorchBackend.load(folder, dtype=dtype, device="cpu")
    from core.engine_mlx import MlxBackend

    return MlxBackend.load(folder, dtype=dtype)
