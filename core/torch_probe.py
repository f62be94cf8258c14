"""Which way of reading a model is right: tried out against plain forwards before it is used.

A tree read in one row runs without an error on models whose layers pass a state on, and is
wrong by 0.1: only numbers tell. So a small random model of the same configuration class and
the same kinds of layers is read both ways, in float32, and compared with its own forwards
without a cache. Where no small model can be made, the real one is tried.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedConfig

from core.backend import ModelUnsupported, Strategy, TreeBatch
from core.torch_attention import ATTENTION
from core.torch_head import OutputHead
from core.torch_rows import RowsReader
from core.torch_small import NotSmall, small_config, small_model
from core.torch_tree import TreeReader

log = logging.getLogger(__name__)

#: Largest difference of two log-probabilities in float32: the same sums in another order. A wrong reading is off by 1e-1.
CLOSE = 5e-4
#: Largest share of the probability that may go to other tokens with real weights, in float32 and in bf16.
CLOSE_REAL, CLOSE_REAL_BF16 = 1e-3, 0.25
#: By how much an earlier token must move what follows a later one, or no reading would be told from another.
TELLING = 1e-2

Distance = Callable[[np.ndarray, np.ndarray], float]  # of two rows of log-probabilities
Expected = dict[tuple[int, ...], np.ndarray]  # path after the text -> log-probabilities of what follows


@dataclass(frozen=True)
class Sample:
    """A text and what may follow it."""

    text: tuple[int, ...]
    paths: tuple[tuple[int, ...], ...]

    @property
    def cut(self) -> int:
        return len(self.text) // 2


SMALL = Sample((3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9), ((7, 2, 5, 3), (8, 2, 5, 7), (7, 2, 6), (7, 4)))
#: For real weights: control tokens, which low ids often are, put them beside themselves.
SENTENCE = "The form is filled in with one value for each key and nothing else, in this order: first the name, then"


def sample_of(tokenizer: Any) -> Sample:
    ids = tokenizer.encode(SENTENCE, add_special_tokens=False)
    *text, a, b, c, d = ids
    return Sample(tuple(text), ((a, b, c, d), (d, b, c), (a, b, d), (a, c)))


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
    """Whether the real weights give what the model's own forward gives: a gross error in loading does not pass."""
    sample = sample_of(tokenizer)
    sample = Sample(sample.text, sample.paths[:2])
    tree, ends = TreeBatch.of(sample.paths)
    expected = expected_of(model, sample)
    hidden, _ = reader.read(reader.prefill(sample.text, None), [], tree, ends, keep=False)
    off = _off(head, hidden, [expected[path] for path in sample.paths], share_moved)
    return off <= (CLOSE_REAL if reader.body.dtype == torch.float32 else CLOSE_REAL_BF16)


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
    trials = ((reading, small_model(kind, values, None, device)) for reading in READINGS)
    by = f"{plain.config.num_hidden_layers} random layers"
    return _first_right(trials, SMALL, expected, largest_gap, CLOSE, by)


def _proved_real(model: Any, sample: Sample, trouble: str) -> tuple[Reading | None, str]:
    """The same with the real weights: in bf16 they cannot tell a tree that is a little wrong."""
    exact = model.get_output_embeddings().weight.dtype == torch.float32
    close = CLOSE_REAL if exact else CLOSE_REAL_BF16
    loaded, expected = model.config._attn_implementation, expected_of(model, sample)
    trials = (
        (reading, model)
        for reading in (replace(reading, attention=reading.attention or loaded) for reading in READINGS)
        if exact or reading.strategy == "rows"
    )
    return _first_right(trials, sample, expected, share_moved, close, f"real weights: {trouble}")


def _first_right(
    trials: Iterable[tuple[Reading, Any]], sample: Sample, expected: Expected, distance: Distance, close: float, by: str
) -> tuple[Reading | None, str]:
    """The first reading that is right of its model, and what was found."""
    found: dict[str, Reading] = {}  # each outcome once
    for reading, model in trials:
        try:
            off = differences(reading.reader(model), OutputHead(model), sample, expected, distance)
            worst = np.max(list(off))  # nan where one is
        except Exception as failure:  # of any model class: what cannot run is not the way to read it
            outcome = f"fails ({' '.join(str(failure).split()) or type(failure).__name__})"
        else:
            outcome = f"within {worst:.0e} of plain forwards"
            if worst <= close:
                found[outcome] = reading
                return reading, _told(found, by)
        found.setdefault(outcome, reading)
    return None, _told(found, by)


def _told(found: dict[str, Reading], by: str) -> str:
    return f"{'; '.join(f'{reading} {outcome}' for outcome, reading in found.items())} ({by})"


def expected_of(model: Any, sample: Sample) -> Expected:
    """By the model's own forward, without a cache."""
    expected: Expected = {}
    for path in sample.paths:
        ids = torch.tensor([[*sample.text, *path]], device=model.get_output_embeddings().weight.device)
        logits = model(input_ids=ids, use_cache=False).logits[0, len(sample.text) - 1 :]
        rows = logits.float().log_softmax(-1).cpu().numpy()
        expected |= {path[:depth]: row for depth, row in enumerate(rows)}
    return expected


def differences(
    reader: TreeReader | RowsReader, head: OutputHead, sample: Sample, expected: Expected, distance: Distance
) -> Iterator[float]:
    """How far each way to come to the same numbers is off."""
    text, cut, path = sample.text, sample.cut, sample.paths[0]
    tree, _ = TreeBatch.of(sample.paths)
    nodes = range(len(tree.tokens))
    truth = [expected[tuple(tree.tokens[step] for step in tree.path(node))] for node in nodes]

    begun = reader.prefill(text[:cut], None)
    seal = begun.seal()
    hidden, kept = reader.read(begun, text[cut:], tree, nodes, keep=True)
    yield _off(head, hidden, truth, distance)
    for prefix, ids in ((kept, ()), (reader.prefill(text[cut:], begun), ()), (None, text)):
        yield _off(head, reader.read(prefix, ids, tree, nodes, keep=False)[0], truth, distance)
    yield _off(head, kept.hidden, [expected[()]], distance)
    cache = reader.cache(kept)
    yield _off(head, reader.append(cache, len(text), path[:2]), [expected[path[:2]]], distance)
    yield _off(head, reader.append(cache, len(text) + 2, path[2:3]), [expected[path[:3]]], distance)
    yield 0.0 if begun.seal() == seal else float("nan")


def _off(head: OutputHead, hidden: Tensor, truth: Sequence[np.ndarray], distance: Distance) -> float:
    rows = head.log_probabilities(hidden, [np.arange(len(row)) for row in truth])
    return float(np.max([distance(row, true) for row, true in zip(rows, truth, strict=True)]))


def largest_gap(one: np.ndarray, other: np.ndarray) -> float:
    return np.abs(one - other).max()


def share_moved(one: np.ndarray, other: np.ndarray) -> float:
    return np.abs(np.exp(one) - np.exp(other)).sum() / 2
