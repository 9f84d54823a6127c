"""Consistent hashing with bounded load: prompts that begin alike meet on one backend, but never more than its share.

Pure. A backend takes at most `balance` times the mean of the requests in flight; what is above goes on round the ring,
so one hot prefix spills over instead of drowning its home. Backends that come and go move only their own part.
Source of the method: Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads", SODA 2018.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Ring", "prefix_key"]

_POINTS = 64
_FIRST_CHARS = 512
_FIRST_IDS = 128


class Ring:
    def __init__(self, names: Sequence[str], *, balance: float = 1.25) -> None:
        self._balance = balance
        points = sorted((_hash(f"{name}#{n}".encode()), name) for name in names for n in range(_POINTS))
        self._hashes = [point for point, _ in points]
        self._names = [name for _, name in points]

    def pick(self, key: bytes, in_flight: Mapping[str, int]) -> str:
        """The first with room from the key's place on. `in_flight` holds those that may be taken, at least one."""
        room = math.ceil(self._balance * (sum(in_flight.values()) + 1) / len(in_flight))
        start = bisect.bisect(self._hashes, _hash(key))
        for step in range(len(self._names)):
            name = self._names[(start + step) % len(self._names)]
            if name in in_flight and in_flight[name] < room:
                return name
        return min(in_flight, key=lambda name: in_flight[name])


def prefix_key(prompt: Mapping[str, Any]) -> bytes:
    """What a prompt begins with, about one cache block or a few: tools and system text come first in any template."""
    if (ids := prompt.get("input_ids")) is not None:
        return repr(tuple(ids[:_FIRST_IDS])).encode()
    if (text := prompt.get("prompt")) is not None:
        return str(text)[:_FIRST_CHARS].encode("utf-8", "replace")
    left, parts = _FIRST_CHARS, []
    for message in prompt.get("messages", ()):
        content = message.get("content")
        text = f"{message.get('role')}:{content if isinstance(content, str) else json.dumps(content)}"[:left]
        parts.append(text)
        left -= len(text)
        if left <= 0:
            break
    return "\x00".join(parts).encode("utf-8", "replace")


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")
