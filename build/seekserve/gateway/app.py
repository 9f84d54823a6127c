"""The ASGI application: routes, and what lives as long as it does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from seekserve.gateway.answer import Answering, Desk
from seekserve.gateway.door import Door
from seekserve.gateway.keys import KeyRing
from seekserve.gateway.logs import RequestLog
from seekserve.gateway.metrics import Metrics
from seekserve.gateway.options import GatewayOptions
from seekserve.gateway.pool import Backend, Pool
from seekserve.gateway.problems import Problem, ProblemError
from seekserve.gateway.tracing import Tracer

__all__ = ["make_app"]

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def make_app(
    options: GatewayOptions, keys: KeyRing, *, log: RequestLog, tracer: Tracer, ready: Callable[[Pool], None]
) -> ASGIApp:
    """`ready(pool)` is called once every backend has been looked at, before the first request is taken."""
    pool = Pool(
        [Backend(spec, idle_timeout_s=options.idle_timeout_s) for spec in options.backends], route=options.route
    )
    door = Door(keys)
    desk = Desk(
        pool=pool,
        door=door,
        metrics=Metrics(),
        log=log,
        tracer=tracer,
        max_body_bytes=options.max_body_bytes,
        body_timeout_s=options.body_timeout_s,
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await pool.refresh()
        ready(pool)
        watching = asyncio.create_task(pool.watch(options.probe_period_s))
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await pool.close()
            tracer.close()
            log.close()

    answering = _answering(desk)
    looking = Starlette(
        routes=[*(Route(path, route, methods=["POST"]) for path, route in answering.items()), *_looking(desk)],
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_problem, ProblemError: _problem_handler(desk.metrics)},
    )
    return _Front(looking, answering)


class _Front:
    """Answers go past the framework, whose layers would stand in front of every first token; all else goes through."""

    def __init__(self, app: ASGIApp, answering: Mapping[str, ASGIApp]) -> None:
        self._app = app
        self._answering = answering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        await (self._answering.get(scope["path"], self._app) if is_post else self._app)(scope, receive, send)


def _answering(desk: Desk) -> dict[str, ASGIApp]:
    def route(path: str, *, is_chat: bool | None) -> tuple[str, ASGIApp]:
        return path, Answering(desk, path, is_chat=is_chat)

    return dict(
        (
            route("/v1/chat/completions", is_chat=True),
            route("/v1/completions", is_chat=False),
            route("/v1/batch/completions", is_chat=None),
        )
    )


def _looking(desk: Desk) -> list[Route]:
    async def models(request: Request) -> Response:
        desk.door.check_key(dict(request.headers))
        entries = [
            {"id": name, "object": "model", "created": 0, "owned_by": "seekserve"} for name in desk.pool.models()
        ]
        return _json({"object": "list", "data": entries})

    async def model(request: Request) -> Response:
        desk.door.check_key(dict(request.headers))
        name = request.path_params["name"]
        if name in desk.pool.models():
            return _json({"id": name, "object": "model", "created": 0, "owned_by": "seekserve"})
        reason = f"model {name!r:.80} is not served here; served: {', '.join(desk.pool.models()) or 'none'}"
        raise ProblemError(Problem(status=404, code="model_not_found", message=reason, kind="invalid", param="model"))

    async def live(_: Request) -> Response:
        return _json({"status": "live"})

    async def readiness(_: Request) -> Response:
        state = {backend.name: list(backend.models) for backend in desk.pool.backends}
        is_ready = desk.pool.is_ready
        return _json({"status": "ready" if is_ready else "not ready", "backends": state}, 200 if is_ready else 503)

    async def metrics(_: Request) -> Response:
        return Response(desk.metrics.text(desk.pool), media_type=_METRICS_TYPE)

    return [
        Route("/v1/models", models),
        Route("/v1/models/{name}", model),
        Route("/health/live", live),
        Route("/health/ready", readiness),
        Route("/metrics", metrics),
    ]


def _json(body: object, status: int = 200) -> Response:
    return Response(json.dumps(body), status_code=status, media_type="application/json")


def _problem_handler(metrics: Metrics) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(_: Request, error: Exception) -> Response:
        assert isinstance(error, ProblemError)
        problem = error.problem
        metrics.problem(problem.kind)
        headers = dict(problem.headers())
        return Response(problem.body(""), status_code=problem.status, headers=headers, media_type="application/json")

    return answer


async def _http_problem(request: Request, error: Exception) -> Response:
    """What the router says: no such route, or not with this method."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid")
    reason = f"{request.method} {request.url.path}: {error.detail}"
    problem = Problem(status=error.status_code, code=code, message=reason, kind="invalid")
    headers = dict(error.headers or {})
    return Response(problem.body(""), status_code=error.status_code, headers=headers, media_type="application/json")
