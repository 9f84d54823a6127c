"""Looks at a running server again and again, and says in one sentence what is wrong; and how often it may be restarted.

It decides nothing about signals or processes: the launch acts on what is found here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from seekserve.server.heartbeat import HeartbeatWatch, is_running, read_heartbeats
from seekserve.server.options import LaunchOptions
from seekserve.server.process import ServerProcess

__all__ = ["RestartBudget", "ServerWatch", "loading_trouble"]

_LIVE_EVERY_S = 2.0


class RestartBudget:
    """At most `max_restarts` within any `window_s`."""

    def __init__(self, *, max_restarts: int, window_s: float) -> None:
        self._max_restarts = max_restarts
        self._window_s = window_s
        self._times: deque[float] = deque()

    def take(self, now_s: float) -> bool:
        while self._times and now_s - self._times[0] >= self._window_s:
            self._times.popleft()
        if len(self._times) >= self._max_restarts:
            return False
        self._times.append(now_s)
        return True


class ServerWatch:
    """One for each start of the server, made when it became ready."""

    def __init__(
        self,
        *,
        process: ServerProcess,
        run_dir: Path,
        expected: Sequence[str],
        options: LaunchOptions,
        ready_timeout_s: float,
        is_live: Callable[[], bool],
        now_s: float,
    ) -> None:
        self._process = process
        self._run_dir = run_dir
        self._is_live = is_live
        self._server_stall_s = options.server_stall_s
        self._live_asked_s = self._live_s = now_s
        self._beats = HeartbeatWatch(
            expected=expected,
            stall_timeout_s=options.stall_timeout_s,
            engine_stall_s=options.engine_stall_s,
            rebuild_timeout_s=ready_timeout_s,
            now_s=now_s,
            is_running=is_running,
        )

    def trouble(self, now_s: float) -> str | None:
        return self._process.trouble() or self._stub_trouble(now_s) or self._liveness_trouble(now_s)

    def _stub_trouble(self, now_s: float) -> str | None:
        symptom = self._beats.trouble(read_heartbeats(self._run_dir), now_s)
        return None if symptom is None else self._process.explain(symptom)

    def _liveness_trouble(self, now_s: float) -> str | None:
        """Asked seldom: a hung server costs a whole HTTP timeout, and the heartbeats must be looked at in between."""
        if now_s - self._live_asked_s < min(_LIVE_EVERY_S, self._server_stall_s / 2):
            return None
        self._live_asked_s = now_s
        if self._is_live():
            self._live_s = now_s
        elif now_s - self._live_s > self._server_stall_s:
            return (
                f"tritonserver (pid {self._process.pid}) has not answered for {now_s - self._live_s:.1f} s, "
                f"{self._server_stall_s:g} s are allowed"
            )
        return None


def loading_trouble(process: ServerProcess, run_dir: Path) -> str | None:
    """While loading only an end counts: an engine that loads may hold its stub up for minutes."""
    ended = process.trouble()
    if ended is not None:
        return ended
    dead = next((beat for beat in read_heartbeats(run_dir) if not is_running(beat.pid)), None)
    if dead is None:
        return None
    return process.explain(f"the stub of model {dead.model!r} (pid {dead.pid}) died while loading")
