"""A folder as mlx-lm loads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map
from mlx_lm.utils import load_config, load_model
from transformers import PreTrainedConfig

from core.mlx_config import as_mlx_reads_it
from core.mlx_small import Kind


def read_checkpoint(directory: Path, config: PreTrainedConfig) -> tuple[nn.Module, Kind]:
    """The model, its weights not yet read, and what says how it computes. Raises whatever mlx-lm raises."""
    read = as_mlx_reads_it(load_config(directory), config.to_dict(), config.attribute_map)
    model, values = load_model(directory, lazy=True, model_config=read)
    return model, Kind(type(model), type(model.args), values, config.attribute_map)


def cast(model: nn.Module, dtype: mx.Dtype) -> None:
    """Turns what is a number of its own; packed weights stay packed."""
    model.update(tree_map(lambda value: _cast(value, dtype), model.parameters()))


def weights_name(model: nn.Module) -> str:
    """What weights are packed in: `4-bit`, `4/8-bit`, `4-bit mxfp4`; empty where none are."""
    packed = [module for module in model.modules() if dict.get(module, "scales") is not None]
    bits = "/".join(map(str, sorted({_bits_of(module) for module in packed})))
    modes = sorted({module.mode for module in packed} - {"affine"})
    return " ".join([f"{bits}-bit", *modes]) if packed else ""


def _bits_of(module: Any) -> int:
    """By the sizes: what config.json states need not be so."""
    return 32 * module.weight.shape[-1] // (module.scales.shape[-1] * module.group_size)


def _cast(value: Any, dtype: mx.Dtype) -> Any:
    return value.astype(dtype) if mx.issubdtype(value.dtype, mx.floating) else value
