"""Predicted TTFT, TPOT and tokens per second over batch sizes, where the SLO line lies, and what a million tokens cost.

From the plan's step model: in the steady state each of B requests decodes while, once in `osl` steps, a new prompt is
prefilled in chunks beside it. A prediction, never a measurement, and marked so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from seekserve_backend.contract.step_model import StepModel

from .plan import Plan

__all__ = ["Estimate", "EstimatePoint", "Slo", "Workload", "batches_of", "estimate_plan", "point"]

_BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_SECONDS_PER_HOUR: Final = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    isl: int
    osl: int
    chunk: int
    """Largest piece of a prompt in one step."""
    pools: int = 1
    replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    ttft_ms: float = 2000.0
    tpot_ms: float = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatePoint:
    batch: int
    """Requests at once on one replica."""
    ttft_ms: float
    """Without waiting in a queue."""
    tpot_ms: float
    tokens_per_s: float
    """Generated, all replicas."""

    def keeps(self, slo: Slo) -> bool:
        return self.ttft_ms <= slo.ttft_ms and self.tpot_ms <= slo.tpot_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    points: tuple[EstimatePoint, ...]
    slo: Slo
    source: str
    gpus: int
    price_per_gpu_hour: float | None = None

    @property
    def best(self) -> EstimatePoint | None:
        """The largest batch that keeps the SLO."""
        keeping = [point for point in self.points if point.keeps(self.slo)]
        return max(keeping, key=lambda point: point.tokens_per_s) if keeping else None

    def cost_per_million(self, point: EstimatePoint) -> float | None:
        if self.price_per_gpu_hour is None or point.tokens_per_s <= 0:
            return None
        return self.price_per_gpu_hour * self.gpus * 1e6 / (point.tokens_per_s * _SECONDS_PER_HOUR)

    def to_json(self) -> dict[str, object]:
        best = self.best
        return {
            "source": self.source,
            "is_predicted": True,
            "slo": {"ttft_ms": self.slo.ttft_ms, "tpot_ms": self.slo.tpot_ms},
            "gpus": self.gpus,
            "price_per_gpu_hour": self.price_per_gpu_hour,
            "points": [self._point_json(point) for point in self.points],
            "within_slo": None if best is None else self._point_json(best),
        }

    def _point_json(self, point: EstimatePoint) -> dict[str, object]:
        cost = self.cost_per_million(point)
        return {
            "batch": point.batch,
            "ttft_ms": round(point.ttft_ms, 1),
            "tpot_ms": round(point.tpot_ms, 2),
            "tokens_per_s": round(point.tokens_per_s, 1),
            "cost_per_million_tokens": None if cost is None else round(cost, 4),
        }


def estimate_plan(plan: Plan, *, slo: Slo, price_per_gpu_hour: float | None = None) -> Estimate | None:
    """None when the plan has no step model; nothing is invented for it."""
    deployment, model = plan.deployment, plan.step_model
    if deployment is None or model is None:
        return None
    case = deployment.case
    workload = Workload(
        isl=case.wish.isl,
        osl=case.wish.osl,
        chunk=case.prefill_chunk_tokens if case.wish.chunked_prefill else case.wish.isl,
        pools=case.shape.kv_pools,
        replicas=case.replicas,
    )
    batches = _batches(plan)
    points = [point(model, batch, workload) for batch in batches]
    keeping = sum(found.keeps(slo) for found in points)
    if 0 < keeping < len(points):
        good, bad = batches[keeping - 1], batches[keeping]
        at = _largest_keeping(good, bad, lambda batch: point(model, batch, workload).keeps(slo))
        points = sorted({*points, point(model, at, workload)}, key=lambda found: found.batch)
    return Estimate(
        points=tuple(points),
        slo=slo,
        source=model.source,
        gpus=case.shape.gpus * case.replicas,
        price_per_gpu_hour=price_per_gpu_hour,
    )


def _largest_keeping(good: int, bad: int, keeps: Callable[[int], bool]) -> int:
    """Where the SLO line lies between a batch that keeps it and one that does not."""
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if keeps(middle) else (good, middle)
    return good


def batches_of(most: int) -> list[int]:
    return sorted({*(n for n in _BATCHES if n <= most), most})


def _batches(plan: Plan) -> list[int]:
    """Up to what may run at once and fits with whole answers."""
    assert plan.deployment is not None
    case = plan.deployment.case
    return batches_of(max(min(case.max_batch_size * case.shape.kv_pools, case.concurrency.steady), 1))


def point(model: StepModel, batch: int, workload: Workload) -> EstimatePoint:
    """With attention DP all ranks prefill their own prompts in one step, so a chunk counts once for each."""
    isl, osl, pools = workload.isl, workload.osl, workload.pools
    held = batch * (isl + osl // 2)
    decode_ms = model.step_ms(decode_tokens=batch, kv_tokens=held)
    pieces = [(start, min(workload.chunk, isl - start)) for start in range(0, isl, workload.chunk)]
    mixed = [model.step_ms(decode_tokens=batch, kv_tokens=held, chunks=(piece,) * pools) for piece in pieces]
    prefill_ms = (sum(mixed) - len(pieces) * decode_ms) / pools
    tpot_ms = decode_ms + batch * prefill_ms / osl
    ttft_ms = decode_ms / 2 + sum(mixed)
    seconds = (ttft_ms + (osl - 1) * tpot_ms) / 1000
    tokens_per_s = workload.replicas * batch * osl / seconds
    return EstimatePoint(batch=batch, ttft_ms=ttft_ms, tpot_ms=tpot_ms, tokens_per_s=tokens_per_s)
