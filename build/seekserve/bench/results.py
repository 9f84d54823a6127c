"""A recording judged by the figures of the simulator, with what only a live run can say: its lag, what it was told.

The JSON has the fields of `seekserve simulate`, and a `live` part beside them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seekserve.output import json_text
from seekserve.simulate.measure import BUCKETS, Context, Figures, measure
from seekserve.simulate.price import Prices
from seekserve.simulate.records import Run
from seekserve.simulate.slo import SloFile
from seekserve.simulate.stats import percentile
from seekserve_backend.contract.step_model import StepModel

from .lag import Lag, lag_of
from .openloop import Recording, Refusal

__all__ = ["LiveResult", "judge", "result_text", "results_json"]

_EDGES_TOKENS = (1024, 2048, 4096, 8192, 32768)
# Where no step model is known, fairness and offline shares count tokens, all alike.
_TOKENS_ALIKE = StepModel(
    base_points=((0, 0.0), (1_000_000, 1_000_000.0)),
    kv_read_ms_per_token=0.0,
    attention_ms_per_token2=0.0,
    source="one for each token",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveResult:
    label: str
    """Stands where a simulation names its policy: what is served is the server's affair."""
    trace: str
    speed: float
    seed: int
    arrivals: str
    url: str
    model: str
    figures: Figures
    lag: Lag
    recording: Recording

    def to_json(self) -> dict[str, object]:
        return {
            "policy": self.label,
            "trace": self.trace,
            "speed": round(self.speed, 5),
            "seed": self.seed,
            "arrivals": self.arrivals,
            "replicas": 1,
            **self.figures.to_json(),
            "live": self._live(),
        }

    def _live(self) -> dict[str, object]:
        recording, lag = self.recording, self.lag
        ends = [o for o in recording.outcomes if o.state == "finished" and o.end_s is not None]
        return {
            "url": self.url,
            "model": self.model,
            "is_valid": lag.is_valid,
            "verdict": lag.verdict,
            "send_lag_p50_ms": _round(lag.send_p50_ms),
            "send_lag_p99_ms": _round(lag.send_p99_ms),
            "loop_lag_p99_ms": _round(lag.loop_p99_ms),
            "requests": len(recording.outcomes),
            "sent": recording.sent,
            "unanswered": recording.unanswered,
            "cut_off": recording.cut_off,
            "wall_s": _round(recording.end_s),
            "e2e_p50_s": _round(percentile([(o.end_s or 0.0) - o.asked_s for o in ends], 0.5)),
            "itl_p50_ms": _gap_ms(recording.gaps_ms, 0.5),
            "itl_p90_ms": _gap_ms(recording.gaps_ms, 0.9),
            "refused_by_code": dict(sorted(Counter(each.code for each in recording.refusals).items())),
            "refusal_ms": _refusal_ms(recording.refusals),
            "refusal_ms_by_bucket": {
                name: _refusal_ms(those) for name, those in _by_bucket(recording.refusals).items()
            },
            "failures": dict(sorted(recording.failures.items())),
        }


def judge(
    recording: Recording,
    slo: SloFile,
    *,
    label: str,
    trace: str,
    speed: float = 1.0,
    seed: int = 0,
    arrivals: str = "trace",
    url: str = "",
    model: str = "",
    surge_s: tuple[float, float] | None = None,
    step_model: StepModel | None = None,
    warmup_s: float = 60.0,
) -> LiveResult:
    run = Run(outcomes=recording.outcomes, steps=0, busy_s=0.0, end_s=recording.end_s, gaps_ms=recording.gaps_ms)
    prices = Prices(step_model or _TOKENS_ALIKE, chunk_tokens=slo.chunk_tokens)
    figures = measure(run, Context(slo=slo, prices=prices, surge_s=surge_s, warmup_s=warmup_s))
    # What cannot be seen from outside is not shown as nought.
    figures.busy_ratio = figures.hit_ratio = figures.pauses = figures.reread_tokens = math.nan
    return LiveResult(
        label=label,
        trace=trace,
        speed=speed,
        seed=seed,
        arrivals=arrivals,
        url=url,
        model=model,
        figures=figures,
        lag=lag_of(recording.send_lag_ms, recording.loop_lag_ms, slo),
        recording=recording,
    )


