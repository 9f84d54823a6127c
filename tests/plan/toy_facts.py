"""Facts of an invented model, for tests of the plan."""

from __future__ import annotations

from typing import Any

from seekserve.plan.facts import PlanFacts


def facts(**changes: Any) -> PlanFacts:
    values: dict[str, Any] = {
        "default_name": "toy",
        "title": "DeepSeek-V3 architecture (toy)",
        "architecture": "deepseek_v3",
        "family": "deepseek_v3",
        "kv_bytes_per_token": {"fp8_e4m3": 320, "bf16": 640, "fp32": 1280},
        "max_position_tokens": 4096,
        "weights_dtype": "fp8_block",
        "weights_bytes": 3_000_000,
        "run_bytes": 10_000_000,
    }
    return PlanFacts(**{**values, **changes})
