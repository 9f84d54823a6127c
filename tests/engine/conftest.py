from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engine.full_size import make_checkpoint

# In importlib mode a test folder is not importable by itself; the toy checkpoints are those of tests/checkpoint.
sys.path.insert(0, str(Path(__file__).parent.parent / "checkpoint"))


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Full-size checkpoints by name, each made once in a session."""
    made: dict[str, Path] = {}
    root = tmp_path_factory.mktemp("releases")

    def make(name: str) -> Path:
        if name not in made:
            made[name] = make_checkpoint(root / name, name)
        return made[name]

    return make
