"""The ar lane: the same model reads the same prompt and writes the JSON token by token, greedily.

What a step does beside the model's forward does not grow with what was written: a mask, an
argmax on the device, the token's bytes. Tokens that the constraint leaves no choice about
ride in the pass of the token before them.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from core.backend import Backend, Decoder, Prefix
from core.grammar import Constraint, Grammars, Mode
from core.lane_clock import LaneClock
from core.owner import Job
from core.parallel import Emit
from core.request import Prepared
from core.trace import LaneEnded, LaneStarted, PassEnded, PhaseEnded, TokenWritten
from core.vocabulary import Vocabulary

How = Literal["closed", "end_of_turn", "limit"]
Lap = Callable[[str], object]


def token_limit(canonical: int) -> int:
    """Tokens after which the baseline is stopped, at the latest; `canonical`: those of the canonical JSON."""
    return 2 * canonical + 64


@dataclass(frozen=True)
class Written:
    """One token of the baseline."""

    token: int
    text: str  # characters that became complete with it
    forced: bool  # the constraint left no other; the model was not asked
    how: How | None  # set on the last one


def write(
    decoder: Decoder,
    constraint: Constraint,
    vocabulary: Vocabulary,
    end_ids: frozenset[int],
    limit: int,
    forced: Sequence[int] = (),
    lap: Lap = lambda phase: None,
) -> Iterator[Written]:
    """Tokens until the object's closing brace, the end of the turn, or the limit.

    `forced`: tokens that were forced before the first choice, and read with the prompt. `lap`
    ends a phase: decode, mask, detokenise. A character that is spread over several tokens comes
    with its last one.
    """
    characters = codecs.getincrementaldecoder("utf-8")("replace")
    chosen: list[int] = []
    count = 0
    while True:
        for number, token in enumerate((*chosen, *forced), start=1):
            count += 1
            is_last = number == len(chosen) + len(forced)
            how: How | None = "closed" if is_last and constraint.closed else "limit" if count == limit else None
            yield Written(token, characters.decode(vocabulary.written(token)), number > len(chosen), how)
            if how:
                return
        lap("detokenise")
        if chosen:
            decoder.append([*chosen, *forced])
            lap("decode")
        mask = constraint.bits()
        lap("mask")
        chosen = [decoder.choose(mask)]
        lap("decode")
        if chosen[0] in end_ids:
            yield Written(chosen[0], "", False, "end_of_turn")
            return
        constraint.advance(chosen[0])
        forced = constraint.forced()
        lap("mask")


def run_baseline(
    backend: Backend,
    vocabulary: Vocabulary,
    grammars: Grammars,
    mode: Mode,
    prepared: Prepared,
    clock: LaneClock,
    job: Job,
    emit: Emit,
) -> tuple[LaneEnded, Prefix]:
    """How the lane ended, and the prefix of the prompt or of its head. Runs on the owner thread."""
    emit(LaneStarted(0.0, "ar"))
    before, request, layout = backend.passes, prepared.request, prepared.plan.prompt.layout
    constraint = grammars.start(mode, request.schema, layout, request.cache)
    forced = constraint.forced()
    clock.lap("mask")
    kept, ids = prepared.head, prepared.after_head if prepared.head else prepared.whole
    if kept is None and prepared.strategy == "rows":  # a recurrent state cannot be cut to its head afterwards
        kept, ids = backend.prefill(prepared.plan.prompt.head), prepared.after_head
    prefix = backend.prefill([*ids, *forced], kept)
    took = clock.lap("prefill")
    emit(PassEnded(clock.elapsed_ms, "ar", backend.passes - before, len(ids) + len(forced)))
    emit(PhaseEnded(clock.elapsed_ms, "ar", "prefill", took))
    limit = min(token_limit(prepared.plan.canonical_tokens), backend.identity.window - prepared.prompt_tokens)
    tokens = write(backend.decoder(prefix), constraint, vocabulary, backend.identity.end_ids, limit, forced, clock.mark)
    parts, told = [layout.opening], []
    for written in tokens:
        event = TokenWritten(
            clock.now_ms, "ar", written.token, written.text, len(told) + 1, backend.passes - before, written.forced
        )
        emit(event)
        told.append(event)
        parts.append(written.text)
        how = written.how
        job.check()
    clock.lap("detokenise", last=True)
    for phase in ("decode", "mask", "detokenise"):
        emit(PhaseEnded(clock.elapsed_ms, "ar", phase, clock.phases.get(phase, 0.0)))
    first, last = told[0], told[-1]
    seconds = (last.ms - first.ms) / 1e3
    ended = LaneEnded(
        ms=clock.elapsed_ms,
        lane="ar",
        how=how,
        passes=backend.passes - before,
        tokens=len(told),
        text="".join(parts),
        cache=prepared.cache,
        forced=sum(event.forced for event in told),
        first_token_ms=first.ms,
        tokens_per_s=(last.tokens - first.tokens) / seconds if seconds > 0 else None,
    )
    return ended, kept or prefix
