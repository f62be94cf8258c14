"""A small server that speaks what we use of vLLM 0.32's HTTP interface, with a tiny model's true numbers.

Its shapes, refusals and statuses are those that were recorded of the real one (tests/vllm/recorded.json).
It can be told to fail, to be slow and to be away; it remembers what it was asked.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.serving import until
from tests.vllm_faults import Fault, cut, failed
from tests.vllm_model import Refusal, Step, TinyModel

VERSION = "0.32.0"
FINGERPRINT = "vllm-0.32.0-ca3b1106"


@dataclass(frozen=True)
class Received:
    path: str
    body: dict[str, Any]
    key: str


class TinyServer:
    """`with TinyServer(folder) as server:` listens on a loopback port, which it keeps over `stop` and `start`."""

    def __init__(
        self, folder: Path, name: str = "tiny", window: int = 2048, key: str = "", metrics: bool = False
    ) -> None:
        self.folder, self.name, self.window, self.key, self.metrics = folder, name, window, key, metrics
        self.version = VERSION
        self.port = 0
        self.pace_s = 0.0  # between two tokens of a stream
        self.queue_ms = 0.01
        self.received: list[Received] = []
        self.in_flight = self.most_in_flight = 0
        self._faults: deque[Fault] = deque()
        self._working = threading.Lock()  # one forward at a time, as on one device
        self._server: uvicorn.Server | None = None

    # --- what a test does with it ---

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def completions(self) -> list[dict[str, Any]]:
        """The bodies of what came to /v1/completions, failed ones too."""
        return [each.body for each in self.received if each.path == "/v1/completions"]

    @property
    def prompts(self) -> list[list[int]]:
        """All prompts of them, in order."""
        several = [
            body["prompt"] if isinstance(body["prompt"][0], list) else [body["prompt"]] for body in self.completions
        ]
        return [prompt for prompts in several for prompt in prompts]

    def meet(self, fault: Fault, times: int = 1) -> None:
        """The next so many requests to the fault's path meet it, after those that were told before."""
        self._faults.extend([fault] * times)

    def forgive(self) -> None:
        """No request meets a fault that it was to meet."""
        self._faults.clear()

    def start(self, **changed: Any) -> TinyServer:
        """Listens; `changed`: another folder, name, window, key or version than before."""
        vars(self).update(changed)
        self._model = TinyModel(self.folder, self.window)
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._app, host="127.0.0.1", port=self.port, interface="asgi3", log_level="critical", lifespan="off"
            )
        )
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        until(lambda: self._server.started or not self._thread.is_alive())
        assert self._server.started, f"port {self.port} is taken"
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        return self

    def stop(self) -> None:
        """Ends as a killed process does: connections go in the middle of what they carry."""
        if self._server is None:
            return
        self._server.should_exit = self._server.force_exit = True
        self._loop.call_soon_threadsafe(self._hang_up)
        self._thread.join(10)
        self._server = None

    def __enter__(self) -> TinyServer:
        return self.start()

    def __exit__(self, *_: Any) -> None:
        self.stop()

    # --- the loop ---

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._server.serve()

    def _hang_up(self) -> None:
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        text = await request.body()
        fault = self._fault(request.url.path)
        self.received.append(Received(request.url.path, _parsed(text), request.headers.get("authorization", "")))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self._answered(fault, scope, _again(text, receive), send)
        finally:
            self.in_flight -= 1

    def _fault(self, path: str) -> Fault:
        fault = next((fault for fault in self._faults if fault.path == path), None)
        if fault is None:
            return Fault()
        self._faults.remove(fault)
        return fault

    async def _answered(self, fault: Fault, scope: Any, receive: Any, send: Any) -> None:
        transport = send.__self__.transport  # uvicorn's: ASGI itself knows no way to leave a request unanswered
        await asyncio.sleep(fault.wait_s)
        if fault.drops:
            transport.abort()
            await asyncio.sleep(0.01)  # it counts as gone in the loop's next round
        elif fault.status:
            await failed(fault)(scope, receive, send)
        elif fault.cut_after is None:
            await self._routes(scope, receive, send)
        else:
            await self._routes(scope, receive, cut(fault.cut_after, send, transport))

    @property
    def _routes(self) -> Starlette:
        routes = [
            Route("/health", lambda request: Response()),
            Route("/version", lambda request: JSONResponse({"version": self.version})),
            Route("/v1/models", self._models),
            Route("/tokenize", self._tokenize, methods=["POST"]),
            Route("/v1/completions", self._completions, methods=["POST"]),
        ]
        handlers = {Refusal: _refused, HTTPException: _no_route, Unauthorized: _unauthorized}
        return Starlette(routes=routes, exception_handlers=handlers)

    # --- what it answers ---

    async def _models(self, request: Request) -> Response:
        self._check_key(request)
        now = int(time.time())
        permission = {
            "id": f"modelperm-{secrets.token_hex(8)}", "object": "model_permission", "created": now,
            "allow_create_engine": False, "allow_sampling": True, "allow_logprobs": True,
            "allow_search_indices": False, "allow_view": True, "allow_fine_tuning": False, "organization": "*",
            "group": None, "is_blocking": False,
        }  # fmt: skip
        card = {
            "id": self.name, "object": "model", "created": now, "owned_by": "vllm", "root": str(self.folder),
            "parent": None, "max_model_len": self.window, "permission": [permission],
        }  # fmt: skip
        return JSONResponse({"object": "list", "data": [card]})

    async def _tokenize(self, request: Request) -> Response:
        body = await self._body(request)
        adds = body.get("add_special_tokens", True)
        ids = self._model.tokenizer(body["prompt"], add_special_tokens=adds)["input_ids"]
        return JSONResponse({"count": len(ids), "max_model_len": self.window, "tokens": ids, "token_strs": None})

    async def _completions(self, request: Request) -> Response:
        self._check_key(request)
        body = await self._body(request)
        prompts = self._model.prompts(body)
        if body.get("stream"):
            return StreamingResponse(self._events(prompts, body), media_type="text/event-stream")
        answers = [await run_in_threadpool(self._answer, ids, body) for ids in prompts]
        return JSONResponse(self._whole(prompts, answers, body))

    async def _body(self, request: Request) -> dict[str, Any]:
        try:
            body = json.loads(await request.body())
        except ValueError:
            raise Refusal("1 validation error:\n  JSON decode error", "body.1", kind="Bad Request") from None
        if not isinstance(body, dict):
            raise Refusal("1 validation error:\n  Input should be an object", "body", kind="Bad Request")
        if body.get("model", self.name) != self.name:
            message = f"The model `{body['model']}` does not exist. Valid aliases: {self.name}."
            raise Refusal(message, "model", 404, "NotFoundError")
        return body

    def _check_key(self, request: Request) -> None:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            raise Unauthorized

    def _answer(self, ids: tuple[int, ...], body: dict[str, Any]) -> list[Step]:
        with self._working:
            return list(self._model.steps(ids, body))

    def _whole(self, prompts: list[tuple[int, ...]], answers: list[list[Step]], body: dict[str, Any]) -> dict[str, Any]:
        choices = []
        for index, (ids, steps) in enumerate(zip(prompts, answers, strict=True)):
            choice = {"index": index, "text": "".join(step.text for step in steps)}
            choice |= {"logprobs": self._model.logprobs(steps, body)} | _end(steps[-1])
            choice |= {"token_ids": None, "prompt_logprobs": None, "prompt_token_ids": None, "routed_experts": None}
            if body.get("return_token_ids"):
                choice |= {"token_ids": [step.token for step in steps], "prompt_token_ids": list(ids)}
            choices.append(choice)
        usage = _usage(sum(map(len, prompts)), sum(map(len, answers)))
        metrics = self._metrics() if len(prompts) == 1 else None
        return self._begun() | {
            "choices": choices, "service_tier": None, "system_fingerprint": FINGERPRINT,
            "usage": usage | {"prompt_tokens_details": None, "completion_tokens_details": None},
            "kv_transfer_params": None, "ec_transfer_params": None,
            "metrics": metrics and metrics | {"mean_itl_ms": None, "speculative_decoding": None},
        }  # fmt: skip

    async def _events(self, prompts: list[tuple[int, ...]], body: dict[str, Any]) -> AsyncIterator[str]:
        try:
            async for event in self._chunks(prompts, body):
                yield f"data: {json.dumps(event, ensure_ascii=False)}\n\n"
        except Refusal as refusal:  # what the server finds out only now has the status 200 before it
            yield f"data: {json.dumps(refusal.body)}\n\n"
        yield "data: [DONE]\n\n"

    async def _chunks(self, prompts: list[tuple[int, ...]], body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        assert len(prompts) == 1, "streams of several prompts are not used"
        begun, wants_ids = self._begun(), body.get("return_token_ids")
        wants_usage = (body.get("stream_options") or {}).get("include_usage")
        steps, count, offset = self._model.steps(prompts[0], body), 0, 0
        while (step := await run_in_threadpool(self._one, steps)) is not None:
            logprobs = self._model.logprobs([step], body, offset)
            offset += len(logprobs["tokens"][0]) if logprobs else 0
            choice = {"index": 0, "text": step.text, "logprobs": logprobs} | _end(step)
            choice["prompt_token_ids"] = list(prompts[0]) if wants_ids and not count else None
            choice["token_ids"] = [step.token] if wants_ids else None
            is_last = step.finish is not None and not wants_usage
            yield begun | {"choices": [choice]} | ({"system_fingerprint": FINGERPRINT} if is_last else {})
            count += 1
            await asyncio.sleep(self.pace_s)
        if wants_usage:
            last = begun | {"choices": [], "usage": _usage(len(prompts[0]), count), "system_fingerprint": FINGERPRINT}
            # What is null is left out of this event, and of no other.
            itl = {"mean_itl_ms": 1.0} if count > 1 else {}
            yield last | ({"metrics": self._metrics() | itl} if self.metrics else {})

    def _one(self, steps: Any) -> Step | None:
        with self._working:
            return next(steps, None)

    def _begun(self) -> dict[str, Any]:
        kind = {"object": "text_completion", "created": int(time.time()), "model": self.name}
        return {"id": f"cmpl-{secrets.token_hex(8)}"} | kind

    def _metrics(self) -> dict[str, float] | None:
        if not self.metrics:
            return None
        times = {"time_to_first_token_ms": 1.0, "generation_time_ms": 0.0, "queue_time_ms": self.queue_ms}
        return times | {"tokens_per_second": 1000.0}


class Unauthorized(Exception):
    """Without the key, or with another one."""


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        return json.loads(text) if text else {}
    except ValueError:
        return {}


def _again(text: bytes, receive: Any) -> Any:
    """The body once more, for whoever reads it next, and then what comes."""
    told = iter([{"type": "http.request", "body": text, "more_body": False}])

    async def received() -> Any:
        return next(told, None) or await receive()

    return received


async def _refused(request: Request, refusal: Refusal) -> Response:
    return JSONResponse(refusal.body, refusal.status)


async def _no_route(request: Request, error: HTTPException) -> Response:
    return JSONResponse({"detail": error.detail}, error.status_code, error.headers)


async def _unauthorized(request: Request, error: Unauthorized) -> Response:
    return JSONResponse({"error": "Unauthorized"}, 401)


def _end(step: Step) -> dict[str, Any]:
    return {"finish_reason": step.finish, "stop_reason": step.reason}


def _usage(prompt: int, written: int) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "total_tokens": prompt + written, "completion_tokens": written}
