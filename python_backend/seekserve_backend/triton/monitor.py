"""Once a second: a heartbeat file for the supervisor, and the metrics. A failure here never reaches a request."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ..service import ServiceStats

__all__ = ["Monitor"]

_log = logging.getLogger(__name__)
_PERIOD_S = 1.0
# What the supervisor reads as "never came round": a broken engine asks for a restart this way.
_BROKEN_AGE_S = 1e9


class Monitor:
    """Runs `flush` and writes `heartbeat-<model>-<pid>.json` into `run_dir` (None: no supervisor) until stopped."""

    def __init__(
        self,
        *,
        model: str,
        run_dir: Path | None,
        stats: Callable[[], ServiceStats],
        flush: Callable[[ServiceStats], None],
        swap_state: Callable[[], dict[str, object]] = dict,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """`look`: whatever else has to be looked at once a second."""
        self._model = model
        self._path = None if run_dir is None else run_dir / f"heartbeat-{model}-{os.getpid()}.json"
        self._stats = stats
        self._flush = flush
        self._swap_state = swap_state
        self._look = look
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="seekserve-monitor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        """False where the thread is stuck, and whatever it uses has to be left to it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(2 * _PERIOD_S)
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            try:
                stats = self._stats()
                self._beat(stats)
                self._flush(stats)
                self._look()
            except Exception:
                _log.exception("heartbeat or metrics failed")
            if self._stop.wait(_PERIOD_S):
                return

    def _beat(self, stats: ServiceStats) -> None:
        if self._path is None:
            return
        body = {
            "model": self._model,
            "pid": os.getpid(),
            "time_s": time.time(),
            "engine_loop_age_s": _BROKEN_AGE_S if stats.is_broken else round(stats.engine_loop_age_s, 3),
            "open_requests": stats.open_requests,
            "is_rebuilding": stats.is_rebuilding,
            **self._swap_state(),
        }
        beside = self._path.with_suffix(".tmp")
        beside.write_text(json.dumps(body), encoding="utf-8")
        beside.replace(self._path)
