"""How long answers turn out to be: a decayed mean by class and length bucket, learned from those that finished."""

from __future__ import annotations

__all__ = ["OutputLengths"]


class OutputLengths:
    def __init__(self, *, start_tokens: float, gain: float) -> None:
        self._start_tokens = start_tokens
        self._gain = gain
        self._means: dict[tuple[str, str], tuple[float, int]] = {}
        self._error = 0.0

    def expected_tokens(self, request_class: str, bucket: str, max_tokens: int) -> float:
        return min(self._means.get((request_class, bucket), (self._start_tokens, 0))[0], max_tokens)

    def observe(self, request_class: str, bucket: str, tokens: int) -> None:
        mean, count = self._means.get((request_class, bucket), (self._start_tokens, 0))
        gain = max(self._gain, 1.0 / (count + 1))
        self._error += self._gain * (abs(tokens - mean) - self._error)
        self._means[request_class, bucket] = (mean + gain * (tokens - mean), count + 1)

    @property
    def error_tokens(self) -> float | None:
        """Decayed mean of how far off one request's expectation was; None before any was seen."""
        return self._error if self._means else None
