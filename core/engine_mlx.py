"""MlxBackend: the two verbs and the decoder on MLX, Apple's framework, through mlx-lm's models.

How a model is read is proved at load, by core/mlx_probe.py: a tree in one row (core/mlx_tree.py), or a row for
each branch (core/mlx_rows.py). MLX ties its streams to the thread that loaded a model: every call belongs to one
owner thread.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from transformers import AutoConfig, AutoTokenizer

from core.backend import BackendMissing, Identity, ModelUnsupported, TreeBatch, end_ids
from core.mlx_body import fingerprint
from core.mlx_checkpoint import cast, read_checkpoint, weights_name
from core.mlx_head import OutputHead
from core.mlx_probe import Reader, reader_of, reads_alike
from core.mlx_reference import require_same_model
from core.mlx_rows import RowsPrefix
from core.mlx_small import Kind
from core.mlx_tree import MlxPrefix
from core.mlx_window import require_stated_layers, unkept_window
from core.pass_memory import PASS_BYTES

log = logging.getLogger(__name__)

# Before the first product: an M5 would give float32 10 bits of mantissa there, and forks are read in float32.
os.environ["MLX_ENABLE_TF32"] = "0"

DTYPES = {"bfloat16": mx.bfloat16, "float16": mx.float16, "float32": mx.float32}


class MlxBackend:
    """One model on this machine's MLX device."""

    def __init__(self, model: nn.Module, tokenizer: Any, kind: Kind) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        require_stated_layers(model, kind)
        self.reader: Reader = reader_of(model, kind, tokenizer)
        self.head = OutputHead(model)
        body, config = self.reader.body, kind.config
        if not reads_alike(self.reader, self.head, model, tokenizer):
            raise ModelUnsupported(
                f"this {kind.name} model is not read as its own forward reads it; load it again, "
                "in another dtype, or use another model"
            )
        body.passes = 0
        computed_in, packed_in = str(body.dtype).removeprefix("mlx.core."), weights_name(model)
        self.identity = Identity(
            backend="mlx",
            device=device_name(),
            dtype=f"{computed_in}, {packed_in} weights" if packed_in else computed_in,
            window=_window_of(kind),
            vocab_size=self.head.size,
            end_ids=end_ids(config.get("eos_token_id"), tokenizer.eos_token_id),
            strategy=self.reader.strategy,
            fingerprint=fingerprint(config, model),
            architecture=config["model_type"],
        )

    @property
    def passes(self) -> int:
        return self.reader.body.passes

    @staticmethod
    def accelerated() -> bool:
        """Whether there is a GPU here: what `auto` models are chosen by."""
        return mx.default_device().type == mx.gpu

    @classmethod
    def load(cls, directory: Path, dtype: str = "auto") -> MlxBackend:
        """Loads a folder in Hugging Face format or of mlx-lm's own, its quantised weights as they are.

        `dtype`: auto (the weights' own), bfloat16, float16, float32.
        """
        if dtype not in ("auto", *DTYPES):
            raise BackendMissing(f"dtype {dtype!r} is unknown; use auto, {', '.join(DTYPES)}")
        mx.set_cache_limit(PASS_BYTES)  # what MLX keeps of freed memory: on Metal as much as there is, if not told
        try:
            config = AutoConfig.from_pretrained(directory, local_files_only=True)
            require_same_model(config)
            model, kind = read_checkpoint(directory, config)
            if dtype != "auto":
                cast(model, DTYPES[dtype])
            mx.eval(model.parameters())
            return cls(model, AutoTokenizer.from_pretrained(directory, local_files_only=True), kind)
        except ModelUnsupported:
            raise
        except (Exception, SystemExit) as failure:  # of any model class: one of mlx-lm's ends the program
            reason = " ".join(f"{type(failure).__name__}, {failure}".split())[:200]
            raise ModelUnsupported(f"mlx-lm cannot load {directory.name}: {reason}; use --backend torch") from failure

    def prefill(self, ids: Sequence[int], after: MlxPrefix | RowsPrefix | None = None) -> MlxPrefix | RowsPrefix:
        return self.reader.prefill(ids, after)

    def read(
        self,
        prefix: MlxPrefix | RowsPrefix | None,
        ids: Sequence[int],
        tree: TreeBatch,
        rows: Sequence[int],
        wanted: Sequence[np.ndarray],
        keep: bool = False,
    ) -> tuple[list[np.ndarray], MlxPrefix | RowsPrefix | None]:
        hidden, kept = self.reader.read(prefix, ids, tree, rows, keep)
        return self.head.log_probabilities(hidden, wanted), kept

    def room(self, length: int) -> int:
        return self.reader.room(length)

    def decoder(self, prefix: MlxPrefix | RowsPrefix) -> MlxDecoder:
        return MlxDecoder(self.reader, self.head, prefix)

    def synchronize(self) -> None:
        mx.synchronize()


class MlxDecoder:
    """Greedy decoding after a prefix, in a state of its own."""

    def __init__(self, reader: Reader, head: OutputHead, prefix: MlxPrefix | RowsPrefix) -> None:
        assert prefix.hidden is not None, "a cut prefix has no last hidden state to decode from"
        self._reader, self._head = reader, head
        self._cache = reader.cache(prefix)
        self._length = prefix.length
        self._hidden = prefix.hidden

    def choose(self, mask: np.ndarray | None = None) -> int:
        logits = self._head.logits(self._hidden)[0]  # (V,)
        if mask is not None:
            bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(logits)].astype(bool)
            allowed = np.zeros(len(logits), dtype=bool)
            allowed[: len(bits)] = bits
            logits = mx.where(mx.array(allowed), logits, -mx.inf)
        return int(mx.argmax(logits).item())

    def append(self, ids: Sequence[int]) -> None:
        self._hidden = self._reader.append(self._cache, self._length, ids)
        self._length += len(ids)


def device_name() -> str:
    """The device as people know it: `Apple M3 Max`, `cpu (x86_64)`."""
    if MlxBackend.accelerated():
        return str(mx.device_info().get("device_name", "gpu"))
    return f"cpu ({platform.machine()})"


def _window_of(kind: Kind) -> int:
    stated = [kind.values[name] for name in ("max_position_embeddings", "max_seq_len") if kind.values.get(name)]
    if not stated or stated[0] < 1:
        raise ModelUnsupported(
            f"{kind.name} models do not state how many tokens they can read; "
            "put max_position_embeddings into the folder's config.json"
        )
    window = unkept_window(kind)
    if window is None or window >= stated[0]:
        return stated[0]
    log.info("mlx-lm keeps no sliding window of %s models: texts may have %d tokens at most", kind.name, window)
    return window
