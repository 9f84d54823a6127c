"""Which requests are equal, so that one run of the engine answers them all: now, or from what is kept.

The key holds everything that shapes an answer and whose answer it is. Whoever joins waits as the first one does, so a
join asks for the same class and deadline as well.
"""

from __future__ import annotations

import array
import hashlib
from collections.abc import Hashable

from .answers import Inbound
from .desk import Desk
from .engines.port import EngineInfo
from .live import Live
from .record import Piece
from .work import Work

__all__ = ["Sharing", "is_determined"]


def is_determined(inbound: Inbound, info: EngineInfo) -> bool:
    """True when the engine's contract leaves one answer only: nothing is drawn, or the draw can be repeated."""
    sampling = inbound.sampling
    if sampling.temperature == 0.0:
        return True
    return sampling.seed is not None and info.repeats_seeds and inbound.beam_width == 1


class Sharing:
    """Everything but `key` is called with the desk's lock held."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._epoch = 0
        """Of bundle and policy: answers of one are not answers of another."""

    def begin_anew(self) -> None:
        """Another bundle, or another policy."""
        self._epoch += 1
        self._desk.repeats.forget()

    def key(
        self, inbound: Inbound, prompt_ids: tuple[int, ...], info: EngineInfo, request_class: str
    ) -> Hashable | None:
        """None for a request that shares nothing. Hashes the prompt: not under the lock."""
        options = self._desk.repeats.options
        if not options.enabled or inbound.is_probe or not is_determined(inbound, info):
            return None
        shape = (
            self._epoch,
            options.across_tenants or inbound.tenant,
            inbound.sampling,
            inbound.max_tokens,
            inbound.stop_words,
            inbound.end_id,
            inbound.beam_width,
            inbound.wants_logprobs,
            (request_class, inbound.deadline_ms),
        )
        digest = hashlib.sha256(repr(shape).encode("utf-8"))
        digest.update(array.array("q", prompt_ids).tobytes())
        return digest.digest()

    def kept_answer(self, work: Work) -> Piece | None:
        return None if work.key is None else self._desk.repeats.answer(work.key, self._desk.clock())

    def in_flight(self, work: Work) -> Work | None:
        """Work that this one can join."""
        repeats = self._desk.repeats
        if work.key is None or not repeats.options.join:
            return None
        other = repeats.work(work.key)
        if other is None or other.is_over or len(other.lives) >= repeats.options.max_joined:
            return None
        repeats.joined()
        return other

    def join(self, live: Live, other: Work) -> None:
        """`live` receives the answer of `other` from its beginning."""
        live.work, live.is_joined = other, True
        other.lives = (*other.lives, live)
