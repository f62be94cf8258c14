"""The vLLM servers behind one engine: which one a prompt goes to, and what happens where it does not answer.

A text goes to the server that its hash names, so that both lanes and all forks of it find its
prefix there; to the next one while that server is away. Reading and writing change nothing
on a server, so that a request without an answer is sent again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from core.vllm_server import NoAnswer, Served, ServerAway, ServerChanged, VllmServer
from core.vllm_wire import watching

log = logging.getLogger(__name__)

#: Seconds between two tries: the first, how much longer each is, and the longest.
FIRST_S, GROWTH, LONGEST_S = 0.2, 2.0, 5.0
#: Seconds without a word from a server after which it is asked whether it still runs the same model.
STALE_S = 5.0
#: The way out where a server is not what it was.
ANEW = "start again, or select the model anew"
#: What somebody who waits is told.
TRYING = "the vLLM server does not answer; trying again"

T = TypeVar("T")


@dataclass(frozen=True)
class Watch:
    """Whoever waits for an answer."""

    check: Callable[[], None] = lambda: None  # raises where the work is to stop
    tell: Callable[[str], None] = lambda line: None  # what goes on


class _Member:
    """A server of the fleet, and when it was heard of last."""

    def __init__(self, server: VllmServer) -> None:
        self.server = server
        self.heard = 0.0  # by time.monotonic
        self.rests_until = 0.0
        self.is_away = False
        self.has_changed = False  # runs another model than the one that was found there

    @property
    def is_resting(self) -> bool:
        return time.monotonic() < self.rests_until


class Fleet:
    """`patience_s`: how long a request is tried again while nobody answers it."""

    def __init__(self, servers: Sequence[VllmServer], patience_s: float) -> None:
        self._members = [_Member(server) for server in servers]
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._expected: Served | None = None
        self._ids: dict[str, list[int]] = {}  # of texts, as every server must make them
        self.on_change: Callable[[], None] = lambda: None  # when a server runs another model, until it is back

    def __len__(self) -> int:
        return len(self._members)

    @property
    def trouble(self) -> str:
        """What is wrong with all of them, as far as the last requests have shown; empty where one works."""
        if all(member.has_changed for member in self._members):
            return "the vLLM server runs another model now"
        return "the vLLM server does not answer" if all(member.is_away for member in self._members) else ""

    def find(self, watch: Watch) -> Served:
        """What the servers run, from now on expected of all. One that is away is compared when it is back.

        Raises `ServerAway` where all are, `ServerChanged` where two differ.
        """
        first = self._tried(self._members, VllmServer.served, watch)
        for member in self._members:
            if not member.heard:
                with suppress(NoAnswer), watching(watch.check):
                    _require_same(member.server.served(), first, "runs {}, and another one {}; start all with the same")
                    member.heard, member.is_away = time.monotonic(), False
        self._expected = first
        return first

    def differing(self, ids: Mapping[str, list[int]], watch: Watch) -> tuple[str, list[int]] | None:
        """A text of which a server makes other ids, and those; from now on no server may, that was away."""
        assert self._expected is not None, "find() comes first"
        self._ids = dict(ids)
        present = [member for member in self._members if not member.is_away]
        found = (self._tried([member], self._differing, watch) for member in present)
        return next(filter(None, found), None)

    def version(self, watch: Watch) -> str:
        """Of one of the servers."""
        return self._tried(self._members, VllmServer.version, watch)

    def look(self, home: int, watch: Watch) -> None:
        """Makes sure that the server that `home` names is there and what it was. Raises as `completions` does."""
        self._tried(self._ranked(home), lambda server: None, watch)

    def completions(self, home: int, body: Mapping[str, Any], watch: Watch) -> dict[str, Any]:
        """One answer, of the server that `home` names or of another one.

        Raises `ServerAway`, `ServerChanged`, `ServerRefused`, and what the watch raises.
        """
        return self._tried(self._ranked(home), lambda server: server.completions(self._named(body)), watch)

    def everywhere(self, body: Mapping[str, Any], watch: Watch) -> None:
        """The same request to every server; one that is away goes without."""
        for member in self._members:
            with watching(watch.check), suppress(NoAnswer):
                self._heard(member, lambda server: server.completions(self._named(body)))

    @contextmanager
    def stream(self, home: int, body: Mapping[str, Any], watch: Watch) -> Iterator[Iterator[dict[str, Any]]]:
        """The parts of a streamed answer. Tried again until the first part is there; what breaks later is over.

        Raises as `completions` does.
        """
        with ExitStack() as stack:

            def begun(server: VllmServer) -> Iterator[dict[str, Any]]:
                parts = stack.enter_context(server.stream(self._named(body)))
                if (first := next(parts, None)) is None:
                    raise NoAnswer("an empty stream")
                return chain([first], parts)

            parts = self._tried(self._ranked(home), begun, watch)
            with watching(watch.check):
                yield _unbroken(parts)

    def close(self) -> None:
        for member in self._members:
            member.server.close()

    def _named(self, body: Mapping[str, Any]) -> dict[str, Any]:
        assert self._expected is not None, "find() comes first"
        return {"model": self._expected.id, **body}

    def _ranked(self, home: int) -> list[_Member]:
        """All servers, in an order of this text's own; those that have just failed come last."""
        order = sorted(range(len(self._members)), key=lambda i: hash((home, i)))
        return sorted((self._members[i] for i in order), key=lambda member: member.is_resting)

    def _tried(self, members: Sequence[_Member], ask: Callable[[VllmServer], T], watch: Watch) -> T:
        """The answer of the first that has one, again and again while there is patience."""
        deadline, pause = time.monotonic() + self._patience_s, FIRST_S
        while True:
            reasons: list[NoAnswer] = []
            for member in members:
                watch.check()
                try:
                    with watching(watch.check):
                        return self._heard(member, ask)
                except NoAnswer as reason:
                    watch.check()  # whoever was interrupted has its connections closed
                    if not member.is_away:
                        log.warning("%s does not answer: %s", member.server.url, reason)
                    member.is_away, member.heard = True, 0.0
                    member.rests_until = time.monotonic() + pause
                    if not reasons:  # before the next server too: the time that was lost is in the asker's clock
                        watch.tell(TRYING)
                    reasons.append(reason)
            asked_for, left = min(reason.retry_s or 0.0 for reason in reasons), deadline - time.monotonic()
            if asked_for > left or left <= 0:
                raise ServerAway(
                    f"the vLLM server does not answer ({reasons[-1]}); try again when it is back"
                ) from None
            _rest(max(asked_for, min(pause, left)), watch)
            pause = min(LONGEST_S, pause * GROWTH)

    def _heard(self, member: _Member, ask: Callable[[VllmServer], T]) -> T:
        """The answer of one server, which after a silence must first say that it runs what it ran."""
        try:
            if self._expected is not None and time.monotonic() - member.heard > STALE_S:
                _require_same(member.server.served(), self._expected, f"runs {{}} now, and ran {{}}; {ANEW}")
                if member.is_away and self._differing(member.server):  # it may be another model under the same name
                    raise ServerChanged(f"the vLLM server makes other tokens of a text than before; {ANEW}")
                member.has_changed = False
            answer = ask(member.server)
        except ServerChanged:
            self._changed(member)
            raise
        if member.is_away:
            log.info("%s answers again", member.server.url)
        member.is_away, member.heard, member.rests_until = False, time.monotonic(), 0.0
        return answer

    def _differing(self, server: VllmServer) -> tuple[str, list[int]] | None:
        assert self._expected is not None, "find() comes first"
        for text, ids in self._ids.items():
            if (theirs := server.tokens(self._expected.id, text)) != ids:
                return text, theirs
        return None

    def _changed(self, member: _Member) -> None:
        with self._lock:
            is_first, member.has_changed = not member.has_changed, True
        if is_first:
            self.on_change()


def _require_same(now: Served, before: Served, words: str) -> None:
    """Raises `ServerChanged`; `words` have a place for each of the two."""
    if now != before:
        one, other = (f"{each.name} with a window of {each.window}" for each in (now, before))
        raise ServerChanged(f"the vLLM server {words.format(one, other)}")


def _rest(seconds: float, watch: Watch) -> None:
    """Waits, and looks whether to stop."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        watch.check()
        time.sleep(min(left, 0.05))


def _unbroken(parts: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    count = 0
    try:
        for part in parts:
            count += 1
            yield part
    except NoAnswer as reason:
        raise ServerAway(f"the vLLM server's stream broke after {count} parts ({reason}); run it again") from None
