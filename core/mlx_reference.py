"""Whether mlx-lm computes a model as transformers does.

It has classes of its own and takes what it knows from a configuration; the rest it leaves out without a word:
another activation, a factor of Falcon-H1, the short factors of longrope. So a small random checkpoint of the same
configuration is written by the one and read by both, in float32.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedConfig

from core.backend import ModelUnsupported
from core.mlx_checkpoint import read_checkpoint
from core.mlx_probe import expected_of
from core.probe import SMALL, Expected, largest_gap
from core.small_config import NotSmall

log = logging.getLogger(__name__)

#: Largest difference of two log-probabilities. mlx-lm rounds Gemma's scale to bf16, and that makes 6e-3.
CLOSE_ACROSS = 1e-2


def require_same_model(config: PreTrainedConfig) -> None:
    """Raises `ModelUnsupported` where the two differ. Says in the log where they cannot be compared."""
    name = config.model_type
    try:
        off = _difference(config)
    except ImportError:
        log.info("%s in mlx-lm is not compared with transformers: torch is not installed", name)
    except NotSmall as trouble:
        log.info("%s in mlx-lm is not compared with transformers: %s", name, trouble)
    else:
        if not off <= CLOSE_ACROSS:  # nan too
            raise ModelUnsupported(
                f"mlx-lm computes this {name} model otherwise than transformers (log-probabilities of a small one "
                f"are up to {off:.0e} apart); use --backend torch"
            )
        log.info("%s in mlx-lm is within %.0e of transformers", name, off)


def _difference(config: PreTrainedConfig) -> float:
    import torch  # here: MLX runs without it
    from transformers.utils.logging import disable_progress_bar

    from core.torch_probe import expected_of as expected_of_transformers
    from core.torch_small import small_config, small_model

    disable_progress_bar()  # that of a small file
    text = config.get_text_config(decoder=True)
    values = small_config(text).to_dict() | _uncut(text.to_dict())
    small = small_model(type(text), json.dumps(values, default=str), "eager", "cpu")
    with tempfile.TemporaryDirectory(prefix="pcd-") as folder:
        small.save_pretrained(folder)
        try:
            model, _ = read_checkpoint(Path(folder), small.config)
            found = expected_of(model, SMALL)
        except (Exception, SystemExit) as failure:  # of any model class: the real one is laid out otherwise
            raise NotSmall(" ".join(f"mlx-lm does not read a small one ({failure})".split())) from failure
    with torch.inference_mode():
        return _largest_gap(found, expected_of_transformers(small, SMALL))


def _uncut(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a small configuration lowers and rotary settings depend on; windows are proved apart."""
    wide = {"sliding_window": 4 * len(SMALL.text)} if values.get("sliding_window") else {}
    return {name: values[name] for name in ("max_position_embeddings",) if values.get(name)} | wide


def _largest_gap(one: Expected, other: Expected) -> float:
    return float(np.max([largest_gap(one[path], other[path]) for path in other]))
