"""The few things that are asked of ASGI itself: reading a bounded body, noticing that the client left, answering."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

from starlette.types import Receive, Scope, Send

from seekserve.gateway.problems import Problem, ProblemError

__all__ = ["ClientLeft", "header_map", "read_json", "send_whole", "start_stream", "until_left"]


class ClientLeft(Exception):
    """The connection is gone: nobody can be answered any more."""


def header_map(scope: Scope) -> dict[str, str]:
    """Lower-case names; of a repeated header the last."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def read_json(receive: Receive, headers: Mapping[str, str], *, max_body_bytes: int, timeout_s: float) -> Any:
    """Raises ProblemError: 413 as soon as the body is known to be too large, 408 when it is not here in time, 400 when
    it is not JSON."""
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_body_bytes:
        raise _too_large(int(announced), max_body_bytes)
    data = await _read_in_time(receive, max_body_bytes, timeout_s)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        where = f" ({error.msg}, line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ProblemError(
            Problem(status=400, code="invalid", message=f"the body is not JSON{where}", kind="invalid")
        ) from None


async def _read_in_time(receive: Receive, max_body_bytes: int, timeout_s: float) -> bytearray:
    """The task is cancelled from beside when time is over: one of its own for the reading would cost every request a
    turn of the loop."""
    task = asyncio.current_task()
    assert task is not None
    is_late = False

    def end() -> None:
        nonlocal is_late
        is_late = True
        task.cancel()

    data = bytearray()
    timer = asyncio.get_running_loop().call_later(timeout_s, end)
    try:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft
            data += message.get("body", b"")
            if len(data) > max_body_bytes:
                raise _too_large(len(data), max_body_bytes)
            if not message.get("more_body", False):
                return data
    except asyncio.CancelledError:
        if not is_late:
            raise
        if sys.version_info >= (3, 11):
            task.uncancel()
        reason = f"{len(data)} bytes of the body came within {timeout_s:g} s and not its end; send it again"
        raise ProblemError(Problem(status=408, code="body_timeout", message=reason, kind="invalid")) from None
    finally:
        timer.cancel()


def _too_large(size_bytes: int, limit_bytes: int) -> ProblemError:
    reason = f"the body has {size_bytes} bytes or more, at most {limit_bytes} are taken"
    return ProblemError(Problem(status=413, code="too_large", message=reason, kind="invalid"))


async def until_left(receive: Receive) -> None:
    """Returns when the client has gone; once the body is read, nothing else can come."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_whole(send: Send, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    all_headers = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    await send({"type": "http.response.start", "status": status, "headers": _raw(all_headers)})
    await send({"type": "http.response.body", "body": body})


async def start_stream(send: Send, headers: Mapping[str, str]) -> None:
    # Proxies must neither keep nor collect events.
    fixed = {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
    }
    await send({"type": "http.response.start", "status": 200, "headers": _raw({**fixed, **headers})})


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
