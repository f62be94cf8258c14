"""Sliding windows that mlx-lm does not keep as a configuration states them.

Its Qwen2, Phi 3, Gemma 2 and Mistral see everything, whatever the configuration says. Up to the window's length
that is the same model; beyond it, it is another one.
"""

from __future__ import annotations

import mlx.nn as nn
from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache

from core.backend import ModelUnsupported
from core.mlx_config import SLIDING
from core.mlx_probe import expected_of
from core.mlx_small import Kind
from core.probe import SMALL, TELLING, largest_gap
from core.small_config import NotSmall


def require_stated_layers(model: nn.Module, kind: Kind) -> None:
    """Raises `ModelUnsupported` where other layers slide than the configuration says."""
    stated = kind.values.get("layer_types") or ()
    slides = [isinstance(cache, RotatingKVCache) for cache in make_prompt_cache(model)]
    if any(slides) and len(slides) == len(stated) and slides != [layer == SLIDING for layer in stated]:
        raise ModelUnsupported(
            f"mlx-lm lets other layers of this {kind.name} model slide than its config.json says; use --backend torch"
        )


def unkept_window(kind: Kind) -> int | None:
    """The window's length where it makes no difference to mlx-lm's model, or where that cannot be told."""
    values = kind.values
    window = values.get("sliding_window")
    sees_all = SLIDING not in (values.get("layer_types") or (SLIDING,))
    if window is None or sees_all or values.get("use_sliding_window") is False:
        return None
    if window < 1:
        raise ModelUnsupported(f"sliding_window {window} is no window; put it right in the folder's config.json")
    try:
        narrow, wide = (kind.small(sliding_window=width) for width in (len(SMALL.text) // 2, 2 * len(SMALL.text)))
        rows = [expected_of(model, SMALL)[SMALL.paths[0]] for model in (narrow, wide)]
    except NotSmall:
        return window
    return window if largest_gap(*rows) < TELLING else None
