"""The ar lane: prompt, then token after token. Runs on the owner thread."""

from __future__ import annotations

from core import baseline
from core.backend import Backend, Prefix
from core.owner import Job, LaneClock
from core.parallel import Emit
from core.request import Prepared
from core.trace import LaneEnded, LaneStarted, PassEnded, PhaseEnded, TokenWritten
from core.vocabulary import Vocabulary


def run_autoregressive(
    backend: Backend,
    vocabulary: Vocabulary,
    grammar: baseline.Grammar,
    prepared: Prepared,
    clock: LaneClock,
    job: Job,
    emit: Emit,
) -> tuple[LaneEnded, Prefix]:
    """How the lane ended, and the prefix of the prompt or of its head."""
    emit(LaneStarted(0.0, "ar"))
    before = backend.passes
    kept, ids = prepared.head, prepared.after_head if prepared.head else prepared.whole
    if kept is None and prepared.strategy == "rows":  # a recurrent state cannot be cut to its head afterwards
        kept, ids = backend.prefill(prepared.plan.prompt.head), prepared.after_head
    prefix = backend.prefill(ids, kept)
    took = clock.lap("prefill")
    emit(PassEnded(clock.elapsed_ms, "ar", backend.passes - before, len(ids)))
    emit(PhaseEnded(clock.elapsed_ms, "ar", "prefill", took))
    layout = prepared.plan.prompt.layout
    parts, count, how = [layout.opening], 0, "limit"
    decoder, mask = backend.decoder(prefix), grammar.start(layout.opening)
    limit = min(baseline.token_limit(prepared.plan.canonical_tokens), backend.identity.window - prepared.prompt_tokens)
    for written in baseline.write(decoder, mask, vocabulary, backend.identity.end_ids, limit):
        count += 1
        emit(TokenWritten(clock.now_ms, "ar", written.token, written.text, count, backend.passes - before))
        parts.append(written.text)
        how = written.how or how
        job.check()
    took = clock.lap("decode", last=True)
    emit(PhaseEnded(clock.elapsed_ms, "ar", "decode", took))
    ended = LaneEnded(clock.elapsed_ms, "ar", how, backend.passes - before, count, "".join(parts), prepared.cache)
    return ended, kept or prefix
