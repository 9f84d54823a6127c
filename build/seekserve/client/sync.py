"""The blocking client. One stream is one gRPC call: leaving it early, by any way, cancels the call.

A client may be shared by threads; a stream belongs to one thread. Nothing here waits without a bound: connecting,
control calls and every pause between two responses have one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

from seekserve.client import failures
from seekserve.client.assemble import Assembler, TextKind
from seekserve.client.channel import Calls, channel_options, server_info, target_of
from seekserve.client.discovery import launched_models, only_model, state_folder
from seekserve.client.request import Completion, Delta, GenerateRequest, ServerInfo
from seekserve.client.watch import IdleWatch, Watched
from seekserve.client.wire import encode
from seekserve.errors import RequestFailed, ServerError

__all__ = ["Client", "Stream"]

FINAL_GRACE_S = 2.0
"""How long a stream may stay open after its terminal response before it is cancelled as finished."""


class Stream(Iterator[Delta]):
    """Deltas of one answer; a context manager. Closing it, or dropping it, before the end cancels the request."""

    def __init__(self, call: Any, assembler: Assembler, watch: IdleWatch, *, url: str, idle_timeout_s: float) -> None:
        self._call = call
        self._assembler = assembler
        self._watch = watch
        self._url = url
        self._idle_timeout_s = idle_timeout_s
        self._is_open = True
        self._completion: Completion | None = None
        self._watched = Watched(call, time.perf_counter() + idle_timeout_s)
        watch.watch(self._watched)

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

    def __next__(self) -> Delta:
        while self._is_open:
            try:
                message = next(self._call)
            except StopIteration:
                return self._finish()
            except grpc.RpcError as error:
                return self._broken(error)
            delta = self._take(message)
            if delta is not None:
                return delta
        raise StopIteration

    def _take(self, message: Any) -> Delta | None:
        now_s = time.perf_counter()
        was_terminal = self._assembler.is_terminal
        try:
            delta = self._assembler.feed(message, now_s)
        except Exception:
            self.close()
            raise
        if not self._assembler.is_terminal:
            self._watched.expires_at_s = now_s + self._idle_timeout_s
        elif not was_terminal:
            self._watch.shorten(self._watched, now_s + min(FINAL_GRACE_S, self._idle_timeout_s))
        return delta

    def _finish(self) -> Delta:
        self.close()
        tail = self._assembler.finish(time.perf_counter())
        self._completion = self._assembler.completion()
        if tail is None:
            raise StopIteration
        return tail

    def _broken(self, error: Any) -> Delta:
        expired, was_open = self._watched.is_expired, self._is_open
        if expired and self._assembler.is_terminal:
            return self._finish()
        self.close()
        if expired:
            raise failures.idle(self._url, self._idle_timeout_s, self._assembler.progress) from None
        if not was_open:
            raise RequestFailed(f"the request to {self._url} was cancelled by this client") from None
        raise failures.from_status(
            error.code().name, error.details() or "no details", self._url, self._assembler.progress
        ) from None

    def close(self) -> None:
        """Cancels the request unless it has ended; may be called again and from another thread."""
        self._is_open = False
        self._watch.release(self._watched)
        self._call.cancel()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        # Breaking out of a bare `for delta in client.stream(...)` leaves no other moment to cancel.
        if getattr(self, "_is_open", False):
            self.close()


def close_within(channel: Any, timeout_s: float) -> None:
    """Closing waits until gRPC has accounted for every call: for ever, when a Ctrl-C hit it while it set one up."""
    closer = threading.Thread(target=channel.close, name="seekserve-close", daemon=True)
    closer.start()
    closer.join(timeout_s)


class Client:
    """Speaks to one Triton server. `model` may be left out when the URL's launch record names exactly one."""

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
        self._model = model
        self._connect_timeout_s = connect_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._text_kind = text_kind
        self._channel = grpc.insecure_channel(self.url, options=channel_options(self.url, connect_timeout_s))
        self._calls = Calls(self._channel)
        self._watch = IdleWatch()

    def generate(self, request: GenerateRequest) -> Completion:
        """Waits for the whole answer."""
        with self.stream(request) as stream:
            for _ in stream:
                pass
            return stream.completion

    def stream(self, request: GenerateRequest) -> Stream:
        """Sends the request; the deltas come from iterating over the result."""
        message = encode(request, self.model())
        assembler = Assembler(url=self.url, sent_at_s=time.perf_counter(), kind=self._text_kind)
        call = self._calls.infer(message)
        return Stream(call, assembler, self._watch, url=self.url, idle_timeout_s=self._idle_timeout_s)

    def model(self) -> str:
        """The model that requests go to; found once when it was not given."""
        if self._model is None:
            try:
                self._model = only_model(self.model_names(), self.url)
            except RequestFailed as error:
                self._model = only_model((), self.url, f", and its index is closed ({error.message})")
        return self._model

    def model_names(self) -> tuple[str, ...]:
        """From the launch record, else from the server's index (which `seekserve launch` keeps closed)."""
        known = launched_models(self.url, state_folder())
        if known:
            return known
        index = self._control(self._calls.repository_index, service_pb2.RepositoryIndexRequest(ready=True))
        return tuple(entry.name for entry in index.models)

    def is_ready(self) -> bool:
        """What Triton says of the server and, if one is set, the model. It stays true over a dead Python stub: only a
        finished generation proves that the model answers."""
        try:
            server = self._control(self._calls.server_ready, service_pb2.ServerReadyRequest())
            if not server.ready or self._model is None:
                return bool(server.ready)
            return bool(self._control(self._calls.model_ready, service_pb2.ModelReadyRequest(name=self._model)).ready)
        except ServerError:
            return False

    def metadata(self) -> ServerInfo:
        return server_info(self._control(self._calls.server_metadata, service_pb2.ServerMetadataRequest()))

    def _control(self, call: Any, message: Any) -> Any:
        try:
            return call(message, timeout=self._connect_timeout_s)
        except grpc.RpcError as error:
            raise failures.from_status(error.code().name, error.details() or "no details", self.url, "") from None

    def close(self) -> None:
        """Cancels what is still running. A closed client cannot be used again."""
        self._watch.close()
        close_within(self._channel, self._connect_timeout_s)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
