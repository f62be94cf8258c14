"""The ar lane: prompt, then token after token. Runs on the owner thread."""

from __future__ import annotations

from core.backend import Backend, Prefix
from core.baseline import token_limit, write
from core.grammar import Grammars, Mode
from core.owner import Job, LaneClock
from core.parallel import Emit
from core.request import Prepared
from core.trace import LaneEnded, LaneStarted, PassEnded, PhaseEnded, TokenWritten
from core.vocabulary import Vocabulary


def run_autoregressive(
    backend: Backend,
    vocabulary: Vocabulary,
    grammars: Grammars,
    mode: Mode,
    prepared: Prepared,
    clock: LaneClock,
    job: Job,
    emit: Emit,
) -> tuple[LaneEnded, Prefix]:
    """How the lane ended, and the prefix of the prompt or of its head."""
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
