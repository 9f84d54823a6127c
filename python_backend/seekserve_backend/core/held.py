"""What the engine holds, request by request: the one record of it, and the numbers that operators' guides make of it.

The core is told how many tokens a step read and made in all, not for whom; prompts are taken to be read in the order of
their start and answers to grow alike, as engines with chunked prefill do it.
Invariant: every request between `start` and `end` is either reading or decoding, and counted once. The numbers:

memory pressure   min(0.99, (active + 0.5 x reserved) / total x (1 + 0.3 x fragmentation)), in KV blocks: active ones
                  hold tokens, reserved ones are taken by requests and do not yet
fragmentation     part of the room in all taken blocks that holds no token: reserved and unused blocks, and the unused
                  ends of the last active ones
batch efficiency  part of a batch that held tokens if it were padded to its longest request: mean length over longest
                  (Kwon et al., SOSP 2023, section 2.3, on padding requests to equal lengths); paged engines do not pad
batch formation   from a request being ready (tokenised and let in) to the begin of the first engine step with it
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from .entry import Entry
from .types import StepReport

__all__ = ["Held", "Work"]

_KEEP_FORMATION = 0.95
_MOST_PRESSURE = 0.99


class Work(NamedTuple):
    """What a step was made of."""

    decoding: int
    """Requests."""
    kv_tokens: float
    """That those held when it began."""
    read_tokens: int
    """Of prompts."""
    attention_pairs: int
    """Of tokens read now with each one before them, twice."""


class Held:
    """`revision` grows with every change, so that what is worked out from it can be kept until the next one."""

    def __init__(self, block_tokens: int) -> None:
        self.revision = 0
        self.count = 0
        """Requests in the engine."""
        self.kv_tokens = 0.0
        """Of decoding requests: their prompts, and what they produced after their first tokens."""
        self.unread_tokens = 0
        """Of prompts in the engine."""
        self.unread_ms = 0.0
        """The same by their prices."""
        self.last = Work(0, 0.0, 0, 0)
        """The last step."""
        self.formation_ms: float | None = None
        """Decayed mean; None before the first."""
        self.formed_requests = 0
        self.formed_ms = 0.0
        """Over all of them."""
        self._block_tokens = block_tokens
        self._reading: dict[str, Entry] = {}
        """First come first."""
        self._decoding: dict[str, float] = {}
        """id -> prompt tokens less what every decoding request had produced when its first token came"""
        self._produced = 0.0
        """Tokens by each decoding request since the start."""
        self._new = 0
        """Requests started since the last step: the last ones that are reading."""
        self._new_ready_s = 0.0
        """Sum of the times at which those were ready."""

    @property
    def decoding(self) -> int:
        return len(self._decoding)

    def start(self, entry: Entry) -> None:
        cached_tokens = entry.read_tokens = entry.cached_tokens
        self._reading[entry.id] = entry
        self._new += 1
        self._new_ready_s += entry.ready_s
        self.unread_tokens += entry.prompt_tokens - cached_tokens
        self.unread_ms += entry.price_ms
        self.count += 1
        self.revision += 1

    def end(self, id: str) -> None:
        """It must have been started."""
        offset = self._decoding.pop(id, None)
        if offset is None:
            is_new = id in islice(reversed(self._reading), self._new)
            entry = self._reading.pop(id)
            self._leave_unread(entry)
            if is_new:
                self._new -= 1
                self._new_ready_s -= entry.ready_s
        else:
            self.kv_tokens = self.kv_tokens - offset - self._produced if self._decoding else 0.0
        self.count -= 1
        self.revision += 1

    def observe(self, report: StepReport, now: float) -> None:
        """A step, before its ends are noted."""
        # Some steps take no time that an engine could tell; reports of ends alone are none.
        if self._new and (report.step_ms > 0.0 or report.batch_size or report.firsts):
            self._note_formation(now - report.step_ms / 1000.0)
        reading, began, produced = self._reading, self._decoding, self._produced
        decoding, kv_tokens = len(began), self.kv_tokens
        read, pairs = self._read(report.prefill_tokens) if report.prefill_tokens and reading else (0, 0)
        self.last = Work(decoding, kv_tokens, read, pairs)
        if decoding:
            produced += report.decode_tokens / decoding
            kv_tokens += report.decode_tokens
        for id in report.firsts:
            entry = reading.pop(id, None)
            if entry is not None:
                prompt_tokens = entry.prompt_tokens
                if entry.read_tokens < prompt_tokens or not reading:
                    self._leave_unread(entry)
                began[id] = prompt_tokens - produced
                kv_tokens += prompt_tokens
        self._produced, self.kv_tokens = produced, kv_tokens
        self.revision += 1

    def _read(self, tokens: int) -> tuple[int, int]:
        """(prompt tokens read, pairs for attention)"""
        left, pairs, unread_ms = tokens, 0, self.unread_ms
        for entry in self._reading.values():
            before, prompt_tokens = entry.read_tokens, entry.prompt_tokens
            c = prompt_tokens - before
            if c > left:
                c = left
            if c > 0:
                after = entry.read_tokens = before + c
                pairs += after * after - before * before
                unread_ms -= entry.price_ms * (c / (prompt_tokens - entry.cached_tokens))
                left -= c
                if not left:
                    break
        self.unread_ms = unread_ms if unread_ms > 0.0 else 0.0
        self.unread_tokens -= tokens - left
        return tokens - left, pairs

    def _leave_unread(self, entry: Entry) -> None:
        """It is read no longer; usually nothing of it is left."""
        if not self._reading:
            self.unread_tokens, self.unread_ms = 0, 0.0
        elif entry.read_tokens < entry.prompt_tokens:
            self.unread_tokens -= entry.prompt_tokens - entry.read_tokens
            self.unread_ms = max(0.0, self.unread_ms - _unread_ms(entry))

    def reprice(self) -> None:
        """Prices have been set anew, for another policy."""
        self.unread_ms = sum(map(_unread_ms, self._reading.values()))
        self.revision += 1

    def _note_formation(self, began_s: float) -> None:
        new, mean = self._new, self.formation_ms
        sum_ms = max(0.0, 1000.0 * (new * began_s - self._new_ready_s))
        self.formed_requests += new
        self.formed_ms += sum_ms
        gain = 1.0 if mean is None else 1.0 - _KEEP_FORMATION**new
        self.formation_ms = (mean or 0.0) + gain * (sum_ms / new - (mean or 0.0))
        self._new, self._new_ready_s = 0, 0.0

    def tokens(self) -> list[float]:
        """Of each request in the engine."""
        return list(self.tokens_by_id().values())

    def tokens_by_id(self) -> dict[str, float]:
        reading = {id: float(entry.read_tokens) for id, entry in self._reading.items()}
        # The first token of an answer came with the end of its prompt.
        return reading | {id: offset + 1.0 + self._produced for id, offset in self._decoding.items()}

    def efficiency(self) -> float:
        """1 where one request or none is there: nothing would be padded."""
        held = self.tokens()
        longest = max(held, default=0.0)
        return sum(held) / (len(held) * longest) if longest > 0.0 else 1.0

    def gauges(self, *, taken_blocks: int, total_blocks: int) -> dict[str, float]:
        held = self.tokens()
        active = min(sum(-(-int(tokens) // self._block_tokens) for tokens in held), taken_blocks)
        room = taken_blocks * self._block_tokens
        fragmentation = max(0.0, 1.0 - sum(held) / room) if room else 0.0
        pressure = (active + 0.5 * (taken_blocks - active)) / max(total_blocks, 1) * (1.0 + 0.3 * fragmentation)
        formation = {} if self.formation_ms is None else {"batch_formation_ms": self.formation_ms}
        return {
            "memory_pressure": min(_MOST_PRESSURE, pressure),
            "kv_fragmentation": fragmentation,
            "batch_efficiency": self.efficiency(),
            **formation,
        }


def _unread_ms(entry: Entry) -> float:
    left = entry.prompt_tokens - entry.read_tokens
    return entry.price_ms * left / (entry.prompt_tokens - entry.cached_tokens)
