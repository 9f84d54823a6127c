"""Engine steps, written down for `seekserve calibrate`: what was in each, and how long it took.

One JSON object a line: `decode_tokens`, `kv_tokens` (resident, before the step), `chunks` ([tokens before, tokens read]
of each prompt that was read), `step_ms`. Which prompt was read is not said by engines; oldest first is assumed. Lines
are kept in memory until a few hundred are there, the file stops growing at its limit, and a disk that fails ends the
log, never the service.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from .engines.port import EngineStepReport
from .work import Work

__all__ = ["STEP_LOG_VARIABLE", "StepLog"]

STEP_LOG_VARIABLE = "SEEKSERVE_STEP_LOG"
"""Names the file; without it nothing is written."""
_log = logging.getLogger(__name__)
_LINES_AT_ONCE = 256
_MOST_LINES = 500_000


class StepLog:
    """Used by the engine's thread alone."""

    def __init__(self, path: Path, *, most_lines: int = _MOST_LINES) -> None:
        self._path = path
        self._left = most_lines
        self._lines: list[str] = []
        self._read_tokens: dict[str, int] = {}

    def note(self, report: EngineStepReport, running: Mapping[str, Work]) -> None:
        """Before the tokens of `report` are counted; `running` are those that the engine held during the step."""
        if self._left <= 0:
            return
        decoding, reading = 0, []
        kv_tokens = 0
        for live in running.values():
            if live.completion_tokens:
                decoding += 1
                kv_tokens += len(live.prompt_ids) + live.completion_tokens
            else:
                reading.append(live)
                kv_tokens += self._read_tokens.get(live.id, 0)
        chunks = self._chunks(reading, report)
        self._read_tokens = {live.id: self._read_tokens[live.id] for live in reading if live.id in self._read_tokens}
        if report.batch_size == 0 or report.step_ms <= 0.0:
            return
        self._left -= 1
        sample = {
            "decode_tokens": decoding,
            "kv_tokens": kv_tokens,
            "chunks": chunks,
            "step_ms": round(report.step_ms, 4),
        }
        self._lines.append(json.dumps(sample))
        if len(self._lines) >= _LINES_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        if not lines:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
        except OSError as error:
            _log.warning("the step log ends here: %s", error)
            self._left = 0

    def _chunks(self, reading: Iterable[Work], report: EngineStepReport) -> list[tuple[int, int]]:
        left, chunks = report.prefill_tokens, []
        firsts = {event.id for event in report.tokens}
        # A prompt whose first token came has been read to its end; what is left goes to the others by age.
        for live in sorted(reading, key=lambda each: each.id not in firsts):
            done = self._read_tokens.get(live.id, 0)
            tokens = min(left, len(live.prompt_ids) - done)
            if tokens > 0:
                chunks.append((done, tokens))
                self._read_tokens[live.id] = done + tokens
                left -= tokens
        return chunks
