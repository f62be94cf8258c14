"""VllmBackend: the two verbs and the decoder on vLLM servers.

It has no KV of its own. A prefix is its ids, and each fork a prompt that ends where the fork is: the
server's prefix cache shares what prompts have in common. A prefix that is begun anew gets a salt
of its own, so that what is cold here is cold there too.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from core.backend import Identity, TreeBatch
from core.vllm_fleet import Fleet, Watch
from core.vllm_requests import ListRequest, Prompt, requests_for
from core.vllm_server import ServerRefused
from core.vllm_wire import LOOK_S

#: Ids that are asked for at one fork, in two lists. Of the presets one fork has more than one list, the first of 131
#: tariff codes with 228.
MOST_IDS = 256


@dataclass(frozen=True)
class VllmPrefix:
    """Tokens that the servers were sent, under a salt that only this prefix and what follows it share."""

    ids: Prompt
    salt: str
    home: int | None = None  # names the server of all that follows; None: each text's own hash does

    @classmethod
    def begun(cls, ids: Sequence[int]) -> VllmPrefix:
        """Tokens that no server has seen under this salt."""
        return cls(tuple(ids), uuid.uuid4().hex)

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return 8 * len(self.ids)

    def seal(self) -> int:
        return hash((self.ids, self.salt))

    def head(self, length: int) -> VllmPrefix:
        return replace(self, ids=self.ids[:length])


class VllmBackend:
    """One lane's dealings with the servers, which it counts.

    `pool` bounds the requests in flight of all lanes together. A session belongs to one thread.
    """

    def __init__(
        self, fleet: Fleet, tokenizer: Any, identity: Identity, pool: Executor, watch: Watch = Watch()
    ) -> None:
        self.fleet, self.tokenizer, self.identity = fleet, tokenizer, identity
        self.pool, self._watch = pool, watch
        self.passes = 0  # HTTP requests
        self.sent_tokens = 0
        self.queue_ms: float | None = None  # in the servers' queues, where they say so

    def session(self, watch: Watch) -> VllmBackend:
        """The same servers, with counts of its own."""
        return VllmBackend(self.fleet, self.tokenizer, self.identity, self.pool, watch)

    def prefill(self, ids: Sequence[int], after: VllmPrefix | None = None) -> VllmPrefix:
        prefix = self._after(after, ids)
        self._completed(prefix, {"prompt": list(prefix.ids), "max_tokens": 1, "temperature": 0}, prefix.length)
        return prefix

    def apart(self, prefix: VllmPrefix, home: int) -> VllmPrefix:
        """The same prefix read anew under a salt of its own, on the server of all that follows it."""
        return self.prefill((), replace(VllmPrefix.begun(prefix.ids), home=home))

    def spread(self, prefix: VllmPrefix) -> None:
        """Has every server read the prefix."""
        body = {"prompt": list(prefix.ids), "max_tokens": 1, "temperature": 0, "cache_salt": prefix.salt}
        self.fleet.everywhere(body, self._watch)

    def read(
        self,
        prefix: VllmPrefix | None,
        ids: Sequence[int],
        tree: TreeBatch,
        rows: Sequence[int],
        wanted: Sequence[np.ndarray],
        keep: bool = False,
    ) -> tuple[list[np.ndarray], VllmPrefix | None]:
        start = self._after(prefix, ids)
        prompts = [(*start.ids, *(tree.tokens[node] for node in tree.path(row))) for row in rows]
        found = [np.full(len(each), -np.inf, dtype=np.float32) for each in wanted]
        requests = requests_for(prompts, wanted)
        if start is not prefix and len(prompts) > 1:  # what all begin with is read once, by the first
            first, *others = requests[0].split()
            self._read(start, [first], found)
            requests[:1] = others
        self._read(start, requests, found)
        return found, start if keep else None

    def room(self, length: int) -> int:
        return self.identity.window

    def decoder(self, prefix: VllmPrefix) -> VllmDecoder:
        return VllmDecoder(self, prefix)

    def synchronize(self) -> None:
        """An answer that is here is done."""

    @contextmanager
    def stream(
        self, prefix: VllmPrefix, ids: Sequence[int], body: dict[str, Any]
    ) -> Iterator[Iterator[dict[str, Any]]]:
        """The parts of what the model writes after `prefix` and `ids`, one request."""
        whole = self._after(prefix, ids)
        self._count(whole.length)
        body = {"prompt": list(whole.ids), "stream": True, "return_token_ids": True, "cache_salt": whole.salt, **body}
        with self.fleet.stream(_home(whole), body, self._watch) as parts:
            yield parts

    def note_metrics(self, part: dict[str, Any]) -> None:
        """Takes the server's own time in its queue out of an answer, where it reports one."""
        metrics = part.get("metrics")
        waited = metrics.get("queue_time_ms") if isinstance(metrics, dict) else None
        if type(waited) in (int, float) and 0 <= waited < math.inf:  # neither true nor NaN, which JSON cannot say
            self.queue_ms = (self.queue_ms or 0.0) + waited

    def chosen(self, prefix: VllmPrefix, allowed: list[int] | None) -> int:
        """The likeliest next token, among those allowed."""
        body = {"prompt": list(prefix.ids), "max_tokens": 1, "temperature": 0, "return_token_ids": True}
        answer = self._completed(
            prefix, body if allowed is None else {**body, "allowed_token_ids": allowed}, prefix.length
        )
        try:
            return int(answer["choices"][0]["token_ids"][0])
        except (KeyError, IndexError, TypeError, ValueError):
            raise ServerRefused("the vLLM server does not return token ids; update it to 0.32 or later") from None

    def _after(self, prefix: VllmPrefix | None, ids: Sequence[int]) -> VllmPrefix:
        if prefix is None:
            return VllmPrefix.begun(ids)
        return replace(prefix, ids=(*prefix.ids, *ids)) if ids else prefix

    def _read(self, start: VllmPrefix, requests: Sequence[ListRequest], found: Sequence[np.ndarray]) -> None:
        """Sends the requests side by side."""
        asked = [self.pool.submit(self._sent, start, {**one.body(), "cache_salt": start.salt}) for one in requests]
        for one in requests:
            self._count(one.tokens)
        for one, answer in zip(requests, self._waited(asked), strict=True):
            self.note_metrics(answer)
            one.fill(found, answer)

    def _completed(self, prefix: VllmPrefix, body: dict[str, Any], tokens: int) -> dict[str, Any]:
        self._count(tokens)
        asked = self.pool.submit(self._sent, prefix, {**body, "cache_salt": prefix.salt})
        (answer,) = self._waited([asked])
        self.note_metrics(answer)
        return answer

    def _sent(self, prefix: VllmPrefix, body: dict[str, Any]) -> dict[str, Any]:
        return self.fleet.completions(_home(prefix), body, self._watch)

    def _waited(self, asked: Sequence[Any]) -> list[dict[str, Any]]:
        """The answers; whoever is to stop does not wait for them."""
        try:
            while wait(asked, LOOK_S).not_done:
                self._watch.check()
            return [one.result() for one in asked]
        finally:
            for one in asked:
                one.cancel()

    def _count(self, tokens: int) -> None:
        self.passes += 1
        self.sent_tokens += tokens


class VllmDecoder:
    """Greedy decoding, a request for each token: what the lanes are proved with. The ar lane itself is streamed."""

    def __init__(self, backend: VllmBackend, prefix: VllmPrefix) -> None:
        self._backend, self._prefix = backend, prefix

    def choose(self, mask: np.ndarray | None = None) -> int:
        if mask is None:
            return self._backend.chosen(self._prefix, None)
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: self._backend.identity.vocab_size]
        return self._backend.chosen(self._prefix, np.flatnonzero(bits).tolist())

    def append(self, ids: Sequence[int]) -> None:
        self._prefix = replace(self._prefix, ids=(*self._prefix.ids, *ids))


def home_of(ids: Sequence[int]) -> int:
    """Names the server of a text."""
    return hash(tuple(ids))


def _home(prefix: VllmPrefix) -> int:
    return home_of(prefix.ids) if prefix.home is None else prefix.home
