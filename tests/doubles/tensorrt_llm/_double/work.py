"""One request inside the engine: its tokens, its place, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .blocks import DEFAULT_PRIORITY, Holding, Priority
from .tokens import token_logprob, token_stream

__all__ = ["Sequence_", "Work", "retention"]


@dataclass(slots=True, kw_only=True)
class Sequence_:
    """One of the sequences of a request."""

    source: Iterator[int]
    token_ids: list[int] = field(default_factory=list)
    unsent: int = 0
    finish: str | None = None


@dataclass(slots=True, kw_only=True)
class Work:
    id: int
    prompt_ids: Sequence[int]
    max_tokens: int
    end_id: int | None
    """None where the end is ignored."""
    min_tokens: int
    stop_words: Sequence[Sequence[int]]
    n_sequences: int
    is_beam: bool
    streaming: bool
    logprobs: int | None
    prompt_logprobs: int | None
    wants_metrics: bool
    salt: Hashable
    retention: Any
    priority: float
    send: Callable[[Any], None]
    arrived_at: float
    sequences: list[Sequence_] = field(default_factory=list)
    holding: Holding | None = None
    computed_tokens: int = 0
    steps: int = 0
    started_at: float | None = None
    first_token_at: float | None = None
    cancel_at: float | None = None
    first_iteration: int | None = None
    was_sent: bool = False
    is_ended: bool = False

    @classmethod
    def of(cls, *, end_id: int | None, ignores_end: bool, **given: Any) -> Work:
        work = cls(end_id=None if ignores_end else end_id, **given)
        work.sequences = [
            Sequence_(source=token_stream(work.prompt_ids, end_id, ignores_end, index))
            for index in range(work.n_sequences)
        ]
        return work

    @property
    def is_context(self) -> bool:
        return self.computed_tokens < len(self.prompt_ids)

    @property
    def is_finished(self) -> bool:
        return all(sequence.finish for sequence in self.sequences)

    @property
    def longest_tokens(self) -> int:
        return len(self.prompt_ids) + max(len(sequence.token_ids) for sequence in self.sequences)

    def advance(self, tokens: int) -> int:
        """One step of every unfinished sequence; how many tokens it made."""
        made = 0
        for sequence in self.sequences:
            for _ in range(tokens):
                if sequence.finish is None:
                    self._append(sequence)
                    made += 1
        self.steps += 1
        return made

    def logprobs_of(self, token_ids: Sequence[int]) -> list[tuple[int, list[tuple[int, float, int]]]]:
        """For each token the alternatives (id, value, rank), the sampled one first."""
        others = max(1, self.logprobs or 0)
        return [
            (token, [(token + place, token_logprob(token, place), place + 1) for place in range(others)])
            for token in token_ids
        ]

    def block_priority(self, position: int) -> Priority:
        return retention(self.retention, position)

    @property
    def decode_priority(self) -> Priority:
        if self.retention is None:
            return DEFAULT_PRIORITY, None
        lasts = self.retention.decode_duration_ms
        return self.retention.decode_retention_priority, None if lasts is None else lasts.total_seconds()

    def _append(self, sequence: Sequence_) -> None:
        token = next(sequence.source)
        count = len(sequence.token_ids) + 1
        if token == self.end_id and count < self.min_tokens:
            token = self.prompt_ids[0] if self.prompt_ids[0] != self.end_id else token + 1
        sequence.token_ids.append(token)
        sequence.unsent += 1
        if token == self.end_id and count >= self.min_tokens:
            sequence.finish = "END_ID"
        elif any(word and sequence.token_ids[-len(word) :] == list(word) for word in self.stop_words):
            sequence.finish = "STOP_WORDS"
        elif count >= self.max_tokens:
            sequence.finish = "LENGTH"


def retention(config: Any, position: int) -> Priority:
    for part in config.token_range_retention_configs if config is not None else ():
        if part.token_start <= position and (part.token_end is None or position < part.token_end):
            return part.priority, None if part.duration_ms is None else part.duration_ms.total_seconds()
    return DEFAULT_PRIORITY, None
