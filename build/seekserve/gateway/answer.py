"""One request from its headers to its last byte: let in, read, ask, watch the client, answer, write it down.

The work runs beside a watch on the connection, so a client that leaves is noticed while its request is still queued as
well as while it is being answered; cancelling the work cancels the gRPC call, which is what the backend hears.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import sys
import time
import uuid
from collections.abc import Coroutine, Mapping
from typing import Any

from starlette.types import Receive, Scope, Send

from seekserve.errors import InputError, SeekserveError
from seekserve.gateway.ask import Ask, read_ask
from seekserve.gateway.bodies import Head, error_event
from seekserve.gateway.choice import Choice
from seekserve.gateway.door import Admitted, Door
from seekserve.gateway.http import ClientLeft, header_map, read_json, send_whole, until_left
from seekserve.gateway.logs import RequestLog
from seekserve.gateway.merge import merged
from seekserve.gateway.metrics import Metrics
from seekserve.gateway.pool import Backend, Pool
from seekserve.gateway.problems import Problem, ProblemError, from_error
from seekserve.gateway.record import Record
from seekserve.gateway.sinks import Sink, StreamSink, WholeSink
from seekserve.gateway.tracing import Span, Tracer

__all__ = ["Answering", "Desk"]

_log = logging.getLogger(__name__)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_STOPPING = Problem(
    status=503,
    code="not_serving",
    message="the gateway is stopping, and the time for running answers is over",
    kind="not_serving",
    retry_after_ms=1000,
)
_NOT_RESUMABLE = Problem(
    status=400,
    code="invalid",
    message="only a stream with one choice can be resumed; send stream true and n 1",
    kind="invalid",
    param="stream",
)
_INTERNAL = Problem(status=500, code="failed", message="the gateway failed; its log has the details", kind="failed")


class Desk:
    """What all requests share."""

    def __init__(
        self,
        *,
        pool: Pool,
        door: Door,
        metrics: Metrics,
        log: RequestLog,
        tracer: Tracer,
        max_body_bytes: int,
        body_timeout_s: float,
    ) -> None:
        self.pool = pool
        self.door = door
        self.metrics = metrics
        self.log = log
        self.tracer = tracer
        self.max_body_bytes = max_body_bytes
        self.body_timeout_s = body_timeout_s

    def new_record(self, scope: Scope, headers: Mapping[str, str], route: str) -> Record:
        given = headers.get("x-request-id", "")
        client = scope.get("client")
        return Record(
            request_id=given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex,
            route=route,
            client=client[0] if client else "",
        )

    def write_down(self, record: Record) -> None:
        record.ended_s = time.perf_counter()
        self.metrics.ended(record)
        self.log.write(record)


class Answering:
    """The ASGI endpoint of one route."""

    def __init__(self, desk: Desk, route: str, *, is_chat: bool | None) -> None:
        """`is_chat` None: a body with messages is a chat, any other a completion."""
        self._desk = desk
        self._route = route
        self._is_chat = is_chat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        desk = self._desk
        headers = header_map(scope)
        record = desk.new_record(scope, headers, self._route)
        span = desk.tracer.start(headers, record)
        reply = _Reply(send, record)
        desk.metrics.in_flight.inc()
        try:
            await self._answer(headers, receive, reply, record, span)
        except ProblemError as error:
            await reply.problem(error.problem)
        except ClientLeft:
            reply.note(Problem(status=499, code="left", message="the client left", kind="left"))
        except asyncio.CancelledError:  # the time to drain is over: no request ends without a word
            await reply.problem(_STOPPING)
        except Exception:
            _log.exception("request %s failed", record.request_id)
            await reply.problem(_INTERNAL)
        finally:
            desk.metrics.in_flight.dec()
            desk.write_down(record)
            span.end(record)

    async def _answer(
        self, headers: Mapping[str, str], receive: Receive, reply: _Reply, record: Record, span: Span
    ) -> None:
        desk = self._desk
        admitted = desk.door.admit(headers, route=self._route)
        record.key, record.tenant, record.request_class = admitted.key, admitted.tenant, admitted.request_class
        body = await read_json(receive, headers, max_body_bytes=desk.max_body_bytes, timeout_s=desk.body_timeout_s)
        is_chat = self._is_chat
        if is_chat is None:
            is_chat = isinstance(body, Mapping) and body.get("messages") is not None
        ask = read_ask(body, is_chat=is_chat)
        record.model, record.stream, record.choices = ask.model[:128], ask.stream, ask.choices
        if (admitted.resume is not None or admitted.fields.get("resumable")) and not (ask.stream and ask.choices == 1):
            raise ProblemError(_NOT_RESUMABLE)
        choices = self._choices(ask, admitted, record, span)
        work = self._produce(ask, choices, admitted, reply, record)
        try:
            await _unless_left(work, receive, timeout_ms=admitted.timeout_ms)
        except ProblemError as error:
            if error.problem.code == "timed_out":  # nobody will come back for it, even where that was possible
                for choice in choices:
                    choice.give_up()
            raise

    async def _produce(
        self, ask: Ask, choices: list[Choice], admitted: Admitted, reply: _Reply, record: Record
    ) -> None:
        head = Head(
            request_id=record.request_id,
            created_s=int(record.started_unix_s),
            model=ask.model,
            is_chat=ask.is_chat,
            include_usage=ask.include_usage,
        )
        sink = reply.sink(ask, head, admitted)
        record.sent_s = time.perf_counter()
        try:
            async with contextlib.aclosing(merged(choices)) as events:
                async for choice, delta in events:
                    if delta is not None:
                        await sink.take(choice, delta)
                    else:
                        await sink.end(choice)
            await sink.finish(choices)
        finally:
            record.backend = choices[0].backend or None
            record.retries = sum(choice.retries for choice in choices)

    def _choices(self, ask: Ask, admitted: Admitted, record: Record, span: Span) -> list[Choice]:
        fields = dict(admitted.fields)
        metadata = tuple(span.forward().items())

        def failed(backend: Backend, error: SeekserveError, is_retried: bool) -> None:
            problem = from_error(error)
            self._desk.metrics.backend_error(backend.name, problem.code, is_retried=is_retried)
            # The client is told no internals; whoever runs this can find them here. What is wrong with a request may be
            # said in its own words, which belong in no log.
            text = f"{problem.code} {problem.param or ''}" if problem.kind == "invalid" else error.message
            _log.warning("request %s at %s: %s", record.request_id, backend.name, text)

        many = ask.choices > 1
        try:
            return [
                Choice(
                    self._desk.pool,
                    ask,
                    index,
                    fields={**fields, "request_id": f"{record.request_id}-{index}" if many else record.request_id},
                    resume=admitted.resume,
                    metadata=metadata,
                    failed=failed,
                )
                for index in range(ask.choices)
            ]
        except InputError as error:
            raise ProblemError(from_error(error)) from error


class _Reply:
    """The answer's way out: knows whether it has begun, which decides how an error can still be told."""

    def __init__(self, send: Send, record: Record) -> None:
        self._send = send
        self._record = record
        self._headers = {"x-request-id": record.request_id}
        self._stream: StreamSink | None = None

    def sink(self, ask: Ask, head: Head, admitted: Admitted) -> Sink:
        headers = dict(self._headers)
        if ask.notes:
            headers["x-seekserve-note"] = "; ".join(ask.notes)
        if not ask.stream:
            return WholeSink(self._send, ask, head, self._record, headers)
        resume = admitted.resume
        from_bytes = resume.from_bytes if resume is not None else 0 if admitted.fields.get("resumable") else None
        self._stream = StreamSink(
            self._send,
            ask,
            head,
            self._record,
            headers,
            from_bytes=from_bytes,
            is_waited_for="heartbeat_ms" in admitted.fields,
        )
        return self._stream

    def note(self, problem: Problem) -> None:
        record = self._record
        record.kind, record.code = problem.kind, problem.code
        # What is wrong with a request may be said in its own words, which belong in no log.
        record.reason = problem.param if problem.kind == "invalid" else problem.message
        if not (self._stream is not None and self._stream.is_started):
            record.status = problem.status

    async def problem(self, problem: Problem) -> None:
        self.note(problem)
        body = problem.body(self._record.request_id)
        if self._stream is not None and self._stream.is_started:
            # The text so far stays; no [DONE], since it is not.
            await self._send({"type": "http.response.body", "body": error_event(body)})
        else:
            await send_whole(self._send, problem.status, body, {**self._headers, **problem.headers()})


