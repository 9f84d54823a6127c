"""How the engine behind the double behaves: delays, failures and shapes that a test can order.

Three layers, later ones win: `DEFAULTS`, the JSON object in DOUBLE_TRTLLM_BEHAVIOUR, and the JSON file named by
DOUBLE_TRTLLM_CONTROL, which is read again before every scheduler step. An unknown key is an error, so that a misspelt
order never passes for a behaviour that was tested.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["BEHAVIOUR", "DEFAULTS", "Behaviour"]

DEFAULTS: Final[Mapping[str, Any]] = {
    # construction
    "construct_s": 0.02,
    "construct_error": None,  # text of the worker's error
    "construct_oom": False,
    "construct_died": False,
    "construct_hangs": False,
    "gpus": 8,
    "workers": 0,  # processes to start with sys.executable; the loss of one is the death of the engine
    # pace
    "step_ms": 2.0,
    "prefill_ms_per_token": 0.0,
    "tokens_per_step": None,  # a number, or a list used in turn
    "hold_queue": False,  # nothing leaves the incoming queue
    "kv_blocks": 4096,
    # failures
    "submit_error": None,  # {"message", "kind": RequestError|ValueError|RuntimeError, "times"}
    "request_error": None,  # {"message", "after_tokens", "prompt_tail", "times"}
    "fatal_error": None,  # a background error, raised at the next submission
    "dead": False,
    "dead_after_submit": "hang",  # or raise: what generate_async does once the engine is dead
    "hang": False,
    "kill": False,  # SIGKILL of the own process
    # cancellation and shutdown
    "abort_delay_s": 0.0,
    "abort_lost": False,
    "queued_abort_ends": False,
    "shutdown_s": 0.0,
    "exit_waits": False,  # whether the end of the interpreter waits for a hung engine
    # shapes
    "end_id_in_output": True,
    "empty_last_step": False,
    "cumulative_logprob": False,
    "stats_null": [],
    "stats_delay_s": 0.2,
}


class Behaviour:
    """One per process. `refresh` is called by the scheduler, `get` by anybody."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._base = {**DEFAULTS, **_checked(json.loads(environ.get("DOUBLE_TRTLLM_BEHAVIOUR") or "{}"))}
        control = environ.get("DOUBLE_TRTLLM_CONTROL")
        self._path = Path(control) if control else None
        self._seen: tuple[int, int] | None = None
        self._now = dict(self._base)
        self._spent: dict[str, int] = {}
        self._lock = threading.Lock()
        self.refresh()

    @property
    def is_polled(self) -> bool:
        return self._path is not None

    def get(self, key: str) -> Any:
        return self._now[key]

    def fresh(self, key: str) -> Any:
        self.refresh()
        return self._now[key]

    def refresh(self) -> None:
        if self._path is None:
            return
        with self._lock:
            try:
                state = self._path.stat()
                stamp = (state.st_mtime_ns, state.st_size)
                if stamp == self._seen:
                    return
                given = json.loads(self._path.read_text(encoding="utf-8") or "{}")
            except FileNotFoundError:
                stamp, given = None, {}
            except json.JSONDecodeError:
                return  # half written; the next step reads it whole
            self._now = {**self._base, **_checked(given)}
            self._seen = stamp
            self._spent.clear()

    def take(self, key: str) -> Mapping[str, Any] | None:
        """An order that counts: None once it was carried out `times` times since it was written."""
        self.refresh()
        order: Mapping[str, Any] | None = self._now[key]
        if order is None:
            return None
        with self._lock:
            done = self._spent.get(key, 0)
            if "times" in order and done >= order["times"]:
                return None
            self._spent[key] = done + 1
        return order


def _checked(given: Mapping[str, Any]) -> Mapping[str, Any]:
    unknown = sorted(set(given) - set(DEFAULTS))
    if unknown:
        raise RuntimeError(f"the double has no behaviour named {', '.join(unknown)}; known: {', '.join(DEFAULTS)}")
    return given


BEHAVIOUR = Behaviour(os.environ)
