"""What the rules are made for: the policy that serves, and the operator's choices."""

from __future__ import annotations

import re
from dataclasses import dataclass

from seekserve_backend.contract.metric_names import FAMILY, PREFIX
from seekserve_backend.contract.policy import Policy

from .choices import MonitoringChoices

__all__ = ["Subject"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    policy: Policy
    choices: MonitoringChoices

    @property
    def urgent(self) -> str:
        """A matcher for the classes that are promised something, with its comma; empty where that is all of them."""
        offline = [re.escape(name) for name, rules in self.policy.classes.items() if rules.is_offline]
        return f',class!~"{_quoted("|".join(offline))}"' if offline and self.has_rungs else ""

    @property
    def has_rungs(self) -> bool:
        """Of the policy kinds only `paced` has a ladder, and offline classes that may be shed."""
        return self.policy.kind == "paced"

    @property
    def tpot_bounds_s(self) -> dict[str, float]:
        """For each class with a promise, the bound of the histogram at or above it; without those beyond the last."""
        buckets = FAMILY[PREFIX + "time_per_output_token_seconds"].buckets
        promised = {n: c.tpot_slo_ms / 1000.0 for n, c in self.policy.classes.items() if c.tpot_slo_ms is not None}
        return {n: next(b for b in buckets if b >= slo_s) for n, slo_s in promised.items() if slo_s <= buckets[-1]}

    @property
    def flush_and_scrape_s(self) -> int:
        """From an event until Prometheus knows it, at most: the backend's second and a scrape."""
        return 1 + self.choices.scrape_interval_s


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
