from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The fake server of the client's tests, which is no package.
sys.path.insert(0, str(Path(__file__).parent.parent / "client"))

from fake_server import Running


@pytest.fixture
def server() -> Iterator[Running]:
    running = Running()
    yield running
    running.drop()


@pytest.fixture(autouse=True)
def _no_launch_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launch records of the machine's user must not decide what a test sees."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
