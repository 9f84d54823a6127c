"""What is wrong, or worth knowing, about a checkpoint: one frozen Finding per kind of fault.

A fault that hits thousands of tensors is one Finding with a count and the first names. Collecting never raises; whether
errors stop the work is the caller's decision.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Collector", "Finding", "Severity", "printable"]

EXAMPLES_KEPT = 3
NAME_WIDTH = 160


class Severity(str, enum.Enum):
    """`error`: not fit to build from. `warning`: works, but look. `note`: a fact that explains a choice."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    severity: Severity
    code: str
    """Stable identifier, for example `scale-missing`."""
    file: str
    """File name inside the checkpoint; of several, the first with the number of the others."""
    message: str
    count: int = 1
    """Tensors, files or fields concerned."""
    examples: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        return {
            "severity": self.severity.value,
            "code": self.code,
            "file": self.file,
            "message": self.message,
            "count": self.count,
            "examples": list(self.examples),
        }

    def __str__(self) -> str:
        return f"{self.severity} {self.code} [{self.file}] {self.message}"


class Collector:
    """Gathers findings in the order in which they are met."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def error(self, code: str, file: str, message: str) -> None:
        self._add(Severity.ERROR, code, file, message)

    def warning(self, code: str, file: str, message: str) -> None:
        self._add(Severity.WARNING, code, file, message)

    def note(self, code: str, file: str, message: str) -> None:
        self._add(Severity.NOTE, code, file, message)

    def _add(self, severity: Severity, code: str, file: str, message: str) -> None:
        self.findings.append(
            Finding(severity=severity, code=code, file=printable(file), message=printable(message, 900))
        )

    def group(self, severity: Severity, code: str, hits: list[tuple[str, str]], message: str) -> None:
        """One finding for all `hits` (file, name); nothing when there are none. `{n}` in the message is their count."""
        if not hits:
            return
        files = list(dict.fromkeys(file for file, _ in hits))
        where = printable(files[0]) if len(files) == 1 else f"{printable(files[0])} (+{len(files) - 1} more files)"
        shown = tuple(printable(name) for _, name in hits[:EXAMPLES_KEPT])
        listed = ", ".join(shown) + (", ..." if len(hits) > len(shown) else "")
        text = f"{message.replace('{n}', f'{len(hits):,}')}: {listed}"
        self.findings.append(
            Finding(severity=severity, code=code, file=where, message=text, count=len(hits), examples=shown)
        )


def printable(text: str, width: int = NAME_WIDTH) -> str:
    """Names come from foreign files: control characters are escaped and the length is bounded."""
    clean = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)
    return clean if len(clean) <= width else f"{clean[: width - 3]}..."
