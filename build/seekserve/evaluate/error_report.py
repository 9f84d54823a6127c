"""The error tables of an evaluation, and the one sentence that they and the answers add up to."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from seekserve.evaluate.run import Evaluation

if TYPE_CHECKING:
    from seekserve.evaluate.kv_errors import KvErrors
    from seekserve.evaluate.weight_errors import WeightErrors

__all__ = ["errors_json", "errors_lines", "verdict"]


def errors_lines(evaluation: Evaluation) -> Iterator[str]:
    if evaluation.weights is not None:
        yield ""
        yield from _weight_lines(evaluation.weights)
    elif evaluation.weights_reason:
        yield ""
        yield f"weight errors were not measured: {evaluation.weights_reason}"
    if evaluation.kv is not None:
        yield ""
        yield from _kv_lines(evaluation.kv)


def errors_json(evaluation: Evaluation) -> dict[str, object] | None:
    """None when they were not asked for. Numbers that JSON does not have become null."""
    if evaluation.kv is None:
        return None
    return {
        "weights": None if evaluation.weights is None else _weights_json(evaluation.weights),
        "weights_reason": evaluation.weights_reason or None,
        "kv_fp8": _kv_json(evaluation.kv),
    }


def verdict(evaluation: Evaluation) -> str:
    """Only when builds were compared and errors measured: the sentence that says whether FP8 is fine for this model."""
    comparison, kv = evaluation.comparison, evaluation.kv
    if comparison is None or kv is None or evaluation.other is None:
        return ""
    pairs, (low, high) = comparison.pairs, comparison.interval
    is_safe = comparison.is_within and -100 * low <= comparison.max_drop_points
    judged = "are fine" if is_safe else "cannot be called fine yet" if comparison.is_within else "are not fine"
    rounding = _percent(max(kv.worst.latent_relative, kv.worst.rope_relative))
    return (
        f"{_build(evaluation.target.facts)} {judged} for this model on {pairs.asked} questions: "
        f"{100 * pairs.difference:+.2f} points ({100 * low:+.2f} to {100 * high:+.2f}) against "
        f"{_build(evaluation.other.facts)}, a drop of {comparison.max_drop_points:g} allowed.\n"
        f"FP8 pages round a layer's KV latents by at most {rounding}, cut off {_percent(kv.saturated_share)} of the "
        f"values and lose {_percent(kv.zero_share)}."
    )


def _build(facts: dict[str, str]) -> str:
    if "server" in facts:
        return f"the server {facts['server']}"
    return f"{facts['weights']} weights with {facts['kv']} KV"


def _weight_lines(errors: WeightErrors) -> Iterator[str]:
    yield f"weights: {errors.precision} against {errors.baseline_precision} of {errors.baseline}"
    if errors.groups:
        yield f"  {'part':<16}  {'tensors':>7}  {'parameters':>14}  {'relative RMS error':>18}  {'worst tensor':>12}"
    for group in errors.groups:
        yield (
            f"  {group.part:<16}  {group.tensors:>7}  {group.parameters:>14,}  {_percent(group.relative):>18}  "
            f"{_percent(group.worst):>12}"
        )
    if errors.equal_parts:
        yield f"  equal bit for bit: {', '.join(errors.equal_parts)}"
    if errors.not_compared:
        yield f"  {errors.not_compared} tensors are in one of the two only and were not compared"
    if errors.worst:
        yield "  worst tensors"
        yield from (f"    {_percent(tensor.relative):>8}  {tensor.name}" for tensor in errors.worst)


def _kv_lines(errors: KvErrors) -> Iterator[str]:
    yield f"KV latents in fp8_e4m3 against fp32, {errors.tokens} tokens of questions and answers"
    yield "  layer  latent error  rope error  saturated     zeroed  largest value"
    for layer in errors.layers:
        yield (
            f"  {layer.layer:>5}  {_percent(layer.latent_relative):>12}  {_percent(layer.rope_relative):>10}  "
            f"{_percent(layer.saturated_share):>9}  {_percent(layer.zero_share):>9}  {layer.largest:>13.4g}"
        )
    yield f"  errors are relative RMS; e4m3 pages have no scale and end at {errors.limit:g}"
    yield "  whether the range drifts with other prompts is seen by measuring again with them"


def _weights_json(errors: WeightErrors) -> dict[str, object]:
    return {
        "precision": errors.precision,
        "baseline": str(errors.baseline),
        "baseline_precision": errors.baseline_precision,
        "groups": [
            {
                "part": group.part,
                "tensors": group.tensors,
                "parameters": group.parameters,
                "relative": _finite(group.relative),
                "worst": _finite(group.worst),
            }
            for group in errors.groups
        ],
        "equal_parts": list(errors.equal_parts),
        "worst": [{"name": tensor.name, "relative": _finite(tensor.relative)} for tensor in errors.worst],
        "not_compared": errors.not_compared,
    }


def _kv_json(errors: KvErrors) -> dict[str, object]:
    names = ("layer", "latent_relative", "rope_relative", "saturated_share", "zero_share", "largest")
    return {
        "tokens": errors.tokens,
        "layers": [{name: getattr(layer, name) for name in names} for layer in errors.layers],
    }


def _percent(share: float) -> str:
    if not math.isfinite(share):
        return "not finite" if math.isnan(share) else "infinite"
    if share == 0:
        return "0 %"
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.1f} %"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
