from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# In importlib mode a test folder is not importable by itself; the fake and the drivers are shared by several modules.
sys.path.insert(0, str(Path(__file__).parent))

from drive import Drive, drive_asyncio, drive_blocking
from fake_server import Running


@pytest.fixture
def server() -> Iterator[Running]:
    running = Running()
    yield running
    running.drop()


@pytest.fixture(params=[drive_blocking, drive_asyncio], ids=["blocking", "asyncio"])
def drive(request: pytest.FixtureRequest) -> Drive:
    chosen: Drive = request.param
    return chosen


@pytest.fixture(autouse=True)
def _no_launch_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launch records of the machine's user must not decide what a test sees."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
