"""What the two ways of reading share: the model below its output head, counted, and how much memory a pass takes."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from core.pass_memory import room

#: Values of each parameter that go into a fingerprint.
FINGERPRINTED = 8


class Body:
    """The part of a model that makes hidden states."""

    def __init__(self, model: Any) -> None:
        self._module = model.get_decoder()
        self.config = model.config.get_text_config(decoder=True)
        parameter = next(self._module.parameters())
        self.device, self.dtype = parameter.device, parameter.dtype
        self.passes = 0

    def __call__(
        self, ids: Sequence[Sequence[int]], cache: Any, positions: Sequence[Sequence[int]], attention_mask: Any = None
    ) -> Tensor:
        """Hidden states (B, N, width) after the last norm; ids (B, N), positions (B, N), or (1, N) for all rows."""
        tokens = torch.tensor(ids, device=self.device)
        at = torch.tensor([list(row) for row in positions], device=self.device)  # Bamba counts anew after a cache
        self.passes += 1
        output = self._module(
            input_ids=tokens, position_ids=at, attention_mask=attention_mask, cache=cache, use_cache=True
        )
        return output.last_hidden_state

    def room(self, length: int, copies: int) -> int:
        """Tokens that a masked pass after `length` has memory for, with so many copies of its mask or scores."""
        return room(length, copies, self.config.hidden_size, self.dtype.itemsize)


def seal(length: int, nbytes: int, tensors: Iterable[Tensor]) -> int:
    """A checksum of a prefix: of its sizes and of the values given."""
    parts = [tensor.detach().reshape(-1).contiguous().view(torch.uint8) for tensor in tensors]
    sizes = f"{length} {nbytes}".encode()
    return zlib.crc32(torch.cat(parts).cpu().numpy().tobytes() if parts else b"", zlib.crc32(sizes))


def fingerprint(model: Any) -> str:
    """A hash of the configuration, and of each parameter's name, shape, type and some values."""
    config = {name: value for name, value in model.config.to_dict().items() if name != "_name_or_path"}
    found = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    samples = []
    for name, parameter in model.named_parameters():
        found.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}".encode())
        samples.append(spread(parameter.detach(), FINGERPRINTED).float())
    found.update(torch.cat(samples).cpu().numpy().tobytes())
    return found.hexdigest()[:32]


def spread(tensor: Tensor, many: int) -> Tensor:
    """About so many values from all over a tensor, the last one among them."""
    flat = tensor.reshape(-1)
    return flat[(flat.numel() - 1) % (step := max(1, flat.numel() // many)) :: step]
