"""The backend's numbers, read from Prometheus text: what is absent there is absent here, never 0."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from seekserve_backend.contract.metric_names import COMMON_LABELS, FAMILY, PREFIX, Kind

__all__ = ["ModelNumbers", "Sample", "model_numbers", "parse_metrics"]

_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_NOT_OUR_LABELS = (*COMMON_LABELS, "version", "instance")
_ADDED_UNITS = ("requests", "tokens", "blocks", "responses")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    name: str
    labels: dict[str, str]
    value: float


@dataclass(slots=True, kw_only=True)
class ModelNumbers:
    """`plain`: name without prefix -> value. `by_label`: name -> label's value -> number."""

    plain: dict[str, float] = field(default_factory=dict)
    by_label: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        return {**self.plain, **self.by_label}


def parse_metrics(text: str) -> list[Sample]:
    """Every sample of the text; lines of no known form are skipped, since other exporters may share the endpoint."""
    samples = []
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.fullmatch(line)
        if match is None:
            continue
        try:
            value = float(match.group(3))
        except ValueError:
            continue
        labels = {name: _unescape(quoted) for name, quoted in _LABEL.findall(match.group(2) or "")}
        samples.append(Sample(name=match.group(1), labels=labels, value=value))
    return samples


def _unescape(quoted: str) -> str:
    return re.sub(r'\\[\\"n]', lambda match: _ESCAPES[match.group()], quoted)


def model_numbers(samples: Iterable[Sample]) -> dict[str, ModelNumbers]:
    """Numbers by model; those of several processes are added, or the largest taken where a sum means nothing.

    Of a histogram only its sum and count.
    """
    models: dict[str, ModelNumbers] = {}
    for sample in samples:
        model = sample.labels.get("model")
        if model is None or not sample.name.startswith(PREFIX) or "le" in sample.labels:
            continue
        numbers = models.setdefault(model, ModelNumbers())
        name = sample.name.removeprefix(PREFIX)
        rest = sorted(key for key in sample.labels if key not in _NOT_OUR_LABELS)
        table = numbers.by_label.setdefault(name, {}) if rest else numbers.plain
        key = ",".join(sample.labels[label] for label in rest) if rest else name
        before = table.get(key)
        if before is None:
            table[key] = sample.value
        else:
            table[key] = before + sample.value if _is_addable(sample.name) else max(before, sample.value)
    return models


def _is_addable(name: str) -> bool:
    family = FAMILY.get(name)
    return family is None or family.kind is Kind.COUNTER or family.unit in _ADDED_UNITS
