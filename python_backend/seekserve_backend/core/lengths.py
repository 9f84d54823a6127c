"""How long answers turn out to be: a decayed mean by class and length bucket, learned from those that finished."""

from __future__ import annotations

__all__ = ["OutputLengths"]


class OutputLengths:
    def __init__(self, *, start_tokens: float, gain: float) -> None:
        self._gain = gain
        self._means: dict[tuple[str, str], tuple[float, int]] = {}
        self._error = 0.0

        self._unseen = (start_tokens, 0)

    def mean_tokens(self, request_class: str, bucket: str) -> float:
        return self._means.get((request_class, bucket), self._unseen)[0]

    def observe(self, request_class: str, bucket: str, tokens: int) -> None:
        key = (request_class, bucket)
        mean, count = self._means.get(key, self._unseen)
        off, gain, count = tokens - mean, self._gain, count + 1
        self._error += gain * ((off if off > 0.0 else -off) - self._error)
        if gain * count < 1.0:
            gain = 1.0 / count
        self._means[key] = mean + gain * off, count

    @property
    def error_tokens(self) -> float | None:
        """Decayed mean of how far off one request's expectation was; None before any was seen."""
        return self._error if self._means else None
