"""Reading a tree in one row: each node sees the prefix, its own ancestors and itself. Attention-only models.

B rows, H attention heads, G query heads per key head, N new tokens, P prefix, D head width, R rows read
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from core.backend import TreeBatch
from core.torch_attention import ATTENTION, Appended, Concatenated, Growing, Kept
from core.torch_body import Body, seal
from core.torch_forest import is_cheaper_apart, padded, trees_of
from core.torch_masks import FULL, SLIDING, Masks, windows_of


@dataclass(frozen=True)
class TorchPrefix:
    """Keys and values by layer, each (1, H/G, P, D), and the last token's hidden state (1, width).

    Nothing for a layer that has no keys of its own.
    """

    length: int
    layers: tuple[tuple[Tensor, ...], ...]
    hidden: Tensor | None  # None after a cut: nothing is decoded from there

    @property
    def nbytes(self) -> int:
        """What it holds in memory: of a read that was kept, the tree too."""
        return sum(tensor.untyped_storage().nbytes() for layer in self.layers for tensor in layer)

    def seal(self) -> int:
        return seal(self.length, self.nbytes, [keys[:, :, -1] for keys, _ in filter(None, self.layers)])

    def head(self, length: int) -> TorchPrefix:
        layers = tuple(tuple(tensor[:, :, :length].clone() for tensor in layer) for layer in self.layers)
        return TorchPrefix(length, layers, None)


class TreeReader:
    """Hidden states by the tree pass."""

    strategy = "tree"

    def __init__(self, model: Any) -> None:
        self.body = Body(model)
        windows = windows_of(self.body.config)
        if not windows.keys() <= {FULL, SLIDING}:
            raise NotImplementedError(f"layers of kind {', '.join(windows.keys() - {FULL, SLIDING})} are not attention")
        attention = self.body.config._attn_implementation
        self._masks = Masks(windows, self.body.dtype, self.body.device, always=attention == "eager")
        layer = self.body.config.per_layer_config[0]
        heads = layer.num_attention_heads
        keys = getattr(layer, "num_key_value_heads", None) or heads
        # Folded, a mask is repeated for the queries of one key head; elsewhere scores may be written out, in float32.
        self._copies = len(windows) + (heads // keys if attention == ATTENTION else 3 * heads)

    def prefill(self, ids: Sequence[int], after: TorchPrefix | None) -> TorchPrefix:
        start = after.length if after else 0
        layers = self._layers(Appended, after)
        hidden = self._forward(ids, layers, self._masks.causal(start, len(ids)), range(start, start + len(ids)))
        kept = tuple(() if layer.keys is None else (layer.keys, layer.values) for layer in layers)
        return TorchPrefix(start + len(ids), kept, hidden[-1:].clone())

    def read(
        self, prefix: TorchPrefix | None, ids: Sequence[int], tree: TreeBatch, rows: Sequence[int], keep: bool
    ) -> tuple[Tensor, TorchPrefix | None]:
        """Hidden states (R, width) at the rows, and the prefix after `ids` if it is to be kept."""
        start = prefix.length if prefix else 0
        if not ids and is_cheaper_apart(start, list(map(len, trees := trees_of(tree)))):
            return self._read_apart(prefix, tree, trees, rows), prefix if keep else None
        layers = self._layers(Kept if keep and ids else Concatenated, prefix)
        mask = self._masks.trees(start, len(ids), [tree])
        hidden = self._forward([*ids, *tree.tokens], layers, mask, tree.positions(start, len(ids)))
        if keep and ids:
            prefix = self._kept(start + len(ids), layers, hidden[len(ids) - 1 : len(ids)].clone())
        if -1 in rows and not ids:  # the prompt's end is not in this pass
            hidden = torch.cat([hidden, prefix.hidden])
        at = torch.tensor([len(ids) + row for row in rows], device=self.body.device)
        return hidden[at], prefix if keep else None

    def _read_apart(
        self, prefix: TorchPrefix, tree: TreeBatch, trees: Sequence[Sequence[int]], rows: Sequence[int]
    ) -> Tensor:
        """Hidden states (R, width), each of the trees in a row of its own."""
        some = [padded(tree, nodes, max(map(len, trees))) for nodes in trees]
        mask = self._masks.trees(prefix.length, 0, some)
        positions = [one.positions(prefix.length, 0) for one in some]
        cache = Cache(layers=self._layers(Concatenated, prefix))
        hidden = self.body([one.tokens for one in some], cache, positions, mask)  # (B, N, width)
        place = {node: (row, i) for row, nodes in enumerate(trees) for i, node in enumerate(nodes)}
        return torch.stack([hidden[place[row]] if row >= 0 else prefix.hidden[0] for row in rows])

    def cache(self, prefix: TorchPrefix) -> list[Growing]:
        """A state for `append`, which the prefix knows nothing of."""
        return self._layers(Growing, prefix)

    def append(self, layers: list[Growing], start: int, ids: Sequence[int]) -> Tensor:
        """Grows the state by `ids` after `start` tokens; the last hidden state (1, width)."""
        return self._forward(ids, layers, self._masks.causal(start, len(ids)), range(start, start + len(ids)))[-1:]

    def room(self, length: int) -> int:
        return self.body.room(length, self._copies)

    def _layers(self, kind: type, prefix: TorchPrefix | None) -> list:
        if prefix:
            return [kind(*layer) for layer in prefix.layers]
        return [kind() for _ in range(self.body.config.num_hidden_layers)]

    @staticmethod
    def _kept(length: int, layers: list[Kept], hidden: Tensor) -> TorchPrefix:
        """The start of what the layers have put together: no copy, so that the tree's end stays in memory too."""
        parts = tuple(tuple(tensor[:, :, :length] for tensor in layer.kept) for layer in layers)
        return TorchPrefix(length, parts, hidden)

    def _forward(self, ids: Sequence[int], layers: list, mask: Any, positions: Sequence[int]) -> Tensor:
        """Hidden states (N, width)."""
        return self.body([ids], Cache(layers=layers), [positions], mask)[0]
