"""The last requests that failed, as the server's log tells of them: when, which and why, never what was asked. Pure."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

__all__ = ["FailedRequest", "failed_requests"]

# Triton: `E1130 02:53:36.123456 1234 file:7] text`, or from 24.10 on `[ERROR] 2026-11-30 02:53:36.123 ...`.
_TIME = re.compile(r"(?:[EWI](\d{4} \d\d:\d\d:\d\d(?:\.\d+)?))|(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?)")
_FAILURES = (
    (re.compile(r"request (\S+) failed in the engine: (.*)"), "in the engine"),
    (re.compile(r"the engine does not take request (\S+?)(?=[\s:\"]|$)(.*)"), "at its start"),
    (re.compile(r"the tokens of request (\S+) could not be made an answer(.*)"), "while it was answered"),
    (re.compile(r"taking in request (\S+) failed(.*)"), "at arrival"),
    (re.compile(r"request (\S+) could not be told that the engine is broken(.*)"), "at its end"),
)
_MOST_REASON_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRequest:
    time: str | None
    """As the log writes it."""
    id: str
    where: str
    reason: str

    def to_json(self) -> dict[str, str]:
        return {key: value for key, value in asdict(self).items() if value}


def failed_requests(log: str, *, most: int = 50) -> list[FailedRequest]:
    """The latest `most`, oldest first."""
    found = []
    for line in log.splitlines():
        for pattern, where in _FAILURES:
            match = pattern.search(line)
            if match is None:
                continue
            time = _TIME.search(line)
            reason = match.group(2).strip(" :\"'")[:_MOST_REASON_CHARS]
            found.append(
                FailedRequest(
                    time=next((part for part in time.groups() if part), None) if time else None,
                    id=match.group(1),
                    where=where,
                    reason=reason,
                )
            )
            break
    return found[-most:]
