"""The load of `bench_gateway.py`, as a process of its own that costs as little as Python allows, and the bare proxy.

    python gatewaylib.py raw    HOST:PORT MODEL STREAMS REQUESTS TOKENS
    python gatewaylib.py direct HOST:PORT MODEL STREAMS REQUESTS TOKENS
    python gatewaylib.py http   HOST:PORT MODEL STREAMS REQUESTS TOKENS
    python gatewaylib.py turns  HOST:PORT MODEL REQUESTS TOKENS HTTP-HOST:PORT...

Prints one JSON object. Every answer is held to its length, so a rate is never one of fewer tokens. `turns` asks by gRPC
and at each HTTP address in turn, one request at a time, so that all see the same noise.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

PROMPT = "Count from 1 to 100."


Ask = Callable[[], Awaitable[float]]
"""One whole request; the seconds to its first token."""


async def spread(ask: Ask, *, streams: int, requests: int) -> tuple[float, list[float]]:
    firsts: list[float] = []

    async def one() -> None:
        firsts.extend([await ask() for _ in range(requests // streams)])

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(streams)))
    return time.perf_counter() - started, firsts


@asynccontextmanager
async def direct(url: str, model: str, tokens: int) -> AsyncIterator[Ask]:
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

        yield ask


@asynccontextmanager
async def raw(url: str, model: str, tokens: int) -> AsyncIterator[Ask]:
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

        yield ask


@asynccontextmanager
async def http(url: str, model: str, tokens: int) -> AsyncIterator[Ask]:
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

    try:
        yield ask
    finally:
        for _, writer in idle:
            writer.close()


async def load(kind: str, url: str, model: str, streams: int, requests: int, tokens: int) -> dict[str, object]:
    async with {"direct": direct, "http": http}[kind](url, model, tokens) as ask:
        await ask()
        wall_s, firsts = await spread(ask, streams=streams, requests=requests)
    return {"wall_s": wall_s, "tokens": len(firsts) * tokens}


async def turns(url: str, model: str, requests: int, tokens: int, addresses: Sequence[str]) -> dict[str, object]:
    async with AsyncExitStack() as stack:
        ways = [await stack.enter_async_context(way(url, model, tokens)) for way in (raw, direct)]
        ways += [await stack.enter_async_context(http(address, model, tokens)) for address in addresses]
        for ask in ways * 20:
            await ask()
        return {"first_ms": [[1000 * await ask() for ask in ways] for _ in range(requests)]}


def run_turns(url: str, model: str, addresses: Sequence[str], *, requests: int) -> list[list[float]]:
    """First tokens in ms: a row for each turn, of raw gRPC, the typed client, and each address."""
    rows: list[list[float]] = _run("turns", url, model, requests, 2, *addresses)["first_ms"]
    return rows


def run_load(kind: str, url: str, model: str, *, streams: int, requests: int, tokens: int) -> float:
    """Tokens/s."""
    data = _run(kind, url, model, streams, requests, tokens)
    return float(data["tokens"]) / float(data["wall_s"])


def _run(*arguments: object) -> dict[str, Any]:
    """This file as a process."""
    import subprocess

    command = [sys.executable, __file__, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=300)
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def main() -> None:
    import uvloop

    kind, url, model, *rest = sys.argv[1:]
    if kind == "turns":
        work = turns(url, model, int(rest[0]), int(rest[1]), rest[2:])
    else:
        streams, requests, tokens = map(int, rest)
        work = load(kind, url, model, streams, requests, tokens)
    print(json.dumps(uvloop.run(work)))


class Client:
    """One streamed request by hand, on a socket that can be closed at any moment."""

    def __init__(self, url: str, model: str) -> None:
        import socket

        host, _, port = url.rpartition(":")
        body = json.dumps({"model": model, "prompt": PROMPT, "max_tokens": 2000, "min_tokens": 2000, "stream": True})
        head = f"POST /v1/completions HTTP/1.1\r\nhost: {url}\r\ncontent-length: {len(body)}\r\n\r\n"
        self._socket = socket.create_connection((host, int(port)), 30)
        self._socket.sendall((head + body).encode())

    def status(self) -> int:
        code = int(self._socket.recv(1 << 16)[9:12])
        self._socket.close()
        return code

    def read_event(self) -> None:
        while b"data: " not in self._socket.recv(1 << 16):
            pass

    def is_refused(self) -> bool:
        """Whether a refusal comes within a moment; what is accepted says nothing before its first token."""
        self._socket.settimeout(0.02)
        try:
            return self._socket.recv(16)[9:12] == b"429"
        except TimeoutError:
            return False

    def leave(self) -> None:
        self._socket.close()


class BareProxy:
    """ASGI without a framework that does what has to be done and nothing else: body to tensors, text to events.

    With a `fixed_request` not even that: it is sent whatever was asked, and one event made beforehand stands for every
    response. That is the floor under every proxy in Python.
    """

    def __init__(self, target: str, fixed_request: bytes | None) -> None:
        self._target = target
        self._fixed_request = fixed_request
        self._call: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        import grpc

        if scope["type"] != "http":
            return
        if self._call is None:
            self._channel = grpc.aio.insecure_channel(self._target)
            self._call = self._channel.unary_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        data = b""
        while True:
            message = await receive()
            data += message["body"]
            if not message.get("more_body"):
                break
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        fixed = self._fixed_request
        request = self._request(data) if fixed is None else fixed
        async for response in self._call(request):
            event = self._event(response) if fixed is None else EVENT
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": TAIL})

    @staticmethod
    def _request(data: bytes) -> bytes:
        from benchlib import encode_request

        body = json.loads(data)
        return encode_request(body["model"], body["prompt"], body["max_tokens"], min_tokens=body["min_tokens"])

    @staticmethod
    def _event(response: bytes) -> bytes:
        from tritonclient.grpc import service_pb2

        message = service_pb2.ModelStreamInferResponse.FromString(response).infer_response
        text = message.raw_output_contents[0][4:].decode()
        chunk = {**CHUNK, "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": None}]}
        return b"data: " + json.dumps(chunk).encode() + b"\n\n"


CHUNK = {"id": "cmpl-" + "0" * 32, "object": "text_completion", "created": 1796008042, "model": "free", "usage": None}
EVENT = b"data: " + json.dumps({**CHUNK, "choices": [{"index": 0, "text": " the"}]}).encode() + b"\n\n"
TAIL = b'data: {"usage":{"completion_tokens": 2}}\n\ndata: [DONE]\n\n'


def serve_bare(target: str, model: str, tokens: int, *, is_fixed: bool) -> None:
    """`python gatewaylib.py bare|fixed TARGET MODEL TOKENS`; prints its address."""
    import socket

    import uvicorn

    from benchlib import encode_request

    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen(64)
    print(f"127.0.0.1:{bound.getsockname()[1]}", flush=True)
    fixed_request = encode_request(model, PROMPT, tokens, min_tokens=tokens) if is_fixed else None
    app = BareProxy(target, fixed_request)
    config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, loop="uvloop", http="httptools")
    uvicorn.Server(config).run(sockets=[bound])


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    if sys.argv[1] in ("bare", "fixed"):
        serve_bare(sys.argv[2], sys.argv[3], int(sys.argv[4]), is_fixed=sys.argv[1] == "fixed")
    else:
        main()
