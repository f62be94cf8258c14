"""A small random model of the same configuration class and the same kinds of layers as a real one."""

from __future__ import annotations

import json
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig
from transformers.cache_utils import get_layer_types_and_kwargs

from core.small_config import NotSmall, small_values


def small_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """The same text model with one layer of each kind, or two, and narrow."""
    config = config.get_text_config(decoder=True)
    try:
        small = type(config).from_dict(small_values(config.to_dict(), config.attribute_map))
        same = set(get_layer_types_and_kwargs(small)[0]) == set(get_layer_types_and_kwargs(config)[0])
    except Exception as failure:  # of any configuration class: one that cannot be shrunk is tried as it is
        raise NotSmall(f"its configuration cannot be shrunk ({failure})") from failure
    if not same:
        raise NotSmall("its kinds of layers are laid out in a way of its own")
    return small


def small_model(kind: type[PreTrainedConfig], values: str, attention: str | None, device: str) -> Any:
    """A random float32 model of a configuration class and its values in JSON, the same each time."""
    options = {"attn_implementation": attention} if attention else {}
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(kind.from_dict(json.loads(values)), dtype=torch.float32, **options)
    except Exception as failure:  # of any model class
        raise NotSmall(f"no small one can be made ({failure})") from failure
    return model.eval().to(device)
