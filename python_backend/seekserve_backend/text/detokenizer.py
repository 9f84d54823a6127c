"""One request's tokens to the text its client sees: bytes, then whole characters, then stop strings.

What was fed and flushed equals decoding all tokens at once and cutting at the first stop, however the tokens came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .bytes_decoder import IncrementalUtf8
from .stops import StopMatcher
from .token_bytes import TokenBytes

__all__ = ["Detokenizer", "Piece"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    text: str
    """May be empty: a character or a possible stop is incomplete."""
    stopped: bool
    """A stop string was met: the text has ended, the request may be cancelled."""


class Detokenizer:
    """`token_count` counts the tokens that were used: none after a stop."""

    def __init__(self, vocab: TokenBytes, stops: Sequence[str] = (), *, skip_special: bool = True) -> None:
        self._vocab = vocab
        self._skip_special = skip_special
        self._utf8 = IncrementalUtf8()
        self._stops = StopMatcher(stops)
        self._is_at_start = vocab.strips_leading_space
        self.token_count = 0
        self.stop: str | None = None
        """The stop string that was met."""

    @property
    def stopped(self) -> bool:
        return self.stop is not None

    def feed(self, token_ids: Iterable[int]) -> Piece:
        parts: list[str] = []
        for token_id in token_ids:
            if self.stopped:
                break
            self.token_count += 1
            data = self._vocab.get(token_id, skip_special=self._skip_special)
            parts.append(self._show(self._utf8.feed(data)))
        return Piece(text="".join(parts), stopped=self.stopped)

    def flush(self) -> str:
        """The tail when no more tokens come; `stopped` may become true here."""
        if self.stopped:
            return ""
        tail = self._show(self._utf8.flush())
        if self.stop is None:
            rest, self.stop = self._stops.flush()
            tail += rest
        return tail

    def _show(self, text: str) -> str:
        if self._is_at_start and text:
            self._is_at_start = False
            text = text.removeprefix(" ")
        shown, self.stop = self._stops.feed(text)
        return shown
