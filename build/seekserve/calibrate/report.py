"""A calibration in words and in JSON."""

from __future__ import annotations

from seekserve_backend.contract.step_model import StepModel

from .run import Calibration

__all__ = ["report_json", "report_text"]


def report_text(done: Calibration, *, written_to: str | None) -> str:
    fit, model = done.fit, done.fit.model
    lines = [
        f"step model from {fit.samples} measured steps ({fit.set_aside} set aside as outliers)",
        f"  error on {fit.held_out} other steps: median {fit.median_error:.1%}, P90 {fit.p90_error:.1%}",
        "  tokens in the step  "
        + "  ".join(f"{tokens}: {ms:.2f} ms" for tokens, ms in model.base_points)
        + "  (without cache and attention)",
        f"  reading the cache   {1e3 * model.kv_read_ms_per_token:.4g} ms per 1,000 resident tokens",
        f"  prompt attention    {1e6 * model.attention_ms_per_token2:.4g} ms per 1,000 x 1,000 tokens",
    ]
    for reason, count in done.left_out.items():
        lines.append(f"  left out: {count} rows ({reason})")
    if done.before is None:
        lines.append("the bundle had no step model")
    else:
        assert done.before_error is not None
        lines.append(f"the bundle's model until now ({done.before.source}): median error {done.before_error:.1%}")
    lines.append(
        f"written to {written_to}; a server takes it when it starts"
        if written_to
        else "not written; --write puts it into the bundle"
    )
    return "\n".join(lines)


def report_json(done: Calibration, *, written_to: str | None) -> dict[str, object]:
    return {
        "step_model": done.fit.model.to_json(),
        "samples": done.fit.samples,
        "set_aside": done.fit.set_aside,
        "held_out": done.fit.held_out,
        "median_error": done.fit.median_error,
        "p90_error": done.fit.p90_error,
        "left_out": dict(done.left_out),
        "before": _json(done.before),
        "before_median_error": done.before_error,
        "written_to": written_to,
    }


def _json(model: StepModel | None) -> dict[str, object] | None:
    return None if model is None else model.to_json()
