"""Which way of reading a model is right: tried out against plain forwards before it is used.

A tree read in one row runs without an error on models whose layers pass a state on, and is
wrong by 0.1: only numbers tell. So a small random model of the same configuration class and
the same kinds of layers is read both ways, in float32, and compared with its own forwards
without a cache. Where no small model can be made, the real one is tried.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from transformers import PreTrainedConfig

from core import probe
from core.backend import ModelUnsupported, Strategy
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
from core.torch_attention import ATTENTION
from core.torch_head import OutputHead
from core.torch_rows import RowsReader
from core.torch_small import small_config, small_model
from core.torch_tree import TreeReader

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reading:
    """A way to read a model."""

    strategy: Strategy
    attention: str | None = None  # None: as it is loaded
    stepwise: bool = False

    def __str__(self) -> str:
        how = "stepwise" if self.stepwise else self.attention and f"attention {self.attention}"
        return f"{self.strategy} ({how})" if how else self.strategy

    def reader(self, model: Any) -> TreeReader | RowsReader:
        if self.attention and model._can_set_attn_implementation():
            model.set_attn_implementation(self.attention)
        return TreeReader(model) if self.strategy == "tree" else RowsReader(model, self.stepwise)


#: From the fastest on.
READINGS = (Reading("tree", ATTENTION), Reading("tree"), Reading("rows"), Reading("rows", stepwise=True))


@torch.inference_mode()
def reading_of(model: Any, tokenizer: Any) -> Reading:
    """The fastest reading that is right for this model."""
    device, body = model.get_output_embeddings().weight.device.type, type(model.get_decoder())
    try:
        small = small_config(model.config)
        reading, reason = _proved_small(type(small), json.dumps(small.to_dict(), default=str), body, device)
    except NotSmall as trouble:
        reading, reason = _proved_real(model, sample_of(tokenizer), " ".join(str(trouble).split()))
    if reading is None:
        raise ModelUnsupported(
            f"{model.config.model_type} models are not read right ({reason}); "
            "use another model, such as Qwen2.5, Llama 3 or SmolLM2"
        )
    log.info("reading %s by %s: %s", model.config.model_type, reading.strategy, reason)
    return reading


@torch.inference_mode()
def reads_alike(reader: TreeReader | RowsReader, head: OutputHead, model: Any, tokenizer: Any) -> bool:
    exact = reader.body.dtype == torch.float32
    return probe.reads_alike(reader, head, partial(expected_of, model), tokenizer, exact)


@cache
def _proved_small(kind: type[PreTrainedConfig], values: str, body: type, device: str) -> tuple[Reading | None, str]:
    plain = small_model(kind, values, "eager", device)
    if type(plain.get_decoder()) is not body:
        raise NotSmall(f"its body is a {body.__name__} and a small one's is not")
    try:
        expected = expected_of(plain, SMALL)
    except Exception as failure:  # of any model class: the real one may run
        raise NotSmall(f"a small one does not run ({failure})") from failure
    one, other = (expected[path[:3]] for path in SMALL.paths[:2])  # the same last tokens
    if largest_gap(one, other) < TELLING:
        raise NotSmall("a small one with random weights tells nothing")
    trials = ((reading, _made(reading, small_model, kind, values, None, device)) for reading in READINGS)
    by = f"{plain.config.num_hidden_layers} random layers"
    return first_right(trials, SMALL, expected, largest_gap, CLOSE, by)


def _proved_real(model: Any, sample: Sample, trouble: str) -> tuple[Reading | None, str]:
    """The same with the real weights: in bf16 they cannot tell a tree that is a little wrong."""
    exact = model.get_output_embeddings().weight.dtype == torch.float32
    loaded, expected = model.config._attn_implementation, expected_of(model, sample)
    trials = (
        (reading, _made(reading, lambda: model))
        for reading in (replace(reading, attention=reading.attention or loaded) for reading in READINGS)
        if exact or reading.strategy == "rows"
    )
    return first_right(trials, sample, expected, share_moved, close_real(exact), f"real weights: {trouble}")


def _made(reading: Reading, model_of: Callable[..., Any], *given: Any) -> Callable[[], tuple[Any, Any]]:
    def make() -> tuple[Any, Any]:
        model = model_of(*given)
        return reading.reader(model), OutputHead(model)

    return make


def expected_of(model: Any, sample: Sample) -> Expected:
    """By the model's own forward, without a cache."""
    expected: Expected = {}
    for path in sample.paths:
        ids = torch.tensor([[*sample.text, *path]], device=model.get_output_embeddings().weight.device)
        logits = model(input_ids=ids, use_cache=False).logits[0, len(sample.text) - 1 :]
        rows = logits.float().log_softmax(-1).cpu().numpy()
        expected |= {path[:depth]: row for depth, row in enumerate(rows)}
    return expected
