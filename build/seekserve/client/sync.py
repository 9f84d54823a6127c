"""The blocking client. One stream is one gRPC call: leaving it early, by any way, cancels the call.

A client may be shared by threads; a stream belongs to one thread. Nothing here waits without a bound: connecting,
control calls and every pause between two responses have one.
"""

from __future__ import annotations

import contextlib
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
from seekserve.client.resuming import FAREWELL_S, Comeback, farewell, prepared
from seekserve.client.watch import IdleWatch, Watched
from seekserve.client.wire import encode
from seekserve.errors import RequestFailed, ServerError

__all__ = ["Client", "Stream"]

FINAL_GRACE_S = 2.0
"""How long a stream may stay open after its terminal response before it is cancelled as finished."""


class Stream(Iterator[Delta]):
    """Deltas of one answer; a context manager. Closing it, or dropping it, before the end cancels the request."""

    def __init__(
        self,
        call: Any,
        assembler: Assembler,
        watch: IdleWatch,
        *,
        client: Client,
        idle_timeout_s: float,
        comeback: Comeback,
    ) -> None:
        self._client = client
        self._assembler = assembler
        self._watch = watch
        self._url = client.url
        self._idle_timeout_s = idle_timeout_s
        self._comeback = comeback
        self._closed = threading.Event()
        self._is_open = True
        self._completion: Completion | None = None
        self._listen(call)

    def _listen(self, call: Any) -> None:
        self._call = call
        self._watched = Watched(call, time.perf_counter() + self._idle_timeout_s)
        self._watch.watch(self._watched)

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
        """Of a resumable stream, once its first response is here; see `Client.resume`."""
        return self._assembler.resume_token

    @property
    def received_bytes(self) -> int:
        """Of text, in UTF-8: where a return goes on."""
        return self._assembler.received_bytes

    def __next__(self) -> Delta:
        while self._is_open:
            try:
                message = next(self._call)
            except StopIteration:
                return self._finish()
            except grpc.RpcError as error:
                if self._comes_back(error):
                    continue
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
        except Exception as error:
            if self._comeback.is_servers_end(error):
                self._end()
            else:
                self.close()
            raise self._comeback.failure(error, self._url, self._assembler.progress) from None
        self._comeback.arrived()
        if not self._assembler.is_terminal:
            self._watched.expires_at_s = now_s + self._idle_timeout_s
        elif not was_terminal:
            self._watch.shorten(self._watched, now_s + min(FINAL_GRACE_S, self._idle_timeout_s))
        return delta

    def _comes_back(self, error: Any) -> bool:
        """After a pause, on another call, if that is still wanted."""
        assembler, comeback = self._assembler, self._comeback
        if not self._is_open or self._watched.is_expired or assembler.is_terminal:
            return False
        if not comeback.may_try(error.code().name, error.details() or "", assembler.resume_token):
            return False
        self._watch.release(self._watched)
        if self._closed.wait(comeback.pause_s):
            return False
        assert assembler.resume_token is not None, "may_try asks for it"
        self._listen(self._client.call(comeback.request_for(assembler.resume_token, assembler.received_bytes)))
        return True

    def _finish(self) -> Delta:
        self._end()
        tail = self._assembler.finish(time.perf_counter())
        self._completion = self._assembler.completion()
        if tail is None:
            raise StopIteration
        return tail

    def _broken(self, error: Any) -> Delta:
        expired, was_open = self._watched.is_expired, self._is_open
        if expired and self._assembler.is_terminal:
            return self._finish()
        if was_open and not expired:
            self._end()
        else:
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
        token = self._assembler.resume_token
        is_given_up = self._is_open and token is not None and not self._assembler.is_terminal
        self._end()
        if is_given_up and token is not None:
            self._client.give_up(token, self._comeback.request.tenant)

    def leave(self) -> None:
        """Closes the connection only: a resumable stream can be resumed with its token, by whoever has it."""
        self._end()

    def _end(self) -> None:
        self._is_open = False
        self._closed.set()
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
        self._farewells: list[threading.Thread] = []

    def generate(self, request: GenerateRequest, *, reconnects: int = 0) -> Completion:
        """Waits for the whole answer."""
        with self.stream(request, reconnects=reconnects) as stream:
            for _ in stream:
                pass
            return stream.completion

    def stream(self, request: GenerateRequest, *, reconnects: int = 0) -> Stream:
        """Sends the request; the deltas come from iterating over the result.

        `reconnects`: when the connection breaks in mid-stream, come back up to so many times in a row and go on where
        it was; the request is made resumable for it. 0: a broken connection is an error.
        """
        request = prepared(request, reconnects)
        call = self.call(request)
        assembler = Assembler(
            url=self.url,
            sent_at_s=time.perf_counter(),
            kind=self._text_kind,
            resume_token=request.resume_token,
            received_bytes=request.resume_from_bytes or 0,
        )
        comeback = Comeback(request=request, most_attempts=reconnects)
        return Stream(call, assembler, self._watch, client=self, idle_timeout_s=self._idle_timeout_s, comeback=comeback)

    def resume(self, token: str, *, received_bytes: int = 0, tenant: str | None = None, reconnects: int = 0) -> Stream:
        """The rest of a stream whose token is known. Its completion holds what came over this connection."""
        request = GenerateRequest(resume_token=token, resume_from_bytes=received_bytes, tenant=tenant)
        return self.stream(request, reconnects=reconnects)

    def call(self, request: GenerateRequest) -> Any:
        return self._calls.infer(encode(request, self.model()))

    def give_up(self, token: str, tenant: str | None = None) -> None:
        """Cancels the work of a resumable stream, wherever it is; returns at once."""

        def say() -> None:
            with contextlib.suppress(grpc.RpcError):  # then the server's own patience ends it
                for _ in self._calls.infer(encode(farewell(token, tenant), self.model()), timeout=FAREWELL_S):
                    pass

        self._farewells = [thread for thread in self._farewells if thread.is_alive()]
        self._farewells.append(threading.Thread(target=say, name="seekserve-farewell", daemon=True))
        self._farewells[-1].start()

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
        for farewell_thread in self._farewells:
            farewell_thread.join(FAREWELL_S)
        close_within(self._channel, self._connect_timeout_s)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
