"""Whether a server that was asked to stop has answered everything and yet does not end.

Triton 24.10 keeps a reference to some gRPC streams that their client cancelled; the model behind them then never
unloads and the server sits out its whole exit timeout (seen with bare Python models too). The backend's heartbeats tell
that case from requests that are still being answered. A beat proves something only about the time when it was written,
so old ones count for nothing. Pure: beats, time and what runs are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from seekserve.server.heartbeat import Heartbeat

__all__ = ["DrainWatch"]

# Several periods of a heartbeat, so that each stub has spoken again, and longer than an orderly unload takes.
_GRACE_S = 4.0

_Times = Mapping[tuple[str, int], float]
"""(model, pid) -> time in its beat"""


class DrainWatch:
    def __init__(
        self,
        *,
        all_ours: bool,
        at_sigterm: Sequence[Heartbeat],
        is_running: Callable[[int], bool],
        grace_s: float = _GRACE_S,
    ) -> None:
        """`all_ours`: every model beats; with others nobody can know what is in flight."""
        self._all_ours = all_ours
        self._is_running = is_running
        self._grace_s = grace_s
        self._at_sigterm = _times(at_sigterm)
        self._idle_since_s: float | None = None
        self._when_idle: _Times = {}

    def has_nothing_left(self, beats: Sequence[Heartbeat], now_s: float) -> bool:
        """True once every stub said twice since SIGTERM, a grace time apart, that nothing is open.

        A stub that unloaded has taken its beat away and says so by that; one that crashed leaves it, and is never idle.
        """
        if not self._all_ours or not all(self._is_idle(beat, self._at_sigterm) for beat in beats):
            self._idle_since_s = None
            return False
        if self._idle_since_s is None:
            self._idle_since_s, self._when_idle = now_s, _times(beats)
        has_waited = now_s - self._idle_since_s >= self._grace_s
        return has_waited and all(self._is_idle(beat, self._when_idle) for beat in beats)

    def _is_idle(self, beat: Heartbeat, since: _Times) -> bool:
        is_fresh = beat.time_s != since.get((beat.model, beat.pid))
        return is_fresh and beat.open_requests == 0 and self._is_running(beat.pid)


def _times(beats: Iterable[Heartbeat]) -> _Times:
    return {(beat.model, beat.pid): beat.time_s for beat in beats}
