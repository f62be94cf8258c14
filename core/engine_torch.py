"""TorchBackend: the two verbs and the decoder on PyTorch (CUDA, MPS, CPU).

B batch (1), H attention heads, G query heads per key head, N new tokens, P prefix,
D head width, V vocabulary, R rows read
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.utils.logging import disable_progress_bar

from core.backend import BackendMissing, Identity, ModelUnsupported, TreeBatch
from core.torch_attention import ATTENTION, Appended, Concatenated, Growing

#: Rows of the output head turned to float32 at a time. On a CPU a piece should stay in cache:
#: 57 rows against 151,936 x 1,536 take 860 ms in pieces of 16,384 and 410 ms in pieces of 1,024.
HEAD_CHUNK = {"cpu": 1_024}
HEAD_CHUNK_ELSEWHERE = 32_768


@dataclass(frozen=True)
class TorchPrefix:
    """Keys and values by layer, each (1, H/G, P, D), and the last token's hidden state (1, width)."""

    layers: tuple[tuple[Tensor, Tensor], ...]
    hidden: Tensor | None  # None after a cut: nothing is decoded from there

    @property
    def length(self) -> int:
        return self.layers[0][0].shape[2]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for layer in self.layers for tensor in layer)

    def head(self, length: int) -> TorchPrefix:
        return TorchPrefix(tuple((k[:, :, :length].clone(), v[:, :, :length].clone()) for k, v in self.layers), None)


