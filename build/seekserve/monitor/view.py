"""What the rules look at: a window, what was promised, and the few figures that several rules share. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from seekserve.simulate.slo import ClassSlo

from .reading import Histogram
from .window import Window, quantile

__all__ = ["OFFLINE_NAMES", "View"]

OFFLINE_NAMES = frozenset({"offline", "batch"})
"""Classes that are promised an end and no first token, where no SLO file says which."""

_USUAL_LEAST = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    window: Window
    promised: Mapping[str, ClassSlo] | None = None
    """Of an SLO file; None: what was usual until the window began is what is expected."""

    def urgent_classes(self) -> list[str]:
        """Those that are promised a first token and got one lately."""
        table = self.window.numbers[-1].histograms.get("time_to_first_token_seconds", {})
        names = sorted({own[0] for own in table})
        if self.promised is None:
            return [name for name in names if name not in OFFLINE_NAMES]
        return [name for name in names if name in self.promised and not self.promised[name].is_offline]

    def wanted_ttft_s(self, name: str) -> float | None:
        promise = None if self.promised is None else self.promised.get(name)
        if promise is None or promise.ttft_ms is None:
            return None
        tokens = self.window.mean_observed("request_prompt_tokens", **{"class": name}) or 0.0
        return (promise.ttft_ms + promise.ttft_ms_per_token * tokens) / 1000.0

    def wanted_tpot_s(self, name: str) -> float | None:
        promise = None if self.promised is None else self.promised.get(name)
        return None if promise is None or promise.tpot_ms is None else promise.tpot_ms / 1000.0

    def share(self, name: str, of: str, **labels: str) -> float | None:
        """Of two counters: how much of the second the first is, within the window."""
        part, whole = self.window.increase(name, **labels), self.window.increase(of)
        return part / whole if part is not None and whole else None

    def ended_share(self, terminal: str) -> float | None:
        part = self.window.increase("requests_ended_total", terminal=terminal)
        whole = self.window.increase("requests_ended_total")
        return part / whole if part is not None and whole else None

    def queued(self) -> float:
        return self.window.mean("queue_requests") or 0.0

    def kv_share(self, name: str) -> float | None:
        """Of the KV cache: `kv_used_blocks` or `kv_reserved_blocks`, as `while_waiting`."""
        part, whole = self.while_waiting(name), self.window.mean("kv_blocks")
        return part / whole if part is not None and whole else None

    def while_waiting(self, name: str) -> float | None:
        """Mean over the looks at which requests waited, or over all where none did: what they waited beside."""
        waiting = [sum(each.values.get("queue_requests", {}).values()) >= 1.0 for each in self.window.numbers]
        found = [
            sum(each.values[name].values())
            for each, is_waiting in zip(self.window.numbers, waiting, strict=True)
            if name in each.values and (is_waiting or not any(waiting))
        ]
        return sum(found) / len(found) if found else None

    def usual(self, name: str, part: float, **labels: str) -> float | None:
        """The percentile until the window began; None of too few observations to call it usual."""
        before = self.window.before(name, **labels)
        return None if before is None or before.count < _USUAL_LEAST else quantile(before, part)

    def usual_mean(self, name: str) -> float | None:
        before = self.window.before(name)
        return None if before is None or before.count < _USUAL_LEAST else before.sum / before.count

    def halves(self) -> tuple[Window, Window] | None:
        """Earlier and later; None of fewer than four looks."""
        window, middle = self.window, len(self.window.times_s) // 2
        if len(window.times_s) < 4:
            return None
        first = Window(
            server=window.server,
            model=window.model,
            times_s=window.times_s[: middle + 1],
            numbers=window.numbers[: middle + 1],
        )
        second = Window(
            server=window.server, model=window.model, times_s=window.times_s[middle:], numbers=window.numbers[middle:]
        )
        return first, second

    def tokens_per_engine_s(self, *, is_usual: bool = False) -> float | None:
        """Output tokens over the time that the engine worked for them: what it is worth whatever is asked of it."""
        window = self.window
        steps: Histogram | None
        if is_usual:
            steps = window.before("engine_step_seconds")
            first = window.numbers[0].values.get("output_tokens_total", {})
            tokens = sum(first.values()) if first else None
        else:
            steps, tokens = window.observed("engine_step_seconds"), window.increase("output_tokens_total")
        return tokens / steps.sum if steps is not None and steps.sum > 0.0 and tokens is not None else None

    def batch(self, *, is_usual: bool = False) -> float | None:
        """Mean number of requests in a step."""
        window = self.window
        if is_usual:
            steps = window.before("engine_step_seconds")
            first = window.numbers[0].values.get("engine_step_requests_total", {})
            total = sum(first.values()) if first else None
        else:
            steps, total = window.observed("engine_step_seconds"), window.increase("engine_step_requests_total")
        return total / steps.count if steps is not None and total is not None else None

    def hit_ratio(self, *, is_usual: bool = False) -> float | None:
        """Of prompts that were looked up, those whose beginning was cached."""
        if not is_usual:
            return self.share("prefix_hits_total", "prefix_lookups_total")
        first = self.window.numbers[0].values
        hits, lookups = (sum(first.get(f"prefix_{name}_total", {}).values()) for name in ("hits", "lookups"))
        return hits / lookups if lookups >= _USUAL_LEAST else None
