from __future__ import annotations

import json
from pathlib import Path

from seekserve_backend.answers import Inbound
from seekserve_backend.engines.port import EngineStepReport, TokenEvent
from seekserve_backend.step_log import StepLog
from seekserve_backend.text.token_bytes import TokenBytes, VocabKind
from seekserve_backend.work import Work


def live(name: str, prompt_tokens: int) -> Work:
    return Work(name, Inbound(), tuple(range(prompt_tokens)), TokenBytes([], (), VocabKind.BYTE_LEVEL))


def report(prefill_tokens: int, *ids: str, batch_size: int = 1) -> EngineStepReport:
    tokens = tuple(TokenEvent(id=each, token_ids=(1,)) for each in ids)
    return EngineStepReport(step_ms=2.0, batch_size=batch_size, prefill_tokens=prefill_tokens, tokens=tokens)


def test_what_was_in_each_step_is_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = StepLog(path)
    a, b = live("a", 10), live("b", 30)
    running = {"a": a, "b": b}
    log.note(report(16, "a"), running)  # all of a, 6 of b
    a.completion_tokens = 1
    log.note(report(24, "a", "b"), running)
    a.completion_tokens, b.completion_tokens = 2, 1
    log.note(report(0, "a", "b"), running)
    log.note(report(0, batch_size=0), {})
    assert not path.exists()
    log.flush()
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert rows == [
        {"decode_tokens": 0, "kv_tokens": 0, "chunks": [[0, 10], [0, 6]], "step_ms": 2.0},
        {"decode_tokens": 1, "kv_tokens": 17, "chunks": [[6, 24]], "step_ms": 2.0},
        {"decode_tokens": 2, "kv_tokens": 43, "chunks": [], "step_ms": 2.0},
    ]


def test_the_file_stops_at_its_limit_and_a_full_disk_is_survived(tmp_path: Path) -> None:
    log = StepLog(tmp_path / "log", most_lines=3)
    for _ in range(5):
        log.note(report(0, "a"), {"a": live("a", 4)})
    log.flush()
    assert len((tmp_path / "log").read_text("utf-8").splitlines()) == 3
    lost = StepLog(tmp_path / "no" / "folder")
    lost.note(report(0, "a"), {"a": live("a", 4)})
    lost.flush()
