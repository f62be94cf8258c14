"""The ar lane on a vLLM server: the same prompt, written by the server and streamed from it.

The server enforces what the mode asks for, in its own way. A grammar of a server begins with the object's
brace, so that in the modes `json` and `schema` the model writes the opening too; in `free` it goes on
after it, as in this process. Times are those at which a token has arrived here.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from core.baseline import How, token_limit
from core.engine_vllm import VllmBackend, VllmPrefix, home_of
from core.grammar import Mode, Unguided
from core.lane_clock import LaneClock
from core.owner import Job
from core.parallel import Emit
from core.request import Prepared
from core.schema import StructuredSchema
from core.trace import LaneEnded, LaneStarted, PassEnded, PhaseEnded, TokenWritten
from core.vllm_server import ServerAway, ServerRefused
from core.vocabulary import Vocabulary

#: Parts after the closing brace that are waited for, so that the server says how long the request stood in its queue.
LAST_PARTS = 8


def opening_of(mode: Mode, prepared: Prepared) -> str:
    """What of the object the prompt holds already."""
    return prepared.plan.prompt.layout.opening if mode == "free" else ""


def rules_of(mode: Mode, schema: StructuredSchema) -> dict[str, Any]:
    """What the server is asked to enforce."""
    if mode == "json":
        return {"response_format": {"type": "json_object"}}
    if mode == "schema":
        return {"structured_outputs": {"json": json_schema(schema)}}
    return {}


def json_schema(schema: StructuredSchema) -> dict[str, Any]:
    """The flat object that the prompt asks for: every key once, each with one of its choices."""
    return {
        "type": "object",
        "properties": {field.name: {"enum": list(field.choices)} for field in schema},
        "required": [field.name for field in schema],
        "additionalProperties": False,
    }


def run_streamed(
    session: VllmBackend,
    vocabulary: Vocabulary,
    mode: Mode,
    prepared: Prepared,
    clock: LaneClock,
    job: Job,
    emit: Emit,
) -> tuple[LaneEnded, VllmPrefix]:
    """How the lane ended, and the prefix of the prompt."""
    emit(LaneStarted(0.0, "ar"))
    prompt = prepared.plan.prompt
    opening = opening_of(mode, prepared)
    tail = list(prompt.tail) if opening else prompt.unopened(vocabulary)
    before = prepared.head or VllmPrefix.begun(prompt.head)
    limit = min(token_limit(prepared.plan.canonical_tokens), session.identity.window - prepared.prompt_tokens)
    rules = rules_of(mode, prepared.request.schema)
    body = {"max_tokens": limit, "temperature": 0, "stream_options": {"include_usage": True}, **rules}
    told: list[TokenWritten] = []
    how: How = "limit"
    braces = Unguided(vocabulary, opening)
    characters = codecs.getincrementaldecoder("utf-8")("replace")
    # A mode's own prompt has another end, and yet goes to the server of the other lane.
    start = replace(before, home=home_of(prepared.whole))
    with session.stream(start, [*prepared.context, *tail], body) as parts:
        for token, finish in _tokens(parts, session):
            if token is not None:
                braces.advance(token)
                text = characters.decode(vocabulary.written(token))
                told.append(event := TokenWritten(clock.now_ms, "ar", token, text, len(told) + 1, session.passes))
                if len(told) == 1:
                    took = clock.lap("prefill")
                    emit(PassEnded(clock.elapsed_ms, "ar", session.passes, session.sent_tokens))
                    emit(PhaseEnded(clock.elapsed_ms, "ar", "prefill", took))
                emit(event)
                job.check()
            if braces.closed or finish is not None:
                how = "closed" if braces.closed else "limit" if finish == "length" else "end_of_turn"
                break
            if len(told) >= limit:  # also of a server that does not keep to it
                break
        clock.lap("decode", last=True)
        if mode != "free":  # without rules the model would write on
            with suppress(ServerAway):  # the object is whole, whatever becomes of the stream
                for _, part in zip(range(LAST_PARTS), parts, strict=False):
                    session.note_metrics(part)
    if not told:
        raise ServerAway("the vLLM server wrote nothing; run it again")
    emit(PhaseEnded(clock.elapsed_ms, "ar", "decode", clock.phases.get("decode", 0.0)))
    first, last = told[0], told[-1]
    seconds = (last.ms - first.ms) / 1e3
    ended = LaneEnded(
        ms=clock.elapsed_ms,
        lane="ar",
        how=how,
        passes=session.passes,
        tokens=len(told),
        text=opening + "".join(event.text for event in told),
        cache=prepared.cache,
        first_token_ms=first.ms,
        tokens_per_s=(last.tokens - first.tokens) / seconds if seconds > 0 else None,
        sent_tokens=session.sent_tokens,
        server_queue_ms=session.queue_ms,
    )
    return ended, before


def _tokens(parts: Iterator[dict[str, Any]], session: VllmBackend) -> Iterator[tuple[int | None, str | None]]:
    """Each token as it comes, the last with why it was the last; None for an end without a token."""
    for part in parts:
        session.note_metrics(part)
        choices = part.get("choices") or []
        for choice in choices if isinstance(choices, list) else [None]:
            ids = choice.get("token_ids") if isinstance(choice, dict) else None
            if not isinstance(ids, list) or not all(type(token) is int and token >= 0 for token in ids):
                raise ServerRefused("the vLLM server does not stream token ids; update it to 0.32 or later")
            finish = choice.get("finish_reason")
            for number, token in enumerate(ids, start=1):
                yield token, finish if number == len(ids) else None
            if not ids and finish is not None:
                yield None, finish
    yield None, "length"
