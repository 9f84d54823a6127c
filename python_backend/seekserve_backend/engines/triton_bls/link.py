"""The threads that speak to the stock model, and the list of what it may still hold for us.

One link lives as long as the process: an engine that is made anew finds here what its predecessor left running. Threads
are daemons, because nothing can wake one that waits for a response which never comes. `start`, `stop` and `open` belong
to the engine loop's thread.
"""

from __future__ import annotations

import itertools
import logging
import queue
import secrets
import threading
from collections.abc import Callable

from .port import StockPort, StockResponse
from .stream import Phase, Stream
from .tensors import stop_call

__all__ = ["Link"]

_log = logging.getLogger(__name__)


class Link:
    """`max_streams`: threads at most; the caller starts no more streams than that."""

    def __init__(self, port: StockPort, *, max_streams: int) -> None:
        self.events: queue.SimpleQueue[tuple[Stream, StockResponse | None]] = queue.SimpleQueue()
        """What streams brought, in each stream's order; None: it has ended and its thread is free."""
        self.open: dict[str, Stream] = {}
        """By stock id, everything handed over and not ended."""
        self._port = port
        self._workers = _Workers("seekserve-stock", max_streams)
        # One thread of its own: a stop must not wait for a place behind the streams it is to end.
        self._stopper = _Workers("seekserve-stock-stop", 1)
        # Several instances and servers may share one stock model, and each counts its requests from 1.
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    def new_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"

    @property
    def has_room(self) -> bool:
        return len(self.open) < self._workers.limit

    def start(self, stream: Stream) -> None:
        self.open[stream.call.request_id] = stream
        self._workers.submit(lambda: self._run(stream))

    def stop(self, stream: Stream) -> None:
        """Asks the stock model to end it. May be repeated: a stop that overtakes its request is without effect."""
        if not stream.is_stop_queued:
            stream.is_stop_queued = True
            self._stopper.submit(lambda: self._stop(stream))

    def forget(self, stream: Stream) -> None:
        """After its None has come."""
        self.open.pop(stream.call.request_id, None)

    def _run(self, stream: Stream) -> None:
        try:
            if not stream.is_over:
                stream.handle = handle = self._port.open(stream.call)
                for response in handle:
                    self.events.put((stream, response))
        except Exception as error:  # the port may raise anything; the stream must not end without a reason
            self.events.put((stream, StockResponse(values={}, error=f"{type(error).__name__}: {error}")))
        finally:
            stream.handle = None
            self.events.put((stream, None))

    def _stop(self, stream: Stream) -> None:
        try:
            handle = stream.handle
            if handle is not None and handle.cancel():
                return
            if stream.phase is not Phase.WAITING and stream.call.request_id in self.open:
                for response in self._port.open(stop_call(stream.call.request_id)):
                    if response.error is not None:
                        _log.warning("the stock model does not stop %s: %s", stream.call.request_id, response.error)
        except Exception as error:
            _log.warning("stopping %s in the stock model failed: %s", stream.call.request_id, error)
        finally:
            stream.is_stop_queued = False


class _Workers:
    """Daemon threads, made when all are busy and kept for the next job."""

    def __init__(self, name: str, limit: int) -> None:
        self.limit = limit
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._unfinished = 0

    def submit(self, job: Callable[[], None]) -> None:
        with self._lock:
            self._unfinished += 1
            is_needed = self._unfinished > self._threads < self.limit
            if is_needed:
                self._threads += 1
                number = self._threads
        self._jobs.put(job)
        if is_needed:
            threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True).start()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            job()
            with self._lock:
                self._unfinished -= 1
