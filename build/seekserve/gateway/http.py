"""The few things that are asked of ASGI itself: reading a bounded body, noticing that the client left, answering."""

from __future__ import annotations

import json
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


async def read_json(receive: Receive, headers: Mapping[str, str], *, max_body_bytes: int) -> Any:
    """Raises ProblemError: 413 as soon as the body is known to be too large, 400 when it is not JSON."""
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_body_bytes:
        raise _too_large(int(announced), max_body_bytes)
    data = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        data += message.get("body", b"")
        if len(data) > max_body_bytes:
            raise _too_large(len(data), max_body_bytes)
        if not message.get("more_body", False):
            break
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        where = f" ({error.msg}, line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ProblemError(
            Problem(status=400, code="invalid", message=f"the body is not JSON{where}", kind="invalid")
        ) from None


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
