"""One step's events on their way into a report, and the counters that run through all steps."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable

from ..port import EndEvent, EngineStepReport, TokenEvent
from .port import StockResponse
from .stream import Stream

__all__ = ["Step"]

Event = tuple[Stream, StockResponse | None]


class Step:
    """A push engine has no steps of its own: one lasts from the last tokens, or the first request, to these tokens."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.ends: list[EndEvent] = []
        self.steps = self.last_batch_size = self.tokens_out = self.prompt_tokens_in = 0
        self.last_step_ms = 0.0
        self._clock = clock
        self._since_s = clock()
        self._tokens: dict[str, TokenEvent] = {}
        self._prefill_tokens = 0

    def gather(self, events: queue.SimpleQueue[Event], timeout_s: float, gather_s: float) -> list[Event]:
        """Everything that has come; waits only when there is nothing to report yet."""
        out: list[Event] = []
        try:
            if self.ends or timeout_s <= 0:
                out.append(events.get_nowait())
            else:
                out.append(events.get(timeout=timeout_s))
                if gather_s > 0:
                    time.sleep(gather_s)
            while True:
                out.append(events.get_nowait())
        except queue.Empty:
            return out

    def add_tokens(self, stream: Stream, event: TokenEvent | None, *, is_first: bool) -> None:
        if is_first:
            self._prefill_tokens += len(stream.request.prompt_ids)
            if not self._tokens:
                self._since_s = max(self._since_s, stream.sent_s)
        if event is None:
            return
        earlier = self._tokens.get(event.id)
        # One event for each request: the service takes the one beside an end to be the last.
        self._tokens[event.id] = event if earlier is None else _joined(earlier, event)

    def report(self) -> EngineStepReport:
        now = self._clock()
        tokens = tuple(self._tokens.values())
        step_ms = 0.0
        if self._tokens:
            step_ms = (now - self._since_s) * 1e3
            self._since_s = now
            self.steps += 1
            self.last_step_ms, self.last_batch_size = step_ms, len(tokens)
        self.tokens_out += sum(len(event.token_ids) for event in tokens)
        self.prompt_tokens_in += self._prefill_tokens
        out = EngineStepReport(
            step_ms=step_ms,
            batch_size=len(tokens),
            prefill_tokens=self._prefill_tokens,
            tokens=tokens,
            ends=tuple(self.ends),
        )
        self._tokens.clear()
        self.ends.clear()
        self._prefill_tokens = 0
        return out


def _joined(earlier: TokenEvent, later: TokenEvent) -> TokenEvent:
    return TokenEvent(
        id=earlier.id,
        token_ids=earlier.token_ids + later.token_ids,
        logprobs=earlier.logprobs + later.logprobs,
    )
