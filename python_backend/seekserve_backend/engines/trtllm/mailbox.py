"""Hands arrivals from the event loop's thread to `step`, and remembers the fault that ended it all."""

from __future__ import annotations

import threading

from ..port import EngineError
from .flight import Arrival

__all__ = ["Mailbox"]


class Mailbox:
    def __init__(self) -> None:
        self._cond = threading.Condition()
        self._arrivals: list[Arrival] = []
        self._fault: EngineError | None = None

    def put(self, arrival: Arrival) -> None:
        with self._cond:
            # One wake-up for all that comes before it is answered: each costs this thread the interpreter lock.
            if not self._arrivals:
                self._cond.notify()
            self._arrivals.append(arrival)

    def fail(self, fault: EngineError) -> None:
        """The first fault counts; what follows it is its echo."""
        with self._cond:
            self._fault = self._fault or fault
            self._cond.notify()

    @property
    def fault(self) -> EngineError | None:
        return self._fault

    def take(self, timeout_s: float) -> list[Arrival]:
        """All there is, after at most `timeout_s`. Raises the fault, again and again."""
        with self._cond:
            if timeout_s > 0:
                self._cond.wait_for(lambda: self._arrivals or self._fault, timeout_s)
            if self._fault is not None:
                raise self._fault
            arrivals, self._arrivals = self._arrivals, []
            return arrivals
