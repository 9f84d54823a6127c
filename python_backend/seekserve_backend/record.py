"""What an answer has said so far, for those who come to it later: in pieces, cut again at any byte of the text."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Piece", "Place", "Record", "joined"]

_PIECE_BYTES = 200
"""Of bookkeeping for each piece, roughly."""


class Piece(NamedTuple):
    """Part of an answer, the same for everybody who receives it. A tuple, because one is made for each token."""

    text: str
    completion_tokens: int
    finish_reason: str | None = None
    logprobs: tuple[float, ...] = ()
    cumulative_logprob: float | None = None

    @property
    def size_bytes(self) -> int:
        return len(self.text.encode("utf-8")) + 32 * len(self.logprobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a reader of a record stands."""

    piece: int = 0
    skip_chars: int = 0
    """Of that piece's text, which were received before."""


class Record:
    """Written by one thread; others may read at any time what was complete when they looked."""

    __slots__ = ("_ends_bytes", "_pieces", "size_bytes")

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._ends_bytes: list[int] = []
        """Bytes of text up to the end of each piece."""
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._ends_bytes)

    @property
    def is_complete(self) -> bool:
        return bool(self._pieces) and self._pieces[-1].finish_reason is not None

    def add(self, piece: Piece) -> None:
        text_bytes = len(piece.text.encode("utf-8"))
        self.size_bytes += text_bytes + 32 * len(piece.logprobs) + _PIECE_BYTES
        self._pieces.append(piece)
        self._ends_bytes.append((self._ends_bytes[-1] if self._ends_bytes else 0) + text_bytes)

    def place(self, received_bytes: int) -> Place:
        """Where a reader goes on who has that many bytes of text. Raises ValueError, one sentence, for none of ours."""
        ends = self._ends_bytes
        count = len(ends)
        said_bytes = ends[count - 1] if count else 0
        if received_bytes > said_bytes:
            raise ValueError(f"{received_bytes} bytes of text where only {said_bytes} have been sent")
        number = bisect.bisect_right(ends, received_bytes, 0, count)
        if number == count:
            # The end itself is repeated: whoever asks has not heard of it.
            if count and self._pieces[count - 1].finish_reason is not None:
                return Place(piece=count - 1, skip_chars=len(self._pieces[count - 1].text))
            return Place(piece=count)
        data = self._pieces[number].text.encode("utf-8")
        received = data[: received_bytes - (ends[number - 1] if number else 0)]
        try:
            return Place(piece=number, skip_chars=len(received.decode("utf-8")))
        except UnicodeDecodeError:
            raise ValueError(f"byte {received_bytes} of the text is inside a character") from None

    def since(self, place: Place) -> tuple[Piece | None, Place]:
        """Everything from there on in one piece, and where that ends."""
        count = len(self._ends_bytes)
        if place.piece >= count:
            return None, place
        piece = joined(self._pieces[place.piece : count])
        return piece._replace(text=piece.text[place.skip_chars :]), Place(piece=count)

    def whole(self) -> Piece:
        return joined(self._pieces)


def joined(pieces: Sequence[Piece]) -> Piece:
    """At least one piece."""
    if len(pieces) == 1:
        return pieces[0]
    return pieces[-1]._replace(
        text="".join(piece.text for piece in pieces),
        logprobs=tuple(number for piece in pieces for number in piece.logprobs),
    )
