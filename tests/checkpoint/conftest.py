"""Fixtures of the checkpoint tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.checkpoint.toy import Toy

from seekserve.checkpoint import ModelFacts, read_checkpoint


@pytest.fixture
def inspect_toy(tmp_path: Path) -> Callable[..., ModelFacts]:
    """Writes a toy (options as `Toy.write`) and reads it back."""

    def run(toy: Toy, **options: object) -> ModelFacts:
        return read_checkpoint(toy.write(tmp_path / "checkpoint", **options))  # type: ignore[arg-type]

    return run
