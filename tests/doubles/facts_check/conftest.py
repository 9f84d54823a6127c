"""The double, imported afresh for each test."""

from __future__ import annotations

from tests.doubles.double_tests.conftest import double

__all__ = ["double"]
