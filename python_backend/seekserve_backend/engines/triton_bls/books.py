"""Who has a place in the stock model: batch slots, KV blocks, and threads of the server's pool.

Two questions. `fits`: may the service add a request (everything it added counts, handed over or not). `can_open`: may
one be handed over now (everything the stock model may still hold counts).
"""

from __future__ import annotations

from collections.abc import Collection

from ..port import EngineInfo
from .link import Link
from .stream import Phase, Stream

__all__ = ["Books"]


class Books:
    def __init__(self, link: Link, info: EngineInfo, *, max_opening: int) -> None:
        self._link = link
        self._info = info
        self._max_opening = max_opening

    def fits(self, blocks: int, active: Collection[Stream], *, with_draining: bool) -> bool:
        held = [*active, *self._draining()] if with_draining else [*active]
        used = sum(stream.blocks for stream in held)
        return len(held) < self._info.max_batch_size and used + blocks <= self._info.kv_total_blocks

    def can_open(self, stream: Stream) -> bool:
        held = [other for other in self._link.open.values() if other.phase is not Phase.LOST]
        return (
            len(held) < self._info.max_batch_size
            and sum(other.blocks for other in held) + stream.blocks <= self._info.kv_total_blocks
            and sum(other.is_unanswered for other in self._link.open.values()) < self._max_opening
            and self._link.has_room
        )

    @property
    def is_jammed(self) -> bool:
        """Streams that will never end hold every thread there is; only a restart of the server frees them."""
        lost = [stream for stream in self._link.open.values() if stream.phase is Phase.LOST]
        return not self._link.has_room or sum(stream.is_unanswered for stream in lost) >= self._max_opening

    def used_blocks(self, active: Collection[Stream]) -> int:
        return sum(stream.blocks for stream in (*active, *self._draining()))

    def check_integrity(self, active: Collection[Stream]) -> None:
        """Raises AssertionError. Every active stream is waiting or open, and no other open one is active."""
        handed_over = {stream.call.request_id for stream in active if stream.phase is not Phase.WAITING}
        still_ours = {key for key, stream in self._link.open.items() if not stream.is_over}
        assert handed_over == still_ours, (handed_over, still_ours)
        held = [stream for stream in self._link.open.values() if stream.phase is not Phase.LOST]
        assert len(held) <= self._info.max_batch_size, len(held)
        assert self._info.may_pause or sum(stream.blocks for stream in held) <= self._info.kv_total_blocks

    def _draining(self) -> list[Stream]:
        return [stream for stream in self._link.open.values() if stream.phase is Phase.DRAINING]
