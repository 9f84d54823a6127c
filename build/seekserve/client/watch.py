"""Idle deadlines for blocking streams: one thread per client cancels the calls on which nothing arrived in time.

gRPC's own deadline bounds a whole call, which is no use for an answer of unknown length, and a blocking read has no
timeout. The reader moves its deadline with a plain assignment, so the cost per response is next to nothing; the thread
sleeps until the earliest deadline it knows and looks again. It ends when it has had nothing to watch for a while.
"""

from __future__ import annotations

import threading
import time
from typing import Any

__all__ = ["IdleWatch", "Watched"]

_LINGER_S = 10.0


class Watched:
    """One call under watch. Only its reader moves `expires_at_s` later; `IdleWatch.shorten` moves it earlier."""

    __slots__ = ("call", "expires_at_s", "is_expired")

    def __init__(self, call: Any, expires_at_s: float) -> None:
        self.call = call
        self.expires_at_s = expires_at_s
        self.is_expired = False


class IdleWatch:
    """Owner of the watching thread; all times are of `time.perf_counter`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: dict[int, Watched] = {}
        self._wakes_at_s = 0.0
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def watch(self, watched: Watched) -> None:
        with self._changed:
            if self._is_closed:
                raise RuntimeError("the client is closed")
            self._watched[id(watched)] = watched
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="seekserve-idle-watch", daemon=True)
                self._thread.start()
            elif watched.expires_at_s < self._wakes_at_s:
                self._changed.notify()

    def shorten(self, watched: Watched, expires_at_s: float) -> None:
        """Moves a deadline earlier, which the sleeping thread has to be told of."""
        with self._changed:
            watched.expires_at_s = expires_at_s
            if expires_at_s < self._wakes_at_s:
                self._changed.notify()

    def release(self, watched: Watched) -> None:
        with self._changed:
            self._watched.pop(id(watched), None)

    def close(self) -> None:
        """Cancels what is still watched and ends the thread."""
        with self._changed:
            self._is_closed = True
            left = list(self._watched.values())
            thread = self._thread
            self._changed.notify()
        for watched in left:
            watched.call.cancel()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        with self._changed:
            while not self._is_closed:
                now_s = time.perf_counter()
                for watched in [w for w in self._watched.values() if w.expires_at_s <= now_s]:
                    watched.is_expired = True
                    del self._watched[id(watched)]
                    watched.call.cancel()
                was_empty = not self._watched
                self._wakes_at_s = min((w.expires_at_s for w in self._watched.values()), default=now_s + _LINGER_S)
                is_told = self._changed.wait(self._wakes_at_s - now_s)
                if was_empty and not is_told and not self._watched:
                    self._thread = None
                    return
