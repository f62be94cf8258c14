"""What one parallel run returns: frozen values with their units, and the public JSON shape.

Knows nothing of how the values came about. `Result.to_json` is the one place where
a result becomes a dict.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from core.schema import Choice, choice_key

CacheState = Literal["hit", "miss", "off"]

#: Choices listed per field in the public JSON; the `Decision` holds all of them.
TOP_CHOICES = 8


@dataclass(frozen=True)
class Decision:
    """One field, decided. Tuples are in the order in which the choices were declared."""

    name: str
    choices: tuple[Choice, ...]
    scores: tuple[float, ...]  # joint log-probability up to the identifying token, full vocabulary
    probabilities: tuple[float, ...]  # share among these choices, softmax(scores / temperature)
    levels: tuple[int, ...]  # forks on the path of each choice
    winner: int  # index of the highest score; the first declared of equals

    @property
    def value(self) -> Choice:
        return self.choices[self.winner]

    @property
    def probability(self) -> float:
        return self.probabilities[self.winner]

    @property
    def candidate_mass(self) -> float:
        """Probability that the model goes on with any allowed choice, before renormalising."""
        return _mass(self.scores)

    def top(self, n: int = TOP_CHOICES) -> tuple[tuple[Choice, float], ...]:
        """The `n` likeliest choices with their probabilities, the winner first."""
        order = sorted(range(len(self.choices)), key=lambda i: (-self.scores[i], i))
        return tuple((self.choices[i], self.probabilities[i]) for i in order[:n])


@dataclass(frozen=True)
class Result:
    """All fields of one schema, decided for one context."""

    decisions: tuple[Decision, ...]  # schema order
    text: str  # the assembled JSON
    phases: Mapping[str, float]  # milliseconds of engine time by phase; they sum to elapsed_ms
    passes: int  # calls of the model's forward, counted beside the call
    prompt_tokens: int  # head + context + tail
    tree_tokens: int  # nodes of the tree batch
    cache: CacheState  # the head prefix: found, made, or not used
    strategy: Literal["tree", "rows"]
    model: str
    why: str  # why this model runs
    backend: str
    device: str
    dtype: str

    @property
    def values(self) -> dict[str, Choice]:
        return {d.name: d.value for d in self.decisions}

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
            "field_telemetry": {d.name: _telemetry(d) for d in self.decisions},
            "model": self.model,
            "why": self.why,
            "backend": self.backend,
            "device": self.device,
            "dtype": self.dtype,
            "strategy": self.strategy,
            "cache": self.cache,
            "prompt_tokens": self.prompt_tokens,
            "tree_tokens": self.tree_tokens,
        }


def _telemetry(decision: Decision) -> dict[str, Any]:
    return {
        "confidence": decision.probability,
        "cardinality": len(decision.choices),
        "candidate_mass": decision.candidate_mass,
        "levels": decision.levels[decision.winner],
        "top_choices": [{"choice": choice, "probability": p} for choice, p in decision.top()],
    }


def _mass(scores: tuple[float, ...]) -> float:
    return min(1.0, math.fsum(math.exp(score) for score in scores))


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
