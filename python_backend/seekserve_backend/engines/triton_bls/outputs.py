"""What one response of the stock model adds to its request: token ids up to a stop id, and their log probabilities.

With one beam the stock model streams the new tokens alone, but every log probability since the start. It may or may not
show the id that ended a sequence; here it never gets further.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Piece", "read_piece"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    """As many as tokens, or none where the response brought none."""
    is_stopped: bool = False
    """A stop id came after these tokens."""


def read_piece(values: Mapping[str, Any], stop_ids: Collection[int]) -> Piece | None:
    """None for a response without token ids, as the empty one that may end a stream.

    Of several beams the first is read: the executor sorts them, best first.
    """
    if "output_ids" not in values:
        return None
    beam: list[int] = values["output_ids"][0][0]
    lengths = values.get("sequence_length")
    if lengths is not None:
        # Shorter beams are filled up.
        beam = beam[: lengths[0][0]]
    logprobs: list[float] = values["output_log_probs"][0][0] if "output_log_probs" in values else []
    logprobs = logprobs[-len(beam) :] if beam and len(logprobs) >= len(beam) else []
    stop_at = next((n for n, token in enumerate(beam) if token in stop_ids), None)
    if stop_at is not None:
        beam, logprobs = beam[:stop_at], logprobs[:stop_at]
    return Piece(token_ids=tuple(beam), logprobs=tuple(logprobs), is_stopped=stop_at is not None)