def results_json(results: Sequence[LiveResult], **more: object) -> str:
    return json_text({"runs": [result.to_json() for result in results], **more})


def result_text(result: LiveResult) -> str:
    f, recording = result.figures, result.recording
    lines = [
        (
            f"{result.label} on {result.model} at {result.url}: {result.trace}, {len(recording.outcomes)} requests "
            f"in {recording.end_s:.1f} s, {recording.sent} sent"
        ),
        (
            f"  goodput    {f.goodput_rps:.3f} of {f.urgent_rps:.3f} urgent requests/s "
            f"({f.offered_rps:.3f} of all classes); attainment {f.attainment:.3f}"
        ),
        f"  TTFT s     p50 {f.ttft_p50_s:.3f}  p90 {f.ttft_p90_s:.3f}  p99 {f.ttft_p99_s:.3f}",
        f"  TPOT ms    p50 {f.tpot_p50_ms:.1f}  p90 {f.tpot_p90_ms:.1f}  p99 {f.tpot_p99_ms:.1f}",
        (
            f"  ITL ms     p50 {_shown(_gap_ms(recording.gaps_ms, 0.5))}  p90 {_shown(_gap_ms(recording.gaps_ms, 0.9))}"
            f"  p99 {f.itl_p99_ms:.0f}"
        ),
        f"  E2E s      p99 {f.e2e_p99_s:.3f}",
        (
            f"  not served refused {f.shed_ratio:.3f}, expired {f.expired_ratio:.3f}, failed {f.failed_ratio:.3f}; "
            f"without any answer {recording.unanswered}, cut off at the end {recording.cut_off}"
        ),
    ]
    if f.shed_by_bucket:
        parts = "  ".join(f"{name} {share:.3f}" for name, share in f.shed_by_bucket.items())
        lines.append(f"  shed       {parts}")
    if recording.refusals:
        ms = [each.ms for each in recording.refusals]
        codes = ", ".join(f"{n} {code}" for code, n in Counter(each.code for each in recording.refusals).items())
        lines.append(f"  refusals   {codes}; p50 {percentile(ms, 0.5):.1f} ms, p99 {percentile(ms, 0.99):.1f} ms")
    lines += [f"  failure    {n} x {what}" for what, n in sorted(recording.failures.items())]
    lines.append(f"  {result.lag.verdict}")
    return "\n".join(lines)


def _refusal_ms(refusals: Sequence[Refusal]) -> dict[str, object]:
    """Those at arrival: a request that expired waited on purpose."""
    ms = [each.ms for each in refusals if each.code != "expired"]
    sent_ms = [each.sent_ms for each in refusals if each.code != "expired"]
    return {
        "count": len(ms),
        "p50": _round(percentile(ms, 0.5)),
        "p99": _round(percentile(ms, 0.99)),
        "from_sending_p50": _round(percentile(sent_ms, 0.5)),
        "from_sending_p99": _round(percentile(sent_ms, 0.99)),
    }


def _by_bucket(refusals: Sequence[Refusal]) -> dict[str, list[Refusal]]:
    found: dict[str, list[Refusal]] = defaultdict(list)
    for each in refusals:
        found[BUCKETS[bisect_right(_EDGES_TOKENS, each.prompt_tokens)]].append(each)
    return {name: found[name] for name in BUCKETS if name in found}


def _gap_ms(gaps_ms: Mapping[int, int], part: float) -> int | None:
    total, seen = sum(gaps_ms.values()), 0
    for gap_ms, count in sorted(gaps_ms.items()):
        seen += count
        if seen >= part * total:
            return gap_ms
    return None


def _shown(value: object) -> str:
    return "-" if value is None else str(value)


def _round(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)
