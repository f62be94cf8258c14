"""What a backend is: two verbs and a decoder. It knows nothing of schemas, prompts or JSON.

Ints, NumPy arrays and packed masks cross this border; tensors do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class BackendMissing(RuntimeError):
    """A backend that cannot run here; the message says what to install or to choose."""


class ModelUnsupported(RuntimeError):
    """A model that this backend would read wrongly."""


@dataclass(frozen=True)
class Identity:
    """What runs, for results and screens."""

    backend: str
    device: str
    dtype: str
    window: int  # positions that the model can read
    vocab_size: int  # logits per position, padding included
    end_ids: frozenset[int]  # tokens that end a turn


@dataclass(frozen=True)
class TreeBatch:
    """The tries of all fields in one sequence, parents before children.

    Only nodes with a fork at or below them are here; fields share nodes where their lines
    begin alike. Depth 0 follows the prompt's last token.
    """

    tokens: tuple[int, ...]  # (N,)
    parents: tuple[int, ...]  # (N,) -1: the prompt
    depths: tuple[int, ...]  # (N,)


class Prefix(Protocol):
    """The KV state after some tokens; immutable once made."""

    @property
    def length(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def head(self, length: int) -> Prefix:
        """The state after the first `length` tokens, in memory of its own."""
        ...


class Decoder(Protocol):
    """The baseline's growing state, a cache of its own."""

    def choose(self, mask: np.ndarray | None = None) -> int:
        """The likeliest next token, among those whose bit is set: `mask` is int32, 32 tokens a word."""
        ...

    def append(self, ids: Sequence[int]) -> None:
        """Reads the tokens in one pass."""
        ...


class Backend(Protocol):
    identity: Identity
    tokenizer: Any  # of transformers
    passes: int  # calls of the model's forward so far, counted beside the call

    def prefill(self, ids: Sequence[int], after: Prefix | None = None) -> Prefix: ...

    def read(
        self,
        prefix: Prefix | None,
        ids: Sequence[int],
        tree: TreeBatch,
        rows: Sequence[int],
        wanted: Sequence[np.ndarray],
    ) -> list[np.ndarray]:
        """Log-probabilities at tree nodes, in one pass over `ids` and the tree after `prefix`.

        `rows[i]` is a node, `wanted[i]` int64 token ids (K_i,). Returns float32 arrays (K_i,),
        normalised over the full vocabulary. The prefix is unchanged.
        """
        ...

    def decoder(self, prefix: Prefix) -> Decoder: ...

    def synchronize(self) -> None:
        """Waits until the device has done all that was asked of it: called before a clock stops."""
        ...
