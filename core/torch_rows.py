"""Reading a tree with a batched row for each of its branches: for models whose layers pass a state on.

A convolution or a recurrence has no mask: a node in a tree would see its sibling's state. So
each branch is read in a row of its own, after a copy of the whole state. Rows are filled up at
the right, which is safe: no layer of a causal model, a recurrent one neither, lets a later
token change an earlier one.

Some layers go on from their state by single tokens only (Jamba, Mamba, RecurrentGemma: several
at once begin from nothing). Read stepwise, those take a pass for each column of the rows, and a
text after a prefix is read from its start, in one pass.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from core.backend import TreeBatch
from core.pass_memory import rows_at_once
from core.torch_body import Body, seal, spread

#: Values of each tensor that go into a seal.
SEALED = 64


@dataclass(frozen=True)
class RowsPrefix:
    """The model's own cache after some tokens, and the last one's hidden state (1, width)."""

    ids: tuple[int, ...]
    cache: DynamicCache
    hidden: Tensor

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._tensors())

    def seal(self) -> int:
        """Of attention the last token's keys and values, of a state some values from all over it."""
        parts = [part for tensor in self._tensors() for part in (tensor[..., -1:, :], spread(tensor, SEALED))]
        return seal(self.length, self.nbytes, parts)

    def head(self, length: int) -> RowsPrefix:
        raise NotImplementedError("the state after a text cannot be taken back to the state before its end")

    def _tensors(self) -> Iterator[Tensor]:
        for layer in self.cache.layers:
            for value in vars(layer).values():
                parts = value.values() if isinstance(value, dict) else [value]
                yield from (part for part in parts if isinstance(part, Tensor) and part.ndim > 1)


class RowsReader:
    """Hidden states by one row for each branch."""

    strategy = "rows"

    def __init__(self, model: Any, stepwise: bool) -> None:
        self.body = Body(model)
        self._stepwise = stepwise

    def prefill(self, ids: Sequence[int], after: RowsPrefix | None) -> RowsPrefix:
        whole = (*(after.ids if after else ()), *ids)
        if after and not self._stepwise:
            cache = self.cache(after)
        else:
            cache, ids = DynamicCache(config=self.body.config), whole
        return RowsPrefix(whole, cache, self.append(cache, len(whole) - len(ids), ids).clone())

    def read(
        self, prefix: RowsPrefix | None, ids: Sequence[int], tree: TreeBatch, rows: Sequence[int], keep: bool
    ) -> tuple[Tensor, RowsPrefix | None]:
        """Hidden states (R, width) at the rows, and the prefix after `ids` if it is to be kept."""
        if ids:
            prefix = self.prefill(ids, prefix)
        hidden: dict[int, Tensor] = {-1: prefix.hidden[0]} if prefix else {}  # node -> (width,)
        branches = tree.branches(rows)
        at_once = self._rows_at_once(prefix, max((len(branch) for branch in branches), default=1))
        for first in range(0, len(branches), at_once):
            some = branches[first : first + at_once]
            states = self._read_rows(prefix, [[tree.tokens[node] for node in branch] for branch in some])
            for row, branch in zip(states, some, strict=True):
                hidden.update(zip(branch, row, strict=False))
        return torch.stack([hidden[row] for row in rows]), prefix if keep else None

    def cache(self, prefix: RowsPrefix) -> DynamicCache:
        """A state for `append`, which the prefix knows nothing of."""
        return copy.deepcopy(prefix.cache)

    def append(self, cache: DynamicCache, start: int, ids: Sequence[int]) -> Tensor:
        """Grows the state by `ids`; the last hidden state (1, width)."""
        return self._forward([ids], cache, start)[0, -1:]

    def room(self, length: int) -> int:
        return self.body.room(length, 1 + 3 * getattr(self.body.config, "num_attention_heads", 0))

    def _rows_at_once(self, prefix: RowsPrefix | None, depth: int) -> int:
        config, held = self.body.config, prefix.nbytes if prefix else 0
        return rows_at_once(held, depth, config.num_hidden_layers, config.hidden_size, self.body.dtype.itemsize)

    def _read_rows(self, prefix: RowsPrefix | None, rows: Sequence[Sequence[int]]) -> Tensor:
        """Hidden states (B, N, width), N as in the longest row."""
        longest = max(map(len, rows))
        padded = [[*row, *[row[-1]] * (longest - len(row))] for row in rows]
        cache = self.cache(prefix) if prefix else DynamicCache(config=self.body.config)
        if prefix:
            cache.reorder_cache(torch.zeros(len(rows), dtype=torch.long, device=self.body.device))
        return self._forward(padded, cache, prefix.length if prefix else 0)

    def _forward(self, rows: Sequence[Sequence[int]], cache: DynamicCache, start: int) -> Tensor:
        """Hidden states (B, N, width)."""
        steps = 1 if self._stepwise and start else len(rows[0])
        columns = range(0, len(rows[0]), steps)
        parts = [
            self.body([row[at : at + steps] for row in rows], cache, [range(start + at, start + at + steps)])
            for at in columns
        ]
        return torch.cat(parts, dim=1)
