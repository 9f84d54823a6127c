"""Streams that can be resumed: who holds which token, and how long a stream without a connection is kept.

A stream is connected (its client is there), or kept (its client is lost, or it has ended and the client may not know).
Kept ones end by time, by count and by bytes; under the last two the tenant that has most of them gives up its oldest,
so that nobody can push out the streams of others. A foreign token is answered exactly like an unknown one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..contract.stream_options import ResumeOptions

__all__ = ["KeptStreams"]

Stream = TypeVar("Stream")


@dataclass(slots=True, kw_only=True)
class _Entry(Generic[Stream]):
    tenant: str
    stream: Stream
    size_bytes: int = 0
    until_s: float | None = None
    """None: connected."""


class KeptStreams(Generic[Stream]):
    """Streams are the caller's own and are only handed back. `now` must not run backwards."""

    def __init__(self, options: ResumeOptions) -> None:
        self.options = options
        self._entries: dict[str, _Entry[Stream]] = {}
        self._kept: dict[str, _Entry[Stream]] = {}
        """The oldest first."""
        self.bytes = 0
        """Of the kept ones."""
        self.resumed = 0
        self.dropped = 0
        """Kept ones that nobody came for."""

    def __len__(self) -> int:
        """Those without a connection."""
        return len(self._kept)

    def grant(self, token: str, tenant: str, stream: Stream) -> None:
        """A new, connected stream. Raises ValueError for a token that is in use."""
        if token in self._entries:
            raise ValueError("the token is in use")
        self._entries[token] = _Entry(tenant=tenant, stream=stream)

    def find(self, token: str, tenant: str, now: float) -> Stream | None:
        """None alike for unknown, foreign, expired and given up."""
        entry = self._entries.get(token)
        if entry is None or entry.tenant != tenant or (entry.until_s is not None and entry.until_s <= now):
            return None
        return entry.stream

    def keep(self, token: str, size_bytes: int, now: float) -> tuple[Stream, ...]:
        """Its client is lost or has all of it; kept from now on, or since it was first. Returns what had to go for it,
        which may be itself."""
        entry = self._entries.get(token)
        if entry is None:
            return ()
        if entry.until_s is None:
            entry.until_s = now + self.options.resume_ttl_s
            entry.size_bytes = 0
            self._kept[token] = entry
        return self.weigh(token, size_bytes)

    def resume(self, token: str, stream: Stream) -> None:
        """Connected again, as `stream`. The token must have been found."""
        entry = self._entries[token]
        entry.stream, entry.until_s = stream, None
        if self._kept.pop(token, None) is not None:
            self.bytes -= entry.size_bytes
        self.resumed += 1

    def weigh(self, token: str, size_bytes: int) -> tuple[Stream, ...]:
        """A kept stream has grown. Returns what had to go for it."""
        entry = self._kept.get(token)
        if entry is None:
            return ()
        self.bytes += size_bytes - entry.size_bytes
        entry.size_bytes = size_bytes
        return tuple(self._shrink())

    def drop(self, token: str) -> None:
        """Given up, failed or cancelled. Unknown tokens are allowed."""
        self._entries.pop(token, None)
        entry = self._kept.pop(token, None)
        if entry is not None:
            self.bytes -= entry.size_bytes

    def kept(self) -> tuple[tuple[str, Stream], ...]:
        """(token, stream) of those without a connection, the oldest first."""
        return tuple((token, entry.stream) for token, entry in self._kept.items())

    def expire(self, now: float) -> tuple[Stream, ...]:
        """What nobody came for in time."""
        late = [token for token, entry in self._kept.items() if entry.until_s is not None and entry.until_s <= now]
        return tuple(self._remove(token) for token in late)

    def replace(self, options: ResumeOptions) -> tuple[Stream, ...]:
        """Bounds hold at once, the time for what is kept from then on."""
        self.options = options
        return tuple(self._shrink())

    def _shrink(self) -> Iterator[Stream]:
        while len(self._kept) > self.options.max_streams or self.bytes > self.options.max_bytes:
            counts: dict[str, int] = {}
            for entry in self._kept.values():
                counts[entry.tenant] = counts.get(entry.tenant, 0) + 1
            most = max(counts.values())
            # In order of age: among tenants with as many, the one whose stream has been kept longest.
            yield self._remove(next(t for t, entry in self._kept.items() if counts[entry.tenant] == most))

    def _remove(self, token: str) -> Stream:
        self.dropped += 1
        stream = self._entries[token].stream
        self.drop(token)
        return stream

    def check_integrity(self) -> None:
        """Raises AssertionError when the two tables disagree or a bound is broken."""
        waiting = {token for token, entry in self._entries.items() if entry.until_s is not None}
        assert waiting == set(self._kept), (waiting, set(self._kept))
        assert self.bytes == sum(entry.size_bytes for entry in self._kept.values())
        assert len(self._kept) <= self.options.max_streams
        assert self.bytes <= self.options.max_bytes
