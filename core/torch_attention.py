"""How the torch backend attends: one layer's keys and values in three ways, and masks without copies.

B batch (1), H attention heads, G query heads per key head, N new tokens, P prefix, D head width
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

#: Tokens by which a decoder's cache grows: one copy of the cache per so many tokens.
DECODER_ROOM = 256


class _Layer(CacheLayerMixin):
    """Base of the three ways to keep one layer's keys and values (B, H/G, P, D)."""

    def __init__(self, keys: Tensor | None = None, values: Tensor | None = None) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self.length = 0 if keys is None else keys.shape[2]
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None: ...

    def get_seq_length(self) -> int:
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_max_length(self) -> int:
        return -1


class Concatenated(_Layer):
    """For one read: new keys stand behind the prefix's while the layer is computed, then go."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if self.keys is None:
            return key_states, value_states
        return torch.cat([self.keys, key_states], dim=2), torch.cat([self.values, value_states], dim=2)


class Appended(Concatenated):
    """For a prefill: keeps what it returns."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        self.keys, self.values = super().update(key_states, value_states)
        self.length = self.keys.shape[2]
        return self.keys, self.values


class Growing(_Layer):
    """For a decoder: room ahead, so that a token copies nothing but itself."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        end = self.length + key_states.shape[2]
        if self.length == self._start or end > self.keys.shape[2]:
            self._grow(end + DECODER_ROOM)
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__(keys, values)
        self._start = self.length  # until the first token comes, the memory is the prefix's own

    def _grow(self, room: int) -> None:
        old = self.keys[:, :, : self.length], self.values[:, :, : self.length]
        shape = (*old[0].shape[:2], room, old[0].shape[3])
        self.keys, self.values = (tensor.new_empty(shape) for tensor in old)
        self.keys[:, :, : self.length], self.values[:, :, : self.length] = old


def _attend(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attention under an explicit mask without a copy of the keys for each query head.

    The G query heads of a key head become G x N queries of one head. Measured on a CPU in
    bf16, 176 queries over 1,263 keys, G = 6: 15.4 ms a layer against 18.8 ms with repeated keys.
    """
    if attention_mask is None:
        return sdpa_attention_forward(module, query, key, value, None, **kwargs)
    batch, heads, new, width = query.shape
    groups = heads // key.shape[1]
    folded = query.reshape(batch, key.shape[1], groups * new, width)
    mask = attention_mask.expand(-1, groups, -1, -1).reshape(1, 1, groups * new, -1)
    output = F.scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=kwargs.get("scaling"))
    return output.reshape(batch, heads, new, width).transpose(1, 2).contiguous(), None


ATTENTION = "pcd_folded"
AttentionInterface.register(ATTENTION, _attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
