"""Checks of one machine before a deployment: facts are gathered once, each check is a pure function of them."""

from __future__ import annotations

from seekserve.server.doctor.checks import CHECKS, examine
from seekserve.server.doctor.finding import Finding, Severity

__all__ = ["CHECKS", "Finding", "Severity", "examine"]
