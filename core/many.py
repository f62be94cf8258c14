"""Many contexts on one schema: the head is read once, and small contexts share passes.

Runs on the owner thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from core.backend import Prefix, room_after
from core.lane_clock import LaneClock
from core.owner import Job
from core.packing import forest, packs
from core.parallel import Outcome
from core.plans import PriorScores
from core.prompt import literal
from core.request import Prepared, Request
from core.result import CacheState, Result
from core.schema import StructuredSchema
from core.scoring import branch_masses, decide

if TYPE_CHECKING:
    from core.engine import Engine

#: What a context or the model's answer to it can be at fault for.
Fault = ValueError | ArithmeticError


class ManyContexts:
    """One call of `Engine.decode_many`."""

    def __init__(
        self,
        engine: Engine,
        schema: StructuredSchema,
        temperature: float,
        options: Mapping[str, Any],
        return_exceptions: bool,
    ) -> None:
        self._engine, self._schema, self._temperature, self._options = engine, schema, temperature, options
        self._faults_returned = return_exceptions
        self._head: Prefix | None = None
        self._prior: PriorScores | None = None

    def decided(self, contexts: Sequence[str], job: Job) -> list[Result | Fault]:
        """A result for each context, or what is wrong with it."""
        found: dict[int, Result | Fault] = {}
        asked = self._prepared(contexts, found, job)
        for i, prepared in list(asked.items()):  # until one has read the head for all
            if prepared.is_long or (prepared.head is not None and not prepared.needs_prior):
                continue
            found[i] = self._alone(asked.pop(i), job)
            if self._head is not None:
                break
        shared = {i: self._ready(prepared) for i, prepared in asked.items() if not prepared.is_long}
        room = min((room_after(self._engine.backend, p.head.length) for p in shared.values() if p.head), default=1)
        numbers = iter(shared)
        for pack in packs(list(shared.values()), room):
            job.check()
            answers = self._pack(pack) if len(pack) > 1 else [self._alone(pack[0], job)]
            found |= {next(numbers): answer for answer in answers}
        for i, prepared in asked.items():
            if prepared.is_long:
                job.check()
                found[i] = self._alone(self._ready(prepared), job)
        return [found[i] for i in range(len(contexts))]

    def _prepared(self, contexts: Sequence[str], found: dict[int, Result | Fault], job: Job) -> dict[int, Prepared]:
        options = {"temperature": self._temperature, **self._options}
        request = Request("finds the plan", self._schema, **options)
        plan = self._engine.plan(request)
        asked = {}
        for i, context in enumerate(contexts):
            job.check()
            try:
                asked[i] = self._engine.prepare(Request(context, self._schema, **options), plan)
            except ValueError as error:
                found[i] = self._returned(error)
        return asked

    def _ready(self, prepared: Prepared) -> Prepared:
        """The request on top of what others have read."""
        kept: CacheState = "hit" if prepared.request.cache else "off"
        if prepared.needs_prior and self._prior is not None:
            prepared = replace(prepared, prior=self._prior, prior_state=kept)
        if prepared.head is None and self._head is not None and not prepared.is_long:
            prepared = replace(prepared, head=self._head, cache=kept)
        return prepared

    def _alone(self, prepared: Prepared, job: Job) -> Result | Fault:
        try:
            result, head, prior = self._engine.decided(prepared, job)
        except (ValueError, ArithmeticError) as error:
            return self._returned(error)
        self._head, self._prior = self._head or head, self._prior or prior
        return result

    def _pack(self, pack: Sequence[Prepared]) -> Iterator[Result | Fault]:
        """One pass for all of them."""
        backend = self._engine.backend
        clock = LaneClock(backend.synchronize, plan=sum(prepared.took_ms for prepared in pack))
        tree, ends = forest(pack)
        forks = [fork for prepared in pack for fork in prepared.plan.forks]
        before = backend.passes
        rows, _ = backend.read(pack[0].head, [], tree, ends, [fork.tokens for fork in forks])
        clock.lap("context + tree")
        masses = iter([branch_masses(fork, row) for fork, row in zip(forks, rows, strict=True)])
        outcomes: list[Outcome | Fault] = []
        for prepared in pack:
            own = [[next(masses) for _ in trie.forks] for trie in prepared.plan.tries]
            try:
                outcomes.append(self._outcome(prepared, own, backend.passes - before))
            except ArithmeticError as error:
                outcomes.append(self._returned(error))
        clock.lap("scoring", last=True)
        for prepared, outcome in zip(pack, outcomes, strict=True):
            if isinstance(outcome, Outcome):
                yield self._engine.result(prepared, outcome, clock.phases, len(pack))
            else:
                yield outcome

    def _outcome(self, prepared: Prepared, masses: Sequence[Any], passes: int) -> Outcome:
        plan, priors = prepared.plan, prepared.prior or [None] * len(masses)
        decisions = tuple(
            decide(trie, own, self._temperature, prior)
            for trie, own, prior in zip(plan.tries, masses, priors, strict=True)
        )
        text = plan.prompt.layout.text((d.name, literal(d.value)) for d in decisions)
        return Outcome(decisions, text, passes, len(plan.tree.tokens), None, None)

    def _returned(self, error: Fault) -> Fault:
        """The error, where the caller wants it in its place."""
        if self._faults_returned:
            return error
        raise error
