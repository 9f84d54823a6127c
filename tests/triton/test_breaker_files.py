from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from seekserve_backend.triton.breaker_files import BreakerFiles


def opening(number: int = 1, failed: int = 1) -> dict[str, Any]:
    requests = [{"id": f"r{n}", "request_class": "chat", "has_failed": n < failed} for n in range(3)]
    return {"opening": number, "age_s": 2.5, "requests": requests}


def files(run_dir: Path | None, *openings: dict[str, Any], most_files: int = 32) -> BreakerFiles:
    left = [list(openings)]
    return BreakerFiles(
        "chat", run_dir, lambda: left.pop() if left else [], most_files=most_files, unix_time=lambda: 1000.0
    )


def names(run_dir: Path) -> list[str]:
    return sorted(path.name for path in run_dir.iterdir())


def test_an_opening_is_a_file_and_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files(tmp_path, opening(number=4, failed=2)).look()
    assert names(tmp_path) == ["breaker-1.json"], "nothing half written stays"
    found = json.loads((tmp_path / "breaker-1.json").read_text(encoding="utf-8"))
    assert (found["schema_version"], found["model"], found["time_s"], found["opening"]) == (1, "chat", 997.5, 4)
    assert found["requests"] == opening(failed=2)["requests"]
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "opened, for the 4. time: 3 requests were running, 2 of them failed" in record.getMessage()
    assert str(tmp_path / "breaker-1.json") in record.getMessage()


def test_processes_that_share_the_folder_share_the_numbers_and_the_oldest_go(tmp_path: Path) -> None:
    (tmp_path / "breaker-of-somebody.json").write_text("{}", encoding="utf-8")
    several = [files(tmp_path, *(opening(number) for number in range(10)), most_files=100) for _ in range(4)]
    threads = [threading.Thread(target=each.look) for each in several[1:]]
    several[0].look()
    for thread in threads:  # one after the other: in truth they are processes, whose temporary files differ
        thread.start()
        thread.join()
    assert len(names(tmp_path)) == 41
    files(tmp_path, opening(), most_files=3).look()
    assert names(tmp_path) == [*(f"breaker-{n}.json" for n in (39, 40, 41)), "breaker-of-somebody.json"]


@pytest.mark.parametrize("has_folder", [True, False])
def test_the_line_comes_even_where_no_file_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, has_folder: bool
) -> None:
    files(tmp_path / "gone" if has_folder else None, opening()).look()
    (record,) = caplog.records
    assert "the breaker of model chat opened" in record.getMessage()
    assert ("could not be kept" in record.getMessage()) is has_folder


def test_a_fault_of_its_own_reaches_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> list[dict[str, Any]]:
        raise RuntimeError("no openings today")

    BreakerFiles("chat", None, broken).look()
    assert "could not be told" in caplog.text
