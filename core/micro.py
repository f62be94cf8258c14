"""`python -m core.benchmark --micro`: what the engine's parts cost, as ratios inside one run.

Variants take turns, so that a machine whose speed drifts treats them alike; medians are
compared. Progress goes to stderr; the last line on stdout is the same as JSON.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from core.backend import TreeBatch
from core.baseline import Written, write
from core.engine import Engine
from core.engine_torch import TorchBackend, TorchPrefix
from core.presets import Preset
from core.request import Prepared, Request
from core.schema import StructuredSchema
from core.search import Asked, Search
from core.setting import Setting, json_line
from core.wording import escaped

#: 32 texts of about 40 tokens and three fields, for what many contexts gain by sharing passes.
TEXTS = [
    f"Order {1000 + 37 * i}: the parcel came {('two days late', 'on time', 'a week late', 'not at all')[i % 4]}, "
    f"the box was {('wet', 'torn', 'fine')[i % 3]}, and the customer wants {('a refund', 'a new one')[i % 2]} "
    "this week."
    for i in range(32)
]
TICKETS = StructuredSchema(
    {
        "delivery": {"type": "enum", "choices": ["on time", "late", "lost"], "description": "When did it come?"},
        "wish": {"type": "enum", "choices": ["refund", "replacement", "none"], "description": "What is asked for?"},
        "damaged": {"type": "boolean", "description": "Was anything damaged?"},
    }
)

#: More than any tree has.
MANY_NODES = 1_000_000
#: Tokens of the baseline that are timed at a time.
STEPS = 16


@dataclass(frozen=True)
class Micro:
    """One preset on one engine; every method does one thing whose time is of interest."""

    engine: Engine
    prepared: Prepared
    prefix: TorchPrefix  # of the whole prompt

    @property
    def backend(self) -> TorchBackend:
        return self.engine.backend

    @property
    def allowance(self) -> int:
        return self.engine.allowance

    @property
    def tree(self) -> TreeBatch:
        return self.prepared.plan.tree

    def variants(self) -> Mapping[str, Callable[[], Any]]:
        return {
            "prefill": lambda: self.backend.prefill(self.prepared.whole),
            "tree": self.read_tree,
            "best_first": lambda: self.search(self.allowance),
            "whole_trie": lambda: self.search(None),
            "bare": lambda: self.forward_bare(self.prefix),
            "bare_no_prefix": lambda: self.forward_bare(None),
            "rows": self.read_rows,
            "pcd_warm": lambda: self.run(),
            "pcd_warm_complete": lambda: self.run(complete=True),
            "pcd_warm_best_first": lambda: self.run(complete=False),
            "pcd_cold": lambda: self.run(cache=False),
            "decode_step": self.decode_steps,
            "decode_own": self.decode_own,
            "decode_transformers": self.decode_transformers,
            "texts_singly": lambda: [self.engine.run_parallel(text, TICKETS) for text in TEXTS],
            "texts_together": lambda: self.engine.decode_many(TEXTS, TICKETS),
        }

    def read_tree(self) -> None:
        plan = self.prepared.plan
        self.backend.read(self.prefix, [], *plan.packed, [fork.tokens for fork in plan.forks])

    def search(self, allowance: int | None) -> None:
        """The forks after the whole prompt, read until the winners are proved; all of them without an allowance."""
        search = Search([Asked(trie) for trie in self.prepared.plan.tries], allowance)
        while chosen := search.next(MANY_NODES):
            asked = [search.fields[i] for i, _ in chosen]
            tree, ends = TreeBatch.of(one.path(fork) for one, (_, fork) in zip(asked, chosen, strict=True))
            wanted = [one.trie.forks[fork].tokens for one, (_, fork) in zip(asked, chosen, strict=True)]
            search.take(chosen, self.backend.read(self.prefix, [], tree, ends, wanted)[0])

    @torch.inference_mode()
    def forward_bare(self, prefix: TorchPrefix | None) -> None:
        """The model's own forward over as many tokens as the tree has, logits at as many places as are read."""
        cache = DynamicCache(list(prefix.layers)) if prefix else DynamicCache()
        rows = torch.arange(len(self.prepared.plan.forks)) % len(self.tree.tokens)
        self.backend.model(input_ids=torch.tensor([self.tree.tokens]), cache=cache, use_cache=True, logits_to_keep=rows)

    @torch.inference_mode()
    def read_rows(self) -> None:
        """The same read with the cache copied to one row per field, each with the field's own nodes."""
        ends = iter(self.prepared.plan.packed[1])
        batch = [
            sorted({n for _ in trie.forks for n in self.tree.path(next(ends))}) for trie in self.prepared.plan.tries
        ]
        longest, start = max(map(len, batch)), self.prefix.length
        ids = torch.zeros(len(batch), longest, dtype=torch.int64)
        positions = torch.full((len(batch), longest), start)
        sight = np.zeros((len(batch), longest, longest), dtype=bool)
        sight[:, range(longest), range(longest)] = True
        for row, nodes in enumerate(batch):
            ids[row, : len(nodes)] = torch.tensor([self.tree.tokens[n] for n in nodes])
            positions[row, : len(nodes)] += torch.tensor([self.tree.depths[n] for n in nodes])
            for i, node in enumerate(nodes):
                sight[row, i, [nodes.index(n) for n in self.tree.path(node)]] = True
        mask = torch.zeros(len(batch), 1, longest, start + longest, dtype=self.prefix.layers[0][0].dtype)
        mask[:, 0, :, start:].masked_fill_(~torch.from_numpy(sight), torch.finfo(mask.dtype).min)
        cache = DynamicCache(list(self.prefix.layers))
        cache.batch_repeat_interleave(len(batch))
        body = self.backend.model.get_decoder()
        body.config._attn_implementation, ours = "sdpa", body.config._attn_implementation
        body(input_ids=ids, attention_mask=mask, position_ids=positions, cache=cache, use_cache=True)
        body.config._attn_implementation = ours

    def run(self, **options: bool) -> None:
        request = self.prepared.request
        self.engine.run_parallel(request.context, request.schema, **options)

    def decode_steps(self) -> float:
        """Seconds of one step of the baseline's loop, mode json."""
        return self._written()[0]

    def decode_own(self) -> float:
        """Seconds of such a step that are not spent in the model's body and output head."""
        step, model = self._written()
        return step - model

    def _written(self) -> tuple[float, float]:
        """Seconds of a step, and those of them in the model."""
        inside = _Stopwatch(self.backend.synchronize)
        body, head = self.backend.model.get_decoder(), self.backend.head
        hooks = [
            body.register_forward_pre_hook(lambda *_: inside.start()),
            body.register_forward_hook(lambda *_: inside.stop()),
        ]
        head.logits = inside.around(head.logits)
        tokens = self._tokens()
        try:
            started = time.perf_counter()
            count = sum(1 for _ in tokens)
            return (time.perf_counter() - started) / count, inside.seconds / count
        finally:
            del head.logits
            for hook in hooks:
                hook.remove()

    def _tokens(self) -> Iterator[Written]:
        plan, backend = self.prepared.plan, self.backend
        constraint = self.engine.grammars.start("json", plan.schema, plan.prompt.layout)
        return write(backend.decoder(self.prefix), constraint, self.engine.vocabulary, frozenset(), STEPS)

    @torch.inference_mode()
    def decode_transformers(self) -> float:
        """Seconds of one step of a loop around the model's own forward and cache, nothing enforced."""
        model, cache = self.backend.model, DynamicCache(list(self.prefix.layers))
        config = model.get_decoder().config
        config._attn_implementation, ours = "sdpa", config._attn_implementation
        token = torch.tensor([[self.prepared.whole[-1]]])
        started = time.perf_counter()
        for _ in range(STEPS):
            token = model(input_ids=token, cache=cache, use_cache=True).logits[:, -1:].argmax(-1)
        took = (time.perf_counter() - started) / STEPS
        config._attn_implementation = ours
        return took


