"""Whether a server that was asked to stop has answered everything and yet does not end.

Triton 24.10 keeps a reference to some gRPC streams that their client cancelled; the model behind them then never
unloads and the server sits out its whole exit timeout (seen with bare Python models too). The backend's heartbeats tell
that case from requests that are still being answered. Pure: beats and time are arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from seekserve.server.heartbeat import Heartbeat

__all__ = ["DrainWatch"]

# Longer than a heartbeat's period, so that two beats agree, and than an orderly unload takes.
_GRACE_S = 4.0


class DrainWatch:
    def __init__(self, *, all_ours: bool, grace_s: float = _GRACE_S) -> None:
        """`all_ours`: every model beats; with others nobody can know what is in flight."""
        self._all_ours = all_ours
        self._grace_s = grace_s
        self._idle_since_s: float | None = None

    def has_nothing_left(self, beats: Sequence[Heartbeat], now_s: float) -> bool:
        """True once nothing was open for the grace time. A stub that unloaded has taken its beat away."""
        if not self._all_ours or any(beat.open_requests != 0 for beat in beats):
            self._idle_since_s = None
            return False
        if self._idle_since_s is None:
            self._idle_since_s = now_s
        return now_s - self._idle_since_s >= self._grace_s
