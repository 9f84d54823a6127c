"""What a check says: how bad it is, what was found, what that breaks, and what to do."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Finding", "Severity", "error", "note", "ok", "warn"]


class Severity(str, enum.Enum):
    OK = "ok"
    NOTE = "note"  # worth knowing, breaks nothing that was asked for
    WARN = "warn"  # works, but slowly, unsafely or not for every model
    ERROR = "error"  # a launch on this machine will fail


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    check: str
    severity: Severity
    found: str
    breaks: str = ""
    do: str = ""

    def to_json(self) -> dict[str, str]:
        body = {"check": self.check, "severity": self.severity.value, "found": self.found}
        return body | {key: value for key, value in (("breaks", self.breaks), ("do", self.do)) if value}


def ok(check: str, found: str) -> Finding:
    return Finding(check=check, severity=Severity.OK, found=found)


def note(check: str, found: str, *, breaks: str = "", do: str = "") -> Finding:
    return Finding(check=check, severity=Severity.NOTE, found=found, breaks=breaks, do=do)


def warn(check: str, found: str, *, breaks: str, do: str) -> Finding:
    return Finding(check=check, severity=Severity.WARN, found=found, breaks=breaks, do=do)


def error(check: str, found: str, *, breaks: str, do: str) -> Finding:
    return Finding(check=check, severity=Severity.ERROR, found=found, breaks=breaks, do=do)
