"""What one parallel run returns: frozen values with their units, and the public JSON shape.

Knows nothing of how the values came about. `Result.to_json` is the one place where
a result becomes a dict.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from core.backend import Clock, Strategy
from core.schema import Choice, Remark, StructuredSchema, choice_key

#: How far a line is scored: to the token that identifies the choice, or to the value's end.
Scoring = Literal["identify", "full"]
#: Whether every fork was read, or only as many as prove the winner.
ReadingKind = Literal["complete", "best-first"]
#: What is subtracted from the scores: nothing, or those of a text without content.
Prior = Literal["none", "content_free"]

#: `fallback`: a stored entry failed its check and was made again.
CacheState = Literal["hit", "miss", "off", "fallback"]

#: Choices listed per field in the public JSON; the `Decision` holds all of them.
TOP_CHOICES = 8


@dataclass(frozen=True)
class Decision:
    """One field, decided. Tuples are in the order in which the choices were declared.

    A field of many choices need not be read to its end: None stands for a choice that was
    proved to lose and not read. The winner is exact in any case.
    """

    name: str
    choices: tuple[Choice, ...]
    scores: tuple[float | None, ...]  # joint log-probability, full vocabulary
    probabilities: tuple[float | None, ...]  # share among these choices, softmax((scores - prior) / temperature)
    levels: tuple[int, ...]  # forks on the path of each choice
    winner: int  # index of the highest score less prior; the first declared of equals
    #: Probability that the model goes on with any allowed choice, as far as it was read, before renormalising.
    candidate_mass: float
    unread_mass: float = 0.0  # at most this share belongs to what was not read
    unasked: int = 0  # vocabulary tokens that go into branches and were not asked for: a server takes so many ids
    unasked_mass: float = 0.0  # their probability is at most this
    prior: tuple[float, ...] | None = None  # scores on a text without content, where they are subtracted

    @property
    def value(self) -> Choice:
        return self.choices[self.winner]

    @property
    def probability(self) -> float:
        return _given(self.probabilities[self.winner])

    @property
    def unread(self) -> int:
        """Choices without a probability of their own."""
        return sum(p is None for p in self.probabilities)

    def top(self, n: int = TOP_CHOICES) -> tuple[tuple[Choice, float], ...]:
        """The `n` likeliest choices with their probabilities, the winner first; none that was not read."""
        return tuple((self.choices[i], _given(self.probabilities[i])) for i in self._ranked()[:n])

    def to_json(self) -> dict[str, Any]:
        """What the public JSON says of a field beside its value."""
        ranked = self._ranked()[:TOP_CHOICES]
        top = [{"choice": self.choices[i], "probability": self.probabilities[i]} for i in ranked]
        if self.prior is not None:
            for entry, i in zip(top, ranked, strict=True):
                entry |= {"score": self.scores[i], "prior": self.prior[i]}
        return {
            "confidence": self.probability,
            "cardinality": len(self.choices),
            "candidate_mass": self.candidate_mass,
            "levels": self.levels[self.winner],
            "unread_choices": self.unread,
            "unread_mass": self.unread_mass,
            "unasked_tokens": self.unasked,
            "unasked_mass": self.unasked_mass,
            "top_choices": top,
        }

    def _ranked(self) -> list[int]:
        """Indexes of the choices that were read, the winner first."""
        prior = self.prior or [0.0] * len(self.choices)
        read = {i: score - prior[i] for i, score in enumerate(self.scores) if score is not None}
        return sorted(read, key=lambda i: (-read[i], i))


@dataclass(frozen=True)
class CacheReport:
    """What was found of a request, and the store of head prefixes after it."""

    head: CacheState
    plan: CacheState
    prior: CacheState
    entries: int = 0
    bytes: int = 0
    evicted: int = 0  # heads that went since the engine started
    head_bytes: int = 0  # of this schema's head; 0 where it is not kept

    def to_json(self) -> dict[str, Any]:
        return {"plan": self.plan, "prior": self.prior} | {
            name: getattr(self, name) for name in ("entries", "bytes", "evicted")
        }


@dataclass(frozen=True)
class Result:
    """All fields of one schema, decided for one context."""

    schema: StructuredSchema
    decisions: tuple[Decision, ...]  # schema order
    text: str  # the assembled JSON
    phases: Mapping[str, float]  # milliseconds of engine time by phase; they sum to elapsed_ms
    passes: int  # calls of the model's forward, counted beside the call
    prompt_tokens: int  # head + context + tail
    tree_tokens: int  # nodes read behind prompts, over all passes
    caches: CacheReport
    strategy: Strategy
    scoring: Scoring
    reading: ReadingKind
    prior: Prior
    shared: int  # requests that rode in the same passes, this one included; the phases are theirs together
    model: str
    why: str  # why this model runs
    backend: str
    device: str
    dtype: str
    clock: Clock = "engine"  # whose the times are
    sent_tokens: int | None = None  # of all prompts that a server was sent; a pass is then a request to it
    server_queue_ms: float | None = None  # in the server's queue, where it says so

    @property
    def values(self) -> dict[str, Any]:
        """In the shape of the schema's source: objects and arrays where an import had them."""
        return self.schema.values(self.decisions)

    @property
    def unsupported(self) -> tuple[Remark, ...]:
        """Parts of the schema's source that could not be decided and were left out."""
        return self.schema.unsupported

    @property
    def cache(self) -> CacheState:
        """The head prefix: found, made, or not used."""
        return self.caches.head

    @property
    def elapsed_ms(self) -> float:
        """Engine time from the request in hand to the JSON assembled."""
        return sum(self.phases.values())

    def to_json(self) -> dict[str, Any]:
        """The public shape. The two verdicts come from reading `text` again, not from belief."""
        parsed = _parsed(self.text)
        return {
            "mode": "parallel_constrained",
            "elapsed_ms": self.elapsed_ms,
            "prefill_ms": sum(self.phases.get(name, 0.0) for name in ("head", "context", "head + context")),
            "suffix_eval_ms": sum(self.phases.get(name, 0.0) for name in ("tree", "context + tree")),
            "phases": dict(self.phases),
            "sequential_forward_passes": self.passes,
            "is_valid_json": parsed is not None,
            "schema_match": parsed is not None and _matches(parsed, self.decisions),
            "values": self.values,
            "parsed_json": {d.name: {"value": d.value, "prob": d.probability} for d in self.decisions},
            "field_telemetry": {d.name: d.to_json() for d in self.decisions},
            "schema_source": self.schema.source,
            "unsupported": [remark.to_json() for remark in self.unsupported],
            "notes": [remark.to_json() for remark in self.schema.notes],
            "model": self.model,
            "why": self.why,
            "backend": self.backend,
            "device": self.device,
            "dtype": self.dtype,
            "strategy": self.strategy,
            "scoring": self.scoring,
            "reading": self.reading,
            "prior": self.prior,
            "cache": self.cache,
            "cache_detail": self.caches.to_json(),
            "shared_by": self.shared,
            "prompt_tokens": self.prompt_tokens,
            "tree_tokens": self.tree_tokens,
            "clock": self.clock,
            "sent_tokens": self.sent_tokens,
            "server_queue_ms": self.server_queue_ms,
        }


def _given(probability: float | None) -> float:
    assert probability is not None, "asked of a choice that was not read"
    return probability


def _parsed(text: str) -> Any:
    """What the text holds, an object as a tuple of its members; None where it is no strict JSON."""
    try:
        return json.loads(text, object_pairs_hook=tuple, parse_constant=_refused)
    except ValueError:
        return None


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _matches(members: Any, decisions: tuple[Decision, ...]) -> bool:
    """Every key once, in order, each with one of its choices, by value and type."""
    if not isinstance(members, tuple) or [name for name, _ in members] != [decision.name for decision in decisions]:
        return False
    return all(
        choice_key(value) in map(choice_key, decision.choices)
        for (_, value), decision in zip(members, decisions, strict=True)
    )