async def _unless_left(work: Coroutine[Any, Any, None], receive: Receive, *, timeout_ms: int | None) -> None:
    """Runs the work to its end; raises ClientLeft when the client goes first, ProblemError when the time is over.

    The work runs in this very task, which is cancelled from beside: a task of its own would cost every first token one
    more turn of the loop.
    """
    task = asyncio.current_task()
    assert task is not None
    ended_by: list[Exception] = []
    is_over = False

    def end(error: Exception) -> None:
        if not is_over:  # the end of an answer looks like a client that leaves
            ended_by.append(error)
            task.cancel()

    leaving = asyncio.ensure_future(until_left(receive))
    leaving.add_done_callback(lambda done: None if done.cancelled() else end(ClientLeft()))
    timer = None
    if timeout_ms is not None:
        reason = f"the answer was not complete after {timeout_ms} ms, the time that x-request-timeout-ms leaves"
        late = ProblemError(Problem(status=504, code="timed_out", message=reason, kind="expired"))
        timer = asyncio.get_running_loop().call_later(timeout_ms / 1000.0, end, late)
    try:
        await work
    except asyncio.CancelledError:
        if not ended_by:
            raise
        if sys.version_info >= (3, 11):
            task.uncancel()
        raise ended_by[0] from None
    finally:
        is_over = True
        leaving.cancel()
        if timer is not None:
            timer.cancel()
