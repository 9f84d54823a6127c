"""Cost per million generated tokens, before and after: this plan against a saved one, and the pay-back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seekserve.errors import ConfigError

from .estimate import Estimate

__all__ = ["Comparison", "compare", "read_plan_json", "read_saved_estimate"]

_MAX_BYTES = 64_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Costs at each plan's largest batch within its own SLO."""

    before: float
    after: float
    one_off_cost: float | None

    @property
    def saved(self) -> float:
        return self.before - self.after

    @property
    def pay_back_million_tokens(self) -> float | None:
        """None when nothing is to be paid back, or never is."""
        if self.one_off_cost is None or self.saved <= 0:
            return None
        return self.one_off_cost / self.saved

    def lines(self) -> list[str]:
        share = self.saved / self.before if self.before else 0.0
        word = "saves" if self.saved >= 0 else "costs more by"
        out = [
            "Cost per million generated tokens, within each SLO",
            f"  before {self.before:.2f}, after {self.after:.2f}: {word} {abs(self.saved):.2f} ({abs(share):.0%})",
        ]
        if self.one_off_cost is not None:
            tokens = self.pay_back_million_tokens
            verdict = "never paid back" if tokens is None else f"paid back after {tokens:,.0f} million tokens"
            out.append(f"  changing over costs {self.one_off_cost:,.0f}: {verdict}")
        return out

    def to_json(self) -> dict[str, object]:
        return {
            "cost_per_million_before": round(self.before, 4),
            "cost_per_million_after": round(self.after, 4),
            "saved_per_million": round(self.saved, 4),
            "one_off_cost": self.one_off_cost,
            "pay_back_million_tokens": self.pay_back_million_tokens,
        }


def read_plan_json(path: Path, option: str) -> Mapping[str, Any]:
    """A saved `plan --json`; `option` names who asked. Raises ConfigError when the file is none."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{option}: {path} is larger than any plan ({_MAX_BYTES:,} bytes)")
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{option}: cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{option}: {path} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{option}: {path} holds a {type(data).__name__} where a plan is needed")
    return data


def read_saved_estimate(path: Path) -> Mapping[str, Any]:
    """The `estimate` of a saved plan. Raises ConfigError when it has none."""
    estimate = read_plan_json(path, "--against").get("estimate")
    if not isinstance(estimate, dict):
        raise ConfigError(
            f"--against: {path} has no estimate", hint="save it with `seekserve plan ... --price-per-gpu-hour P --json`"
        )
    return estimate


def compare(estimate: Estimate | None, saved: Mapping[str, Any], *, one_off_cost: float | None) -> Comparison:
    """Raises ConfigError when one of the two plans has no cost."""
    best = estimate.best if estimate is not None else None
    after = estimate.cost_per_million(best) if estimate is not None and best is not None else None
    within = saved.get("within_slo")
    before = within.get("cost_per_million_tokens") if isinstance(within, dict) else None
    if after is None:
        raise ConfigError("--against: this plan has no cost: no estimate for its shape, or no batch within the SLO")
    if type(before) not in (int, float) or float(str(before)) <= 0:
        raise ConfigError(
            "--against: the saved plan has no cost within its SLO", hint="save it with --price-per-gpu-hour"
        )
    return Comparison(before=float(str(before)), after=after, one_off_cost=one_off_cost)
