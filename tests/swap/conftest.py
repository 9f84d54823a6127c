from __future__ import annotations

from pathlib import Path

import pytest
from tests.swap.place import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A launch serves the variant fp8."""
    made = Place(tmp_path)
    made.render(made.bundle("fp8"))
    made.launch()
    return made
