"""Opens on faults of the engine, never on load: own refusals, cancels and client errors do not count.

Closed: everything passes. Open: nothing is taken until the pause is over; each opening in a row doubles it. Half open:
a few probes pass, and their fate decides.
"""

from __future__ import annotations

import enum
from collections import deque

from ..contract.policy import BreakerOptions

__all__ = ["Breaker", "BreakerState"]


class BreakerState(enum.Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


_CLOSED = BreakerState.CLOSED


class Breaker:
    def __init__(self, options: BreakerOptions) -> None:
        self.options = options
        self.state = BreakerState.CLOSED
        self.openings = 0
        self._in_a_row = 0
        self._ends: deque[tuple[float, int, int]] = deque()
        """Of the last seconds: (when, requests, of which by a fault)"""
        self._ended = 0
        self._faults = 0
        """Sums over these."""
        self._opened_s = 0.0
        self._pause_s = options.pause_s
        self._probes_left = 0
        self._probes_good = 0
        self._granted_s = 0.0

    def ended_well(self, requests: int, now: float) -> bool:
        """Running requests ended as they should. True when this closed the breaker."""
        self._note(now, requests, 0)
        self._in_a_row = 0
        if self.state is not BreakerState.HALF_OPEN:
            return False
        self._probes_good += requests
        self._probes_left += requests
        if self._probes_good < self.options.probes:
            return False
        self.state = _CLOSED
        self._pause_s = self.options.pause_s
        self._ends.clear()
        self._ended = self._faults = 0
        return True

    def failed(self, now: float) -> bool:
        """A fault of the engine ended requests: one fault, however many it took along. True when this opened it."""
        self._note(now, 1, 1)
        self._in_a_row += 1
        options = self.options
        if self.state is BreakerState.HALF_OPEN:
            self._pause_s = min(2.0 * self._pause_s, options.most_pause_s)
        elif self.state is BreakerState.OPEN:
            return False
        else:
            is_high = self._ended >= options.least_ends and self._faults > options.fault_share * self._ended
            if self._in_a_row < options.faults_in_a_row and not is_high:
                return False
        self._open(now)
        return True

    def _note(self, now: float, requests: int, faults: int) -> None:
        ends = self._ends
        ends.append((now, requests, faults))
        self._ended += requests
        self._faults += faults
        while now - ends[0][0] > self.options.window_s:
            _, requests, faults = ends.popleft()
            self._ended -= requests
            self._faults -= faults

    def trip(self, now: float) -> bool:
        """The engine as a whole is stuck or gone."""
        if self.state is BreakerState.OPEN:
            return False
        self._open(now)
        return True

    def admits(self, now: float) -> bool:
        """Whether one more request may come in; counts it as a probe when half open."""
        if self.state is BreakerState.CLOSED:
            return True
        if self.state is BreakerState.OPEN:
            if now - self._opened_s < self._pause_s:
                return False
            self.state = BreakerState.HALF_OPEN
            self._probes_good = 0
            self._grant_probes(now)
        elif now - self._granted_s > self._pause_s:
            # Probes that were cancelled or refused never end well or badly; do not wait for them for ever.
            self._grant_probes(now)
        if self._probes_left <= 0:
            return False
        self._probes_left -= 1
        return True

    def wait_ms(self, now: float) -> float:
        """Until it may be worth coming back."""
        return 1000.0 * max(self._opened_s + self._pause_s - now, 1.0)

    def _grant_probes(self, now: float) -> None:
        self._probes_left = self.options.probes
        self._granted_s = now

    def _open(self, now: float) -> None:
        self.state = BreakerState.OPEN
        self.openings += 1
        self._opened_s = now
        self._in_a_row = 0
