"""The `seed` gate: the rules of thumb that operators are given, taken at their word, with their constants as options.

A batch is formed when enough wait or the oldest has waited; its size follows the spread of prompt lengths, a warm-up,
a size of its own for short and for long prompts, and falls back when latency or cache use pass fixed marks. It is here
to be selected and to be compared with: in-flight batching makes several of these rules pure delay.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

from ..contract.policy import Policy
from ..contract.refusal import ErrorCode
from ..contract.rungs import NORMAL, Rung
from .entry import Entry
from .refusals import Refusal, Why
from .release import ReleaseGate
from .reserve import Reserve
from .types import StepReport

__all__ = ["SeedGate"]

_LATENCY_MEMORY_S = 60.0
_LENGTHS_KEPT = 4096


class SeedGate(ReleaseGate):
    """First in first out by class as in `fcfs`; how many run at once is what the rules say."""

    def __init__(self, policy: Policy, most_requests: int, reserve: Reserve) -> None:
        super().__init__(policy, reserve)
        self._most = most_requests
        self._started_s: float | None = None
        self._reviewed_s = -math.inf
        self._lengths_seen: deque[int] = deque(maxlen=_LENGTHS_KEPT)
        self._latencies: deque[tuple[float, float]] = deque()
        self._arrivals: dict[str, float] = {}
        self._by_length = {"short": 0, "middle": 0, "long": 0}
        self._batch = policy.seed.cold_batch
        self._halvings = 0
        self._now = 0.0
        self._open = 0
        """Requests of the batch that is being started."""
        self._above_since_s: dict[str, float] = {}
        self._calm_since_s: float | None = None

    def replace_policy(self, policy: Policy) -> None:
        self._options = policy.seed
        self._full_cache, self._level_2 = (rung for _, rung in policy.ladder())
        super().replace_policy(policy)

    def judge(self, entry: Entry, now: float) -> Refusal | None:
        """Level 2 refuses low priority; everything else is let in."""
        if self._is_level_2(now) and self._classes[entry.request_class].priority > 0 and not entry.is_probe:
            return Refusal(
                code=ErrorCode.OVERLOADED,
                why=Why.LATENCY,
                reason=f"P99 latency above {self._options.level2_p99_ms:g} ms: low priority is refused",
                wait_ms=1000.0 * self._options.calm_s,
            )
        return None

    def push(self, entry: Entry) -> None:
        super().push(entry)
        self._lengths_seen.append(entry.prompt_tokens)

    # What the rules make of the last minutes

    def tick(self, now: float) -> None:
        reserve, self._now = self._reserve, now
        if self._started_s is None:
            self._started_s = self._calm_since_s = now
        self._watch("kv", reserve.taken_blocks > self._options.memory_share * reserve.capacity_blocks, now)
        p99_ms = self._p99_ms(now)
        self._watch("p99", p99_ms > self._options.level1_p99_ms, now)
        self._watch("level2", p99_ms > self._options.level2_p99_ms, now)
        if now - self._reviewed_s >= self._options.review_s:
            self._reviewed_s = now
            self._review(now)

    def _review(self, now: float) -> None:
        """Every few seconds: the size that the spread of lengths asks for, halved once for each thing that is wrong.

        A halving is taken back only after a calm time.
        """
        options, lengths = self._options, self._lengths_seen
        if len(lengths) > 1:
            mean = sum(lengths) / len(lengths)
            spread = math.sqrt(sum((n - mean) ** 2 for n in lengths) / len(lengths))
            self._batch = options.batch_mixed if spread > options.spread_ratio * mean else options.batch_alike
        is_inefficient = self._reserve.held.efficiency() < options.efficiency_share
        wrong = (
            is_inefficient
            + ("p99" in self._above_since_s)
            + self._held("kv", options.memory_s, now)
            + self._is_level_2(now)
        )
        if wrong >= self._halvings or (self._calm_since_s is not None and now - self._calm_since_s >= options.calm_s):
            self._halvings = wrong
            self._calm_since_s = now

    @property
    def rung(self) -> Rung:
        """What is done to requests beside the size of the batch."""
        rung = self._level_2 if self._is_level_2(self._now) else NORMAL
        if not self._held("kv", self._options.cache_s, self._now):
            return rung
        cache = self._full_cache
        return replace(rung, max_beam_width=cache.max_beam_width, no_speculation=cache.no_speculation)

    def gauges(self) -> dict[str, float]:
        return {"max_running": float(self.batch_size)}

    @property
    def batch_size(self) -> int:
        options = self._options
        if not options.caps:
            return self._most
        size = max(1, self._batch >> self._halvings)
        elapsed_s = self._now - (self._started_s or 0.0)
        if elapsed_s < options.warm_for_s:
            size = min(size, options.cold_batch + options.warm_add * int(elapsed_s / options.warm_every_s))
        return min(size, self._most)

    def _watch(self, name: str, is_above: bool, now: float) -> None:
        if is_above:
            self._above_since_s.setdefault(name, now)
        else:
            self._above_since_s.pop(name, None)

    def _held(self, name: str, seconds: float, now: float) -> bool:
        return name in self._above_since_s and now - self._above_since_s[name] >= seconds

    def _is_level_2(self, now: float) -> bool:
        return self._held("level2", self._options.level2_s, now)

    def _p99_ms(self, now: float) -> float:
        while self._latencies and now - self._latencies[0][0] > _LATENCY_MEMORY_S:
            self._latencies.popleft()
        if not self._latencies:
            return 0.0
        ordered = sorted(ms for _, ms in self._latencies)
        return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]

    # Release

    def next(self, now: float) -> Entry | None:
        room = self.batch_size - self._reserve.used_slots
        if room <= 0:
            self._open = 0
            return None
        if self._open <= 0:
            waiting = len(self)
            heads = [head for lane in self._lanes.values() if (head := lane.head()) is not None]
            oldest = min((head.arrival_s for head in heads), default=now)
            is_formed = waiting >= self._options.form_requests or 1000.0 * (now - oldest) >= self._options.form_wait_ms
            if not waiting or not is_formed:
                return None
            self._open = min(waiting, room)
        head = self._first_that_fits()
        if head is not None:
            self._lanes[head.lane].remove(head.id)
            self._open -= 1
        return head

    def _may_start(self, head: Entry) -> bool:
        return not self._is_class_full(head)

    def _length_class(self, entry: Entry) -> str:
        if entry.prompt_tokens < self._options.short_tokens:
            return "short"
        return "middle" if entry.prompt_tokens < self._options.long_tokens else "long"

    def _is_class_full(self, entry: Entry) -> bool:
        if not self._options.caps:
            return False
        sizes = {
            "short": self._options.batch_short,
            "middle": self._options.batch_short,
            "long": self._options.batch_long,
        }
        name = self._length_class(entry)
        return self._by_length[name] >= sizes[name]

    def started(self, entry: Entry) -> None:
        self._by_length[self._length_class(entry)] += 1
        self._arrivals[entry.id] = entry.arrival_s

    def observe(self, report: StepReport) -> None:
        for id in report.firsts:
            arrival_s = self._arrivals.pop(id, None)
            if arrival_s is not None:
                self._latencies.append((self._now, 1000.0 * max(0.0, self._now - arrival_s)))

    def ended(self, entry: Entry, tokens: int) -> None:
        self._arrivals.pop(entry.id, None)
        name = self._length_class(entry)
        self._by_length[name] = max(0, self._by_length[name] - 1)
