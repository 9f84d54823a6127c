"""Taking one value after another from the inputs: type and range checked, source remembered, faults gathered.

Shared by the resolvers. A wrong value is noted and its default stands in for it, so that other rules can still speak.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seekserve.errors import ConfigError, ConflictError, DoesNotFit
from seekserve.output import problems_text

from .finding import Finding
from .inputs import FieldSpec, Given, Inputs
from .names import MODEL_NAME, NAME_RULE
from .plan import Source

__all__ = ["Values", "raise_problems"]


@dataclass(slots=True)
class Values:
    """One resolution; `sources` and `problems` grow with each value taken."""

    inputs: Inputs
    specs: Mapping[str, FieldSpec]
    problems: list[str]
    sources: dict[str, str] = field(default_factory=dict)
    wrong: set[str] = field(default_factory=set)

    def take(self, name: str, default: Any, default_source: str = Source.DEFAULT.value) -> Any:
        spec, given = self.specs[name], getattr(self.inputs, name)
        if not isinstance(given, Given):
            self.sources[spec.plan_key] = default_source
            return default
        self.sources[spec.plan_key] = given.source_text
        problem = _value_problem(spec, given.value)
        if problem is None:
            return given.value
        self.wrong.add(spec.plan_key)
        self.problems.append(f"{given.source_text}: {spec.file_key} {problem}")
        return default

    def is_given(self, name: str) -> bool:
        return isinstance(getattr(self.inputs, name), Given)


def _value_problem(spec: FieldSpec, value: object) -> str | None:
    """What is wrong with a value whatever the others are."""
    if spec.kind is int:
        low = spec.low
        if isinstance(value, bool) or not isinstance(value, int):
            return f"must be an integer, got {value!r}"
        return f"must be at least {low}, got {value}" if value < low else None
    if spec.kind is float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return f"must be a number, got {value!r}"
        is_within = spec.low <= value <= (math.inf if spec.high is None else spec.high)
        bounds = f"at least {spec.low}" if spec.high is None else f"from {spec.low} to {spec.high}"
        return None if is_within else f"must be {bounds}, got {value}"
    if spec.kind is bool:
        return None if isinstance(value, bool) else f"must be true or false, got {value!r}"
    if not isinstance(value, str):
        return f"must be text, got {value!r}"
    if spec.choices is not None and value not in spec.choices:
        longer = [choice for choice in spec.choices if value and choice.startswith(value)]
        near = longer[:1] or difflib.get_close_matches(value, spec.choices, 1)
        guess = f" (did you mean {near[0]}?)" if near else ""
        return f"must be one of {', '.join(spec.choices)}, got {value!r}{guess}"
    if spec.name == "name" and not MODEL_NAME.match(value):
        return f"{value!r} is no model name: use {NAME_RULE}"
    return None


def raise_problems(values: Values, findings: Sequence[Finding]) -> None:
    if not values.problems and not findings:
        return
    text = problems_text("no plan", [*values.problems, *(finding.message for finding in findings)])
    hints = [finding.hint for finding in findings]
    hint = "; ".join(dict.fromkeys(hints)) or None
    if values.problems:
        raise ConfigError(text, hint=hint)
    if all(finding.is_size for finding in findings):
        raise DoesNotFit(text, hint=hint)
    raise ConflictError(text, hint=hint)
