"""The pcd lane: a prepared request to decisions, pass by pass.

Head and context are read once, then the forks: all in one pass, in as many as memory
asks for, best-first, or in waves where fields depend on others. Runs on the owner thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.backend import Backend, Prefix, TreeBatch, room_after
from core.lane_clock import LaneClock
from core.owner import Job
from core.plans import PriorScores
from core.prompt import literal
from core.request import Prepared
from core.result import Decision
from core.scoring import checked_standing, decide, path_shares
from core.search import Asked, Search
from core.trace import LISTED_CHOICES, Event, FieldDecided, LaneStarted, PassEnded, PhaseEnded
from core.vocabulary import Vocabulary

Emit = Callable[[Event], None]

#: Tokens of a line as text, each with the probability of its branch.
Path = tuple[tuple[str, float | None], ...]


@dataclass(frozen=True)
class Outcome:
    """What the lane has found out, and what of it is worth keeping."""

    decisions: tuple[Decision, ...]  # schema order
    text: str  # the assembled JSON
    passes: int
    tree_tokens: int
    prefix: Prefix | None  # the state after the head, or after a prompt that begins with it
    prior: PriorScores | None
    sent_tokens: int | None = None  # of all prompts that a server was sent
    server_queue_ms: float | None = None


class ParallelLane:
    """One run of the lane.

    `allowance`: nodes that a best-first pass reads on the chance that they are needed.
    """

    def __init__(
        self,
        backend: Backend,
        vocabulary: Vocabulary,
        prepared: Prepared,
        clock: LaneClock,
        job: Job,
        emit: Emit,
        allowance: int,
    ) -> None:
        self._backend, self._vocabulary, self._prepared = backend, vocabulary, prepared
        self._clock, self._job, self._emit = clock, job, emit
        self._allowance = allowance if prepared.reading == "best-first" else None
        self._before = backend.passes
        self._tree_tokens = 0
        self._head = prepared.head
        self._prior = prepared.prior
        self._asked: list[Asked] = []  # what was read, for the paths that are told once the clock has stopped

    def run(self) -> Outcome:
        self._emit(LaneStarted(0.0, "pcd"))
        self._emit(PhaseEnded(self._clock.elapsed_ms, "pcd", "plan", self._clock.elapsed_ms))
        prefix, ids = self._before_forks() if self._prepared.plan.forks else (None, [])  # consts ask for nothing
        decisions = self._decided_in_waves(prefix, ids)
        layout = self._prepared.plan.prompt.layout
        members = [(decision.name, literal(decision.value)) for decision in decisions]
        text = layout.text(members)
        took = self._clock.lap("assembly", last=True)
        read = {one.trie.field.name: one for one in self._asked}
        for decision, span in zip(decisions, layout.spans(members), strict=True):
            path = path_of(read[decision.name], decision.winner, self._vocabulary)
            self._emit(decided(decision, self._clock.elapsed_ms, span, path))
        self._emit(PhaseEnded(self._clock.elapsed_ms, "pcd", "assembly", took))
        passes = self._backend.passes - self._before
        return Outcome(decisions, text, passes, self._tree_tokens, self._head or prefix, self._prior)

    def _before_forks(self) -> tuple[Prefix, list[int]]:
        """What comes before the forks, read as far as it has passes of its own."""
        if self._head is None and self._prepared.strategy == "rows":
            # A recurrent state cannot be cut to its head afterwards.
            self._head = self._prefill(self._prepared.plan.prompt.head, "head")
        if self._prepared.needs_prior:
            self._prior = self._read_prior()
        return self._prompt(self._prepared.after_head)

    def _prompt(self, after_head: list[int], phase: str = "") -> tuple[Prefix, list[int]]:
        """A prefix, and what of the prompt is still to be read in the pass that follows."""
        if self._head is None:
            whole = [*self._prepared.plan.prompt.head, *after_head]
            return self._prefill(whole, phase or "head + context"), []
        if self._prepared.strategy == "rows":  # its rows begin after the whole prompt
            return self._prefill(after_head, phase or "context", self._head), []
        return self._head, after_head

    def _decided_in_waves(self, prefix: Prefix | None, ids: list[int]) -> tuple[Decision, ...]:
        plan, temperature = self._prepared.plan, self._prepared.request.temperature
        priors = dict(zip(plan.schema, self._prior, strict=True)) if self._prior else {}
        found: dict[str, Decision] = {}
        for number, wave in enumerate(plan.waves, start=1):
            answers = {name: decision.winner for name, decision in found.items()}
            asked = [Asked(trie, plan.lead(trie, answers, self._vocabulary), priors.get(trie.field)) for trie in wave]
            if any(one.masses for one in asked):
                assert prefix is not None, "there are forks"
                prefix, ids = self._read(asked, prefix, ids, self._allowance, is_last=number == len(plan.waves)), []
            for one in asked:
                found[one.trie.field.name] = decide(one.trie, one.masses, temperature, one.prior)
            self._asked += asked
            took = self._clock.lap("scoring")
            self._emit(PhaseEnded(self._clock.elapsed_ms, "pcd", "scoring", took))
        return tuple(found[field.name] for field in plan.schema)

    def _read_prior(self) -> PriorScores:
        """The scores that the schema gets on a text without content, each field for itself."""
        asked = [Asked(trie) for trie in self._prepared.plan.tries]
        prompt_parts = self._prepared.plan.prompt
        prefix, ids = self._prompt([*self._prepared.blank, *prompt_parts.tail], "prior")
        self._read(asked, prefix, ids, None, phase="prior")
        if self._head is None and not self._prepared.is_long:
            self._head = prefix.head(len(prompt_parts.head))
        return tuple(checked_standing(one.trie, one.masses).lower for one in asked)

    def _read(
        self,
        asked: Sequence[Asked],
        prefix: Prefix,
        ids: Sequence[int],
        allowance: int | None,
        *,
        is_last: bool = True,
        phase: str = "",
    ) -> Prefix:
        """Reads what the fields need after `prefix` and `ids`; the prefix after both, unless nothing comes later."""
        search = Search(asked, allowance)
        while chosen := search.next(room_after(self._backend, prefix.length) - len(ids)):
            tree, ends = self._tree(asked, chosen)
            forks = [asked[i].trie.forks[fork] for i, fork in chosen]
            keep = bool(ids) and not (is_last and len(forks) == sum(len(one.masses) for one in asked))
            rows, kept = self._backend.read(prefix, ids, tree, ends, [fork.tokens for fork in forks], keep)
            self._tree_tokens += len(tree.tokens)
            name = phase or ("context + tree" if ids else "tree")
            self._passed(name, len(ids) + len(tree.tokens))
            prefix, ids = kept or prefix, []
            search.take(chosen, rows)
        return prefix

    def _tree(self, asked: Sequence[Asked], chosen: Sequence[tuple[int, int]]) -> tuple[TreeBatch, list[int]]:
        plan = self._prepared.plan
        if len(asked) == len(plan.tries) and len(chosen) == len(plan.forks) and list(chosen) == sorted(chosen):
            return plan.packed
        return TreeBatch.of(asked[i].path(fork) for i, fork in chosen)

    def _prefill(self, ids: Sequence[int], phase: str, after: Prefix | None = None) -> Prefix:
        prefix = self._backend.prefill(ids, after)
        self._passed(phase, len(ids))
        return prefix

    def _passed(self, phase: str, tokens: int) -> None:
        took = self._clock.lap(phase)
        self._emit(PassEnded(self._clock.elapsed_ms, "pcd", self._backend.passes - self._before, tokens))
        self._emit(PhaseEnded(self._clock.elapsed_ms, "pcd", phase, took))
        self._job.check()


def path_of(asked: Asked, choice: int, vocabulary: Vocabulary) -> Path:
    """The tokens of a choice's line as text, each with the share that its branch had where that was read."""
    shares = path_shares(asked.trie, choice, asked.masses)
    return tuple((vocabulary.bytes_of(token).decode("utf-8", "backslashreplace"), share) for token, share in shares)


def decided(decision: Decision, ms: float, span: tuple[int, int], path: Path) -> FieldDecided:
    """The decision as a trace event; `span`: where its member stands in the assembled text."""
    return FieldDecided(
        ms=ms,
        lane="pcd",
        name=decision.name,
        value=decision.value,
        probability=decision.probability,
        candidate_mass=decision.candidate_mass,
        levels=decision.levels[decision.winner],
        top=decision.top(LISTED_CHOICES),
        cardinality=len(decision.choices),
        unread=decision.unread,
        unread_mass=decision.unread_mass,
        unasked=decision.unasked,
        unasked_mass=decision.unasked_mass,
        start=span[0],
        end=span[1],
        path=path,
    )
