"""TorchBackend: the two verbs and the decoder on PyTorch (CUDA, MPS, CPU).

How a model is read is proved at load, by core/torch_probe.py: a tree in one row
(core/torch_tree.py), or a row for each branch (core/torch_rows.py).
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from core.backend import BackendMissing, Identity, ModelUnsupported, TreeBatch, end_ids
from core.torch_body import fingerprint
from core.torch_head import OutputHead
from core.torch_probe import reading_of, reads_alike
from core.torch_rows import RowsPrefix, RowsReader
from core.torch_tree import TorchPrefix, TreeReader

#: Names under which configurations state how many positions a model can read.
WINDOWS = ("max_position_embeddings", "seq_length", "max_seq_len", "max_sequence_length")


class TorchBackend:
    """One model on one device.

    Not thread-safe: every call belongs to one owner thread.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.reader: TreeReader | RowsReader = reading_of(model, tokenizer).reader(model)
        self.head = OutputHead(model)
        body = self.reader.body
        if not reads_alike(self.reader, self.head, model, tokenizer):
            raise ModelUnsupported(
                f"this {model.config.model_type} model is not read as its own forward reads it; load it again, "
                "in another dtype, or use another model"
            )
        body.passes = 0
        self.identity = Identity(
            backend="torch",
            device=device_name(body.device),
            dtype=str(body.dtype).removeprefix("torch."),
            window=_window_of(body.config, tokenizer),
            vocab_size=self.head.size,
            end_ids=end_ids(model.generation_config.eos_token_id, tokenizer.eos_token_id),
            strategy=self.reader.strategy,
            fingerprint=fingerprint(model),
            architecture=body.config.model_type,
        )

    @property
    def passes(self) -> int:
        return self.reader.body.passes

    @staticmethod
    def accelerated() -> bool:
        """Whether there is a GPU here: what `auto` models are chosen by."""
        return _detected_device() != "cpu"

    @classmethod
    def load(cls, directory: Path, dtype: str = "auto", device: str = "auto") -> TorchBackend:
        """Loads a folder in Hugging Face format. `dtype`: auto, bfloat16, float16, float32."""
        disable_progress_bar()  # loading has a stage of its own
        place = torch.device(_detected_device() if device == "auto" else device)
        number = _detected_dtype(place) if dtype == "auto" else _dtype(dtype)
        config = AutoConfig.from_pretrained(directory, local_files_only=True)
        quantised = getattr(config, "quantization_config", None) or {}
        if "bits" in quantised and "quant_method" not in quantised:  # as mlx-lm writes it
            raise ModelUnsupported(f"{directory.name} is quantised for MLX; use --backend mlx or the original model")
        model = AutoModelForCausalLM.from_pretrained(
            directory, config=config, dtype=number, device_map={"": place}, local_files_only=True
        )
        return cls(model, AutoTokenizer.from_pretrained(directory, local_files_only=True))

    @torch.inference_mode()
    def prefill(self, ids: Sequence[int], after: TorchPrefix | RowsPrefix | None = None) -> TorchPrefix | RowsPrefix:
        return self.reader.prefill(ids, after)

    @torch.inference_mode()
    def read(
        self,
        prefix: TorchPrefix | RowsPrefix | None,
        ids: Sequence[int],
        tree: TreeBatch,
        rows: Sequence[int],
        wanted: Sequence[np.ndarray],
        keep: bool = False,
    ) -> tuple[list[np.ndarray], TorchPrefix | RowsPrefix | None]:
        hidden, kept = self.reader.read(prefix, ids, tree, rows, keep)
        return self.head.log_probabilities(hidden, wanted), kept

    def room(self, length: int) -> int:
        return self.reader.room(length)

    def decoder(self, prefix: TorchPrefix | RowsPrefix) -> TorchDecoder:
        return TorchDecoder(self.reader, self.head, prefix)

    def synchronize(self) -> None:
        device = self.reader.body.device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        elif device.type == "mps":
            torch.mps.synchronize()


class TorchDecoder:
    """Greedy decoding after a prefix, in a state of its own."""

    def __init__(self, reader: TreeReader | RowsReader, head: OutputHead, prefix: TorchPrefix | RowsPrefix) -> None:
        assert prefix.hidden is not None, "a cut prefix has no last hidden state to decode from"
        self._reader, self._head = reader, head
        self._cache = reader.cache(prefix)
        self._length = prefix.length
        self._hidden = prefix.hidden
        self._shifts = torch.arange(32, dtype=torch.int32, device=prefix.hidden.device)

    @torch.inference_mode()
    def choose(self, mask: np.ndarray | None = None) -> int:
        logits = self._head.logits(self._hidden)[0]  # (V,)
        if mask is not None:
            words = torch.from_numpy(mask).to(logits.device)
            allowed = (words[:, None] >> self._shifts & 1).bool().flatten()[: len(logits)]
            logits[: len(allowed)].masked_fill_(~allowed, -torch.inf)
            logits[len(allowed) :] = -torch.inf
        return int(logits.argmax())

    @torch.inference_mode()
    def append(self, ids: Sequence[int]) -> None:
        self._hidden = self._reader.append(self._cache, self._length, ids)
        self._length += len(ids)


def _window_of(config: Any, tokenizer: Any) -> int:
    stated = [value for name in WINDOWS if (value := getattr(config, name, None))]
    if not stated and tokenizer.model_max_length < 1e12:  # transformers puts 1e30 where a tokenizer states nothing
        stated = [tokenizer.model_max_length]
    if not stated:
        raise ModelUnsupported(
            f"{config.model_type} models do not state how many tokens they can read; "
            "put model_max_length into the folder's tokenizer_config.json"
        )
    return stated[0]


def _detected_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _detected_dtype(device: torch.device) -> torch.dtype:
    """bf16 on accelerators and on CPUs that compute in it, float32 otherwise."""
    if device.type == "cpu" and not _cpu_computes_bf16():
        return torch.float32
    return torch.bfloat16


def _cpu_computes_bf16() -> bool:
    if platform.machine() in ("x86_64", "AMD64"):
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def _dtype(name: str) -> torch.dtype:
    known = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
    if name not in known:
        raise BackendMissing(f"dtype {name!r} is unknown; use auto, {', '.join(known)}")
    return known[name]


def device_name(device: torch.device) -> str:
    """The device as people know it: `cuda (NVIDIA H200)`, `mps`, `cpu (2 threads)`."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return f"cpu ({torch.get_num_threads()} threads)" if device.type == "cpu" else device.type
