"""The engine: one request from schema and context to decisions, and the public functions.

All model work happens on the engine's owner thread; every public method may be called
from any thread. Knows nothing of pages or protocols.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any

from core.backend import Backend, Prefix, room_after
from core.baseline import run_baseline, write
from core.grammar import MODES, Grammars, Mode
from core.lane_clock import LaneClock
from core.many import ManyContexts
from core.models import Progress
from core.overhead import measured_overhead
from core.owner import Job, Owner
from core.parallel import Emit, Outcome, ParallelLane
from core.plans import MAX_BYTES, MAX_ENTRIES, Plans, PriorScores
from core.prompt import ChatFormat
from core.race import Race
from core.request import Prepared, Request, RequestError, check_one_of
from core.result import CacheState, Result
from core.schema import StructuredSchema
from core.search import pays
from core.text_log import log_request
from core.trace import Lane, LaneEnded
from core.trie import Plan
from core.vocabulary import Vocabulary

log = logging.getLogger(__name__)

WARM_UP_TOKENS = 4

#: The text without content whose scores a prior is, as in contextual calibration (Zhao et al. 2021).
BLANK = "N/A"

#: Query-key pairs of the one masked pass after a cached head. Past them, and where the head is the smaller part, the
#: whole prompt gets a causal prefill, which needs no mask and skips what is masked. A tiny model, a text of 3,793
#: tokens: 0.10 s against 0.54 s. SmolLM2, a head of 4,000 tokens and 450 new ones: 35.7 s against 4.7 s.
DENSE_PAIRS = 8_000_000

#: Nodes that a best-first pass reads on the chance that they are needed: as many as cost half of what a pass costs
#: anyway, within these bounds; the first of them where nothing was measured. 255 tariff codes with SmolLM2-135M on a
#: CPU, where a pass costs 30 to 40 tokens: 8 nodes 191 ms, 16 146, 24 162, 48 233, the whole trie 443.
LEAST_ALLOWANCE, MOST_ALLOWANCE = 16, 256


class Engine:
    """A model, ready to decide.

    `load` is the way in; the constructor takes a backend that was made on `owner`'s thread.
    """

    #: What does the work of a race and of many contexts: another one where it is done elsewhere.
    _Race, _Many = Race, ManyContexts

    def __init__(
        self,
        backend: Backend,
        model: str,
        why: str = "",
        owner: Owner | None = None,
        *,
        cache_entries: int = MAX_ENTRIES,
        cache_bytes: int = MAX_BYTES,
    ) -> None:
        self.backend = backend
        self.model = model
        self.why = why
        self.owner = owner or Owner()
        self.vocabulary = Vocabulary(backend.tokenizer)
        chat = ChatFormat(self.vocabulary, backend.tokenizer)
        self._plans = Plans(chat, self.vocabulary, backend.identity, cache_entries, cache_bytes)
        self.warm_up_ms = 0.0
        #: Called where a server turns out to run another model than the one that was found there.
        self.renew: Callable[[], None] = lambda: None
        #: What a pass costs beside its tokens, in tokens; endless until it was measured, so that all is read.
        self.pass_overhead = math.inf

    @classmethod
    def load(
        cls,
        name: str = "auto",
        *,
        backend: str = "auto",
        dtype: str = "auto",
        offline: bool = False,
        cache_entries: int = MAX_ENTRIES,
        cache_bytes: int = MAX_BYTES,
        progress: Progress = lambda stage, fraction: None,
        queue: int | None = None,
        timeout_s: float | None = None,
        **server: Any,
    ) -> Engine:
        """Finds or fetches the model, loads it and warms it up; or finds a vLLM server, whose URL `name` is.

        `queue`: requests that may wait, beyond which they raise `QueueFull`; `timeout_s`: for each, waiting included,
        after which it raises `TimedOut`. `server`: what `core/engine_served.connected` takes. Raises
        `ModelNotFound`, `ModelError`, `BackendMissing`, `ModelUnsupported`; of a server what is `Unavailable` too.
        """
        from core.loading import Load

        load = Load(name, backend, dtype, offline, cache_entries, cache_bytes, progress, queue, timeout_s)
        return load.served(**server) if load.is_served else load.here(cls, **server)

    def run_parallel(self, context: str, schema: StructuredSchema, temperature: float = 1.0, **options: Any) -> Result:
        """Decides every field of the schema.

        `options` are those of `Request`: cache, scoring, prior, complete, style. Raises `ValueError` for an
        empty context or a bad option, `PromptTooLong`, `TokenizationError`, and what is `Unavailable`.
        """
        return self.submit(context, schema, temperature, **options).result()

    def submit(self, context: str, schema: StructuredSchema, temperature: float = 1.0, **options: Any) -> Job:
        """`run_parallel` without waiting: its `Result` is the job's, and the job can be cancelled."""
        request = Request(context, schema, temperature, **options)
        log_request([context], schema)
        return self.owner.submit(lambda job: self.decided(self.prepare(request), job)[0])

    def decode_many(
        self,
        contexts: Iterable[str],
        schema: StructuredSchema,
        temperature: float = 1.0,
        **options: Any,
    ) -> list[Any]:
        """A `Result` for each context, in order; several contexts share a pass where that is faster.

        With `return_exceptions` the error of a context that cannot be decided stands in its place.
        Raises as `run_parallel` does.
        """
        return self.submit_many(contexts, schema, temperature, **options).result()

    def submit_many(
        self,
        contexts: Iterable[str],
        schema: StructuredSchema,
        temperature: float = 1.0,
        *,
        return_exceptions: bool = False,
        **options: Any,
    ) -> Job:
        """`decode_many` without waiting."""
        if isinstance(contexts, str):
            raise RequestError("contexts is one text; give a list of texts, or use run_parallel")
        contexts = list(contexts)
        Request("checks the options", schema, temperature, **options)
        many = self._Many(self, schema, temperature, options, return_exceptions)
        log_request(contexts, schema)
        return self.owner.submit(lambda job: many.decided(contexts, job))

    def race(
        self,
        context: str,
        schema: StructuredSchema,
        *,
        temperature: float = 1.0,
        order: tuple[Lane, ...] = ("pcd", "ar"),
        mode: Mode = "json",
        asked: float | None = None,
        **options: Any,
    ) -> Race:
        """Both lanes, one after the other, as a stream of trace events.

        `asked` is when somebody asked for it, in `time.perf_counter()` seconds, if not now.
        """
        check_one_of("baseline mode", mode, MODES)
        request = Request(context, schema, temperature, **options)
        log_request([context], schema)
        return self._Race(self, request, order, mode, asked)

    def stream_baseline(
        self, context: str, schema: StructuredSchema, mode: Mode = "json", **options: Any
    ) -> Iterator[dict[str, Any]]:
        """The baseline alone: its trace events as dicts, the last of kind `end`.

        `options` are those of `Request`: cache, style. Closing the iterator stops the engine within one token.
        """
        return self.race(context, schema, order=("ar",), mode=mode, **options).dicts()

    @property
    def trouble(self) -> str:
        """Why the next request may well fail, for people; empty where nothing is known."""
        return ""

    @property
    def held(self) -> tuple[int, int]:
        """Head prefixes in the cache now, and their bytes."""
        return self._plans.held

    @property
    def allowance(self) -> int:
        """Nodes that a best-first pass reads on the chance that they are needed."""
        overhead = self.pass_overhead if math.isfinite(self.pass_overhead) else LEAST_ALLOWANCE
        return int(min(MOST_ALLOWANCE, max(LEAST_ALLOWANCE, overhead / 2)))

    # What follows runs on the owner thread.

    def plan(self, request: Request) -> tuple[Plan, CacheState]:
        """The compiled schema; raises `TokenizationError`, or `PromptTooLong` where the head alone is."""
        return self._plans.plan(request)

    def prepare(self, request: Request, known: tuple[Plan, CacheState] | None = None) -> Prepared:
        """Raises `TokenizationError` or `PromptTooLong` before any model work; `known`: the plan, if it is at hand."""
        started = time.perf_counter()
        cache = request.cache
        plan, plan_state = known or self.plan(request)
        context = tuple(plan.prompt.context_ids(self.vocabulary, request.context))
        is_long = self._is_long(plan, len(context))
        head, head_state = self._plans.head(request) if cache and not is_long else (None, "off")
        wants_prior = request.prior != "none"
        prior, prior_state = self._plans.prior(request) if wants_prior and cache else (None, "off")
        blank = tuple(plan.prompt.context_ids(self.vocabulary, BLANK)) if wants_prior else ()
        complete = request.complete
        if complete is None:  # a prior makes bounds loose, and a whole line asks for a pass for each few of its tokens
            complete = wants_prior or request.scoring == "full" or not pays(plan, self.pass_overhead)
        prepared = Prepared(
            request=request,
            plan=plan,
            plan_state=plan_state,
            context=context,
            head=head,
            cache=head_state,
            strategy=self.backend.identity.strategy,
            reading="complete" if complete else "best-first",
            is_long=is_long,
            prior=prior,
            prior_state=prior_state,
            blank=blank,
            took_ms=(time.perf_counter() - started) * 1e3,
        )
        prepared.require_room(self.backend.identity.window, self.model)
        return prepared

    def parallel(self, prepared: Prepared, clock: LaneClock, job: Job, emit: Emit) -> Outcome:
        """The pcd lane."""
        return ParallelLane(self.backend, self.vocabulary, prepared, clock, job, emit, self.allowance).run()

    def write(self, prepared: Prepared, mode: Mode, clock: LaneClock, job: Job, emit: Emit) -> tuple[LaneEnded, Prefix]:
        """The ar lane: how it ended, and the prefix of the prompt or of its head."""
        return run_baseline(self.backend, self.vocabulary, self.grammars, mode, prepared, clock, job, emit)

    def keep(self, prepared: Prepared, prefix: Prefix | None, prior: PriorScores | None = None) -> Prefix | None:
        """Stores what the next request can use, after all clocks have stopped; the head, where it is to be had."""
        if prepared.head is not None or prefix is None or prepared.is_long:
            head = prepared.head
        else:
            size = len(prepared.plan.prompt.head)
            head = prefix if prefix.length == size else prefix.head(size)
        if prepared.request.cache:
            if head is not None and prepared.head is None:
                self._plans.keep_head(prepared.request, head)
            if prior is not None and prepared.prior is None:
                self._plans.keep_prior(prepared.request, prior)
        return head

    def result(self, prepared: Prepared, outcome: Outcome, phases: Mapping[str, float], shared: int = 1) -> Result:
        identity = self.backend.identity
        return Result(
            schema=prepared.request.schema,
            decisions=outcome.decisions,
            text=outcome.text,
            phases=dict(phases),
            passes=outcome.passes,
            prompt_tokens=prepared.prompt_tokens,
            tree_tokens=outcome.tree_tokens,
            caches=self._plans.report(prepared),
            strategy=prepared.strategy,
            scoring=prepared.request.scoring,
            reading=prepared.reading,
            prior=prepared.request.prior,
            shared=shared,
            model=self.model,
            why=self.why,
            backend=identity.backend,
            device=identity.device,
            dtype=identity.dtype,
            clock=identity.clock,
            sent_tokens=outcome.sent_tokens,
            server_queue_ms=outcome.server_queue_ms,
        )

    def decided(self, prepared: Prepared, job: Job) -> tuple[Result, Prefix | None, PriorScores | None]:
        """One request alone: the result, and head and prior for others like it."""
        clock = LaneClock(self.backend.synchronize, plan=prepared.took_ms)
        outcome = self.parallel(prepared, clock, job, lambda event: None)
        head = self.keep(prepared, outcome.prefix, outcome.prior)
        return self.result(prepared, outcome, clock.phases), head, outcome.prior

    @cached_property
    def grammars(self) -> Grammars:
        identity = self.backend.identity
        return Grammars(self.vocabulary, identity.vocab_size, identity.end_ids)

    def warm_up(self) -> None:
        """One small request on each lane: the first forward after a load is several times slower."""
        started = time.perf_counter()
        request = Request("Warm-up.", StructuredSchema({"ready": {"type": "boolean"}}), cache=False)
        prepared = self.prepare(request)
        clock, job = LaneClock(self.backend.synchronize), Job(self.owner, lambda job: None)
        self.parallel(prepared, clock, job, lambda event: None)
        prefix = self.backend.prefill(prepared.whole)
        constraint = self.grammars.start("json", request.schema, prepared.plan.prompt.layout)
        end_ids = self.backend.identity.end_ids
        for _ in write(self.backend.decoder(prefix), constraint, self.vocabulary, end_ids, WARM_UP_TOKENS):
            pass
        self.pass_overhead = measured_overhead(self.backend, prefix)
        self.warm_up_ms = (time.perf_counter() - started) * 1e3

    def _is_long(self, plan: Plan, context: int) -> bool:
        if self.backend.identity.strategy != "tree":
            return False
        head, after = len(plan.prompt.head), context + len(plan.prompt.tail)
        new = after + len(plan.tree.tokens)
        masked, causal = new * (head + new), (head + after) ** 2 / 2
        is_slower = masked > DENSE_PAIRS and 2 * masked > causal
        return is_slower or after + plan.deepest > room_after(self.backend, head)


def run_parallel_generation(
    context: str, schema: StructuredSchema, temperature: float = 1.0, **options: Any
) -> dict[str, Any]:
    """`Engine.run_parallel` on the default engine, as the public dict."""
    return default_engine().run_parallel(context, schema, temperature, **options).to_json()


def stream_naive_generation(
    context: str, schema: StructuredSchema, mode: Mode = "json", **options: Any
) -> Iterator[dict[str, Any]]:
    """`Engine.stream_baseline` on the default engine."""
    return default_engine().stream_baseline(context, schema, mode, **options)


@cache
def default_engine() -> Engine:
    """The engine that PCD_MODEL, PCD_BACKEND and PCD_DTYPE choose; loaded once, at the first call."""
    return Engine.load(default_of("MODEL"), backend=default_of("BACKEND"), dtype=default_of("DTYPE"))


def default_of(setting: str) -> str:
    """PCD_MODEL, PCD_BACKEND or PCD_DTYPE, `auto` where it is not set."""
    return os.environ.get(f"PCD_{setting}") or "auto"
