"""Shared by all tests: where this checkout is."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository_root() -> Path:
    return ROOT
