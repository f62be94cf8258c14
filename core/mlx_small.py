"""A small random model of a real one's kind, as mlx-lm makes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten

from core.mlx_config import as_mlx_reads_it
from core.small_config import NotSmall, small_values


@dataclass(frozen=True)
class Kind:
    """What says how a model computes: mlx-lm's classes and the configuration's values."""

    model: type[nn.Module]
    arguments: type
    config: Mapping[str, Any]
    names: Mapping[str, str]  # the configuration class's own names of common ones

    @property
    def name(self) -> str:
        return self.config["model_type"]

    @property
    def values(self) -> dict[str, Any]:
        """The text model's: some configurations hold several models'."""
        return {**self.config, **(self.config.get("text_config") or {})}

    def small(self, **changed: Any) -> nn.Module:
        """A random float32 model, the same each time; `changed` are values of its own. Raises `NotSmall`."""
        try:
            values = small_values(self.values, self.names) | changed
            for name in ("text_config", "quantization"):
                values.pop(name, None)
            model = self.model(self.arguments.from_dict(as_mlx_reads_it(values, values, self.names)))
            if values.get("tie_word_embeddings") and hasattr(model, "sanitize"):
                model.sanitize({})  # Gemma learns there that its head is tied
        except Exception as failure:  # of any model class: one that cannot be made small is tried as it is
            raise NotSmall(f"no small one can be made ({failure})") from failure
        drawn = {name: _random(i, name, value) for i, (name, value) in enumerate(tree_flatten(model.parameters()))}
        model.update(tree_unflatten(list(drawn.items())))
        return model.eval()


def _random(number: int, name: str, value: mx.array) -> mx.array:
    """Matrices far from even, so that a wrong reading shows; biases too. Norms stay as they are made."""
    value = value.astype(mx.float32)
    if value.ndim < 2 and not name.endswith("bias"):
        return value
    width = 1.5 / math.sqrt(value.shape[-1])
    return width * mx.random.normal(value.shape, key=mx.random.key(number))
