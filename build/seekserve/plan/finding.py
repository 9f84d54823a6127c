"""What is wrong with a plan, or worth knowing: one rule, one sentence with its numbers, one hint."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    rule: str
    about: tuple[str, ...] = ()
    """Dotted names of the values that disagree."""
    message: str
    hint: str
    is_size: bool = False
    """True: it simply does not fit, rather than contradicting itself."""
    severity: str = "error"
    """`error`: no plan. `warning`: works, but look. `note`: explains a choice."""

    @property
    def is_error(self) -> bool:
        return self.severity == "error"

    def to_json(self) -> dict[str, object]:
        return {
            "severity": self.severity,
            "code": self.rule,
            "message": self.message,
            "hint": self.hint,
            "about": list(self.about),
        }
