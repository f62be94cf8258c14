"""Reading a tree in one row with mlx-lm's own layers: each node sees the prefix, its own ancestors and itself.

Two things make it so: a cache object whose positions are an array and whose mask is the tree's, and a rotary
layer that takes an offset for each token. The prefix is not copied but where new keys stand behind it, layer by
layer, while that layer is computed.

H attention heads, G query heads per key head, N new tokens, P prefix, D head width, R rows read
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models.base import create_causal_mask
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache

from core.backend import TreeBatch
from core.mlx_body import CHUNK, Body, module_at, seal
from core.pass_memory import room

#: Tokens by which a decoder's cache grows: one copy of the cache per so many tokens.
DECODER_ROOM = 256
#: Names under which mlx-lm's attention keeps its rotary layer.
ROTARY = ("rope", "rotary_emb")


@dataclass(frozen=True)
class MlxPrefix:
    """Keys and values by layer, each (1, H/G, P, D), and the last token's hidden state (1, width).

    One that was kept of a read is a view: as long as it lives, so does what was read behind it.
    """

    length: int
    layers: tuple[tuple[mx.array, mx.array], ...]
    hidden: mx.array | None  # None after a cut: nothing is decoded from there

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for layer in self.layers for array in layer)

    def seal(self) -> int:
        return seal(self.length, self.nbytes, [keys[:, :, -1] for keys, _ in self.layers])

    def head(self, length: int) -> MlxPrefix:
        layers = tuple(tuple(array[:, :, :length] + 0 for array in layer) for layer in self.layers)
        mx.eval(layers)
        return MlxPrefix(length, layers, None)


class _Layer:
    """One layer's keys and values, all of them full-length: a window is in the mask. New ones stand behind them."""

    def __init__(self, prefix: tuple[mx.array, mx.array] | None, start: int) -> None:
        self.keys, self.values = prefix or (None, None)
        self.offset: Any = start

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        if self.keys is not None:
            keys = mx.concatenate([self.keys, keys], axis=2)
            values = mx.concatenate([self.values, values], axis=2)
        self.keys, self.values = keys, values
        return keys, values


class Causal(_Layer):
    """For a prefill."""

    def make_mask(self, new: int, return_array: bool = False, window_size: int | None = None) -> Any:
        windowed = window_size is not None and self.offset + new > window_size
        if not windowed and not return_array:
            return None if new == 1 else "causal"
        return create_causal_mask(new, self.offset, window_size if windowed else None)


class Sighted(_Layer):
    """For a read: who sees whom is given, (N, P + N), and so are the positions of the new tokens, (N,)."""

    def __init__(self, prefix: Any, start: int, positions: mx.array, sight: mx.array, keep: bool) -> None:
        super().__init__(prefix, start)
        self.offset = positions
        self._start, self._sight, self._keep = start, sight, keep

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        before = self.keys, self.values
        both = super().update_and_fetch(keys, values)
        if not self._keep:  # then a layer's are gone when the next one is computed
            self.keys, self.values = before
        return both

    def make_mask(self, new: int, return_array: bool = False, window_size: int | None = None) -> mx.array:
        if window_size is None:
            return self._sight
        seen = mx.concatenate([mx.arange(self._start), self.offset])  # (P + N,)
        return self._sight & (self.offset[:, None] - seen[None] < window_size)


class Growing(Causal):
    """For a decoder: room ahead, so that a token copies nothing but itself. The prefix is copied, never written to."""

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        end = self.offset + keys.shape[2]
        if end > self.keys.shape[2]:
            self.keys, self.values = (self._roomy(array, end) for array in (self.keys, self.values))
        self.keys[:, :, self.offset : end] = keys
        self.values[:, :, self.offset : end] = values
        self.offset = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def _roomy(self, array: mx.array, end: int) -> mx.array:
        shape = (*array.shape[:2], end + DECODER_ROOM - self.offset, array.shape[3])
        return mx.concatenate([array[:, :, : self.offset], mx.zeros(shape, array.dtype)], axis=2)


