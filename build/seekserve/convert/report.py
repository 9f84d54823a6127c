"""The report of a conversion: for people as lines, for machines as one JSON object."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from seekserve.output import bytes_text, json_text, table

from .needs import Needs
from .plan import ConversionPlan
from .verify import Verification

__all__ = ["ConvertReport"]

_VERBS = {
    "quantise": "quantised to FP8 blocks",
    "dequantise": "dequantised to bf16",
    "cast": "rounded to bf16",
    "copy": "copied as they are",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport:
    plan: ConversionPlan
    out: Path
    needs: Needs
    kernel: str | None = None
    """None when nothing was written (a dry run)."""
    kept_shards: int = 0
    """Shards that an earlier run had finished."""
    converted_bytes: int = 0
    """Source bytes that this run has read."""
    seconds: float = 0.0
    verification: Verification | None = None

    def json_text(self) -> str:
        plan = self.plan
        return json_text(
            {
                "checkpoint": str(plan.folder),
                "out": str(self.out),
                "family": plan.facts.family,
                "from": plan.facts.precision,
                "to": plan.target,
                "is_written": self.kernel is not None,
                "shards": len(plan.shards),
                "kept_shards": self.kept_shards,
                "tensors": self._counts(),
                "source_bytes": plan.source_bytes,
                "output_bytes": plan.output_bytes,
                "needs": self.needs.to_json(),
                "kernel": self.kernel,
                "seconds": round(self.seconds, 3),
                "verification": self.verification.to_json() if self.verification else None,
            }
        )

    def text(self) -> str:
        plan = self.plan
        head = "would be written to" if self.kernel is None else "written to"
        rows = [
            ("model", plan.facts.identity.title),
            ("precision", f"{plan.facts.precision} -> {plan.target}"),
            *((_VERBS[action], f"{count:,} tensors") for action, count in self._counts().items()),
            ("size", f"{bytes_text(plan.source_bytes)} -> {bytes_text(plan.output_bytes)}, {len(plan.shards)} shards"),
            ("needs", str(self.needs)),
        ]
        if self.kernel is not None:
            rows.append(("time", self._time()))
        lines = [f"{head} {self.out}", *table(rows)]
        if self.verification is not None:
            lines += ["", *_verification_lines(self.verification)]
        return "\n".join(lines)

    def _counts(self) -> dict[str, int]:
        counts: Counter[str] = Counter(work.action for work in self.plan.works)
        return {action: counts[action] for action in _VERBS if counts[action]}

    def _time(self) -> str:
        rate = f", {bytes_text(int(self.converted_bytes / self.seconds))}/s read" if self.seconds > 0 else ""
        kept = f", {self.kept_shards} shards kept from before" if self.kept_shards else ""
        return f"{self.seconds:.1f} s{rate} ({self.kernel} kernel){kept}"


def _verification_lines(found: Verification) -> list[str]:
    groups = [
        (
            group.replace("_", " "),
            f"relative error {error.relative_error:.3%}, worst {error.worst_relative_error:.3%} of {error.tensors:,}",
        )
        for group, error in found.groups.items()
    ]
    worst = [
        (tensor.name, f"{tensor.relative_error:.3%}, largest {tensor.largest_error:.3g}") for tensor in found.worst
    ]
    zero = f"{found.zero_blocks:,} blocks hold only zeros"
    if found.zero_block_tensors:
        zero += f": {', '.join(found.zero_block_tensors[:3])}{', ...' if len(found.zero_block_tensors) > 3 else ''}"
    return [
        "Verified: every value is what the definition gives",
        *table(groups),
        "Worst tensors",
        *table(worst),
        zero,
    ]
