"""Metrics text as the backend publishes it, made of numbers: for tests that have no server."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from seekserve_backend.contract.metric_names import FAMILY, PREFIX, Kind

__all__ = ["Exposition"]


@dataclass
class Exposition:
    """`set` and `observe` by name without prefix; `text` is what a scrape would bring."""

    model: str = "chat"
    process: str = "7"
    values: dict[str, dict[tuple[str, ...], float]] = field(default_factory=dict)
    observed: dict[str, dict[tuple[str, ...], list[float]]] = field(default_factory=dict)

    def set(self, name: str, value: float, *labels: str) -> Exposition:
        assert len(labels) == len(FAMILY[PREFIX + name].labels), name
        self.values.setdefault(name, {})[labels] = value
        return self

    def observe(self, name: str, values: Iterable[float], *labels: str) -> Exposition:
        assert FAMILY[PREFIX + name].kind is Kind.HISTOGRAM, name
        self.observed.setdefault(name, {}).setdefault(labels, []).extend(values)
        return self

    def text(self) -> str:
        return "".join(line + "\n" for line in self._lines())

    def _lines(self) -> Iterable[str]:
        for name, table in self.values.items():
            family = FAMILY[PREFIX + name]
            yield f"# HELP {family.name} {family.help}"
            yield f"# TYPE {family.name} {family.kind.value}"
            for own, value in table.items():
                yield f"{family.name}{self._labels(family.labels, own)} {value!r}"
        for name, observations in self.observed.items():
            family = FAMILY[PREFIX + name]
            yield f"# TYPE {family.name} histogram"
            for own, values in observations.items():
                ascending = sorted(values)
                for bound in (*family.buckets, math.inf):
                    le = "+Inf" if bound == math.inf else f"{bound:g}"
                    below = bisect_right(ascending, bound)
                    yield f"{family.name}_bucket{self._labels(family.labels, own, le=le)} {below}"
                yield f"{family.name}_sum{self._labels(family.labels, own)} {sum(values)!r}"
                yield f"{family.name}_count{self._labels(family.labels, own)} {len(values)}"

    def _labels(self, names: Sequence[str], own: Sequence[str], **more: str) -> str:
        labels: Mapping[str, str] = {
            "model": self.model, "process": self.process, **dict(zip(names, own, strict=True)), **more
        }  # fmt: skip
        return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
