"""What is wrong in a repository, or worth knowing: one sentence, with the file and the line that it is about."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RepositoryFinding", "error", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryFinding:
    severity: str
    """`error`: will not load, or will not do what it says. `warning`: loads, but look."""
    rule: str
    """Stable identifier, for example `engine-missing`."""
    file: str
    """POSIX path relative to the repository; `.` for the repository itself."""
    line: int | None
    message: str
    hint: str = ""

    @property
    def is_error(self) -> bool:
        return self.severity == "error"

    @property
    def where(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"

    @property
    def text(self) -> str:
        more = f" ({self.hint})" if self.hint else ""
        return f"{self.where}: {self.severity}: {self.message}{more} [{self.rule}]"

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}


def error(rule: str, file: str, line: int | None, message: str, hint: str = "") -> RepositoryFinding:
    return RepositoryFinding(severity="error", rule=rule, file=file, line=line, message=message, hint=hint)


def warning(rule: str, file: str, line: int | None, message: str, hint: str = "") -> RepositoryFinding:
    return RepositoryFinding(severity="warning", rule=rule, file=file, line=line, message=message, hint=hint)
