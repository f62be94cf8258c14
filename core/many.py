"""Many contexts on one schema: the head is read once, and small contexts share passes.

Runs on the owner thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from core import prompt
from core.backend import Prefix
from core.owner import Job, LaneClock
from core.packing import forest, packs
from core.parallel import Outcome
from core.plans import PriorScores
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

    def decided(self, contexts: Sequence[str], job: Job) -> list[Result | Fault]:
        """A result for each context, or what is wrong with it."""
        found: dict[int, Result | Fault] = {}
        asked: dict[int, Prepared] = {}
        for i, context in enumerate(contexts):
            try:
                asked[i] = self._engine.prepare(Request(context, self._schema, self._temperature, **self._options))
            except ValueError as error:
                found[i] = self._returned(error)
        found |= zip(asked, self._answers(list(asked.values()), job), strict=True)
        return [found[i] for i in range(len(contexts))]

    def _answers(self, requests: list[Prepared], job: Job) -> Iterator[Result | Fault]:
        """The first alone, if nobody has read the head yet; the others behind its head."""
        if requests and not requests[0].is_long and (requests[0].head is None or requests[0].needs_prior):
            first, *others = requests
            try:
                result, head, prior = self._engine.decided(first, job)
            except ArithmeticError as error:
                yield self._returned(error)
                requests = others
            else:
                yield result
                requests = [self._behind(other, head, prior) for other in others]
        room = self._engine.backend.room(requests[0].head.length) if requests and requests[0].head else 1
        for pack in packs(requests, room):
            job.check()
            yield from self._pack(pack, job) if len(pack) > 1 else [self._alone(pack[0], job)]

    def _behind(self, prepared: Prepared, head: Prefix | None, prior: PriorScores | None) -> Prepared:
        """The request on top of what the first one has found."""
        if prepared.is_long:
            return prepared
        state: CacheState = "hit" if prepared.request.cache else "off"
        prior_state = state if prepared.request.prior != "none" else "off"
        return replace(prepared, head=head, cache=state, prior=prior, prior_state=prior_state)

    def _alone(self, prepared: Prepared, job: Job) -> Result | Fault:
        try:
            return self._engine.decided(prepared, job)[0]
        except ArithmeticError as error:
            return self._returned(error)

    def _pack(self, pack: Sequence[Prepared], job: Job) -> Iterator[Result | Fault]:
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
        text = prompt.object_text(prompt.member(d.name, prompt.literal(d.value)) for d in decisions)
        return Outcome(decisions, text, passes, len(plan.tree.tokens), None, None)

    def _returned(self, error: Fault) -> Fault:
        """The error, where the caller wants it in its place."""
        if self._faults_returned:
            return error
        raise error
