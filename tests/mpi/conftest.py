from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))
sys.path.insert(0, str(Path(__file__).parent))

from mpi_world import MpiWorld


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.mpi)
            item.add_marker(pytest.mark.needs_debian)
            if shutil.which("mpirun") is None:
                item.add_marker(pytest.mark.skip(reason="mpirun is not installed (Debian: openmpi-bin)"))


@pytest.fixture
def world(tmp_path: Path) -> MpiWorld:
    return MpiWorld.build(tmp_path)
