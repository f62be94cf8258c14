"""Replies: what the service answers, as Pydantic models, which are its OpenAPI too.

The contract's keys with their meaning, and ours beside them. Knows nothing of routes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import ConfigDict, Field

from core.backend import Clock, Strategy
from core.contract import Wire
from core.prompt import literal
from core.result import CacheState, Decision, Prior, ReadingKind, Result, Scoring
from core.schema import Choice


class Reply(Wire):
    model_config = ConfigDict(populate_by_name=True)

    def line(self) -> str:
        return self.model_dump_json(by_alias=True)


class Refused(Reply):
    code: str
    message: str


class DecidedField(Reply):
    name: str
    value: Any = Field(description="the likeliest choice; of equals the first")
    probability: float
    probabilities: dict[str, float | None] = Field(description="by choice, in order; null: proved to lose, not read")
    levels: int = Field(description="forks of the choices' tokens on the way to the value")
    candidate_mass: float = Field(description="probability that the model goes on with any choice at all")
    unread_mass: float = Field(description="at most this share belongs to choices that were not read")
    unasked_tokens: int = Field(description="vocabulary tokens of its forks that a server was not asked for")
    unasked_mass: float = Field(description="their probability is at most this")

    @classmethod
    def of(cls, decision: Decision, choices: Sequence[Choice] | None = None) -> DecidedField:
        """`choices`: those of the decision in the order in which they are to be told."""
        shares = dict(zip(labels(decision.choices), decision.probabilities, strict=True))
        return cls(
            name=decision.name,
            value=decision.value,
            probability=decision.probability,
            probabilities={label: shares[label] for label in labels(choices or decision.choices)},
            levels=decision.levels[decision.winner],
            candidate_mass=decision.candidate_mass,
            unread_mass=decision.unread_mass,
            unasked_tokens=decision.unasked,
            unasked_mass=decision.unasked_mass,
        )


class Metrics(Reply):
    elapsed_ms: float = Field(description="the sum of the phases, by `clock`")
    clock: Clock = Field(description="whose times these are: the engine's, or a client's around the wire to a server")
    forward_passes: int = Field(description="of the model; with the client's clock, requests to the server")
    sent_tokens: int | None = Field(description="of all prompts that a server was sent")
    server_queue_ms: float | None = Field(description="in the server's own queue, where it says so")
    schema_cache_status: CacheState
    checkpoint_bytes: int = Field(description="what the cache holds for this schema")
    phases_ms: dict[str, float]
    waited_ms: float = Field(description="in the queue, before the engine began")


class CacheDetail(Reply):
    plan: CacheState
    prior: CacheState
    entries: int
    bytes: int
    evicted: int


class Decoded(Reply):
    model: str
    values: dict[str, Any]
    fields: list[DecidedField]
    metrics: Metrics
    strategy: Strategy
    scoring: Scoring
    reading: ReadingKind
    prior: Prior
    cache: CacheDetail
    prompt_tokens: int
    tree_tokens: int
    shared_by: int = Field(description="requests that rode in the same passes, this one included")
    backend: str
    device: str
    dtype: str
    unsupported: list[dict[str, str]] = Field(description="parts of a JSON Schema that were left out")
    notes: list[dict[str, str]] = Field(description="parts of a JSON Schema that were taken in another form")

    @classmethod
    def of(cls, result: Result, model: str, waited_ms: float, order: Mapping[str, Sequence[Choice]]) -> Decoded:
        """`model`: the name for clients; `order`: of the choices of a field, where it is not the decision's."""
        metrics = Metrics(
            elapsed_ms=result.elapsed_ms,
            clock=result.clock,
            forward_passes=result.passes,
            sent_tokens=result.sent_tokens,
            server_queue_ms=result.server_queue_ms,
            schema_cache_status=result.cache,
            checkpoint_bytes=result.caches.head_bytes,
            phases_ms=dict(result.phases),
            waited_ms=waited_ms,
        )
        return cls(
            model=model,
            values=result.values,
            fields=[DecidedField.of(decision, order.get(decision.name)) for decision in result.decisions],
            metrics=metrics,
            strategy=result.strategy,
            scoring=result.scoring,
            reading=result.reading,
            prior=result.prior,
            cache=CacheDetail(**result.caches.to_json()),
            prompt_tokens=result.prompt_tokens,
            tree_tokens=result.tree_tokens,
            shared_by=result.shared,
            backend=result.backend,
            device=result.device,
            dtype=result.dtype,
            unsupported=[remark.to_json() for remark in result.unsupported],
            notes=[remark.to_json() for remark in result.schema.notes],
        )


class NotDecided(Reply):
    error: Refused


class Batch(Reply):
    model: str
    results: list[Decoded | NotDecided] = Field(description="one for each context, in order")
    waited_ms: float


class Loading(Reply):
    stage: str
    fraction: float | None


class ActiveModel(Reply):
    id: str
    description: str
    architecture: str
    backend: str
    device: str
    dtype: str
    context_size: int = Field(description="tokens that the model can read")
    cache_entries: int = Field(description="schemas in the cache now")
    cache_bytes: int


class ListedModel(Reply):
    id: str
    bytes: int
    active: bool
    source: Literal["name", "gguf", "folder", "server"]


class Active(Reply):
    active: str | None
    active_model: ActiveModel | None


class Models(Active):
    models: list[ListedModel]
    switching: Loading | None = Field(description="how far the load of another model is")


class Health(Reply):
    status: Literal["ok"] = "ok"
    api_version: Literal["v1"] = "v1"
    ready: bool
    model: str | None = None
    description: str | None = None
    backend: str | None = None
    state: Literal["absent", "loading", "ready", "failed"]
    message: str = Field(description="one line for people")
    switching: Loading | None = None


def labels(choices: Sequence[Choice]) -> list[str]:
    """A name for each choice: a text is its own, another value its JSON; all are JSON where two would be alike."""
    plain = [choice if isinstance(choice, str) else literal(choice) for choice in choices]
    return plain if len(set(plain)) == len(plain) else [literal(choice) for choice in choices]
