from __future__ import annotations

import sys
from pathlib import Path

import pytest

# In importlib mode a test folder is not importable by itself; its fakes are shared by several modules.
sys.path.insert(0, str(Path(__file__).parent))

from launch_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.build(tmp_path)