class PerToken(nn.Module):
    """A rotary layer that takes an offset for each token too: the tokens become rows, with offsets of their own."""

    def __init__(self, rotary: nn.Module) -> None:
        super().__init__()
        self.rotary = rotary

    def __call__(self, x: mx.array, offset: Any = 0, **given: Any) -> mx.array:
        if not isinstance(offset, mx.array) or not offset.ndim:
            return self.rotary(x, offset=offset, **given)
        rows = x.transpose(2, 1, 0, 3)  # (1, H, N, D) -> (N, H, 1, D)
        return self.rotary(rows, offset=offset, **given).transpose(2, 1, 0, 3)


class TreeReader:
    """Hidden states by the tree pass. Puts `PerToken` around the model's rotary layers."""

    strategy = "tree"

    def __init__(self, model: nn.Module) -> None:
        if not all(type(layer) in (KVCache, RotatingKVCache) for layer in make_prompt_cache(model)):
            raise NotImplementedError("a layer keeps another state than keys and values")
        self.body = Body(model)
        self._caches = len(make_prompt_cache(model))
        for module in module_at(model, self.body.path).modules():
            for name in ROTARY:
                rotary = dict.get(module, name)
                if isinstance(rotary, nn.Module) and not isinstance(rotary, PerToken):
                    module[name] = PerToken(rotary)

    def prefill(self, ids: Sequence[int], after: MlxPrefix | None) -> MlxPrefix:
        """A pass for each `CHUNK` of the tokens."""
        for first in range(0, len(ids), CHUNK):
            start = after.length if after else 0
            some = ids[first : first + CHUNK]
            layers = [Causal(layer, start) for layer in self._layers(after)]
            after = self._kept(start + len(some), layers, self._forward(some, layers)[-1:])
        return after

    def read(
        self, prefix: MlxPrefix | None, ids: Sequence[int], tree: TreeBatch, rows: Sequence[int], keep: bool
    ) -> tuple[mx.array, MlxPrefix | None]:
        """Hidden states (R, width) at the rows, and the prefix after `ids` if it is to be kept."""
        start, grows = prefix.length if prefix else 0, keep and bool(ids)
        positions = mx.array(tree.positions(start, len(ids)))
        new = tree.sight(len(ids))
        sight = mx.array(np.concatenate([np.ones((len(new), start), dtype=bool), new], axis=1))
        layers = [Sighted(layer, start, positions, sight, grows) for layer in self._layers(prefix)]
        hidden = self._forward([*ids, *tree.tokens], layers)
        before = hidden[len(ids) - 1 : len(ids)] if ids else prefix.hidden  # the prompt's end
        at = mx.array([len(ids) + row for row in rows])
        if -1 in rows and not ids:
            hidden = mx.concatenate([hidden, before])
        hidden = hidden[at]
        if grows:
            return hidden, self._kept(start + len(ids), layers, before, hidden)
        mx.eval(hidden)
        return hidden, prefix if keep else None

    def cache(self, prefix: MlxPrefix) -> list[Growing]:
        """A state for `append`, which the prefix knows nothing of."""
        return [Growing(layer, prefix.length) for layer in prefix.layers]

    def append(self, layers: list[Growing], start: int, ids: Sequence[int]) -> mx.array:
        """Grows the state by `ids` after `start` tokens; the last hidden state (1, width)."""
        hidden = self._forward(ids, layers)[-1:]
        mx.async_eval(hidden, [(layer.keys, layer.values) for layer in layers])  # whoever asks for the result waits
        return hidden

    def room(self, length: int) -> int:
        heads, width = self.body.heads_and_width
        return room(length, 3 * heads, width, self.body.dtype.size)  # where a kernel writes scores out, in float32

    def _layers(self, prefix: MlxPrefix | None) -> Sequence[Any]:
        return prefix.layers if prefix else [None] * self._caches

    @staticmethod
    def _kept(length: int, layers: Sequence[_Layer], *hidden: mx.array) -> MlxPrefix:
        """The start of what the layers have put together, computed with what else is wanted of this pass."""
        parts = tuple((layer.keys[:, :, :length], layer.values[:, :, :length]) for layer in layers)
        mx.eval(parts, hidden)
        return MlxPrefix(length, parts, hidden[0])

    def _forward(self, ids: Sequence[int], layers: Sequence[_Layer]) -> mx.array:
        """Hidden states (N, width)."""
        return self.body([list(ids)], layers)[0]
