"""The output head: float32 log-probabilities through whatever the model's own forward applies.

Soft caps and scales before or after the head (Gemma 2, Granite, Cohere, MiniCPM, Falcon-H1) are
the model's own code. What comes after the head must act on each logit alone, so that a piece of
the vocabulary can be computed without the rest; core/torch_probe.py sees where that is not so.

R rows, V vocabulary
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

#: Bytes of the output head in float32 at a time. On a CPU a piece should stay in cache: 57 rows against
#: 151,936 x 1,536 take 860 ms in pieces of 100 MB and 410 ms in pieces of 6 MB. Each piece is a call of
#: the model's forward: 30 us, beside 1.5 ms for 6 MB of SmolLM2's head.
HEAD_PIECE = {"cpu": 6 << 20}
HEAD_PIECE_ELSEWHERE = 192 << 20


class OutputHead:
    """What a model does with the hidden states that its body returns. The model itself is not altered."""

    def __init__(self, model: Any) -> None:
        head = model.get_output_embeddings()
        self._weight: Tensor = head.weight  # (V, width)
        self._bias: Tensor | None = getattr(head, "bias", None)
        below = _path(model, model.get_decoder()).split(".")[0]
        self._piece, self._given = _Piece(), _Given(model.get_submodule(below))
        self._whole = _with(model, below, self._given)
        self._in_pieces = _with(self._whole, _path(model, head), self._piece)

    @property
    def size(self) -> int:
        """V, padding included."""
        return len(self._weight)

    def logits(self, hidden: Tensor) -> Tensor:
        """(R, width) -> (R, V), in the model's own numbers."""
        return self._forward(self._whole, hidden)

    def log_probabilities(self, hidden: Tensor, wanted: Sequence[np.ndarray]) -> list[np.ndarray]:
        """float32 log-probabilities of the wanted ids at each row; hidden (R, width).

        The head is turned to float32 in pieces, because bf16 logits put near ties at 0.5000
        and a float32 copy of a 151,936 x 1,536 head is 933 MB.
        """
        hidden, device = hidden.float(), hidden.device
        rows = np.repeat(np.arange(len(wanted)), [len(ids) for ids in wanted])
        ids = np.concatenate(wanted)
        order = np.argsort(ids, kind="stable")  # so that a piece of the head meets one run of them
        row, token = (torch.from_numpy(array[order]).to(device) for array in (rows, ids))
        logits = torch.empty(len(ids), device=device)
        totals = []  # log of the summed exponentials, by piece
        size = max(1, HEAD_PIECE.get(device.type, HEAD_PIECE_ELSEWHERE) // (4 * self._weight.shape[1]))
        for first in range(0, len(self._weight), size):
            piece = self._part(hidden, slice(first, first + size))  # (R, size)
            totals.append(piece.logsumexp(-1))
            here = slice(*np.searchsorted(ids[order], (first, first + size)))
            logits[here] = piece[row[here], token[here] - first]
        normaliser = torch.stack(totals).logsumexp(0)  # (R,)
        flat = np.empty(len(ids), dtype=np.float32)
        flat[order] = (logits - normaliser[row]).cpu().numpy()
        return np.split(flat, np.cumsum([len(ids) for ids in wanted])[:-1])

    def _part(self, hidden: Tensor, part: slice) -> Tensor:
        self._piece.rows, self._piece.bias = self._weight[part], None if self._bias is None else self._bias[part]
        return self._forward(self._in_pieces, hidden)

    def _forward(self, model: nn.Module, hidden: Tensor) -> Tensor:
        self._given.hidden = hidden[None]
        # The class's forward: one that was put on the model itself would still run the whole model.
        return type(model).forward(model, input_ids=_NO_IDS, use_cache=False).logits[0]


_NO_IDS = torch.zeros(1, 1, dtype=torch.long)


class _Given(nn.Module):
    """Stands where the body was: its output is known."""

    hidden: Tensor  # (1, R, width)

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self._body = (body,)  # not a child of this module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body[0], name)  # Falcon-H1 reads a scale there

    def forward(self, *args: Any, **kwargs: Any) -> _Output:
        return _Output(self.hidden)

    @property
    def decoder(self) -> _Given:
        return self  # OPT calls `self.model.decoder`


class _Output:
    """A body's output of which all but the hidden states is None."""

    def __init__(self, hidden: Tensor) -> None:
        self.last_hidden_state = hidden

    def __getattr__(self, name: str) -> None:
        return None

    def __getitem__(self, index: int) -> Tensor:
        return (self.last_hidden_state,)[index]


class _Piece(nn.Module):
    """Stands where the output embedding was: a part of it, in float32."""

    rows: Tensor  # (part, width)
    bias: Tensor | None  # (part,)
    weight = torch.empty(0)  # models look at its type, and give the hidden states the same one

    def forward(self, hidden: Tensor) -> Tensor:
        logits = hidden @ self.rows.float().T
        return logits if self.bias is None else logits + self.bias.float()


def _path(model: nn.Module, part: nn.Module) -> str:
    return next(name for name, module in model.named_modules() if module is part)


def _with(module: nn.Module, path: str, part: nn.Module) -> nn.Module:
    """A copy that shares all but the module at `path`."""
    name, _, rest = path.partition(".")
    copied = copy.copy(module)
    copied._modules = dict(module._modules)
    copied._modules[name] = _with(module._modules[name], rest, part) if rest else part
    return copied
