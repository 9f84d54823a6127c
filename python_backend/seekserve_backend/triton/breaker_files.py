"""Each opening of the breaker leaves a file in the run folder, `breaker-<n>.json`, and one line in the log.

Written by the monitor's thread, whole or not at all. All processes of a launch share the folder and its numbers; the
oldest files go when there are too many. `seekserve collect` takes them along.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["BreakerFiles"]

_log = logging.getLogger(__name__)
_NAME = re.compile(r"breaker-(\d+)\.json")
_SCHEMA = 1


class BreakerFiles:
    def __init__(
        self,
        model: str,
        run_dir: Path | None,
        take: Callable[[], Sequence[dict[str, Any]]],
        *,
        most_files: int = 32,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        """`take`: openings that were not taken yet. `run_dir` None: there is the line in the log alone."""
        self._model = model
        self._run_dir = run_dir
        self._take = take
        self._most_files = most_files
        self._unix_time = unix_time

    def look(self) -> None:
        """Never raises: neither heartbeat nor policy may hang on a full disk."""
        try:
            for opening in self._take():
                self._tell(opening)
        except Exception:
            _log.exception("openings of the breaker could not be told")

    def _tell(self, opening: dict[str, Any]) -> None:
        requests = opening["requests"]
        where = "there is no run folder to keep them in"
        if self._run_dir is not None:
            try:
                where = f"see {self._write(self._run_dir, opening)}"
            except OSError as error:
                where = f"they could not be kept ({error})"
        _log.error(
            "the breaker of model %s opened, for the %d. time: %d requests were running, %d of them failed; %s",
            self._model,
            opening["opening"],
            len(requests),
            sum(each["has_failed"] for each in requests),
            where,
        )

    def _write(self, run_dir: Path, opening: dict[str, Any]) -> Path:
        facts = {name: value for name, value in opening.items() if name != "age_s"}
        body = {
            "schema_version": _SCHEMA,
            "model": self._model,
            "pid": os.getpid(),
            "time_s": round(self._unix_time() - opening["age_s"], 3),
            **facts,
        }
        beside = run_dir / f"breaker-{os.getpid()}.tmp"
        try:
            beside.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
            path = _take_number(run_dir, beside)
        finally:
            beside.unlink(missing_ok=True)
        for number in _numbers(run_dir)[: -self._most_files]:
            (run_dir / f"breaker-{number}.json").unlink(missing_ok=True)
        return path


def _take_number(run_dir: Path, whole: Path) -> Path:
    """The next free name, whoever else is looking for one in this moment."""
    number = max(_numbers(run_dir), default=0)
    while True:
        number += 1
        path = run_dir / f"breaker-{number}.json"
        try:
            os.link(whole, path)
        except FileExistsError:
            continue
        return path


def _numbers(run_dir: Path) -> list[int]:
    found = (_NAME.fullmatch(path.name) for path in run_dir.glob("breaker-*.json"))
    return sorted(int(match[1]) for match in found if match is not None)
