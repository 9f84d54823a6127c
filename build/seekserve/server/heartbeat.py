"""Whether the Python stubs still live, judged from their heartbeat files; Triton's own health stays green without them.

A heartbeat counts as fresh when its content changed, measured on the supervisor's own monotonic clock: a jump of the
wall clock restarts nothing. Time and process facts are arguments, so the judgement itself is pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["BeatSwap", "Heartbeat", "HeartbeatWatch", "is_running", "read_heartbeats"]


# An age that no clock can reach: the backend says by it that its engine failed for good.
_BROKEN_AGE_S = 1e8


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatSwap:
    """How far an instance is with the latest swap that it was told."""

    id: str
    state: str
    """`reading`, `draining`, `loading`; then `done`, or `failed` with the old engine made again."""
    text: str
    failed_requests: int
    load_timeout_s: float

    @property
    def is_final(self) -> bool:
        return self.state in ("done", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    model: str
    pid: int
    time_s: float
    engine_loop_age_s: float | None
    open_requests: int | None = None
    """Requests without their last answer; None from a backend that does not say."""
    is_rebuilding: bool = False
    """The engine is being made anew, which takes as long as loading it did."""
    bundle_dir: str | None = None
    """What the instance serves; None from a backend that does not say."""
    swap: BeatSwap | None = None


def read_heartbeats(run_dir: Path) -> list[Heartbeat]:
    """What can be read now; a file caught half-written is read again at the next look."""
    found = []
    for path in sorted(run_dir.glob("heartbeat-*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            age_s, open_requests = data.get("engine_loop_age_s"), data.get("open_requests")
            found.append(
                Heartbeat(
                    model=str(data["model"]),
                    pid=int(data["pid"]),
                    time_s=float(data["time_s"]),
                    engine_loop_age_s=None if age_s is None else float(age_s),
                    open_requests=None if open_requests is None else int(open_requests),
                    is_rebuilding=data.get("is_rebuilding") is True,
                    bundle_dir=data.get("bundle_dir"),
                    swap=_read_swap(data.get("swap")),
                )
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def _read_swap(data: Any) -> BeatSwap | None:
    """A backend of another version may say it differently, and lives all the same."""
    try:
        return None if data is None else BeatSwap(**data)
    except TypeError:
        return None


def is_running(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class HeartbeatWatch:
    """`expected`: models that must beat from the start. Others are watched from their first beat on.

    A stub that crashes leaves its file, one that is unloaded in good order removes it; then the model as a whole must
    beat again (from a new stub) within the same time.
    """

    def __init__(
        self,
        *,
        expected: Sequence[str],
        stall_timeout_s: float,
        engine_stall_s: float,
        rebuild_timeout_s: float,
        now_s: float,
        is_running: Callable[[int], bool],
    ) -> None:
        self._stall_timeout_s = stall_timeout_s
        self._engine_stall_s = engine_stall_s
        self._rebuild_timeout_s = rebuild_timeout_s
        self._is_running = is_running
        self._last_look_s = now_s
        self._models = dict.fromkeys(expected, now_s)
        self._stubs: dict[tuple[str, int], tuple[float, float]] = {}
        """(model, pid) -> (content, when it was first seen)"""

    def trouble(self, beats: Sequence[Heartbeat], now_s: float) -> str | None:
        """The first thing that is wrong, as one sentence; None when all is well."""
        self._forgive(now_s - self._last_look_s)
        self._last_look_s = now_s
        self._note(beats, now_s)
        for beat in beats:
            sentence = self._stub_trouble(beat, now_s - self._stubs[beat.model, beat.pid][1])
            if sentence is not None:
                return sentence
        for model, seen_s in self._models.items():
            if now_s - seen_s > self._stall_timeout_s:
                allowed = self._allowed(self._stall_timeout_s)
                return f"model {model!r} has had no heartbeat for {now_s - seen_s:.1f} s, {allowed}"
        return None

    def _forgive(self, gap_s: float) -> None:
        """A supervisor that was itself held up (a stopped process, a busy machine) must not blame the stubs for it."""
        if gap_s <= self._stall_timeout_s / 2:
            return
        self._models = {model: seen_s + gap_s for model, seen_s in self._models.items()}
        self._stubs = {key: (content, seen_s + gap_s) for key, (content, seen_s) in self._stubs.items()}

    def _note(self, beats: Sequence[Heartbeat], now_s: float) -> None:
        before, self._stubs = self._stubs, {}
        for beat in beats:
            key = (beat.model, beat.pid)
            content, seen_s = before.get(key, (None, now_s))
            if content != beat.time_s:
                self._models[beat.model] = seen_s = now_s
            self._stubs[key] = (beat.time_s, seen_s)

    def _stub_trouble(self, beat: Heartbeat, silent_s: float) -> str | None:
        who = f"the stub of model {beat.model!r} (pid {beat.pid})"
        if not self._is_running(beat.pid):
            return f"{who} is dead"
        if silent_s > self._stall_timeout_s:
            return f"{who} has given no heartbeat for {silent_s:.1f} s, {self._allowed(self._stall_timeout_s)}"
        age_s = beat.engine_loop_age_s
        if age_s is not None and age_s >= _BROKEN_AGE_S:
            return f"the engine of {who} is broken; its reason is in the server's log"
        swap_s = 0.0 if beat.swap is None else beat.swap.load_timeout_s
        limit_s = max(self._rebuild_timeout_s, swap_s) if beat.is_rebuilding else self._engine_stall_s
        if age_s is not None and age_s > limit_s:
            doing = "has been rebuilding its engine" if beat.is_rebuilding else "has stood still"
            return f"the engine loop of {who} {doing} for {age_s:.1f} s, {self._allowed(limit_s)}"
        return None

    @staticmethod
    def _allowed(limit_s: float) -> str:
        return f"{limit_s:g} s are allowed"
