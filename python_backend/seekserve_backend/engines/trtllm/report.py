"""Arrivals since the last step -> one report, with at most one TokenEvent and one EndEvent for each request.

The engine pushes, so a step's time is that between reports which brought something while there was work.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..port import EndEvent, EngineStepReport, TokenEvent
from .flight import Arrival

__all__ = ["Tally", "build_report"]


class Tally:
    """What EngineStats counts since the start; written by the engine loop's thread."""

    def __init__(self) -> None:
        self.steps = self.tokens_out = self.prompt_tokens_in = self.last_batch_size = 0
        self.last_step_ms = 0.0
        self._since_s = 0.0

    def begin(self, *, is_first: bool) -> None:
        """A request is added; the first one after an idle time starts the clock."""
        if is_first:
            self._since_s = time.perf_counter()

    def take(self, batch_size: int, tokens: int, prefill_tokens: int) -> float:
        """Counts one step and returns its time in ms."""
        now_s = time.perf_counter()
        self.last_step_ms, self._since_s = (now_s - self._since_s) * 1e3, now_s
        self.last_batch_size = batch_size
        self.steps += 1
        self.tokens_out += tokens
        self.prompt_tokens_in += prefill_tokens
        return self.last_step_ms


def build_report(arrivals: Sequence[Arrival], ends: Sequence[EndEvent], tally: Tally) -> EngineStepReport:
    """`ends` are the cancelled ones, of which `arrivals` holds nothing."""
    token_ids: dict[str, tuple[int, ...]] = {}
    logprobs: dict[str, tuple[float, ...]] = {}
    ended = list(ends)
    prefill_tokens = 0
    for arrival in arrivals:
        request = arrival.flight.request
        if arrival.is_first:
            prefill_tokens += len(request.prompt_ids)
        if arrival.token_ids:
            token_ids[request.id] = token_ids.get(request.id, ()) + arrival.token_ids
            logprobs[request.id] = logprobs.get(request.id, ()) + arrival.logprobs
        if arrival.end is not None:
            ended.append(EndEvent(id=request.id, reason=arrival.end, message=arrival.message))
    if not arrivals:
        return EngineStepReport(step_ms=0.0, batch_size=0, prefill_tokens=0, ends=tuple(ended))
    batch_size = len({arrival.flight.request.id for arrival in arrivals})
    step_ms = tally.take(batch_size, sum(map(len, token_ids.values())), prefill_tokens)
    return EngineStepReport(
        step_ms=step_ms,
        batch_size=batch_size,
        prefill_tokens=prefill_tokens,
        tokens=tuple(TokenEvent(id=i, token_ids=ids, logprobs=logprobs[i]) for i, ids in token_ids.items()),
        ends=tuple(ended),
    )
