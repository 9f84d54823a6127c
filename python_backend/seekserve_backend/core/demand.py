"""What urgent requests ask for, whatever becomes of them: sums that fade with time, and what a usual one is like."""

from __future__ import annotations

import math

from .entry import Entry

__all__ = ["Demand"]

_LEAST_GAIN = 0.01


class Demand:
    """Sums of what arrived lately, as of `at_s`; over `memory_s` they are rates."""

    def __init__(self) -> None:
        self.at_s = 0.0
        self.by_class: dict[str, float] = {}
        """Prompts, in engine time by time."""
        self.share = 0.0
        """The same of all classes."""
        self.requests = 0.0
        self.blocks = 0.0
        """Of cache, that they may come to need."""
        self.usual_price_ms = 0.0
        self.usual_tokens = 0.0
        """Expected of an answer."""
        self.usual_stay = 0.0
        """Blocks times the tokens for which they are held."""
        self._gain = 1.0
        """The first few count alike: none of them may pass for usual until a hundred others came."""

    def note(self, entry: Entry, now: float, memory_s: float) -> float:
        """Returns its part of the engine's time."""
        if now > self.at_s:
            self.forget(now, memory_s)
        price_ms, tokens, blocks, name = entry.price_ms, entry.expected_tokens, entry.need_blocks, entry.request_class
        share, by_class, gain = price_ms / (1000.0 * memory_s), self.by_class, self._gain
        by_class[name] = by_class.get(name, 0.0) + share
        self.share += share
        self.blocks += blocks
        self.usual_price_ms += gain * (price_ms - self.usual_price_ms)
        self.usual_tokens += gain * (tokens - self.usual_tokens)
        self.usual_stay += gain * (blocks * tokens - self.usual_stay)
        if gain > _LEAST_GAIN:
            self._gain = max(_LEAST_GAIN, gain / (1.0 + gain))
        self.requests += 1.0
        return share

    def forget(self, now: float, memory_s: float) -> None:
        """Brings the sums up to date."""
        keep = math.exp(min(self.at_s - now, 0.0) / memory_s)
        self.by_class = {name: share * keep for name, share in self.by_class.items() if share > 1e-6}
        self.share = sum(self.by_class.values())
        self.requests *= keep
        self.blocks *= keep
        self.at_s = now
