"""The engine on vLLM servers: several requests at a time, the ar lane streamed, nothing held here but ids.

Both lanes of a race get the head read anew for each of them, before their clocks start, so that neither finds on
the server what the other has had read.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.address import servers as urls
from core.backend import Identity, ModelUnsupported
from core.engine import MOST_ALLOWANCE, Engine
from core.engine_vllm import MOST_IDS, VllmBackend, home_of
from core.grammar import Mode
from core.lane_clock import LaneClock
from core.loading import Load
from core.many import Fault, ManyContexts
from core.models import ModelNotFound, known_models, resolve
from core.overhead import measured_overhead
from core.owner import Job, Owner
from core.parallel import Emit, Outcome, ParallelLane
from core.plans import PriorScores
from core.public import pathless
from core.race import Found, Race
from core.request import Prepared, Request
from core.result import CacheState, Result
from core.schema import StructuredSchema
from core.trace import LaneEnded, Loading, RunStarted, Waiting, WarmedUp
from core.trie import Plan
from core.vllm_fleet import Fleet, Watch
from core.vllm_lane import opening_of, run_streamed
from core.vllm_server import Served, VllmServer
from core.vllm_wire import LOOK_S
from core.wording import escaped

IN_FLIGHT = 8
PATIENCE_S = 15.0

#: Lines that both sides must read as the same tokens: line ends, digits, quotes, letters of all kinds.
LABEL_LINES = (
    '{\n  "risk": "HIGH",\n', '  "priority": "P0",\n', '  "ok": true,\n', '  "no": false\n}', '  "grade": "A+",\n',
    '"AA-"}', '  "blood": "O-",\n', '  "hs_code": "8471.30",\n', '  "count": 1234567890,\n', '  "none": null\n}',
    '  "answer": "Yes.",\n', '  "path": "C:\\\\temp",\n', "don't DON'T we'll", " \t two  spaces \n\n  end ",
    "caf\u00e9 cafe\u0301", "\u4e2d\u6587 \u65e5\u672c\u8a9e", "\U0001f44d\U0001f3fd \U0001f1eb\U0001f1f7",
    "\u00bd \u2163 \u0663 2024-11-30", "snake_case camelCase XMLHttp", "x\r\n\r\ny",
)  # fmt: skip


class ManyInFlight(ManyContexts):
    """Many contexts, a bounded number of them at a time."""

    _engine: ServedEngine

    def decided(self, contexts: Sequence[str], job: Job) -> list[Result | Fault]:
        found: dict[int, Result | Fault] = {}
        asked = self._prepared(contexts, found, job)
        for i, prepared in list(asked.items()):  # until one has had the head read for all
            if prepared.head is not None and not prepared.needs_prior:
                break
            found[i] = self._alone(asked.pop(i), job)
            if self._head is not None:
                self._engine.spread(self._head, job)
                break
        with ThreadPoolExecutor(self._engine.in_flight) as pool:
            lanes = {i: pool.submit(self._alone, self._ready(prepared), job) for i, prepared in asked.items()}
            if wait(lanes.values(), return_when=FIRST_EXCEPTION).not_done:
                for lane in lanes.values():
                    lane.cancel()
            return [found[i] if i in found else lanes[i].result() for i in range(len(contexts))]


class ServedRace(Race):
    """A race on servers. What its lanes find cached there is their own doing."""

    _engine: ServedEngine

    def _parallel(self, prepared: Prepared, job: Job) -> Found:
        return super()._parallel(self._apart(prepared, job), job)

    def _baseline(self, prepared: Prepared, job: Job) -> Found:
        return super()._baseline(self._apart(prepared, job), job)

    def _run(self, job: Job) -> None:
        """One race at a time: another one of this page would be in its clocks."""
        began = time.perf_counter()
        while not self._engine.racing.acquire(timeout=LOOK_S):
            job.check()
            if not self._events:
                self._events.append(Waiting(self._waited_ms(), ahead=1))
        try:
            self._waited_before_ms += (time.perf_counter() - began) * 1e3
            super()._run(job)
        finally:
            self._engine.racing.release()

    def _apart(self, prepared: Prepared, job: Job) -> Prepared:
        if prepared.head is None:
            self._engine.look(prepared, job, self._events.append)
            return prepared
        started = time.perf_counter()
        prepared = self._engine.apart(prepared, job, self._events.append)
        self._events.append(WarmedUp(self._waited_ms(), (time.perf_counter() - started) * 1e3, "run"))
        return prepared

    def _started(self, prepared: Prepared, waited_ms: float) -> RunStarted:
        return replace(super()._started(prepared, waited_ms), opening=opening_of(self._mode, prepared))


class ServedEngine(Engine):
    """An engine whose model runs on vLLM servers.

    `in_flight`: requests to them at a time, and jobs of the queue that are done at a time.
    """

    _Race, _Many = ServedRace, ManyInFlight
    backend: VllmBackend

    def __init__(self, backend: VllmBackend, model: str, why: str, owner: Owner, in_flight: int, **caches: Any) -> None:
        super().__init__(backend, model, why, owner, **caches)
        self._lock = threading.RLock()  # of what is kept: jobs run side by side
        self.racing = threading.Lock()
        self._in_flight = in_flight
        its = weakref.ref(self)  # or the fleet would hold its engine
        backend.fleet.on_change = lambda: (engine := its()) and engine.renew()

    @property
    def trouble(self) -> str:
        return self.backend.fleet.trouble

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @in_flight.setter
    def in_flight(self, count: int) -> None:
        self._in_flight = count
        self.backend.pool = ThreadPoolExecutor(count, "pcd-wire")

    @property
    def allowance(self) -> int:
        """As many prompts as cost half of what a round trip costs: none, where a server pays for each."""
        return int(min(MOST_ALLOWANCE, self.pass_overhead / 2)) if math.isfinite(self.pass_overhead) else MOST_ALLOWANCE

    # What follows runs on threads of the owner.

    def plan(self, request: Request) -> tuple[Plan, CacheState]:
        with self._lock:
            return super().plan(request)

    def prepare(self, request: Request, known: tuple[Plan, CacheState] | None = None) -> Prepared:
        with self._lock:
            return super().prepare(request, known)

    def keep(self, prepared: Prepared, prefix: Any, prior: PriorScores | None = None) -> Any:
        with self._lock:
            return super().keep(prepared, prefix, prior)

    def parallel(self, prepared: Prepared, clock: LaneClock, job: Job, emit: Emit) -> Outcome:
        session = self.backend.session(_watch(job, emit))
        outcome = ParallelLane(session, self.vocabulary, prepared, clock, job, emit, self.allowance).run()
        return replace(outcome, sent_tokens=session.sent_tokens, server_queue_ms=session.queue_ms)

    def write(self, prepared: Prepared, mode: Mode, clock: LaneClock, job: Job, emit: Emit) -> tuple[LaneEnded, Any]:
        session = self.backend.session(_watch(job, emit))
        return run_streamed(session, self.vocabulary, mode, prepared, clock, job, emit)

    def apart(self, prepared: Prepared, job: Job, emit: Emit) -> Prepared:
        """The request on a head that has been read for it alone."""
        session = self.backend.session(_watch(job, emit))
        return replace(prepared, head=session.apart(prepared.head, home_of(prepared.whole)))

    def look(self, prepared: Prepared, job: Job, emit: Emit) -> None:
        """Makes sure before a clock starts that the server is there and what it was."""
        self.backend.fleet.look(home_of(prepared.whole), _watch(job, emit))

    def spread(self, head: Any, job: Job) -> None:
        """Has every server read the head, where there are several."""
        if len(self.backend.fleet) > 1:
            self.backend.session(_watch(job)).spread(head)

    def warm_up(self, job: Job | None = None) -> None:
        """One small request on each way that a lane reads: the first of a server may take twenty seconds."""
        job = job or Job(self.owner, lambda job: None)
        started = time.perf_counter()
        request = Request("Warm-up.", StructuredSchema({"ready": {"type": "boolean"}}), cache=False)
        prepared = self.prepare(request)
        self.parallel(prepared, LaneClock(self.backend.synchronize), job, lambda event: None)
        self.pass_overhead = measured_overhead(self.backend, self.backend.prefill(prepared.whole))
        self.warm_up_ms = (time.perf_counter() - started) * 1e3


def connected(
    load: Load,
    *,
    key: str | None = None,
    tokenizer: str | None = None,
    in_flight: int = IN_FLIGHT,
    patience_s: float = PATIENCE_S,
) -> ServedEngine:
    """The engine on the servers whose URLs the model's name is.

    `key`: what their own `--api-key` asks for, VLLM_API_KEY where it is not given; `tokenizer`: a folder, a name of
    `core/models.py` or a hub id, PCD_TOKENIZER or what the server reports where it is not given; `in_flight`:
    requests to the servers at a time; `patience_s`: how long one is tried again that nobody answers. Raises
    `ServerAway`, `ServerChanged`, `ServerRefused`, `ModelNotFound`, `ModelError`, `ModelUnsupported`.
    """
    key = key or os.environ.get("VLLM_API_KEY") or None
    tokenizer = tokenizer or os.environ.get("PCD_TOKENIZER") or None
    servers = [VllmServer(url, key) for url in urls(load.name)]
    fleet = Fleet(servers, patience_s)
    owner = Owner(load.queue, load.timeout_s, threads=in_flight)

    def found(job: Job) -> ServedEngine:
        load.progress("asking the vLLM server", None)
        watch = Watch(tell=lambda line: load.progress(line, None))
        served, version = fleet.find(watch), fleet.version(watch)
        read = tokenizer_of(tokenizer, served, load)
        require_same_tokens(read, fleet, watch)
        pool = ThreadPoolExecutor(in_flight, "pcd-wire")
        backend = VllmBackend(fleet, read, identity_of(served, version, read, len(servers)), pool)
        name, why = served.name, f"served by vLLM {version}"
        caches = {"cache_entries": load.cache_entries, "cache_bytes": load.cache_bytes}
        engine = ServedEngine(backend, name, why, owner, in_flight, **caches)
        load.progress(f"warming up {name}", None)
        engine.warm_up(job)
        return engine

    try:
        return owner.submit(found).result()
    except BaseException:
        fleet.close()
        raise


def tokenizer_of(given: str | None, served: Served, load: Load) -> Any:
    """The tokenizer of a folder, a known name or a hub id. Raises `ModelNotFound`, `ModelError`."""
    from transformers import AutoTokenizer  # takes torch along where that is installed

    place = given or served.root
    if not given and not _is_folder(place) and _is_folder(served.id):
        place = served.id
    if place in {known.name for known in known_models()}:
        place = str(resolve(place, offline=load.offline, progress=load.progress).directory)
    try:
        return AutoTokenizer.from_pretrained(
            place, local_files_only=load.offline or Path(place).is_absolute(), trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        reason = escaped(pathless(str(error).partition("\n")[0]))[:150]  # cut in its quotes a path would be seen
        raise ModelNotFound(
            f"no tokenizer at {place[:200]!r} ({reason}); give the folder of the model's as --tokenizer"
        ) from None


def _is_folder(place: str) -> bool:
    try:
        return Path(place).is_dir()
    except OSError:  # a name as long as no file's
        return False


def require_same_tokens(tokenizer: Any, fleet: Fleet, watch: Watch) -> None:
    """Raises `ModelUnsupported` where a server reads a line as other tokens."""
    own = {line: tokenizer.encode(line, add_special_tokens=False) for line in LABEL_LINES}
    if found := fleet.differing(own, watch):
        line, theirs = found
        raise ModelUnsupported(
            f"the tokenizer here and the vLLM server's differ: {line!r} is {own[line][:12]} here and {theirs[:12]} "
            "there; give the folder of the served model as --tokenizer"
        )


def identity_of(served: Served, version: str, tokenizer: Any, servers: int) -> Identity:
    known = hashlib.sha256(
        repr((served.id, served.root, served.window, sorted(tokenizer.get_vocab().items()))).encode()
    )
    return Identity(
        backend="vllm",
        device=f"vLLM {version}" + f", {servers} servers" * (servers > 1),
        dtype="as served",
        window=served.window,
        vocab_size=len(tokenizer),
        end_ids=frozenset({tokenizer.eos_token_id} - {None}),
        strategy="prompts",
        fingerprint=known.hexdigest(),
        clock="client",
        most_ids=MOST_IDS,
    )


def _watch(job: Job, emit: Emit = lambda event: None) -> Watch:
    return Watch(job.check, lambda line: emit(Loading(job.waited_ms, line, None)))
