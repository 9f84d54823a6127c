"""Two-curve step-time model of one engine: the currency in which requests are priced.

    T(n, c, K) = base(n) + d * K + q * sum over chunks of (2 * prefix * c + c^2)      [ms]

n = tokens in the step (one per decoding request plus the prefill chunk), K = resident KV tokens. `base` is linear
between its points and extended with its last slope.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from .fields import Fields, is_finite_number

__all__ = ["StepModel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    base_points: tuple[tuple[int, float], ...]
    """(tokens in the step, ms), strictly increasing in tokens, at least two points."""
    kv_read_ms_per_token: float
    """d: added by each KV token that the step reads."""
    attention_ms_per_token2: float
    """q: added by each pair of prompt token and token before it."""
    source: str
    """Where the numbers come from: measured, predicted, or a citation."""

    def __post_init__(self) -> None:
        tokens = [t for t, _ in self.base_points]
        if len(tokens) < 2 or any(b <= a for a, b in itertools.pairwise(tokens)):
            raise ValueError(f"base_points: need two or more strictly increasing token counts, got {tokens}")

    def base_ms(self, tokens: float) -> float:
        points = self.base_points
        for (t0, ms0), (t1, ms1) in itertools.pairwise(points):
            if tokens <= t1 or (t1, ms1) == points[-1]:
                return max(0.0, ms0 + (ms1 - ms0) * (tokens - t0) / (t1 - t0))
        raise AssertionError("unreachable: the last segment always answers")

    def step_ms(self, *, decode_tokens: int, kv_tokens: int, chunks: tuple[tuple[int, int], ...] = ()) -> float:
        """Predicted time of one step; `chunks` holds (tokens already cached, tokens of this chunk) of each prefill."""
        prefill = sum(c for _, c in chunks)
        attention = sum(2 * prefix * c + c * c for prefix, c in chunks)
        return (
            self.base_ms(decode_tokens + prefill)
            + self.kv_read_ms_per_token * kv_tokens
            + self.attention_ms_per_token2 * attention
        )

    def to_json(self) -> dict[str, object]:
        return {
            "base_points": [list(p) for p in self.base_points],
            "kv_read_ms_per_token": self.kv_read_ms_per_token,
            "attention_ms_per_token2": self.attention_ms_per_token2,
            "source": self.source,
        }

    @classmethod
    def read(cls, fields: Fields) -> StepModel | None:
        """Reads the object behind `fields`; None, with the problem noted there, when the points are unusable."""
        points = _points(fields)
        d = fields.number("kv_read_ms_per_token", low=0.0)
        q = fields.number("attention_ms_per_token2", low=0.0)
        source = fields.string("source")
        fields.done()
        if points is None:
            return None
        try:
            return cls(base_points=points, kv_read_ms_per_token=d, attention_ms_per_token2=q, source=source)
        except ValueError as error:
            fields.problem(str(error))
            return None


def _points(fields: Fields) -> tuple[tuple[int, float], ...] | None:
    value = fields.raw("base_points")
    good = isinstance(value, list) and all(
        isinstance(p, list) and len(p) == 2 and isinstance(p[0], int) and all(is_finite_number(v) and v >= 0 for v in p)
        for p in value
    )
    if not good:
        fields.problem(f"base_points: expected a list of [integer tokens, ms from 0 on] pairs, got {value!r}")
        return None
    return tuple((p[0], float(p[1])) for p in value)
