"""What is measured of single requests and steps, kept until the metrics are flushed: one append each, no publishing.

Probes are left out: they are no client's requests. Values that come faster than they can be put out are dropped at a
bound, and counted.
"""

from __future__ import annotations

import collections
import threading
from dataclasses import dataclass

from .contract.metric_names import PREFIX
from .engines.port import EngineStepReport
from .live import Live

__all__ = ["Measures", "Observation", "Totals"]

Observation = tuple[str, str | None, float]
"""(family, class or None where it has none, value)"""

_MOST_WAITING = 50_000


@dataclass(slots=True)
class Totals:
    """Since the start; they only grow."""

    step_requests: int = 0
    prefix_lookups: int = 0
    prefix_hits: int = 0
    prefix_hit_tokens: int = 0
    dropped: int = 0


class Measures:
    """Any thread may call; times are seconds on the service's clock."""

    def __init__(self, *, most_waiting: int = _MOST_WAITING) -> None:
        self._most_waiting = most_waiting
        self._waiting: collections.deque[Observation] = collections.deque()
        self._lock = threading.Lock()
        self.totals = Totals()

    def admitted(self, live: Live, cached_tokens: int | None) -> None:
        """`cached_tokens`: of the prompt, believed to be in the cache; None where nothing is looked up."""
        assert live.work is not None, "tokenised"
        prompt_tokens = len(live.work.prompt_ids)
        if cached_tokens is not None and not live.inbound.is_probe:
            with self._lock:
                self.totals.prefix_lookups += 1
                self.totals.prefix_hits += cached_tokens > 0
                self.totals.prefix_hit_tokens += min(cached_tokens, prompt_tokens)
        self._note(live, "request_prompt_tokens", prompt_tokens)

    def taken(self, live: Live, now_s: float) -> None:
        """The engine has it."""
        queue_s = live.queue_ms / 1000.0
        self._note(live, "queue_time_seconds", queue_s)
        self._note(live, "batch_formation_seconds", now_s - live.begun_s - queue_s)

    def tokens(self, live: Live, now_s: float) -> None:
        """Some came."""
        if live.first_token_s is None:
            live.first_token_s = now_s
            if not live.is_joined:
                self._note(live, "time_to_first_token_seconds", now_s - live.begun_s)
        live.last_token_s = now_s

    def finished(self, live: Live, now_s: float) -> None:
        """Of one that the engine worked for; what another's work or another model answered is in the books alone."""
        first_s, last_s = live.first_token_s, live.last_token_s
        if first_s is None or last_s is None or live.is_joined or live.work is None:
            return
        tokens = live.work.made_tokens
        self._note(live, "request_duration_seconds", now_s - live.begun_s)
        self._note(live, "request_output_tokens", live.work.completion_tokens)
        if tokens > 1:
            self._note(live, "time_per_output_token_seconds", (last_s - first_s) / (tokens - 1))

    def step(self, report: EngineStepReport) -> None:
        if report.step_ms > 0.0 and report.batch_size:
            self.totals.step_requests += report.batch_size
            self._put((PREFIX + "engine_step_seconds", None, report.step_ms / 1000.0))

    def take(self, most: int) -> list[Observation]:
        """Up to so many of those that wait, the oldest first; they are gone then."""
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def _note(self, live: Live, name: str, value: float) -> None:
        if not live.inbound.is_probe:
            self._put((PREFIX + name, live.request_class, max(0.0, float(value))))

    def _put(self, observation: Observation) -> None:
        with self._lock:
            if len(self._waiting) >= self._most_waiting:
                self.totals.dropped += 1
            else:
                self._waiting.append(observation)
