"""A model's configuration as mlx-lm reads it.

transformers 5 writes the rotary settings into `rope_parameters` and the kinds of layers into
`layer_types`; most classes of mlx-lm read `rope_theta`, `rope_scaling` and a pattern, and take
their own defaults, without a word, where they find none: SmolLM2's base of 100,000 becomes 10,000.
The number of experts has changed its name too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.backend import ModelUnsupported

FULL, SLIDING = "full_attention", "sliding_attention"


def as_mlx_reads_it(stated: Mapping[str, Any], full: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """What config.json states, with transformers' defaults for the rest and the older names beside the newer.

    `full` is the configuration as transformers has read it, whose rotary settings count; `names` is its class's own
    name of a common one. Raises `ModelUnsupported`.
    """
    read = {name: value for name, value in full.items() if value is not None} | dict(stated)
    if isinstance(stated.get("text_config"), Mapping):
        read["text_config"] = as_mlx_reads_it(stated["text_config"], full["text_config"], names)
    common = {name: read[own] for name, own in names.items() if own in read and name not in read}
    return read | common | _rotary(full.get("rope_parameters") or {}) | _pattern(read)


def _rotary(parameters: Mapping[str, Any]) -> dict[str, Any]:
    by_kind = {kind: value for kind, value in parameters.items() if isinstance(value, Mapping)}
    if not by_kind:
        return _older_names(parameters)
    if not by_kind.keys() <= {FULL, SLIDING} or FULL not in by_kind:
        raise ModelUnsupported(f"rotary settings by {', '.join(by_kind)} are unknown to mlx-lm; use --backend torch")
    local = by_kind.get(SLIDING, {})
    if local.get("rope_type", "default") != "default":
        raise ModelUnsupported("mlx-lm scales no rotary base of sliding layers; use --backend torch")
    own = {"rope_local_base_freq": local["rope_theta"]} if "rope_theta" in local else {}
    return _older_names(by_kind[FULL]) | own


def _older_names(parameters: Mapping[str, Any]) -> dict[str, Any]:
    older = {name: parameters[name] for name in ("rope_theta", "partial_rotary_factor") if name in parameters}
    if (scaling := parameters.get("rope_type", "default")) != "default":
        older["rope_scaling"] = {**parameters, "type": scaling}
    return older


def _pattern(config: Mapping[str, Any]) -> dict[str, Any]:
    """`sliding_window_pattern` n: every n-th layer sees all. Nothing where the kinds follow no such pattern."""
    kinds = config.get("layer_types")
    if not kinds or set(kinds) != {FULL, SLIDING}:
        return {}
    every = kinds.index(FULL) + 1
    follows = all((kind == FULL) == (i % every == every - 1) for i, kind in enumerate(kinds))
    return {"sliding_window_pattern": every} if follows else {}
