"""The output head of an mlx-lm model: float32 log-probabilities through whatever its own forward applies.

R rows, V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from core.backend import ModelUnsupported
from core.mlx_body import body_path, module_at, with_part

#: Bytes of the output head in float32 at a time: each piece waits for the device.
HEAD_PIECE = 192 << 20


class OutputHead:
    """What a model does with the hidden states that its body returns. The model itself is not altered."""

    def __init__(self, model: nn.Module) -> None:
        path = body_path(model)
        body, outer = module_at(model, path), path.rpartition(".")[0]
        head = dict.get(module_at(model, outer), "lm_head")
        self._weights: nn.Module = body.embed_tokens if head is None else head
        self._given, self._piece = _Given(body), _Piece()
        self._whole = with_part(model, path, self._given)
        if head is None:
            pieces = _Given(body)
            pieces["embed_tokens"] = self._piece
            self._given_in_pieces, self._in_pieces = pieces, with_part(model, path, pieces)
        else:
            place = f"{outer}.lm_head" if outer else "lm_head"
            self._given_in_pieces, self._in_pieces = self._given, with_part(self._whole, place, self._piece)

    @property
    def size(self) -> int:
        """V, padding included."""
        return self._weights.weight.shape[0]

    def logits(self, hidden: mx.array) -> mx.array:
        """(R, width) -> (R, V), in the model's own numbers."""
        self._given.hidden = hidden[None]
        return self._whole(_NO_IDS)[0]

    def log_probabilities(self, hidden: mx.array, wanted: Sequence[np.ndarray]) -> list[np.ndarray]:
        """float32 log-probabilities of the wanted ids at each row; hidden (R, width).

        The head is turned to float32 in pieces, because logits in 16 bits put near ties at 0.5000.
        """
        self._given_in_pieces.hidden = hidden.astype(mx.float32)[None]
        rows = np.repeat(np.arange(len(wanted)), [len(ids) for ids in wanted])
        ids = np.concatenate(wanted)
        order = np.argsort(ids, kind="stable")  # so that a piece of the head meets one run of them
        found, totals = [], []
        size = max(1, HEAD_PIECE // (4 * hidden.shape[-1]))
        for first in range(0, self.size, size):
            self._piece.take(self._weights, slice(first, min(first + size, self.size)))
            piece = self._in_pieces(_NO_IDS)[0]  # (R, size)
            here = slice(*np.searchsorted(ids[order], (first, first + size)))
            if here.start < here.stop:
                found.append(piece[mx.array(rows[order][here]), mx.array(ids[order][here] - first)])
            totals.append(mx.logsumexp(piece, axis=-1))
            mx.eval(found[-1:], totals[-1])  # one piece in memory at a time
        normaliser = mx.logsumexp(mx.stack(totals), axis=0)  # (R,)
        flat = np.empty(len(ids), dtype=np.float32)
        flat[order] = np.array(mx.concatenate(found) - normaliser[mx.array(rows[order])])
        return np.split(flat, np.cumsum([len(ids) for ids in wanted])[:-1])


_NO_IDS = mx.array([[0]])  # of data: what is still to be computed belongs to the thread that began it


class _Given(nn.Module):
    """Stands where the body was: its output is known."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        dict.update(self, body)  # Gemma ties its head to the embedding that it finds there
        self.__dict__.update(vars(body))  # and Cohere looks up its scale
        self.hidden = _NO_IDS

    def __call__(self, *args: Any, **kwargs: Any) -> mx.array:
        return self.hidden


class _Piece(nn.Module):
    """Stands where the output embedding was: a part of it, in float32."""

    def take(self, weights: nn.Module, part: slice) -> None:
        scales = dict.get(weights, "scales")
        rows = weights.weight[part]
        if scales is not None:
            if dict.get(weights, "global_scale") is not None:
                raise ModelUnsupported("an output head with a global scale is not read; use another quantisation")
            biases = dict.get(weights, "biases")
            rows = mx.dequantize(
                rows,
                _float32(scales[part]),  # the products have the type of the scales
                None if biases is None else _float32(biases[part]),
                group_size=weights.group_size,
                bits=weights.bits,
                mode=weights.mode,
            )
        bias = dict.get(weights, "bias")
        self._rows = rows.astype(mx.float32)
        self._bias = None if bias is None else bias[part].astype(mx.float32)

    def __call__(self, hidden: mx.array) -> mx.array:
        logits = hidden @ self._rows.T
        return logits if self._bias is None else logits + self._bias

    as_linear = __call__


def _float32(scales: mx.array) -> mx.array:
    """Packed scales stay packed."""
    return scales.astype(mx.float32) if mx.issubdtype(scales.dtype, mx.floating) else scales
