"""The service: REST routes on the resident model.

Thin: a request becomes a job of the engine's owner thread, and is awaited without holding the event loop or a
thread. An application of its own, so that its errors are its own wherever it is mounted. Knows nothing of pages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import APIRouter, FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from core.catalog import Catalog, is_of
from core.contract import BatchRequest, DecodeRequest, RaceRequest, SelectRequest
from core.engine import Engine
from core.guard import is_guest
from core.intake import JsonRoute
from core.owner import Cancelled, Closing, Job
from core.public import named_model, pathless, public_event, public_name, public_text
from core.race import DRAIN_EVERY_S, Race
from core.reference import ASSETS, asset, openapi, page
from core.refusal import Refusal
from core.replies import (
    Active,
    ActiveModel,
    Batch,
    Decoded,
    Health,
    ListedModel,
    Loading,
    Models,
    NotDecided,
    Refused,
    Reply,
)
from core.request import Request as Asked
from core.resident import Resident
from core.result import Result
from core.trace import to_lines
from core.wording import shown

#: Between two looks at a job: a twentieth of the time that it has taken so far, within these bounds.
LEAST_POLL_S, MOST_POLL_S = 0.001, 0.02

#: What a route may answer instead of its result.
_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refused, "description": what}
    for status, what in (
        (400, "not valid"),
        (401, "without the key, where the service has one"),
        (404, "not here"),
        (405, "another method"),
        (413, "too large"),
        (422, "a schema whose choices the model's tokens cannot tell apart"),
        (429, "too many wrong keys"),
        (500, "the engine failed"),
        (503, "no model, a full queue, or a shutdown; Retry-After says when to ask again"),
    )
}
_LINES: dict[int | str, dict[str, Any]] = {200: {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}}


def service(resident: Resident, catalog: Catalog) -> FastAPI:
    """The application; `catalog`: the models that may be selected."""
    answers = _Answers(resident, catalog)
    router = APIRouter(route_class=JsonRoute, responses=_REFUSALS)
    router.get("/health", response_model=Health)(answers.health)
    router.get("/v1/models", response_model=Models)(answers.models)
    router.post("/v1/models/select", response_model=Active)(answers.select)
    router.post("/v1/pcd/decode", response_model=Decoded)(answers.decode)
    router.post("/v1/pcd/batch", response_model=Batch)(answers.batch)
    router.post("/v1/race", response_class=StreamingResponse, responses=_LINES)(answers.race)
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    app.include_router(router)
    document = openapi(router.routes)
    app.add_route("/openapi.json", lambda request: JSONResponse(document), include_in_schema=False)
    app.add_route("/docs", lambda request: HTMLResponse(page()), include_in_schema=False)
    app.add_route("/docs/{name}", _asset, include_in_schema=False)
    app.add_exception_handler(StarletteHTTPException, _refused)
    return app


def routes(app: ASGIApp) -> list[BaseRoute]:
    """Routes that lead from another application to all that the service answers, unknown paths under /v1 included."""
    paths = ("/health", "/v1", "/v1/{rest:path}", "/openapi.json", "/docs", "/docs/{name}")
    return [Route(path, app, include_in_schema=False) for path in paths]


class _Answers:
    """One method for each route."""

    def __init__(self, resident: Resident, catalog: Catalog) -> None:
        self._resident = resident
        self._catalog = catalog

    async def health(self, request: Request) -> Response:
        """Whether the service is up, and the model ready; answers while the engine works. Without the key no more."""
        status, engine = self._resident.status, self._resident.engine
        if is_guest(request.scope):
            return _json(Health(ready=engine is not None, state=status.state, message="the key shows more"))
        return _json(
            Health(
                ready=engine is not None,
                model=public_name(engine.model) if engine else None,
                description=_description(engine) if engine else None,
                backend=engine.backend.identity.backend if engine else None,
                state=status.state,
                message=public_text(status.message or status.stage, engine and engine.model),
                switching=self._loading(),
            )
        )

    async def models(self) -> Response:
        """Models that are on this machine now, and the one that runs; answers while the engine works."""
        entries, engine = await asyncio.to_thread(self._catalog.entries), self._resident.engine
        listed = [
            ListedModel(
                id=one.id,
                bytes=one.size,
                active=engine is not None and is_of(one.target, engine.model),
                source=one.source,
            )
            for one in entries
        ]
        return _json(Models(**_active(engine), models=listed, switching=self._loading()))

    async def select(self, asked: SelectRequest) -> Response:
        """Loads another model and swaps when it has proved itself; the one before serves until then."""
        entry = await asyncio.to_thread(self._catalog.find, asked.id)
        if entry is None:
            raise Refusal(404, "unknown_model", f"model {shown(asked.id)} is not here; GET /v1/models lists what is")
        switch = asyncio.create_task(asyncio.to_thread(self._resident.switch, entry.target))
        try:
            while not (await asyncio.wait({switch}, timeout=MOST_POLL_S))[0]:
                if self._resident.is_closing:
                    raise Closing
            engine = switch.result()
        except Exception as error:
            raise Refusal.of(error, pathless) from error
        return _json(Active(**_active(engine)))

    async def decode(self, asked: DecodeRequest, request: Request) -> Response:
        """Every field of a schema, decided for one text."""
        given = await _checked(asked.request)
        engine = self._engine()
        job = engine.submit(given.context, given.schema, given.temperature, **asked.options)
        result = await _outcome(job, request, engine)
        return _json(Decoded.of(result, public_name(engine.model), job.waited_ms, asked.order))

    async def batch(self, asked: BatchRequest, request: Request) -> Response:
        """One schema, many texts; the error of a text that cannot be decided stands in its place."""
        given = await _checked(asked.requests)
        engine = self._engine()
        good = [one for one in given if isinstance(one, Asked)]
        found: list[Any] = []
        waited_ms = 0.0
        if good:
            texts, first = [one.context for one in good], good[0]
            job = engine.submit_many(texts, first.schema, first.temperature, return_exceptions=True, **asked.options)
            found = await _outcome(job, request, engine)
            waited_ms = job.waited_ms
        return await asyncio.to_thread(_batch, asked, given, found, engine, waited_ms)

    async def race(self, asked: RaceRequest) -> Response:
        """Both lanes, one after the other: the events of the trace as they happen, one JSON object a line."""
        given = await _checked(asked.request)
        engine = self._engine()
        race = engine.race(
            given.context,
            given.schema,
            temperature=given.temperature,
            order=tuple(asked.lanes),
            mode=asked.mode,
            **asked.options,
        )
        return _Told(race, engine)

    def _engine(self) -> Engine:
        status, engine = self._resident.status, self._resident.engine
        if engine is None:
            is_loading = status.state == "loading"
            why = (
                f"the model is still loading ({status.stage}); try again in a moment" if is_loading else status.message
            )
            raise Refusal(503, "no_model", pathless(why))
        return engine

    def _loading(self) -> Loading | None:
        progress = self._resident.switching
        return Loading(stage=pathless(progress.stage), fraction=progress.fraction) if progress else None


async def _checked(check: Callable[[], Any]) -> Any:
    """What a request's model makes of itself, in a thread: a schema can take a while. Raises `Refusal`."""
    try:
        return await asyncio.to_thread(check)
    except ValueError as error:
        raise Refusal(400, "invalid_request", str(error)) from None