class _Stopwatch:
    """Seconds between starts and stops, the device having done its work."""

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self._synchronize = synchronize
        self._started = self.seconds = 0.0

    def start(self) -> None:
        self._synchronize()
        self._started = time.perf_counter()

    def stop(self) -> None:
        self._synchronize()
        self.seconds += time.perf_counter() - self._started

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            self.start()
            try:
                return call(*given)
            finally:
                self.stop()

        return timed


def measure(micro: Micro, rounds: int) -> dict[str, float]:
    """Median milliseconds of each variant over `rounds`, after one round that is thrown away."""
    taken: dict[str, list[float]] = {name: [] for name in micro.variants()}
    for number in range(rounds + 1):
        print(f"round {number} of {rounds}", file=sys.stderr)
        for name, variant in micro.variants().items():
            started = time.perf_counter()
            inner = variant()
            seconds = inner if isinstance(inner, float) else time.perf_counter() - started
            if number:
                taken[name].append(seconds * 1e3)
    return {name: statistics.median(values) for name, values in taken.items()}


def ratios(ms: Mapping[str, float], canonical_tokens: int) -> dict[str, float]:
    """What the figures are for; every ratio is of two medians of one run."""
    return {
        "tree / bare forward over as many tokens on the same prefix": ms["tree"] / ms["bare"],
        "tree / bare forward over as many tokens without a prefix": ms["tree"] / ms["bare_no_prefix"],
        "cache copied to a row per field / tree": ms["rows"] / ms["tree"],
        "whole trie / best-first on the same prefix": ms["whole_trie"] / ms["best_first"],
        "pcd warm, whole trie / best-first": ms["pcd_warm_complete"] / ms["pcd_warm_best_first"],
        f"{len(TEXTS)} short texts one at a time / together": ms["texts_singly"] / ms["texts_together"],
        "a step of the baseline (json): its loop's own part": ms["decode_own"] / ms["decode_step"],
        "a step of transformers' own forward and cache / of the baseline (json)": ms["decode_transformers"]
        / ms["decode_step"],
        "pcd cold / pcd warm": ms["pcd_cold"] / ms["pcd_warm"],
        "time per token (json) x canonical tokens / pcd warm": ms["decode_step"] * canonical_tokens / ms["pcd_warm"],
        "time per token (json) x canonical tokens / pcd cold": ms["decode_step"] * canonical_tokens / ms["pcd_cold"],
    }


def report_parts(engine: Engine, preset: Preset, name: str, rounds: int) -> None:
    result = engine.run_parallel(preset.context, preset.schema)  # also warms the head
    prepared = engine.prepare(Request(preset.context, preset.schema))
    micro = Micro(engine, prepared, engine.backend.prefill(prepared.whole))
    canonical = len(engine.vocabulary.encode(result.text))
    ms = measure(micro, rounds)
    of_interest = ratios(ms, canonical)
    setting = Setting.here(engine)
    for line in (*setting.lines(), f"{name}, n = {rounds}"):
        print(escaped(line))
    print(f"prompt {prepared.prompt_tokens} tokens, tree {result.tree_tokens}, canonical JSON {canonical}")
    for variant, value in ms.items():
        print(f"{value:10.1f} ms  {variant}")
    for what, value in of_interest.items():
        print(f"{value:10.3f} x   {what}")
    print(json_line(asdict(setting) | {"preset": name, "rounds": rounds, "ms": ms, "ratios": of_interest}))
