"""The engine: one request from schema and context to decisions, and the public functions.

All model work happens on the engine's owner thread; every public method may be called
from any thread. Knows nothing of pages or protocols.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from itertools import islice
from typing import Any

from core import baseline, prompt
from core.backend import Backend, BackendMissing, Prefix
from core.models import LocalModel, Progress, resolve
from core.owner import Job, LaneClock, Owner
from core.plans import Plans
from core.prompt import ChatFormat
from core.race import Race
from core.request import Prepared, PromptTooLong, Request
from core.result import Decision, Result
from core.schema import StructuredSchema
from core.scoring import decide
from core.trace import Event, FieldDecided, Lane, LaneEnded, LaneStarted, PassEnded, PhaseEnded, TokenWritten
from core.trie import Plan
from core.vocabulary import Vocabulary

Emit = Callable[[Event], None]

WARM_UP_TOKENS = 4

#: Query-key pairs of the one masked pass after a cached head; past them the whole prompt gets a causal
#: prefill, which needs no mask and skips what is masked. A tiny model, 3,793 tokens: 0.10 s against 0.54 s.
DENSE_PAIRS = 8_000_000


class Engine:
    """A model, ready to decide.

    `load` is the way in; the constructor takes a backend that was made on `owner`'s thread.
    """

    def __init__(self, backend: Backend, model: str, why: str = "", owner: Owner | None = None) -> None:
        self.backend = backend
        self.model = model
        self.why = why
        self.owner = owner or Owner()
        self.vocabulary = Vocabulary(backend.tokenizer)
        self._plans = Plans(ChatFormat(self.vocabulary, backend.tokenizer), self.vocabulary)
        self.warm_up_ms = 0.0

    @classmethod
    def load(
        cls,
        name: str = "auto",
        *,
        backend: str = "auto",
        dtype: str = "auto",
        offline: bool = False,
        progress: Progress = lambda stage, fraction: None,
    ) -> Engine:
        """Finds or fetches the model, loads it and warms it up.

        Raises `ModelNotFound`, `ModelError`, `BackendMissing`, `ModelUnsupported`.
        """
        kind = _backend_class(backend)
        found = resolve(name, offline=offline, accelerator=kind.accelerated(), progress=progress)
        progress(f"loading {found.name}", None)
        owner = Owner()
        return owner.submit(lambda job: cls._loaded(kind, found, dtype, owner, progress)).result()

    @classmethod
    def _loaded(cls, kind: Any, found: LocalModel, dtype: str, owner: Owner, progress: Progress) -> Engine:
        engine = cls(kind.load(found.directory, dtype=dtype), found.name, found.why, owner)
        progress(f"warming up {found.name}", None)
        engine.warm_up()
        return engine

    def run_parallel(
        self, context: str, schema: StructuredSchema, temperature: float = 1.0, *, cache: bool = True
    ) -> Result:
        """Decides every field of the schema.

        Raises `ValueError` for an empty context or a bad temperature, `PromptTooLong`, `TokenizationError`.
        """
        return self.submit(context, schema, temperature, cache=cache).result()

    def submit(self, context: str, schema: StructuredSchema, temperature: float = 1.0, *, cache: bool = True) -> Job:
        """`run_parallel` without waiting: its `Result` is the job's, and the job can be cancelled."""
        request = Request(context, schema, temperature, cache)
        return self.owner.submit(lambda job: self._parallel_job(request, job))

    def race(
        self,
        context: str,
        schema: StructuredSchema,
        *,
        temperature: float = 1.0,
        order: tuple[Lane, ...] = ("pcd", "ar"),
        mode: str = "json",
        cache: bool = True,
        asked: float | None = None,
    ) -> Race:
        """Both lanes, one after the other, as a stream of trace events.

        `asked` is when somebody asked for it, in `time.perf_counter()` seconds, if not now.
        """
        if mode not in baseline.MODES:
            raise ValueError(f"baseline mode {mode!r} is unknown; use one of: {', '.join(baseline.MODES)}")
        return Race(self, Request(context, schema, temperature, cache), order, mode, asked)

    def stream_baseline(
        self, context: str, schema: StructuredSchema, mode: str = "json", *, cache: bool = True
    ) -> Iterator[dict[str, Any]]:
        """The baseline alone: its trace events as dicts, the last of kind `end`.

        Closing the iterator stops the engine within one token.
        """
        return self.race(context, schema, order=("ar",), mode=mode, cache=cache).dicts()

    # What follows runs on the owner thread.

    def prepare(self, request: Request) -> Prepared:
        """Raises `TokenizationError` or `PromptTooLong` before any model work."""
        started = time.perf_counter()
        plan = self._plans.plan(request.schema)
        context = tuple(plan.prompt.context_ids(self.vocabulary, request.context))
        new = len(context) + len(plan.prompt.tail) + len(plan.tree.tokens)
        is_long = new * (len(plan.prompt.head) + new) > DENSE_PAIRS
        head = self._plans.head(request.schema) if request.cache and not is_long else None
        prepared = Prepared(request, plan, context, head, is_long, (time.perf_counter() - started) * 1e3)
        self._check_window(prepared)
        return prepared

    def parallel(self, prepared: Prepared, clock: LaneClock, job: Job, emit: Emit) -> tuple[Result, Prefix | None]:
        """The pcd lane: the result, and the whole prompt's prefix where it had a pass of its own."""
        emit(LaneStarted(0.0, "pcd"))
        emit(PhaseEnded(clock.elapsed_ms, "pcd", "plan", clock.elapsed_ms))
        before = self.backend.passes
        plan, prefix = prepared.plan, None
        if prepared.head is None:
            prefix = self.backend.prefill(prepared.whole)
            self._passed("pcd", "head + context", len(prepared.whole), before, clock, emit)
            job.check()
            start, ids, phase = prefix, [], "tree"
        else:
            start, ids, phase = prepared.head, prepared.after_head, "context + tree"
        forks = plan.forks
        rows = self.backend.read(start, ids, plan.tree, [f.node for f in forks], [f.tokens for f in forks])
        self._passed("pcd", phase, len(ids) + len(plan.tree.tokens), before, clock, emit)
        job.check()
        remaining = iter(rows)
        decisions = tuple(
            decide(trie, list(islice(remaining, len(trie.forks))), prepared.request.temperature) for trie in plan.tries
        )
        took = clock.lap("scoring")
        emit(PhaseEnded(clock.elapsed_ms, "pcd", "scoring", took))
        text = prompt.object_text(prompt.member(d.name, prompt.literal(d.value)) for d in decisions)
        took = clock.lap("assembly", last=True)
        for decision in decisions:
            emit(_decided(decision, clock.elapsed_ms))
        emit(PhaseEnded(clock.elapsed_ms, "pcd", "assembly", took))
        return self._result(prepared, decisions, text, clock, self.backend.passes - before), prefix

    def write(self, prepared: Prepared, clock: LaneClock, job: Job, emit: Emit) -> tuple[LaneEnded, Prefix]:
        """The ar lane: how it ended, and the prompt's prefix."""
        emit(LaneStarted(0.0, "ar"))
        before = self.backend.passes
        layout = prepared.plan.prompt.layout
        if prepared.head is None:
            ids, prefix = prepared.whole, self.backend.prefill(prepared.whole)
        else:
            ids, prefix = prepared.after_head, self.backend.prefill(prepared.after_head, prepared.head)
        self._passed("ar", "prefill", len(ids), before, clock, emit)
        parts, count, how = [layout.opening], 0, "limit"
        decoder, mask = self.backend.decoder(prefix), self.grammar.start(layout.opening)
        limit = min(self._token_limit(prepared.plan), self.backend.identity.window - prepared.prompt_tokens)
        for written in baseline.write(decoder, mask, self.vocabulary, self.backend.identity.end_ids, limit):
            count += 1
            passes = self.backend.passes - before
            emit(TokenWritten(clock.now_ms, "ar", written.token, written.text, count, passes))
            parts.append(written.text)
            how = written.how or how
            job.check()
        took = clock.lap("decode", last=True)
        emit(PhaseEnded(clock.elapsed_ms, "ar", "decode", took))
        passes, text = self.backend.passes - before, "".join(parts)
        return LaneEnded(clock.elapsed_ms, "ar", how, passes, count, text, prepared.cache), prefix

    def keep_head(self, prepared: Prepared, prefix: Prefix | None) -> None:
        """Stores the schema's head for the next request, after all clocks have stopped."""
        if prepared.cache == "miss" and prefix is not None:
            self._plans.keep(prepared.request.schema, prefix.head(len(prepared.plan.prompt.head)))

    @cached_property
    def grammar(self) -> baseline.Grammar:
        identity = self.backend.identity
        return baseline.Grammar(self.backend.tokenizer, identity.vocab_size, identity.end_ids)

    def warm_up(self) -> None:
        """One small request on each lane: the first forward after a load is several times slower."""
        started = time.perf_counter()
        request = Request("Warm-up.", StructuredSchema({"ready": {"type": "boolean"}}), cache=False)
        prepared = self.prepare(request)
        clock, job = LaneClock(self.backend.synchronize), Job(self.owner, lambda job: None)
        _, prefix = self.parallel(prepared, clock, job, lambda event: None)
        decoder, mask = self.backend.decoder(prefix), self.grammar.start(prepared.plan.prompt.layout.opening)
        for _ in baseline.write(decoder, mask, self.vocabulary, self.backend.identity.end_ids, WARM_UP_TOKENS):
            pass
        self.warm_up_ms = (time.perf_counter() - started) * 1e3

    def _parallel_job(self, request: Request, job: Job) -> Result:
        prepared = self.prepare(request)
        clock = LaneClock(self.backend.synchronize, plan=prepared.took_ms)
        result, prefix = self.parallel(prepared, clock, job, lambda event: None)
        self.keep_head(prepared, prefix)
        return result

    def _passed(self, lane: Lane, phase: str, tokens: int, before: int, clock: LaneClock, emit: Emit) -> None:
        took = clock.lap(phase)
        emit(PassEnded(clock.elapsed_ms, lane, self.backend.passes - before, tokens))
        emit(PhaseEnded(clock.elapsed_ms, lane, phase, took))

    def _check_window(self, prepared: Prepared) -> None:
        plan, window = prepared.plan, self.backend.identity.window
        answer = max(_canonical_tokens(plan), max(plan.tree.depths) + 1)
        needed = prepared.prompt_tokens + answer
        if needed > window:
            raise PromptTooLong(
                f"the request needs {needed} tokens (schema {len(plan.prompt.head)}, text {len(prepared.context)}, "
                f"answer {answer + len(plan.prompt.tail)}) and the window of {self.model} holds {window}; "
                f"shorten the text or the schema by {needed - window} tokens"
            )

    def _token_limit(self, plan: Plan) -> int:
        return baseline.token_limit(_canonical_tokens(plan))

    def _result(
        self, prepared: Prepared, decisions: tuple[Decision, ...], text: str, clock: LaneClock, passes: int
    ) -> Result:
        identity = self.backend.identity
        return Result(
            decisions=decisions,
            text=text,
            phases=dict(clock.phases),
            passes=passes,
            prompt_tokens=prepared.prompt_tokens,
            tree_tokens=len(prepared.plan.tree.tokens),
            cache=prepared.cache,
            strategy="tree",
            model=self.model,
            why=self.why,
            backend=identity.backend,
            device=identity.device,
            dtype=identity.dtype,
        )


