"""What the adapter needs from whoever carries its calls: one call, and the responses as they come.

Everything is plain Python. Both ends block, so each call has a thread of its own; nothing here is ever called on the
engine loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["InputTensor", "StockCall", "StockPort", "StockResponse", "StockStream"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputTensor:
    name: str
    data_type: str
    """Triton's TYPE_ name without the prefix."""
    shape: tuple[int, ...]
    """With the batch dimension."""
    values: tuple[int | float | bool, ...]
    """In row order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StockCall:
    """One request to the stock model. Nothing is inherited from the client's request, so everything is said here."""

    request_id: str
    """Unique over everything that speaks to the stock model: it is what a stop names."""
    inputs: tuple[InputTensor, ...]
    outputs: tuple[str, ...]
    timeout_us: int = 0
    """Means something only where the stock model's config has a queue policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StockResponse:
    values: Mapping[str, Any]
    """Nested lists with the batch dimension, by output name."""
    error: str | None = None
    """The text alone: error codes do not survive BLS."""


class StockStream(Protocol):
    """The responses of one call. Must be iterated to its end: an unfinished one blocks whoever drops it."""

    def __iter__(self) -> Iterator[StockResponse]: ...

    def cancel(self) -> bool:
        """Any thread. Asks for an early end; False where this Triton cannot do that."""
        ...


class StockPort(Protocol):
    def open(self, call: StockCall) -> StockStream:
        """Blocks until the first response, or the end, is there. May raise anything."""
        ...
