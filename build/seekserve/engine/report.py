"""What a build answers, for people and as JSON, the same for every engine kind."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from seekserve.output import bytes_text, json_text, table
from seekserve.plan.facts import PlanFacts
from seekserve_backend.contract.bundle import TRTLLM_KINDS, Bundle

from .outcome import BuildOutcome, BuildStep

__all__ = ["BuildReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    target: Path
    checkpoint: Path
    facts: PlanFacts
    warnings: tuple[str, ...]
    outcome: BuildOutcome
    link_weights: bool

    def json_text(self) -> str:
        bundle, outcome = self.outcome.bundle, self.outcome
        return json_text(
            {
                "status": outcome.status,
                "bundle": str(self.target),
                "checkpoint": str(self.checkpoint),
                "name": bundle.name,
                "model": self.facts.title,
                "family": bundle.family,
                "engine": bundle.engine,
                "engine_version": bundle.engine_version,
                "gpu": bundle.gpu,
                "parallel": bundle.parallel.to_json(),
                "weights": {"dtype": bundle.weights_dtype, "bytes": bundle.weights_bytes, "linked": self.link_weights},
                "limits": bundle.limits.to_json(),
                "kv_cache": bundle.kv.to_json(),
                "trtllm": None if bundle.trtllm is None else bundle.trtllm.to_json(),
                "sources": dict(bundle.sources),
                "warnings": [*self.warnings, *outcome.warnings],
                "needs": list(outcome.needs),
                "steps": [_step_json(step) for step in outcome.steps],
                "files": {copy.target: copy.size_bytes for copy in outcome.copies},
                "texts": dict(outcome.texts),
            }
        )

    def text(self) -> str:
        bundle, outcome = self.outcome.bundle, self.outcome
        is_dry = outcome.status == "dry-run"
        title = {"dry-run": "would build", "reused": "already built, reused:"}.get(outcome.status, outcome.status)
        lines = [f"{title} bundle {bundle.name} at {self.target}", *table(self._rows())]
        lines += [f"  warning: {warning}" for warning in (*self.warnings, *outcome.warnings)]
        if is_dry:
            lines += self._dry_run_lines()
        else:
            lines += _step_lines(outcome.steps, "steps:")
            lines.append(f"next: seekserve render {shlex.quote(str(self.target))} --out REPO")
        return "\n".join(lines)

    def _rows(self) -> list[tuple[str, str]]:
        bundle = self.outcome.bundle
        limits, kv = bundle.limits, bundle.kv
        kv_size = f"{kv.dtype}, {kv.bytes_per_token} B per token, {bytes_text(kv.capacity_tokens * kv.bytes_per_token)}"
        at_once = f"{limits.max_batch_size} requests at once"
        if bundle.parallel.attention_dp:
            at_once += f" on each of {bundle.parallel.tp} ranks"
        size = bytes_text(sum(copy.size_bytes for copy in self.outcome.copies))
        return [
            ("model", f"{self.facts.title}, {bundle.weights_dtype} weights of {bytes_text(bundle.weights_bytes)}"),
            ("engine", f"{bundle.engine} ({bundle.engine_version})"),
            *([("GPUs", _gpus_text(bundle))] if bundle.engine in TRTLLM_KINDS else []),
            ("limits", f"{limits.max_seq_len_tokens} tokens per request, {at_once}"),
            ("step", f"{limits.max_num_tokens} tokens, prefill in chunks of {limits.prefill_chunk_tokens}"),
            ("KV cache", f"{kv.capacity_tokens} tokens in {kv.capacity_blocks} blocks of {kv.block_tokens}, {kv_size}"),
            ("files", f"{len(self.outcome.copies) + len(self.outcome.texts)}, {size}"),
        ]

    def _dry_run_lines(self) -> list[str]:
        outcome = self.outcome
        lines = ["needs:", *(f"  {need}" for need in outcome.needs)] if outcome.needs else []
        lines += _step_lines(outcome.steps, "would run:")
        lines.append("would write:")
        for copy in outcome.copies:
            how = "link to" if copy.is_weights and self.link_weights else "copy of"
            lines.append(f"  {copy.target}  {bytes_text(copy.size_bytes)}, {how} {copy.source}")
        for name, text in outcome.texts.items():
            lines += [f"  {name}", *(f"    {line}" for line in text.splitlines())]
        lines += ["  bundle.json", "values and where they come from:"]
        return lines + table(sorted(outcome.bundle.sources.items()), indent="    ")


def _gpus_text(bundle: Bundle) -> str:
    shape = bundle.parallel
    words = [f"TP {shape.tp}"]
    words += [f"PP {shape.pp}"] if shape.pp > 1 else []
    words += [f"EP {shape.ep}"] if shape.ep > 1 else []
    words += [f"MoE-TP {shape.moe_tp}"] if shape.moe_tp > 1 else []
    words += ["attention DP"] if shape.attention_dp else []
    hosts = f" on {shape.nodes} hosts" if shape.nodes > 1 else ""
    return f"{shape.world_size} x {bundle.gpu}{hosts}: {', '.join(words)}"


def _step_lines(steps: tuple[BuildStep, ...], title: str) -> list[str]:
    lines = [title] if steps else []
    for step in steps:
        variables = "".join(f"{name}={shlex.quote(value)} " for name, value in step.env.items())
        lines.append(f"  {step.name} ({step.status}): {variables}{shlex.join(step.argv)}")
    return lines


def _step_json(step: BuildStep) -> dict[str, object]:
    return {"name": step.name, "argv": list(step.argv), "env": dict(step.env), "status": step.status}
