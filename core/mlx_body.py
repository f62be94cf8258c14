"""What the two ways of reading an mlx-lm model share: the model below its output head, counted.

B rows, N tokens
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from core.backend import ModelUnsupported

#: Tokens of one pass of a prefill: what mlx-lm takes too. Scores of all at once would not fit.
CHUNK = 2048
#: Values of each parameter that go into a fingerprint.
FINGERPRINTED = 8


class Body:
    """The part of a model that makes hidden states."""

    def __init__(self, model: nn.Module) -> None:
        self.path = body_path(model)
        self._module = module_at(model, self.path)
        self.layers = len(model.layers)
        self.dtype = float_type(model)
        self.heads_and_width = _heads_and_width(model)
        self.passes = 0

    def __call__(self, ids: Sequence[Sequence[int]], cache: Sequence[Any]) -> mx.array:
        """Hidden states (B, N, width) after the last norm; lazy, as all of MLX until `mx.eval`."""
        self.passes += 1
        return self._module(mx.array(ids), cache=cache)


def _heads_and_width(model: nn.Module) -> tuple[int, int]:
    """Attention heads and the width of a hidden state; some configurations hold a text model's."""
    values = {**(getattr(model.args, "text_config", None) or {}), **vars(model.args)}
    heads = values.get("num_attention_heads") or values.get("n_heads") or 1
    return heads, values.get("hidden_size") or values["d_model"]


def body_path(model: nn.Module) -> str:
    """Where the module lies that owns the layers, such as `model` or `language_model.model`."""
    for name, module in model.named_modules():
        if name and dict.get(module, "layers") is not None and len(module.layers) == len(model.layers):
            return name
    raise ModelUnsupported(f"{type(model).__module__} keeps its layers in a way of its own; use --backend torch")


def module_at(model: nn.Module, path: str) -> nn.Module:
    """The model itself at an empty path."""
    return reduce(getattr, filter(None, path.split(".")), model)


def with_part(module: nn.Module, path: str, part: nn.Module) -> nn.Module:
    """A copy that shares all but the module at `path`."""
    name, _, rest = path.partition(".")
    copied = type(module).__new__(type(module))
    dict.update(copied, module)
    copied.__dict__.update(vars(module))
    copied[name] = with_part(module[name], rest, part) if rest else part
    return copied


def float_type(model: nn.Module) -> mx.Dtype:
    """What the model computes in: of quantised weights, the type of their scales."""
    types = [value.dtype for _, value in tree_flatten(model.parameters())]
    return next((dtype for dtype in types if mx.issubdtype(dtype, mx.floating)), mx.float32)


def seal(length: int, nbytes: int, arrays: Iterable[mx.array]) -> int:
    """A checksum of a prefix: of its sizes and of the values given."""
    return zlib.crc32(_bytes_of(arrays), zlib.crc32(f"{length} {nbytes}".encode()))


def fingerprint(config: Mapping[str, Any], model: nn.Module) -> str:
    """A hash of the configuration, and of each parameter's name, shape, type and some values."""
    found = hashlib.sha256(json.dumps(dict(config), sort_keys=True, default=str).encode())
    parameters = tree_flatten(model.parameters())
    for name, value in parameters:
        found.update(f"{name} {value.shape} {value.dtype}".encode())
    found.update(_bytes_of(spread(value, FINGERPRINTED) for _, value in parameters))
    return found.hexdigest()[:32]


def _bytes_of(arrays: Iterable[mx.array]) -> bytes:
    """In float32, fetched at once: each fetch waits for the device."""
    return np.array(mx.concatenate([array.astype(mx.float32).reshape(-1) for array in arrays])).tobytes()


def spread(array: mx.array, many: int) -> mx.array:
    """About so many values from all over an array, the last one among them."""
    flat = array.reshape(-1)
    return flat[(flat.size - 1) % (step := max(1, flat.size // many)) :: step]
