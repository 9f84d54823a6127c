"""Faults on demand for drills: a file says what shall go wrong in the synthetic engine, and a new file says it anew.

    {"fault": "raise"}                            the next step raises EngineError
    {"fault": "hang", "for_s": 8}                 the next step takes so much longer
    {"fault": "slow", "factor": 2, "for_s": 20}   every step takes so many times as long
    {"fault": "lose_kv"}                          everything that is running fails; the engine works on

The file's path comes from SEEKSERVE_SYNTHETIC_FAULTS in the server's environment. No other engine looks at it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ..contract.fields import ContractError, Fields
from .port import EngineError

__all__ = ["FAULTS_VARIABLE", "Faults"]

FAULTS_VARIABLE = "SEEKSERVE_SYNTHETIC_FAULTS"
_KINDS = ("raise", "hang", "slow", "lose_kv")

_log = logging.getLogger(__name__)


class Faults:
    """One drill file. A file that stands there from before is over: only one written later strikes."""

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._path = path
        self._clock = clock
        self._sleep = sleep
        self._version = self._seen()
        self._slow = (0.0, 1.0)
        """(until when, how many times as long)"""
        self._has_lost_kv = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Faults | None:
        path = environment.get(FAULTS_VARIABLE)
        return cls(Path(path)) if path else None

    def strike(self) -> float:
        """Before a step: does what a new file says; how many times as long the step shall take."""
        version = self._seen()
        if version is not None and version != self._version:
            self._version = version
            self._begin()
        until_s, factor = self._slow
        return factor if self._clock() < until_s else 1.0

    def has_lost_kv(self) -> bool:
        """True once for each such fault."""
        lost, self._has_lost_kv = self._has_lost_kv, False
        return lost

    def _begin(self) -> None:
        try:
            fields = Fields(json.loads(self._path.read_text("utf-8")), str(self._path))
            kind = fields.string("fault", choices=_KINDS)
            for_s = fields.number("for_s", 10.0, low=0.0)
            factor = fields.number("factor", 2.0, low=0.01)
            fields.done()
        except (OSError, ValueError, ContractError) as error:
            _log.warning("the file of faults is passed over: %s", error)
            return
        _log.warning("drill: %s", kind)
        if kind == "raise":
            raise EngineError("drill: the engine was told to raise")
        if kind == "hang":
            self._sleep(for_s)
        elif kind == "slow":
            self._slow = (self._clock() + for_s, factor)
        else:
            self._has_lost_kv = True

    def _seen(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino
