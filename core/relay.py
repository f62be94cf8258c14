"""The engine of a process whose weights are elsewhere: requests are checked and planned here, and done there.

What goes there and what comes back can be pickled: one method of an engine with its arguments, and the events and the
answer that it gave. Knows nothing of who starts that process.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Literal

from core.backend import Backend, Prefix
from core.baseline import token_limit
from core.engine import Engine
from core.many import ManyContexts
from core.owner import Job, NotAnswered, Owner
from core.plans import PriorScores
from core.race import Race
from core.request import Prepared, Request
from core.result import Result
from core.trace import Event, Loading, RunEnded

log = logging.getLogger(__name__)

#: Between two replies, with or without news: only when one comes does either side see that the other has gone.
EVERY_S = 0.05


@dataclass(frozen=True)
class Call:
    """One method of an engine, to be called in another process."""

    method: Literal["submit", "submit_many", "race"]
    given: tuple[Any, ...]
    options: Mapping[str, Any]
    read_tokens: int = 0  # that the prompts have, and the answers of the parallel lane
    written_tokens: int = 0  # that the baseline may write


@dataclass(frozen=True)
class Answer:
    """What the method came to; a race has its events, and no value."""

    value: Any
    error: BaseException | None


#: News of a race, nothing, or the last thing that comes.
Reply = list[Event] | Answer
Away = Callable[[Call], Generator[Reply, None, None]]


class RelayedMany(ManyContexts):
    """Many contexts, decided in another process."""

    _engine: Relay

    def decided(self, contexts: Sequence[str], job: Job) -> list[Any]:
        """Asks for as many tokens as if each text were alone."""
        engine, schema = self._engine, self._schema
        plan = engine.plan(Request("finds the plan", schema, self._temperature, **self._options))[0]
        around = len(plan.prompt.head) + len(plan.prompt.tail) + len(plan.tree.tokens)
        read = sum(around + len(plan.prompt.context_ids(engine.vocabulary, context)) for context in contexts)
        options = {**self._options, "return_exceptions": self._faults_returned}
        return engine.answer(Call("submit_many", (contexts, schema, self._temperature), options, read), job)


class RelayedRace(Race):
    """A race whose lanes run in another process; what the baseline wrote is read here."""

    _engine: Relay
    _is_begun = False
    _is_left = False

    def cancel(self) -> None:
        """As that of any race; before the other process has answered it is over at once, which may take a minute."""
        super().cancel()
        self._is_left = not self._is_begun

    def drain(self) -> list[Event]:
        if not self._is_left:
            return super().drain()
        is_over, self.finished = self.finished, True
        return [] if is_over else [RunEnded(self._waited_ms(), "stopped", "stopped", None, ())]

    def _run(self, job: Job) -> None:
        prepared, request = self._engine.prepare(self._request), self._request
        lanes = {"temperature": request.temperature, "order": self._order, "mode": self._mode, "asked": self._asked}
        writes = token_limit(prepared.plan.canonical_tokens) if "ar" in self._order else 0
        given = (request.context, request.schema)
        call = Call("race", given, {**options_of(request), **lanes}, read_tokens(prepared), writes)
        self._events.append(Loading(self._waited_ms(), "waiting for a GPU", None))
        self._engine.answer(call, job, self._take)

    def _take(self, events: list[Event]) -> None:
        self._is_begun = True
        self._events.extend(events)


class Relay(Engine):
    """An engine that `away` does the work of. Its backend is there to be asked who it is, and is never run.

    Heads and priors are kept where they are made, if at all: `held` tells of none.
    """

    _Race, _Many = RelayedRace, RelayedMany

    def __init__(
        self,
        backend: Backend,
        model: str,
        why: str,
        away: Away,
        *,
        cache_entries: int,
        cache_bytes: int,
        queue: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        owner = _AskersOwner(queue, timeout_s)
        super().__init__(backend, model, why, owner, cache_entries=cache_entries, cache_bytes=cache_bytes)
        self._away = away

    # What follows runs on the owner thread.

    def decided(self, prepared: Prepared, job: Job) -> tuple[Result, Prefix | None, PriorScores | None]:
        request = prepared.request
        given = (request.context, request.schema, request.temperature)
        call = Call("submit", given, options_of(request), read_tokens(prepared))
        return self.answer(call, job), None, None

    def answer(self, call: Call, job: Job, emit: Callable[[list[Event]], None] = lambda events: None) -> Any:
        """The value of the call; raises what it raised there, or `NotAnswered`."""
        replies, answer = self._away(call), None
        try:
            while (reply := _next(replies)) is not None:  # to its end, or the other side would take it for cancelled
                if isinstance(reply, Answer):
                    answer = reply
                else:
                    emit(reply)
                    job.check()
        finally:
            replies.close()
        if answer is None:
            raise NotAnswered("the worker ended without an answer; try again")
        if answer.error is not None:
            raise answer.error
        return answer.value


class _AskersOwner(Owner):
    """Jobs run in the context of whoever asked: that is where `spaces` finds whose GPU time it is."""

    def submit(self, work: Callable[[Job], Any]) -> Job:
        context = copy_context()
        return super().submit(lambda job: context.run(work, job))


def options_of(request: Request) -> dict[str, Any]:
    """As the engine's methods take them."""
    return {name: getattr(request, name) for name in ("cache", "scoring", "prior", "complete", "style")}


def read_tokens(prepared: Prepared) -> int:
    return prepared.prompt_tokens + len(prepared.blank) + len(prepared.plan.tree.tokens)


def _next(replies: Generator[Reply, None, None]) -> Reply | None:
    """The next reply, None at the end; what is raised there is not the engine's, whose errors are answers."""
    try:
        return next(replies, None)
    except Exception as error:
        raise NotAnswered(_line_of(error)) from None


def _line_of(error: Exception) -> str:
    """Gradio's errors, in which `spaces` tells of quota and queue, have words for people; others go to the log."""
    words = str(getattr(error, "message", ""))
    if words.strip():
        return " ".join(f"{getattr(error, 'title', 'Error')}: {words}".split())
    log.error("a worker failed", exc_info=error)
    return f"the worker could not be had or failed: {type(error).__name__}; the log has more"


# What follows runs in the other process.


def answered(engine: Callable[[], Engine], call: Call) -> Generator[Reply, None, None]:
    """Does the call on an engine of this process; closing it stops the work within one token."""
    try:
        begun = getattr(engine(), call.method)(*call.given, **call.options)
    except Exception as error:  # the other process has the ways to tell it
        yield Answer(None, _portable(error))
        return
    job, news = (begun.job, begun.news) if isinstance(begun, Race) else (begun, list)
    try:
        while not job.done:
            yield news()
            time.sleep(EVERY_S)
        yield news()
        is_race = isinstance(begun, Race)
        yield Answer(None if job.error or is_race else job.result(), job.error and _portable(job.error))
    finally:
        job.cancel()
        job.wait()  # the GPU is given back when this is over


def _portable(error: BaseException) -> BaseException:
    """The error, or its text where it cannot be pickled and made again."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # of any class of any framework
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
