"""Who sees whom: additive attention masks for causal tokens and the tree behind them.

A window is counted in positions, not in places: a tree's nodes stand at the positions of their
own lines, many of them at the same one. B rows, N new tokens, P prefix
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.backend import TreeBatch

#: A mask for all layers, or one for each kind of them; None leaves it to the model.
Mask = Tensor | dict[str, Tensor | None] | None

FULL, SLIDING = "full_attention", "sliding_attention"


def windows_of(config: Any) -> dict[str, int | None]:
    """How far each kind of layer looks back, in positions; None: to the start. `config` is the text model's."""
    windows = [getattr(layer, "sliding_window", None) for layer in config.per_layer_config]
    kinds = getattr(config, "layer_types", None) or [SLIDING if window else FULL for window in windows]
    return {kind: window if kind == SLIDING else None for kind, window in zip(kinds, windows, strict=True)}


class Masks:
    """Makes the masks of one model's layers.

    `always`: also where the model's own causal shortcut would do.
    """

    def __init__(self, windows: dict[str, int | None], dtype: torch.dtype, device: torch.device, always: bool) -> None:
        self._windows, self._dtype, self._device, self._always = windows, dtype, device, always

    def causal(self, start: int, new: int) -> Mask:
        """For `new` tokens after `start`; None where no mask is the causal one, which the fast kernels need."""
        plain = not self._always and (start == 0 or new == 1)
        return self._by_kind(start, np.tri(new, dtype=bool)[None], [range(start, start + new)], plain)

    def trees(self, start: int, causal: int, trees: Sequence[TreeBatch]) -> Mask:
        """For `causal` tokens after `start` and the tree that follows them, in each row; the trees are of one size."""
        sight = np.stack([tree.sight(causal) for tree in trees])
        return self._by_kind(start, sight, [tree.positions(start, causal) for tree in trees], False)

    def _by_kind(self, start: int, sight: np.ndarray, positions: Sequence[Sequence[int]], plain: bool) -> Mask:
        end = max(map(max, positions)) + 1
        reaches = {kind: window if window and window < end else None for kind, window in self._windows.items()}
        made = {
            reach: None if plain and reach is None else self._additive(start, sight, positions, reach)
            for reach in set(reaches.values())
        }
        masks = {kind: made[reach] for kind, reach in reaches.items()}
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _additive(
        self, start: int, sight: np.ndarray, positions: Sequence[Sequence[int]], window: int | None
    ) -> Tensor:
        """(B, 1, N, P + N): each token sees the prefix, what leads to it, and itself, as far as its window."""
        rows, size = sight.shape[:2]
        mask = torch.zeros(rows, 1, size, start + size, dtype=self._dtype, device=self._device)
        lowest = torch.finfo(self._dtype).min
        mask[:, 0, :, start:].masked_fill_(torch.from_numpy(~sight).to(self._device), lowest)
        if window is not None:
            at = torch.tensor([list(row) for row in positions], device=self._device)  # (B, N)
            of = torch.cat([torch.arange(start, device=self._device).expand(rows, -1), at], dim=1)  # (B, P + N)
            mask[:, 0].masked_fill_(at[:, :, None] - of[:, None] >= window, lowest)
        return mask
