"""One import of the double for each test that asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.doubles.double_tests.package import Package, imported

Make = Callable[..., Package]


@pytest.fixture
def double(tmp_path: Path) -> Iterator[Make]:
    """`double(profile, behaviour={...}, DOUBLE_...="...")` imports it; at the end it is taken out again."""
    with ExitStack() as stack:

        def make(profile: str = "1.2.1", **given: Any) -> Package:
            return stack.enter_context(imported(tmp_path, profile, **given))

        yield make
