"""The report of `seekserve inspect`: for people as lines of text, for machines as one JSON object."""

from __future__ import annotations

from collections.abc import Mapping

from seekserve.output import bytes_text, table

from .facts import ModelFacts
from .findings import Finding, Severity, printable
from .kv import kv_cost

__all__ = ["report_json", "report_text"]

_KV_DTYPES = ("bf16", "fp8_e4m3")
_MARKS = {Severity.ERROR: "ERROR  ", Severity.WARNING: "warning", Severity.NOTE: "note   "}


def report_json(facts: ModelFacts) -> dict[str, object]:
    config = facts.config
    return {
        "checkpoint": str(facts.folder),
        "family": facts.family,
        "architecture": facts.architecture,
        "title": facts.identity.title,
        "layers": config.num_hidden_layers if config else None,
        "mtp_layers": {"declared": config.num_nextn_predict_layers if config else None, "found": facts.mtp_layers},
        "parameters": facts.parameters.to_json(),
        "precision": facts.precision,
        "precision_declared": facts.precision_declared,
        "weights_bytes": facts.weights_bytes,
        "bytes_by_dtype": dict(facts.bytes_by_dtype),
        "kv_bytes_per_token": _kv_per_token(facts),
        "kv_bytes_per_request": _kv_per_request(facts),
        "eos_token_ids": {file: list(ids) for file, ids in facts.tokenizer.eos_by_file.items()},
        "files": len(facts.files),
        "tensors": len(facts.tensors),
        "findings": [finding.to_json() for finding in facts.findings],
    }


def report_text(facts: ModelFacts) -> str:
    lines = [f"{printable(facts.identity.title)}", *table(_rows(facts))]
    if facts.parameters.by_part:
        lines += ["", "Parameters by part", *table(_part_rows(facts.parameters.by_part))]
    if facts.bytes_by_dtype:
        rows = [(dtype, bytes_text(size)) for dtype, size in facts.bytes_by_dtype.items()]
        lines += ["", "Bytes by dtype", *table(rows)]
    lines += ["", *_finding_lines(facts.findings)]
    return "\n".join(lines)


def _rows(facts: ModelFacts) -> list[tuple[str, str]]:
    config = facts.config
    rows = [
        ("folder", str(facts.folder)),
        ("family", f"{facts.family} (architecture {facts.architecture})"),
        ("files", f"{len(facts.files)} safetensors, {len(facts.tensors):,} tensors, {bytes_text(facts.weights_bytes)}"),
        ("parameters", _parameters_line(facts)),
        ("precision", f"{facts.precision} found, {facts.precision_declared} declared"),
    ]
    if config is not None:
        mtp = f", {facts.mtp_layers} MTP" if facts.mtp_layers or config.num_nextn_predict_layers else ""
        rows.insert(2, ("layers", f"{config.num_hidden_layers}{mtp}"))
        rope = config.rope_scaling
        scaling = f", rope {rope.kind} x{rope.factor:g}" if rope and rope.factor else ""
        if config.max_position_tokens:
            rows.append(("context", f"{config.max_position_tokens:,} tokens{scaling}"))
    per_token = _kv_per_token(facts)
    if per_token:
        rows.append(("KV per token", ", ".join(f"{size:,} B {dtype}" for dtype, size in per_token.items())))
    per_request = _kv_per_request(facts)
    if any(per_request.values()):
        rows.append(("KV per request", ", ".join(f"{bytes_text(size)} {dtype}" for dtype, size in per_request.items())))
    eos = facts.tokenizer.eos_by_file
    rows.append(("end of sequence", ", ".join(f"{file} {list(ids)}" for file, ids in eos.items()) or "not named"))
    return rows


def _parameters_line(facts: ModelFacts) -> str:
    parameters = facts.parameters
    text = f"{billions(parameters.main)} main"
    if parameters.active is not None:
        text += f", {billions(parameters.active)} active per token"
    if parameters.mtp:
        text += f", {billions(parameters.mtp)} MTP"
    if parameters.stored != parameters.total:
        text += f"; {billions(parameters.stored)} as stored"
    return text


def _part_rows(by_part: Mapping[str, int]) -> list[tuple[str, str]]:
    ordered = sorted(by_part.items(), key=lambda item: -item[1])
    return [(part.replace("_", " "), billions(count)) for part, count in ordered]


def _kv_per_token(facts: ModelFacts) -> dict[str, int]:
    return _kv(facts, "per_token_bytes")


def _kv_per_request(facts: ModelFacts) -> dict[str, int]:
    return _kv(facts, "per_request_bytes")


def _kv(facts: ModelFacts, field: str) -> dict[str, int]:
    """Nothing when the config lacks what the family needs: that is reported as a finding already."""
    if facts.config is None or not facts.has_layout:
        return {}
    costs = {dtype: kv_cost(facts.config, facts.architecture, dtype) for dtype in _KV_DTYPES}
    return {dtype: getattr(cost, field) for dtype, cost in costs.items()}


def _finding_lines(findings: tuple[Finding, ...]) -> list[str]:
    counts = {severity: sum(f.severity is severity for f in findings) for severity in Severity}
    errors, warnings = counts[Severity.ERROR], counts[Severity.WARNING]
    lines = [f"{_MARKS[f.severity]}  {f.code}  {f.file}: {f.message}" for f in findings]
    verdict = f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}"
    return [*lines, *([""] if lines else []), verdict]


def billions(count: int) -> str:
    """Three significant digits or more, in the unit that people quote."""
    for size, unit, digits in ((10**9, "B", 2), (10**6, "M", 2), (10**3, "K", 1)):
        if count >= size:
            return f"{count / size:,.{digits}f} {unit}"
    return str(count)
