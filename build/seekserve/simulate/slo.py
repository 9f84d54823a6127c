"""What a workload is promised: its classes, their shares and targets, and the engine limits that go with them.

name: conversation
chunk_tokens: 1024
max_tokens: 1000
classes:
  interactive: {share: 0.7, ttft_ms: 1000, ttft_ms_per_token: 0.25, tpot_ms: 50}
  offline: {share: 0.3, e2e_ms: 300000}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seekserve.errors import ConfigError
from seekserve.output import problems_text
from seekserve.plan.yaml_file import read_yaml
from seekserve_backend.contract.fields import ContractError, Fields

__all__ = ["ClassSlo", "SloFile", "read_slo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSlo:
    share: float
    ttft_ms: float | None = None
    ttft_ms_per_token: float = 0.0
    tpot_ms: float | None = None
    e2e_ms: float | None = None

    @property
    def is_offline(self) -> bool:
        """Promised an end, not a first token."""
        return self.ttft_ms is None

    def is_met(self, *, ttft_ms: float, tpot_ms: float | None, e2e_ms: float, prompt_tokens: int) -> bool:
        return (
            (self.ttft_ms is None or ttft_ms <= self.ttft_ms + self.ttft_ms_per_token * prompt_tokens)
            and (self.tpot_ms is None or tpot_ms is None or tpot_ms <= self.tpot_ms)
            and (self.e2e_ms is None or e2e_ms <= self.e2e_ms)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SloFile:
    name: str
    classes: Mapping[str, ClassSlo]
    chunk_tokens: int = 1024
    max_tokens: int = 1000


def read_slo(path: Path) -> SloFile:
    """Raises ConfigError with every fault."""
    fields = Fields(read_yaml(path, setting="--slo"), str(path))
    reader = fields.child("classes")
    classes = {}
    for name in fields.mapping("classes"):
        entry = reader.child(str(name))
        classes[str(name)] = ClassSlo(
            share=entry.number("share", low=0.0, high=1.0),
            ttft_ms=entry.opt_number("ttft_ms", low=1.0),
            ttft_ms_per_token=entry.number("ttft_ms_per_token", 0.0, low=0.0),
            tpot_ms=entry.opt_number("tpot_ms", low=1.0),
            e2e_ms=entry.opt_number("e2e_ms", low=1.0),
        )
        entry.done()
    reader.done()
    out = SloFile(
        name=fields.string("name", path.stem),
        classes=classes,
        chunk_tokens=fields.integer("chunk_tokens", 1024, low=1),
        max_tokens=fields.integer("max_tokens", 1000, low=1),
    )
    total = sum(rules.share for rules in classes.values())
    if not 0.999 < total < 1.001:
        fields.problem(f"classes: the shares sum to {total:g}, not to 1")
    for name, rules in classes.items():
        if rules.ttft_ms is None and rules.e2e_ms is None:
            fields.problem(f"classes.{name}: promises nothing: give ttft_ms, or e2e_ms for offline work")
    try:
        fields.done()
    except ContractError as error:
        raise ConfigError(problems_text(f"SLO file {path}", error.problems)) from error
    return out
