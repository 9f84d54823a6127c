"""What is wrong with an argument, or worth knowing: the path of the argument, one sentence, one hint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from seekserve.errors import ConfigError
from seekserve.output import problems_text

__all__ = ["ArgFinding", "error", "raise_errors", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgFinding:
    rule: str
    path: str
    """Dotted, e.g. `kv_cache_config.dtype`, or the flag or parameter."""
    message: str
    hint: str = ""
    severity: str = "error"
    """`error`: refused. `warning`: unverified, without effect, or deprecated."""

    @property
    def is_error(self) -> bool:
        return self.severity == "error"

    @property
    def text(self) -> str:
        return f"{self.path}: {self.message}" + (f" ({self.hint})" if self.hint else "")

    def doubted(self, message: str) -> ArgFinding:
        """The same as a warning: only some of the states that were read refuse it."""
        return replace(self, severity="warning", rule="argument-unverified", message=message)

    def to_json(self) -> dict[str, object]:
        return {
            "severity": self.severity,
            "code": self.rule,
            "message": self.message,
            "hint": self.hint,
            "about": [self.path],
        }


def error(rule: str, path: str, message: str, hint: str = "") -> ArgFinding:
    return ArgFinding(rule=rule, path=path, message=message, hint=hint)


def warning(rule: str, path: str, message: str, hint: str = "") -> ArgFinding:
    return ArgFinding(rule=rule, path=path, message=message, hint=hint, severity="warning")


def raise_errors(findings: Sequence[ArgFinding], title: str) -> None:
    """Raises ConfigError with all errors together; warnings alone raise nothing."""
    errors = [finding for finding in findings if finding.is_error]
    if not errors:
        return
    if len(errors) == 1:
        [only] = errors
        raise ConfigError(f"{title}: {only.path}: {only.message}", hint=only.hint or None)
    raise ConfigError(problems_text(title, [finding.text for finding in errors]))
