"""Notices clients that left: asks each open request in turn, within a budget, and tells `streams` where one did.

Triton gives no event for it, and asking costs about 90 us in the stub. The budget is time, a fifth of a core, in short
turns so that no thread waits long for the interpreter: with N open requests and 90 us a question, all have been asked
within N / 2200 seconds. Those that hold a place in the engine are asked in every tenth of a second first.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable

from .desk import Desk
from .live import Live
from .streams import Streams
from .work import Work

__all__ = ["Departures"]

_log = logging.getLogger(__name__)
_TURN_S = 0.02
_ASKING_S = 0.004
"""Of each turn, but for the last question, which may be slow."""
_SHARE = 0.2
"""Of the time, at most, however slow the questions are."""
_TURNS_PER_LOOK = 5


class Departures:
    def __init__(
        self,
        desk: Desk,
        streams: Streams,
        working_on: Callable[[], list[Work]],
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`working_on`: what the engine holds."""
        self._desk = desk
        self._working_on = working_on
        self._streams = streams
        self._timer = timer
        self._stop = threading.Event()
        self._to_ask: collections.deque[Live] = collections.deque()
        self._working: collections.deque[Live] = collections.deque()
        self.asked = 0
        self.asking_s = 0.0
        """Spent so far; the budget is seen in it."""
        self._thread = threading.Thread(target=self._run, name="seekserve-departures", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        turn, spent_s = 0, 0.0
        while not self._stop.wait(max(_TURN_S - spent_s, spent_s * (1.0 / _SHARE - 1.0))):
            if turn % _TURNS_PER_LOOK == 0:
                self._look()
            turn += 1
            spent_s = self._ask_some()

    def _look(self) -> None:
        try:
            self._streams.look()
        except Exception:
            _log.exception("kept streams could not be looked after")
        with self._desk.cond:
            if not self._to_ask:
                self._to_ask.extend(self._desk.live.values())
            self._working = collections.deque(live for work in self._working_on() for live in work.lives)

    def _ask_some(self) -> float:
        started_s = self._timer()
        # At most half of the time for those at work, so that those who wait get their turn whatever runs.
        while self._working and self._timer() - started_s < _ASKING_S / 2:
            self._ask(self._working.popleft())
        while self._to_ask and self._timer() - started_s < _ASKING_S:
            self._ask(self._to_ask.popleft())
        spent_s = self._timer() - started_s
        self.asking_s += spent_s
        return spent_s

    def _ask(self, live: Live) -> None:
        self.asked += 1
        try:
            if not live.is_closed and live.sink.is_cancelled():
                self._streams.left(live)
        except Exception:  # one sender that cannot be asked must not end the asking
            _log.exception("whether the client of request %s is still there cannot be told", live.id)
