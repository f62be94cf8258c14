"""Reading a tree with a batched row for each of its branches, in mlx-lm: for models whose layers pass a state on.

A node in a tree would see its sibling's state. So each branch is read in a row of its own, after a copy of the
whole state. Rows are filled up at the right, which is safe: no layer of a causal model lets a later token change
an earlier one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models.cache import make_prompt_cache

from core.backend import TreeBatch
from core.mlx_body import CHUNK, Body, seal, spread
from core.pass_memory import room, rows_at_once

#: Values of each array that go into a seal.
SEALED = 64


@dataclass(frozen=True)
class RowsPrefix:
    """The model's own caches after some tokens, and the last one's hidden state (1, width)."""

    length: int
    caches: tuple[Any, ...]
    hidden: mx.array

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays())

    def seal(self) -> int:
        return seal(self.length, self.nbytes, [spread(array, SEALED) for array in self._arrays()])

    def head(self, length: int) -> RowsPrefix:
        raise NotImplementedError("the state after a text cannot be taken back to the state before its end")

    def _arrays(self) -> Iterator[mx.array]:
        for cache in self.caches:
            yield from (value for _, value in tree_flatten(cache.state) if isinstance(value, mx.array))


class RowsReader:
    """Hidden states by one row for each branch."""

    strategy = "rows"

    def __init__(self, model: nn.Module) -> None:
        self.body = Body(model)
        self._model = model

    def prefill(self, ids: Sequence[int], after: RowsPrefix | None) -> RowsPrefix:
        """A pass for each `CHUNK` of the tokens."""
        caches, start = self.cache(after), after.length if after else 0
        for first in range(0, len(ids), CHUNK):
            hidden = self.append(caches, start + first, ids[first : first + CHUNK])
        return RowsPrefix(start + len(ids), tuple(caches), hidden)

    def read(
        self, prefix: RowsPrefix | None, ids: Sequence[int], tree: TreeBatch, rows: Sequence[int], keep: bool
    ) -> tuple[mx.array, RowsPrefix | None]:
        """Hidden states (R, width) at the rows, and the prefix after `ids` if it is to be kept."""
        if ids:
            prefix = self.prefill(ids, prefix)
        hidden: dict[int, mx.array] = {-1: prefix.hidden[0]} if prefix else {}  # node -> (width,)
        branches = tree.branches(rows)
        at_once = self._rows_at_once(prefix, max(map(len, branches), default=1))
        for first in range(0, len(branches), at_once):
            some = branches[first : first + at_once]
            states = self._read_rows(prefix, [[tree.tokens[node] for node in branch] for branch in some])
            for row, branch in enumerate(some):
                hidden |= {node: states[row, place] for place, node in enumerate(branch)}
        found = mx.stack([hidden[row] for row in rows])
        mx.eval(found)
        return found, prefix if keep else None

    def cache(self, prefix: RowsPrefix | None) -> list[Any]:
        """A state for `append`, which the prefix knows nothing of."""
        return copy.deepcopy(list(prefix.caches)) if prefix else make_prompt_cache(self._model)

    def append(self, caches: list[Any], start: int, ids: Sequence[int]) -> mx.array:
        """Grows the state by `ids`; the last hidden state (1, width)."""
        hidden = self.body([list(ids)], caches)[0, -1:]
        mx.async_eval(hidden, [cache.state for cache in caches])  # whoever asks for the result waits
        return hidden

    def room(self, length: int) -> int:
        heads, width = self.body.heads_and_width
        return room(length, 1 + 3 * heads, width, self.body.dtype.size)

    def _rows_at_once(self, prefix: RowsPrefix | None, depth: int) -> int:
        held, (_, width) = prefix.nbytes if prefix else 0, self.body.heads_and_width
        return rows_at_once(held, depth, self.body.layers, width, self.body.dtype.size)

    def _read_rows(self, prefix: RowsPrefix | None, rows: Sequence[Sequence[int]]) -> mx.array:
        """Hidden states (B, N, width), N as in the longest row."""
        longest = max(map(len, rows))
        caches = self.cache(prefix)
        for cache in caches if prefix else []:
            cache.state = tree_map(lambda value: _repeated(value, len(rows)), cache.state)
        hidden = self.body([[*row, *[row[-1]] * (longest - len(row))] for row in rows], caches)
        mx.eval(hidden)
        return hidden


def _repeated(value: Any, rows: int) -> Any:
    return mx.repeat(value, rows, axis=0) if isinstance(value, mx.array) else value
