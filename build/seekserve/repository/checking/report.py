"""The report of a check: one line for each finding, errors first, and the answer at the end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seekserve.output import json_text

from .finding import RepositoryFinding

__all__ = ["CheckReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    repository: Path
    models: tuple[str, ...]
    findings: tuple[RepositoryFinding, ...]

    @property
    def errors(self) -> tuple[RepositoryFinding, ...]:
        return tuple(finding for finding in self.findings if finding.is_error)

    def text(self) -> str:
        lines = [finding.text for finding in self.findings]
        warnings = len(self.findings) - len(self.errors)
        names = ", ".join(self.models) or "no model"
        verdict = "is not fit to serve" if self.errors else "is fit to serve"
        counts = f"{len(self.errors)} error{'s' * (len(self.errors) != 1)}, {warnings} warning{'s' * (warnings != 1)}"
        lines.append(f"{self.repository} {verdict}: {names}; {counts}")
        return "\n".join(lines)

    def json_text(self) -> str:
        return json_text(
            {
                "repository": str(self.repository),
                "ok": not self.errors,
                "models": list(self.models),
                "findings": [finding.to_json() for finding in self.findings],
            }
        )
