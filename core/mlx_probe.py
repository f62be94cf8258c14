"""Which way of reading an mlx-lm model is right: tried out against plain forwards before it is used.

As for torch (core/torch_probe.py): a small random model of the same class and the same kinds of layers is
read both ways in float32. Where none can be made, the real one is tried.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from core import probe
from core.backend import ModelUnsupported
from core.mlx_head import OutputHead
from core.mlx_rows import RowsReader
from core.mlx_small import Kind
from core.mlx_tree import TreeReader
from core.probe import (
    CLOSE,
    SMALL,
    TELLING,
    Expected,
    Sample,
    close_real,
    first_right,
    largest_gap,
    sample_of,
    share_moved,
)
from core.small_config import NotSmall

log = logging.getLogger(__name__)

Reader = TreeReader | RowsReader
READERS = {kind.strategy: kind for kind in (TreeReader, RowsReader)}  # from the fastest on


def reader_of(model: nn.Module, kind: Kind, tokenizer: Any) -> Reader:
    """The fastest way to read this model that is right. Raises `ModelUnsupported`."""
    try:
        strategy, reason = _proved_small(kind)
    except NotSmall as trouble:
        strategy, reason = _proved_real(model, sample_of(tokenizer), " ".join(str(trouble).split()))
    if strategy is None:
        raise ModelUnsupported(
            f"{kind.name} models are not read right by mlx-lm ({reason}); "
            "use --backend torch, or another model, such as Qwen2.5, Llama 3 or SmolLM2"
        )
    log.info("reading %s by %s: %s", kind.name, strategy, reason)
    return READERS[strategy](model)


def reads_alike(reader: Reader, head: OutputHead, model: nn.Module, tokenizer: Any) -> bool:
    exact = reader.body.dtype == mx.float32
    return probe.reads_alike(reader, head, partial(expected_of, model), tokenizer, exact)


def _proved_small(kind: Kind) -> tuple[str | None, str]:
    plain = kind.small()
    try:
        expected = expected_of(plain, SMALL)
    except Exception as failure:  # of any model class: the real one may run
        raise NotSmall(f"a small one does not run ({failure})") from failure
    one, other = (expected[path[:3]] for path in SMALL.paths[:2])  # the same last tokens
    if largest_gap(one, other) < TELLING:
        raise NotSmall("a small one with random weights tells nothing")
    trials = ((strategy, _made(strategy, kind.small)) for strategy in READERS)
    return first_right(trials, SMALL, expected, largest_gap, CLOSE, f"{len(plain.layers)} random layers")


def _proved_real(model: nn.Module, sample: Sample, trouble: str) -> tuple[str | None, str]:
    """The same with the real weights: in 16 bits they cannot tell a tree that is a little wrong."""
    exact, expected = RowsReader(model).body.dtype == mx.float32, expected_of(model, sample)
    strategies = READERS if exact else ("rows",)
    trials = ((strategy, _made(strategy, lambda: model)) for strategy in strategies)
    return first_right(trials, sample, expected, share_moved, close_real(exact), f"real weights: {trouble}")


def _made(strategy: str, model_of: Callable[[], nn.Module]) -> Callable[[], tuple[Any, Any]]:
    def make() -> tuple[Any, Any]:
        model = model_of()
        return READERS[strategy](model), OutputHead(model)

    return make


def expected_of(model: nn.Module, sample: Sample) -> Expected:
    """By the model's own forward, without a cache."""
    expected: Expected = {}
    for path in sample.paths:
        logits = model(mx.array([[*sample.text, *path]]))[0, len(sample.text) - 1 :].astype(mx.float32)
        rows = np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
        expected |= {path[:depth]: row for depth, row in enumerate(rows)}
    return expected
