"""Which log probabilities belong to the text that was sent.

Text lags behind tokens: characters wait for their last byte, possible stop strings are held back, a stop string cuts.
A token's number leaves with the text that completes it. Invariant: however the text was cut into pieces, what left is
that of all tokens whose text begins before the cut, or of all tokens when there was no cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from .text.bytes_decoder import IncrementalUtf8
from .text.token_bytes import TokenBytes

__all__ = ["LogprobTrail"]


class LogprobTrail:
    """`add` what came from the engine, `take` what goes with a piece of text."""

    def __init__(self, vocabulary: TokenBytes) -> None:
        self._vocabulary = vocabulary
        self._utf8 = IncrementalUtf8()
        self._is_at_start = vocabulary.strips_leading_space
        self._decoded_chars = 0
        self._sent_chars = 0
        self._waiting: deque[tuple[int, int, float]] = deque()
        """(first character, character behind the last, log probability) of each token that has not left."""
        self.cumulative = 0.0
        """Sum of what was taken."""

    def add(self, token_ids: Sequence[int], logprobs: Sequence[float]) -> None:
        for token_id, logprob in zip(token_ids, logprobs, strict=True):
            start = self._decoded_chars
            text = self._utf8.feed(self._vocabulary.get(token_id, skip_special=True))
            if self._is_at_start and text:
                self._is_at_start = False
                text = text.removeprefix(" ")
            self._decoded_chars += len(text)
            self._waiting.append((start, self._decoded_chars, logprob))

    def take(self, text_chars: int, *, is_last: bool = False, is_cut: bool = False) -> tuple[float, ...]:
        """What leaves with the next `text_chars` characters; `is_cut`: a stop string ended the text behind them."""
        self._sent_chars += text_chars
        taken = []
        while self._waiting and self._leaves(*self._waiting[0][:2], is_last=is_last, is_cut=is_cut):
            taken.append(self._waiting.popleft()[2])
        self.cumulative += sum(taken)
        return tuple(taken)

    def _leaves(self, start: int, end: int, *, is_last: bool, is_cut: bool) -> bool:
        if is_last:
            return not is_cut or start < self._sent_chars
        return start < self._sent_chars and end <= self._sent_chars
