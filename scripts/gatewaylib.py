"""The load of `bench_gateway.py`, as a process of its own that costs as little as Python allows, and the bare proxy.

    python gatewaylib.py raw    HOST:PORT MODEL STREAMS REQUESTS TOKENS
    python gatewaylib.py direct HOST:PORT MODEL STREAMS REQUESTS TOKENS
    python gatewaylib.py http   HOST:PORT MODEL STREAMS REQUESTS TOKENS

Prints one JSON object. Every answer is held to its length, so a rate is never one of fewer tokens.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

PROMPT = "Count from 1 to 100."


@dataclass(frozen=True)
class Load:
    tokens_per_s: float
    first_ms: tuple[float, ...]


Ask = Callable[[], Awaitable[float]]
"""One whole request; the seconds to its first token."""


async def spread(ask: Ask, *, streams: int, requests: int) -> tuple[float, list[float]]:
    firsts: list[float] = []

    async def one() -> None:
        firsts.extend([await ask() for _ in range(requests // streams)])

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(streams)))
    return time.perf_counter() - started, firsts


async def direct(url: str, model: str, streams: int, requests: int, tokens: int) -> tuple[float, list[float]]:
    from seekserve.client import AsyncClient, GenerateRequest

    request = GenerateRequest(prompt=PROMPT, max_tokens=tokens, min_tokens=tokens)
    async with AsyncClient(url, model) as client:

        async def ask() -> float:
            started = time.perf_counter()
            first = 0.0
            async with client.stream(request) as stream:
                async for _ in stream:
                    first = first or time.perf_counter() - started
            assert stream.completion.completion_tokens == tokens, stream.completion.completion_tokens
            return first

        await ask()
        return await spread(ask, streams=streams, requests=requests)


async def raw(url: str, model: str, streams: int, requests: int, tokens: int) -> tuple[float, list[float]]:
    """The bytes of gRPC alone, nothing read of them: what every way to the server has in common."""
    import grpc

    from benchlib import encode_request

    request = encode_request(model, PROMPT, tokens, min_tokens=tokens)
    async with grpc.aio.insecure_channel(url) as channel:
        call = channel.unary_stream("/inference.GRPCInferenceService/ModelStreamInfer")

        async def ask() -> float:
            started = time.perf_counter()
            first = 0.0
            async for _ in call(request):
                first = first or time.perf_counter() - started
            return first

        await ask()
        return await spread(ask, streams=streams, requests=requests)


async def http(url: str, model: str, streams: int, requests: int, tokens: int) -> tuple[float, list[float]]:
    host, _, port = url.rpartition(":")
    body = json.dumps(
        {
            "model": model,
            "prompt": PROMPT,
            "max_tokens": tokens,
            "min_tokens": tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: {url}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask() -> float:
        reader, writer = idle.pop() if idle else await asyncio.open_connection(host, int(port), limit=1 << 20)
        started = time.perf_counter()
        writer.write(head + body)
        first, tail = 0.0, b""
        while b"0\r\n\r\n" not in tail[-5:]:
            data = await reader.read(1 << 16)
            assert data, tail
            if not first and b"data: " in data:
                first = time.perf_counter() - started
            tail = (tail + data)[-4096:]
        assert b"[DONE]" in tail, tail
        assert b'"completion_tokens": %d' % tokens in tail, tail
        idle.append((reader, writer))
        return first

    await ask()
    outcome = await spread(ask, streams=streams, requests=requests)
    for _, writer in idle:
        writer.close()
    return outcome


def run_load(kind: str, url: str, model: str, *, streams: int, requests: int, tokens: int) -> Load:
    """Runs this file as a process."""
    import subprocess

    arguments = (kind, url, model, streams, requests, tokens)
    done = subprocess.run(
        [sys.executable, __file__, *map(str, arguments)], check=True, stdout=subprocess.PIPE, timeout=300
    )
    data = json.loads(done.stdout)
    return Load(tokens_per_s=data["tokens"] / data["wall_s"], first_ms=tuple(data["first_ms"]))


def main() -> None:
    import uvloop

    kind, url, model = sys.argv[1:4]
    streams, requests, tokens = map(int, sys.argv[4:7])
    load = {"raw": raw, "direct": direct, "http": http}[kind]
    wall_s, firsts = uvloop.run(load(url, model, streams, requests, tokens))
    print(json.dumps({"wall_s": wall_s, "tokens": len(firsts) * tokens, "first_ms": [f * 1000 for f in firsts]}))


class BareProxy:
    """ASGI without anything: one fixed request, one fixed event for each response, of the size of the gateway's."""

    def __init__(self, target: str, model: str, tokens: int, event: bytes, tail: bytes) -> None:
        from benchlib import encode_request

        self._target = target
        self._request = encode_request(model, PROMPT, tokens, min_tokens=tokens)
        self._event = event
        self._tail = tail
        self._call = None

    async def __call__(self, scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        import grpc

        if scope["type"] != "http":
            return
        if self._call is None:
            self._channel = grpc.aio.insecure_channel(self._target)
            self._call = self._channel.unary_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for _ in self._call(self._request):
            await send({"type": "http.response.body", "body": self._event, "more_body": True})
        await send({"type": "http.response.body", "body": self._tail})


def serve_bare() -> None:
    """`python gatewaylib.py bare TARGET MODEL TOKENS EVENT TAIL`; prints its address."""
    import socket

    import uvicorn

    target, model, tokens, event, tail = sys.argv[2:7]
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    print(f"127.0.0.1:{bound.getsockname()[1]}", flush=True)
    app = BareProxy(target, model, int(tokens), event.encode(), tail.encode())
    config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, loop="uvloop", http="httptools")
    uvicorn.Server(config).run(sockets=[bound])


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    if sys.argv[1] == "bare":
        serve_bare()
    else:
        main()
