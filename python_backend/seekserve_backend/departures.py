"""Notices clients that left: asks each open request in turn, within a budget, and cancels where the answer is yes.

Triton gives no event for it, and asking costs about 90 us in the stub; the budget bounds the poller to a fifth of a
core.
"""

from __future__ import annotations

import collections
import logging
import threading

from .core.types import Phase
from .desk import Desk, cancelled_line
from .engine_loop import EngineLoop
from .live import Live

__all__ = ["Departures"]

_log = logging.getLogger(__name__)
_PERIOD_S = 0.1
_POLLS_PER_PERIOD = 100


class Departures:
    def __init__(self, desk: Desk, loop: EngineLoop) -> None:
        self._desk = desk
        self._loop = loop
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="seekserve-departures", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        to_ask: collections.deque[Live] = collections.deque()
        while not self._stop.wait(_PERIOD_S):
            if not to_ask:
                with self._desk.cond:
                    to_ask.extend(self._desk.live.values())
            for _ in range(min(_POLLS_PER_PERIOD, len(to_ask))):
                self._ask(to_ask.popleft())

    def _ask(self, live: Live) -> None:
        try:
            if not live.is_closed and live.sink.is_cancelled():
                self._left(live)
        except Exception:  # one sender that cannot be asked must not end the asking
            _log.exception("whether the client of request %s is still there cannot be told", live.id)

    def _left(self, live: Live) -> None:
        desk = self._desk
        with desk.cond:
            if live.is_closed or live.id not in desk.live:
                return
            phase = desk.core.cancel(live.id, desk.clock())
            if phase is Phase.RUNNING:
                self._loop.cancel(live.id)
                return
            if phase is None:
                return
            del desk.live[live.id]
        desk.answer(live, cancelled_line(live))
