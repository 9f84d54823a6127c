"""The estimate as a table with the SLO line drawn into it, and the cost per million tokens where a price was given."""

from __future__ import annotations

from .estimate import Estimate, EstimatePoint
from .plan import Plan
from .step_models import known_step_models

__all__ = ["estimate_text"]


def estimate_text(plan: Plan, estimate: Estimate | None) -> str:
    if estimate is None:
        known = "; ".join(known_step_models())
        return (
            "Estimate: none, since no step-time model ships for this model in this shape\n"
            f"  shipped: {known}\n"
            "  --estimate aiconfigurator asks an isolated tool for other shapes (FP8 cache, V3 family and distills)"
        )
    assert plan.deployment is not None
    wish = plan.deployment.case.wish
    slo = estimate.slo
    has_cost = estimate.price_per_gpu_hour is not None
    lines = [
        f"Estimate at ISL {wish.isl} / OSL {wish.osl}, PREDICTED ({estimate.source.removeprefix('predicted: ')})",
        f"  {'batch':>6}{'TTFT ms':>10}{'TPOT ms':>10}{'tokens/s':>11}"
        + (f"{'per 1M tokens':>15}" if has_cost else ""),
    ]
    line_drawn = False
    for found in estimate.points:
        if not line_drawn and not found.keeps(slo):
            lines.append(f"  ---- SLO: first token {slo.ttft_ms:g} ms, then {slo.tpot_ms:g} ms a token ----")
            line_drawn = True
        lines.append(_row(estimate, found))
    best = estimate.best
    if best is None:
        lines.append("  no batch size keeps the SLO")
    else:
        lines.append(f"  within the SLO: batch {best.batch}, {best.tokens_per_s:,.0f} tokens/s on {estimate.gpus} GPUs")
    return "\n".join(lines)


def _row(estimate: Estimate, found: EstimatePoint) -> str:
    cost = estimate.cost_per_million(found)
    money = f"{cost:>15.2f}" if cost is not None else ""
    return f"  {found.batch:>6}{found.ttft_ms:>10.0f}{found.tpot_ms:>10.1f}{found.tokens_per_s:>11,.0f}{money}"