async def _outcome(job: Job, request: Request, engine: Engine) -> Any:
    """The job's value; whoever goes away before it is there cancels the job. Raises `Refusal`."""
    began = time.perf_counter()
    try:
        while not job.done:
            if engine.owner.is_closed or await request.is_disconnected():
                raise Refusal.of(Cancelled())
            await asyncio.sleep(min(MOST_POLL_S, LEAST_POLL_S + (time.perf_counter() - began) / 20))
    finally:
        job.cancel()
    if job.error is not None:  # not raised: its traceback would hold the job, and with it the engine
        raise Refusal.of(job.error, lambda text: named_model(text, engine.model))
    return job.result()


def _batch(
    asked: BatchRequest, given: list[Asked | ValueError], found: list[Any], engine: Engine, waited_ms: float
) -> Response:
    name, answers = public_name(engine.model), iter(found)

    def reply(one: Asked | ValueError) -> Decoded | NotDecided:
        outcome = next(answers) if isinstance(one, Asked) else Refusal(400, "invalid_request", str(one))
        if isinstance(outcome, Result):
            return Decoded.of(outcome, name, waited_ms, asked.order)
        return NotDecided(error=Refused(**Refusal.of(outcome, lambda text: named_model(text, engine.model)).to_json()))

    return _json(Batch(model=name, results=[reply(one) for one in given], waited_ms=waited_ms))


class _Told(StreamingResponse):
    """A race as lines; whoever stops listening cancels it, also before the first line."""

    def __init__(self, race: Race, engine: Engine) -> None:
        super().__init__(self._lines(), media_type="application/x-ndjson")
        self._race, self._engine = race, engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._race.cancel()

    async def _lines(self) -> AsyncIterator[str]:
        while not self._race.finished:
            if events := [public_event(event, self._engine.model) for event in self._race.drain() if not event.live]:
                yield to_lines(events)
            if not self._race.finished:
                await asyncio.sleep(DRAIN_EVERY_S)


def _active(engine: Engine | None) -> dict[str, Any]:
    if engine is None:
        return {"active": None, "active_model": None}
    identity, name, (entries, size) = engine.backend.identity, public_name(engine.model), engine.held
    model = ActiveModel(
        id=name,
        description=_description(engine),
        architecture=identity.architecture,
        backend=identity.backend,
        device=identity.device,
        dtype=identity.dtype,
        context_size=identity.window,
        cache_entries=entries,
        cache_bytes=size,
    )
    return {"active": name, "active_model": model}


def _description(engine: Engine) -> str:
    identity = engine.backend.identity
    why = f" ({pathless(engine.why)})" if engine.why else ""
    return f"{public_name(engine.model)}{why} on {identity.backend}, {identity.device}, {identity.dtype}"


def _json(reply: Reply) -> Response:
    return Response(reply.line(), media_type="application/json")


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in ASSETS:
        raise HTTPException(404)
    return Response(asset(name), media_type=ASSETS[name], headers={"Cache-Control": "max-age=3600"})


async def _refused(request: Request, error: Exception) -> Response:
    """For what no route of ours has answered: an unknown path, another method."""
    assert isinstance(error, StarletteHTTPException)
    if error.status_code == 405:
        words = f"{request.method} is not answered here; use {error.headers['Allow']}" if error.headers else ""
        return Refusal(405, "method_not_allowed", words, error.headers).response()
    return Refusal(404, "not_found", "there is nothing here; /docs lists what there is").response()
