"""One request inside TensorRT-LLM, and how its responses become tokens of the port.

Responses share one object that changes in place, so everything is copied out before the next is awaited. Invariant:
no stop id leaves here, and nothing leaves after the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..port import EndReason, EngineRequest

__all__ = ["Arrival", "Flight"]

_REASONS = {"stop": EndReason.STOP, "length": EndReason.LENGTH}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What one response brought. Empty tokens without an end are possible and only a sign of life."""

    flight: Flight
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    is_first: bool = False
    """The request's first response: its prompt is done."""
    end: EndReason | None = None
    message: str = ""


class Flight:
    """`request` never changes; `blocks` and `made_tokens` belong to the thread that steps, `has_answered` and
    `saw_stop` to the event loop's."""

    __slots__ = ("blocks", "has_answered", "is_streamed", "keywords", "made_tokens", "request", "saw_stop", "stop_ids")

    def __init__(
        self,
        request: EngineRequest,
        *,
        blocks: int,
        stop_ids: Sequence[int],
        keywords: dict[str, Any],
        is_streamed: bool,
    ) -> None:
        self.request = request
        self.blocks = blocks
        self.made_tokens = 0
        """Counted where the engine may pause."""
        self.stop_ids = frozenset(stop_ids)
        self.keywords = keywords
        """Of generate_async, all but the prompt."""
        self.is_streamed = is_streamed
        self.has_answered = False
        self.saw_stop = False

    def read(self, output: Any) -> Arrival:
        """One response. Raises ValueError when it does not hold what was asked for."""
        completion = output.outputs[0]
        if self.is_streamed:
            tokens, logprobs = tuple(completion.token_ids_diff), completion.logprobs_diff
        else:
            tokens, logprobs = tuple(completion.token_ids), completion.logprobs
        had_stopped = self.saw_stop
        kept = self._before_stop(tokens)
        numbers = self._numbers(kept, logprobs) if self.request.wants_logprobs else ()
        is_first, self.has_answered = not self.has_answered, True
        end, message = self._end(completion.finish_reason) if output.finished else (None, "")
        if end is None and had_stopped and tokens:
            end = EndReason.STOP  # its stop id did not end it; whoever reads this has to abort it
        return Arrival(flight=self, token_ids=kept, logprobs=numbers, is_first=is_first, end=end, message=message)

    def _before_stop(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The engine takes the stop id off a finished text; one that it had sent before that is ours to hold back."""
        if self.saw_stop:
            return ()
        for at, token in enumerate(tokens):
            if token in self.stop_ids:
                self.saw_stop = True
                return tokens[:at]
        return tokens

    def _numbers(self, tokens: tuple[int, ...], logprobs: Any) -> tuple[float, ...]:
        entries = list(logprobs or ())
        if len(entries) < len(tokens):
            raise ValueError(f"{len(tokens)} tokens came with {len(entries)} log probabilities")
        return tuple(_logprob(entry, token) for token, entry in zip(tokens, entries, strict=False))

    def _end(self, reason: object) -> tuple[EndReason, str]:
        if self.saw_stop:
            return EndReason.STOP, ""
        known = _REASONS.get(str(reason))
        if known is not None:
            return known, ""
        return EndReason.FAILED, f"the engine ended it with finish_reason {reason!r}"


def _logprob(entry: Any, token: int) -> float:
    """Releases differ: token id -> object with `logprob`, or the number alone."""
    if isinstance(entry, dict):
        if token not in entry:
            raise ValueError(f"the log probability of token {token} is not among those of {sorted(entry)}")
        entry = entry[token]
    return float(getattr(entry, "logprob", entry))
