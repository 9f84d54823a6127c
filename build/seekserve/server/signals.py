"""Signals of a launch: an interruption is an exception where that is safe, and waits where it is not.

The first SIGINT, SIGTERM or SIGHUP raises `Interrupted` (a KeyboardInterrupt) in the main thread. Inside `deferred()`
it is remembered and raised at its end, so that nothing is made without being written down. Further ones are
only counted, so that they cannot break off the stop that the first has begun: the stop reads the count as "now".
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["Interrupted", "SignalGate"]

_WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """Asked to stop; a clean end, not a failure."""

    def __init__(self, signal_name: str) -> None:
        super().__init__(signal_name)
        self.signal_name = signal_name


class SignalGate:
    """Of use in the main thread only; elsewhere `install` does nothing and the caller ends the launch itself."""

    def __init__(self) -> None:
        self.received = 0
        self.stopping = False
        self._pending: str | None = None
        self._has_raised = False
        self._depth = 0
        self._previous: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for watched in _WATCHED:
            # A caller that ignores a signal (nohup) keeps that wish.
            if signal.getsignal(watched) is not signal.SIG_IGN:
                self._previous[watched] = signal.signal(watched, self._handle)

    def restore(self) -> None:
        while self._previous:
            watched, previous = self._previous.popitem()
            signal.signal(watched, previous)

    @property
    def is_waiting(self) -> bool:
        """Whether a signal waits for the end of `deferred`."""
        return self._pending is not None

    @contextmanager
    def deferred(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._pending is not None and self._depth == 0:
                self._raise(self._pending)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.received += 1
        name = signal.Signals(number).name
        if self._depth:
            self._pending = self._pending or name
        else:
            self._raise(name)

    def _raise(self, name: str) -> None:
        self._pending = None
        if not self.stopping and not self._has_raised:
            self._has_raised = True
            raise Interrupted(name)