class TorchBackend:
    """One model on one device.

    Not thread-safe: every call belongs to one owner thread.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.passes = 0
        self._body = model.get_decoder()
        self._head: Tensor = model.get_output_embeddings().weight  # (V, width)
        self._bias: Tensor | None = model.get_output_embeddings().bias
        self._device = self._head.device
        self.identity = Identity(
            backend="torch",
            device=device_name(self._device),
            dtype=str(self._head.dtype).removeprefix("torch."),
            window=getattr(model.config, "max_position_embeddings", None) or _unwindowed(model.config),
            vocab_size=len(self._head),
            end_ids=_end_ids(model.generation_config.eos_token_id, tokenizer.eos_token_id),
        )
        if not self._reads_as_the_model_does():
            raise ModelUnsupported(
                f"{model.config.model_type} models are not read right yet; "
                "use one with full attention and plain logits, such as Qwen2.5, Llama 3 or SmolLM2"
            )
        self.passes = 0

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
        model = AutoModelForCausalLM.from_pretrained(
            directory, dtype=number, device_map={"": place}, attn_implementation=ATTENTION, local_files_only=True
        )
        return cls(model, AutoTokenizer.from_pretrained(directory, local_files_only=True))

    @torch.inference_mode()
    def prefill(self, ids: Sequence[int], after: TorchPrefix | None = None) -> TorchPrefix:
        layers = [Appended(*layer) for layer in after.layers] if after else [Appended() for _ in self._layers()]
        mask = self._mask(after.length, len(ids)) if after else None
        hidden = self._forward(ids, layers, mask=mask)
        return TorchPrefix(tuple((layer.keys, layer.values) for layer in layers), hidden[-1:].clone())

    @torch.inference_mode()
    def read(
        self,
        prefix: TorchPrefix | None,
        ids: Sequence[int],
        tree: TreeBatch,
        rows: Sequence[int],
        wanted: Sequence[np.ndarray],
    ) -> list[np.ndarray]:
        start = prefix.length if prefix else 0
        mask = self._mask(start, len(ids), tree)
        positions = [*range(start, start + len(ids)), *(start + len(ids) + depth for depth in tree.depths)]
        layers = (
            [Concatenated(*layer) for layer in prefix.layers] if prefix else [Concatenated() for _ in self._layers()]
        )
        hidden = self._forward([*ids, *tree.tokens], layers, mask=mask, positions=positions)
        at = torch.tensor([len(ids) + row for row in rows], device=self._device)
        return self._log_probabilities(hidden[at], wanted)

    def decoder(self, prefix: TorchPrefix) -> TorchDecoder:
        return TorchDecoder(self, prefix)

    def synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        elif self._device.type == "mps":
            torch.mps.synchronize()

    @torch.inference_mode()
    def _reads_as_the_model_does(self) -> bool:
        """Whether a small tree gives what the model's own forward gives, and no layer forgets."""
        kinds = set(getattr(self.model.config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"} or _window_of(self.model.config) < self.identity.window:
            return False
        ids, tree = [3, 1, 4, 1, 5], TreeBatch(tokens=(9, 2, 6), parents=(-1, 0, 0), depths=(0, 1, 1))
        wanted = np.arange(16)
        read = self.read(self.prefill(ids), [], tree, [1, 2], [wanted, wanted])
        for row, path in zip(read, ([9, 2], [9, 6]), strict=True):
            logits = self.model(input_ids=torch.tensor([[*ids, *path]], device=self._device)).logits[0, -1]
            expected = logits.float().log_softmax(-1)[:16].cpu().numpy()
            # bf16 moves a log-probability by up to 0.2 between two ways to cut one forward.
            if not np.allclose(row, expected, atol=1e-3 if self._head.dtype == torch.float32 else 0.5):
                return False
        return True

    def _layers(self) -> range:
        return range(self.model.config.num_hidden_layers)

    def _forward(
        self,
        ids: Sequence[int],
        layers: Sequence[CacheLayerMixin],
        mask: Tensor | None = None,
        positions: Sequence[int] | None = None,
    ) -> Tensor:
        """Hidden states (N, width) after the last norm."""
        self.passes += 1
        output = self._body(
            input_ids=torch.tensor([ids], device=self._device),
            attention_mask=mask,
            position_ids=None if positions is None else torch.tensor([positions], device=self._device),
            cache=Cache(layers=list(layers)),
            use_cache=True,
        )
        return output.last_hidden_state[0]

    def _mask(self, start: int, causal: int, tree: TreeBatch | None = None) -> Tensor:
        """Additive mask (1, 1, N, P + N): each token sees the prefix, what leads to it, and itself."""
        seen = np.tri(causal, dtype=bool) if tree is None else _tree_sight(causal, tree)
        blocked = torch.from_numpy(~seen).to(self._device)
        size = len(seen)
        mask = torch.zeros(1, 1, size, start + size, dtype=self._head.dtype, device=self._device)
        mask[0, 0, :, start:].masked_fill_(blocked, torch.finfo(mask.dtype).min)
        return mask

    def _log_probabilities(self, hidden: Tensor, wanted: Sequence[np.ndarray]) -> list[np.ndarray]:
        """float32 log-probabilities of the wanted ids at each row; hidden (R, width).

        The head is turned to float32 in pieces, because bf16 logits put near ties at 0.5000
        and a float32 copy of a 151,936 x 1,536 head is 933 MB.
        """
        hidden = hidden.float()
        rows = np.repeat(np.arange(len(wanted)), [len(ids) for ids in wanted])
        ids = np.concatenate(wanted)
        order = np.argsort(ids, kind="stable")  # so that a piece of the head meets one run of them
        row, token = (torch.from_numpy(array[order]).to(self._device) for array in (rows, ids))
        logits = torch.empty(len(ids), device=self._device)
        totals = []  # log of the summed exponentials, by piece
        size = HEAD_CHUNK.get(self._device.type, HEAD_CHUNK_ELSEWHERE)
        for first in range(0, len(self._head), size):
            piece = hidden @ self._head[first : first + size].float().T  # (R, size)
            if self._bias is not None:
                piece += self._bias[first : first + size].float()
            totals.append(piece.logsumexp(-1))
            here = slice(*np.searchsorted(ids[order], (first, first + size)))
            logits[here] = piece[row[here], token[here] - first]
        normaliser = torch.stack(totals).logsumexp(0)  # (R,)
        flat = np.empty(len(ids), dtype=np.float32)
        flat[order] = (logits - normaliser[row]).cpu().numpy()
        return np.split(flat, np.cumsum([len(ids) for ids in wanted])[:-1])


class TorchDecoder:
    """Greedy decoding after a prefix, in a cache that grows in place."""

    def __init__(self, backend: TorchBackend, prefix: TorchPrefix) -> None:
        assert prefix.hidden is not None, "a cut prefix has no last hidden state to decode from"
        self._backend = backend
        self._layers = [Growing(*layer) for layer in prefix.layers]
        self._hidden = prefix.hidden

    @torch.inference_mode()
    def choose(self, mask: np.ndarray | None = None) -> int:
        logits = self._backend.model.get_output_embeddings()(self._hidden)[0]  # (V,)
        if mask is not None:
            bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(logits)]
            allowed = torch.from_numpy(bits.astype(bool)).to(logits.device)
            logits[: len(allowed)].masked_fill_(~allowed, -torch.inf)
            logits[len(allowed) :] = -torch.inf
        return int(logits.argmax())

    @torch.inference_mode()
    def append(self, ids: Sequence[int]) -> None:
        start = self._layers[0].length
        mask = self._backend._mask(start, len(ids)) if len(ids) > 1 else None
        self._hidden = self._backend._forward(ids, self._layers, mask=mask)[-1:]


def _unwindowed(config: Any) -> int:
    raise ModelUnsupported(f"{config.model_type} models do not state how many tokens they can read; use another model")


def _window_of(config: Any) -> float:
    """Positions that a layer can look back on."""
    is_used = getattr(config, "use_sliding_window", True)
    return (is_used and getattr(config, "sliding_window", None)) or float("inf")


def _end_ids(*given: int | list[int] | None) -> frozenset[int]:
    return frozenset(i for ids in given if ids is not None for i in ([ids] if isinstance(ids, int) else ids))


def _tree_sight(causal: int, tree: TreeBatch) -> np.ndarray:
    """Who sees whom among `causal` tokens and the tree behind them, (N, N) bool."""
    size = causal + len(tree.tokens)
    sight = np.zeros((size, size), dtype=bool)
    sight[:causal, :causal] = np.tri(causal, dtype=bool)
    sight[causal:, :causal] = True
    for node, parent in enumerate(tree.parents, start=causal):
        if parent >= 0:
            sight[node] = sight[causal + parent]
        sight[node, node] = True
    return sight


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