def run_parallel_generation(context: str, schema: StructuredSchema, temperature: float = 1.0) -> dict[str, Any]:
    """`Engine.run_parallel` on the default engine, as the public dict."""
    return default_engine().run_parallel(context, schema, temperature).to_json()


def stream_naive_generation(context: str, schema: StructuredSchema, mode: str = "json") -> Iterator[dict[str, Any]]:
    """`Engine.stream_baseline` on the default engine."""
    return default_engine().stream_baseline(context, schema, mode)


@cache
def default_engine() -> Engine:
    """The engine that PCD_MODEL, PCD_BACKEND and PCD_DTYPE choose; loaded once, at the first call."""
    return Engine.load(default_of("MODEL"), backend=default_of("BACKEND"), dtype=default_of("DTYPE"))


def default_of(setting: str) -> str:
    """PCD_MODEL, PCD_BACKEND or PCD_DTYPE, `auto` where it is not set."""
    return os.environ.get(f"PCD_{setting}") or "auto"


def _backend_class(name: str) -> Any:
    if name not in ("auto", "torch"):
        raise BackendMissing(f"backend {name!r} is not there; use auto or torch")
    from core.engine_torch import TorchBackend  # here: `core` imports without torch

    return TorchBackend


def _canonical_tokens(plan: Plan) -> int:
    """Tokens of the canonical JSON with every field's longest choice."""
    lines = (max(len(form.tokens) for form in trie.forms) for trie in plan.tries)
    return sum(lines) + 1  # the closing brace


def _decided(decision: Decision, ms: float) -> FieldDecided:
    return FieldDecided(
        ms=ms,
        lane="pcd",
        name=decision.name,
        value=decision.value,
        probability=decision.probability,
        candidate_mass=decision.candidate_mass,
        levels=decision.levels[decision.winner],
        top=decision.top(),
        cardinality=len(decision.choices),
    )
