"""What a backend is: two verbs and a decoder. It knows nothing of schemas, prompts or JSON.

Ints, NumPy arrays and packed masks cross this border; tensors do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np


class BackendMissing(RuntimeError):
    """A backend that cannot run here; the message says what to install or to choose."""


class ModelUnsupported(RuntimeError):
    """A model that this backend would read wrongly."""


#: How a tree is read: all of it in one row in which a node sees only its ancestors, a batched row per branch, or a
#: prompt of its own for each node that is read.
Strategy = Literal["tree", "rows", "prompts"]
#: Whose time it is: of this process beside the device, or of a client around the wire.
Clock = Literal["engine", "client"]
CLOCKS: Mapping[Clock, str] = {"engine": "engine time", "client": "client time around the wire"}


@dataclass(frozen=True)
class Identity:
    """What runs, for results, screens and cache keys."""

    backend: str
    device: str
    dtype: str
    window: int  # positions that the model can read
    vocab_size: int  # logits per position, padding included
    end_ids: frozenset[int]  # tokens that end a turn
    strategy: Strategy  # what a probe of the model's class has proved
    fingerprint: str  # of configuration and weights: another model has another one
    architecture: str = ""  # the configuration's name for it, such as qwen2
    clock: Clock = "engine"
    #: Token ids that are asked for at one fork, where not all that go into its branches can be; None: all.
    most_ids: int | None = None


def end_ids(*given: int | list[int] | None) -> frozenset[int]:
    """Of what configuration and tokenizer say: one id, several, or nothing."""
    return frozenset(i for ids in given if ids is not None for i in ([ids] if isinstance(ids, int) else ids))


@dataclass(frozen=True)
class TreeBatch:
    """Token paths that share their beginnings, in one sequence, parents before children.

    Depth 0 follows the prompt's last token. Nodes that do not descend from one another do not
    see each other, so that several trees are a tree batch too.
    """

    tokens: tuple[int, ...]  # (N,)
    parents: tuple[int, ...]  # (N,) -1: the prompt
    depths: tuple[int, ...]  # (N,)

    @classmethod
    def of(cls, paths: Iterable[Sequence[int]]) -> tuple[TreeBatch, list[int]]:
        """The tree that holds every path, and the node at the end of each; -1 for the empty path."""
        nodes: dict[tuple[int, int], int] = {}  # (parent, token) -> node
        ends = []
        for path in paths:
            node = -1
            for token in path:
                node = nodes.setdefault((node, token), len(nodes))
            ends.append(node)
        depths: list[int] = []
        for parent, _ in nodes:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        return cls(tuple(token for _, token in nodes), tuple(parent for parent, _ in nodes), tuple(depths)), ends

    def path(self, node: int) -> list[int]:
        """The node and what leads to it, from the root on."""
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]

    def positions(self, start: int, causal: int) -> list[int]:
        """Of `causal` tokens after `start` and of the nodes behind them, (causal + N,): a node's is its depth."""
        return [*range(start, start + causal), *(start + causal + depth for depth in self.depths)]

    def sight(self, causal: int) -> np.ndarray:
        """Who sees whom among `causal` tokens and the nodes behind them, (causal + N, causal + N) bool."""
        size = causal + len(self.tokens)
        sight = np.zeros((size, size), dtype=bool)
        sight[:causal, :causal] = np.tri(causal, dtype=bool)
        sight[causal:, :causal] = True
        for node, parent in enumerate(self.parents, start=causal):
            if parent >= 0:
                sight[node] = sight[causal + parent]
            sight[node, node] = True
        return sight

    def branches(self, rows: Sequence[int]) -> list[list[int]]:
        """The paths that hold every node of `rows`, none of them a part of another."""
        inner = {ancestor for row in rows for ancestor in self.path(row)[:-1]}
        return [self.path(row) for row in sorted(set(rows) - inner) if row >= 0]


class Prefix(Protocol):
    """The model's state after some tokens; immutable once made."""

    @property
    def length(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def seal(self) -> int:
        """A cheap number that a damaged or changed prefix does not keep: length, bytes, the last token's keys."""
        ...

    def head(self, length: int) -> Prefix:
        """The state after the first `length` tokens, in memory of its own.

        Not where the strategy is `rows`: a recurrent state cannot be taken back.
        """
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
        keep: bool = False,
    ) -> tuple[list[np.ndarray], Prefix | None]:
        """Log-probabilities at tree nodes, after `prefix` and `ids`.

        `rows[i]` is a node, `wanted[i]` int64 token ids (K_i,). Returns float32 arrays (K_i,),
        normalised over the full vocabulary, and with `keep` the prefix after `ids`, which has
        cost no pass of its own. The prefix given is unchanged. One pass where the strategy is `tree`.
        """
        ...

    def room(self, length: int) -> int:
        """New tokens that one pass after a prefix of this length has memory for, at least 1."""
        ...

    def decoder(self, prefix: Prefix) -> Decoder: ...

    def synchronize(self) -> None:
        """Waits until the device has done all that was asked of it: called before a clock stops."""
        ...


def room_after(backend: Backend, length: int) -> int:
    """New tokens of one pass after a prefix of this length: what memory allows, and never more than the window spans.

    Prompts of their own do not add up.
    """
    if backend.identity.strategy == "prompts":
        return backend.room(length)
    return min(backend.room(length), backend.identity.window - length)
