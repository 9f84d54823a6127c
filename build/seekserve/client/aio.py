"""The asyncio client: the same rules as the blocking one, without threads.

Leaving a stream early cancels the call: by `aclose`, by the end of `async with`, by cancellation of the task that reads
it, or by dropping it. `break` out of a bare `async for` drops it; `async with client.stream(...)` says so at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any

import grpc
import grpc.aio
from tritonclient.grpc import service_pb2

from seekserve.client import failures
from seekserve.client.assemble import Assembler, TextKind
from seekserve.client.channel import Calls, channel_options, server_info, target_of
from seekserve.client.discovery import launched_models, only_model, state_folder
from seekserve.client.request import Completion, Delta, GenerateRequest, ServerInfo
from seekserve.client.resuming import FAREWELL_S, Comeback, farewell, prepared
from seekserve.client.sync import FINAL_GRACE_S
from seekserve.client.watch import Watched
from seekserve.client.wire import encode
from seekserve.errors import RequestFailed, ServerError

__all__ = ["AsyncClient", "AsyncStream"]


def _expire(watched: Watched, loop: asyncio.AbstractEventLoop, timer: list[asyncio.TimerHandle]) -> None:
    """Timer callback; holds the call, never the stream, so that a dropped stream can be collected and cancelled."""
    left_s = watched.expires_at_s - time.perf_counter()
    if left_s > 0:
        timer[:] = [loop.call_later(left_s, _expire, watched, loop, timer)]
        return
    watched.is_expired = True
    watched.call.cancel()


class AsyncStream(AsyncIterator[Delta]):
    """Deltas of one answer; an async context manager. The request is sent by the first `async for` or `async with`."""

    def __init__(
        self,
        client: AsyncClient,
        request: GenerateRequest,
        *,
        reconnects: int = 0,
        model: str | None = None,
        metadata: Sequence[tuple[str, str]] = (),
        is_kept: bool = False,
    ) -> None:
        self._client = client
        self._model = model
        self._is_kept = is_kept
        self._metadata = tuple(metadata) or None
        self._url = client.url
        request = prepared(request, reconnects)
        self._comeback = Comeback(request=request, most_attempts=reconnects)
        # Encoded now, so that bad input is reported where the stream is made; the model's name may still be unknown.
        self._message = encode(request, "")
        self._assembler = Assembler(
            url=self._url,
            sent_at_s=time.perf_counter(),
            kind=client.text_kind,
            resume_token=request.resume_token,
            received_bytes=request.resume_from_bytes or 0,
        )
        self._watched: Watched | None = None
        self._timer: list[asyncio.TimerHandle] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_open = True
        self._completion: Completion | None = None

    @property
    def completion(self) -> Completion:
        """The whole answer, once the iteration has ended without an error."""
        if self._completion is None:
            raise RuntimeError("the stream has not ended; `text` holds what arrived so far")
        return self._completion

    @property
    def text(self) -> str:
        """What arrived so far; kept when the request fails in the middle."""
        return self._assembler.text

    @property
    def chat_state(self) -> str | None:
        """Of a chat: where its answer begins, `thinking` or `content`; None before the first response."""
        return self._assembler.chat_state

    @property
    def served_by(self) -> str | None:
        """The model that a loaded server handed this request to, once the first response is here; None: the one that
        was asked."""
        return self._assembler.served_by

    @property
    def resume_token(self) -> str | None:
        """Of a resumable stream, once its first response is here; see `AsyncClient.resume`."""
        return self._assembler.resume_token

    @property
    def received_bytes(self) -> int:
        """Of text, in UTF-8: where a return goes on."""
        return self._assembler.received_bytes

    async def __anext__(self) -> Delta:
        while self._is_open:
            watched = self._watched or await self._start()
            try:
                message = await watched.call.read()
            except asyncio.CancelledError:
                return self._cancelled(watched)
            except grpc.aio.AioRpcError as error:
                if await self._comes_back(error, watched):
                    continue
                self._end()
                raise failures.from_status(
                    error.code().name, error.details() or "no details", self._url, self._assembler.progress
                ) from None
            if message is grpc.aio.EOF:
                return self._finish()
            delta = self._take(message, watched)
            if delta is not None:
                return delta
        raise StopAsyncIteration

    async def _comes_back(self, error: grpc.aio.AioRpcError, watched: Watched) -> bool:
        """After a pause, on another call, if that is still wanted."""
        assembler, comeback = self._assembler, self._comeback
        if not self._is_open or watched.is_expired or assembler.is_terminal:
            return False
        if not comeback.may_try(error.code().name, error.details() or "", assembler.resume_token):
            return False
        await asyncio.sleep(comeback.pause_s)
        return self._listen_again()

    def _listen_again(self) -> bool:
        assembler, comeback = self._assembler, self._comeback
        if not self._is_open:  # closed during the pause
            return False
        assert assembler.resume_token is not None, "may_try asks for it"
        message = encode(comeback.request_for(assembler.resume_token, assembler.received_bytes), "")
        message.model_name = self._message.model_name
        self._listen(message)
        return True

    async def _start(self) -> Watched:
        self._message.model_name = self._model or await self._client.model()
        self._loop = asyncio.get_running_loop()
        self._assembler.sent_at_s = time.perf_counter()
        return self._listen(self._message)

    def _listen(self, message: Any) -> Watched:
        now_s = time.perf_counter()
        call = self._client.calls().infer(message, metadata=self._metadata)
        self._watched = Watched(call, now_s + self._client.idle_timeout_s)
        self._arm(self._watched, self._client.idle_timeout_s)
        return self._watched

    def _arm(self, watched: Watched, after_s: float) -> None:
        for timer in self._timer:
            timer.cancel()
        assert self._loop is not None
        self._timer[:] = [self._loop.call_later(after_s, _expire, watched, self._loop, self._timer)]

    def _take(self, message: Any, watched: Watched) -> Delta | None:
        now_s = time.perf_counter()
        was_terminal = self._assembler.is_terminal
        try:
            delta = self._assembler.feed(message, now_s)
        except Exception as error:
            if self._comeback.is_servers_end(error):
                self._end()
            else:
                self.close()
            raise self._comeback.failure(error, self._url, self._assembler.progress) from None
        self._comeback.arrived()
        if not self._assembler.is_terminal:
            watched.expires_at_s = now_s + self._client.idle_timeout_s
        elif not was_terminal:
            grace_s = min(FINAL_GRACE_S, self._client.idle_timeout_s)
            watched.expires_at_s = now_s + grace_s
            self._arm(watched, grace_s)
        return delta

    def _finish(self) -> Delta:
        self._end()
        tail = self._assembler.finish(time.perf_counter())
        self._completion = self._assembler.completion()
        if tail is None:
            raise StopAsyncIteration
        return tail

    def _cancelled(self, watched: Watched) -> Delta:
        """gRPC reports a cancel by our timer, by `close` and of the reading task alike; only the last is passed on."""
        was_open = self._is_open
        if watched.is_expired and self._assembler.is_terminal:
            return self._finish()
        self.close()
        if watched.is_expired:
            raise failures.idle(self._url, self._client.idle_timeout_s, self._assembler.progress) from None
        if not was_open:
            raise RequestFailed(f"the request to {self._url} was cancelled by this client") from None
        raise

    def close(self) -> None:
        """Cancels the request unless it has ended; may be called again."""
        token = self._assembler.resume_token
        is_given_up = self._is_open and not self._is_kept and token is not None and not self._assembler.is_terminal
        self._end()
        if is_given_up:
            self.give_up()

    def give_up(self) -> None:
        """Cancels the work of a resumable stream, left or not; nothing without a token, or when it has ended."""
        token = self._assembler.resume_token
        self._end()
        if token is None or self._assembler.is_terminal or self._loop is None or not self._loop.is_running():
            return
        self._client.give_up(token, self._comeback.request.tenant, self._message.model_name)

    def leave(self) -> None:
        """Closes the connection only: a resumable stream can be resumed with its token, by whoever has it."""
        self._end()

    def _end(self) -> None:
        self._is_open = False
        for timer in self._timer:
            timer.cancel()
        self._timer.clear()
        if self._watched is not None:
            self._watched.call.cancel()

    async def aclose(self) -> None:
        self.close()

    async def __aenter__(self) -> AsyncStream:
        if self._watched is None:
            await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # Breaking out of a bare `async for` leaves no other moment to cancel. The collector may run in any thread.
        if getattr(self, "_is_open", False) and self._watched is not None:
            for timer in self._timer:
                timer.cancel()
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._watched.call.cancel)
                token = self._assembler.resume_token
                if token is not None and not self._is_kept and not self._assembler.is_terminal:
                    whose = (token, self._comeback.request.tenant, self._message.model_name)
                    self._loop.call_soon_threadsafe(self._client.give_up, *whose)


class AsyncClient:
    """Speaks to one Triton server from one event loop. `model` may be left out as for the blocking client."""

    def __init__(
        self,
        url: str = "127.0.0.1:8001",
        model: str | None = None,
        *,
        connect_timeout_s: float = 5.0,
        idle_timeout_s: float = 60.0,
        text_kind: TextKind = TextKind.DELTA,
    ) -> None:
        self.url = target_of(url)
        self.idle_timeout_s = idle_timeout_s
        self.text_kind = text_kind
        self._model = model
        self._connect_timeout_s = connect_timeout_s
        self._channel: Any = None
        self._calls: Calls | None = None
        self._farewells: set[asyncio.Task[None]] = set()

    def calls(self) -> Calls:
        """The channel belongs to the loop that runs at the first call, so it cannot be made before."""
        if self._calls is None:
            self._channel = grpc.aio.insecure_channel(
                self.url, options=channel_options(self.url, self._connect_timeout_s)
            )
            self._calls = Calls(self._channel)
        return self._calls

    async def generate(self, request: GenerateRequest, *, reconnects: int = 0) -> Completion:
        """Waits for the whole answer."""
        async with self.stream(request, reconnects=reconnects) as stream:
            async for _ in stream:
                pass
            return stream.completion

    def stream(
        self,
        request: GenerateRequest,
        *,
        reconnects: int = 0,
        model: str | None = None,
        metadata: Sequence[tuple[str, str]] = (),
        is_kept: bool = False,
    ) -> AsyncStream:
        """The deltas come from iterating over the result. `reconnects`: as for the blocking client. `model` goes before
        the client's own; `metadata` travels as gRPC headers (a trace context). `is_kept`: closing or cancelling a
        resumable stream only leaves it, and `give_up` alone ends its work."""
        return AsyncStream(self, request, reconnects=reconnects, model=model, metadata=metadata, is_kept=is_kept)

    def resume(
        self, token: str, *, received_bytes: int = 0, tenant: str | None = None, reconnects: int = 0
    ) -> AsyncStream:
        """The rest of a stream whose token is known. Its completion holds what came over this connection."""
        request = GenerateRequest(resume_token=token, resume_from_bytes=received_bytes, tenant=tenant)
        return self.stream(request, reconnects=reconnects)

    def give_up(self, token: str, tenant: str | None = None, model: str | None = None) -> None:
        """Cancels the work of a resumable stream, wherever it is; returns at once. Needs the running loop."""

        async def say() -> None:
            with contextlib.suppress(grpc.aio.AioRpcError):  # then the server's own patience ends it
                message = encode(farewell(token, tenant), model or await self.model())
                async for _ in self.calls().infer(message, timeout=FAREWELL_S):
                    pass

        task = asyncio.get_running_loop().create_task(say())
        self._farewells.add(task)
        task.add_done_callback(self._farewells.discard)

    async def model(self) -> str:
        """The model that requests go to; found once when it was not given."""
        if self._model is None:
            try:
                self._model = only_model(await self.model_names(), self.url)
            except RequestFailed as error:
                self._model = only_model((), self.url, f", and its index is closed ({error.message})")
        return self._model

    async def model_names(self) -> tuple[str, ...]:
        """From the launch record, else from the server's index (which `seekserve launch` keeps closed)."""
        known = launched_models(self.url, state_folder())
        if known:
            return known
        index = await self._control(self.calls().repository_index, service_pb2.RepositoryIndexRequest(ready=True))
        return tuple(entry.name for entry in index.models)

    async def is_ready(self, model: str | None = None) -> bool:
        """As for the blocking client: not a proof that the model answers. `model` goes before the client's own."""
        asked = model or self._model
        try:
            server = await self._control(self.calls().server_ready, service_pb2.ServerReadyRequest())
            if not server.ready or asked is None:
                return bool(server.ready)
            question = service_pb2.ModelReadyRequest(name=asked)
            return bool((await self._control(self.calls().model_ready, question)).ready)
        except ServerError:
            return False

    async def metadata(self) -> ServerInfo:
        return server_info(await self._control(self.calls().server_metadata, service_pb2.ServerMetadataRequest()))

    async def _control(self, call: Any, message: Any) -> Any:
        try:
            return await call(message, timeout=self._connect_timeout_s)
        except grpc.aio.AioRpcError as error:
            raise failures.from_status(error.code().name, error.details() or "no details", self.url, "") from None

    async def close(self) -> None:
        """Cancels what is still running. A closed client cannot be used again."""
        if self._farewells:
            await asyncio.wait(self._farewells, timeout=FAREWELL_S)
        if self._channel is not None:
            await self._channel.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
