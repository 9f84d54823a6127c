"""What the engine holds, request by request, and the numbers that operators' guides make of it.

The core is told how many tokens a step read and made in all, not for whom; prompts are taken to be read in the order of
their start and answers to grow alike, as engines with chunked prefill and one token a step do it. The numbers:

memory pressure   min(0.99, (active + 0.5 x reserved) / total x (1 + 0.3 x fragmentation)), in KV blocks: active ones
                  hold tokens, reserved ones are taken by requests and do not yet
fragmentation     part of the room in all taken blocks that holds no token: reserved and unused blocks, and the unused
                  ends of the last active ones
batch efficiency  part of a batch that held tokens if it were padded to its longest request: mean length over longest
                  (Kwon et al., SOSP 2023, section 2.3, on padding requests to equal lengths); paged engines do not pad
batch formation   from a request being ready (tokenised and let in) to the begin of the first engine step with it
"""

from __future__ import annotations

from .entry import Entry
from .types import StepReport

__all__ = ["Held"]

_FORMATION_GAIN = 0.05
_MOST_PRESSURE = 0.99


class Held:
    def __init__(self, block_tokens: int) -> None:
        self.formation_ms: float | None = None
        """Decayed mean; None before the first."""
        self.formed_requests = 0
        self.formed_ms = 0.0
        """Over all of them."""
        self._block_tokens = block_tokens
        self._reading: dict[str, list[int]] = {}
        """id -> [prompt tokens, of which the cache holds]"""
        self._decoding: dict[str, float] = {}
        """id -> tokens held, less what every decoding request had produced when its first token came"""
        self._produced = 0.0
        """Tokens by each decoding request since the start."""
        self._new: list[Entry] = []
        """Started since the last step."""

    def start(self, entry: Entry) -> None:
        self._reading[entry.id] = [entry.prompt_tokens, entry.cached_tokens]
        self._new.append(entry)

    def end(self, id: str) -> None:
        if self._decoding.pop(id, None) is None and self._reading.pop(id, None) is not None and self._new:
            self._new = [entry for entry in self._new if entry.id != id]

    def observe(self, report: StepReport, now: float) -> None:
        """A step, before its ends are noted."""
        # Some steps take no time that an engine could tell; reports of ends alone are none.
        if self._new and (report.step_ms > 0.0 or report.batch_size or report.firsts):
            self._note_formation(now - report.step_ms / 1000.0)
        self._read(report.prefill_tokens)
        if self._decoding:
            self._produced += report.decode_tokens / len(self._decoding)
        for id in report.firsts:
            if id in self._reading:
                self._decoding[id] = self._reading.pop(id)[0] + 1 - self._produced

    def _read(self, tokens: int) -> None:
        for work in self._reading.values():
            if tokens <= 0:
                return
            read = min(tokens, work[0] - work[1])
            work[1] += read
            tokens -= read

    def _note_formation(self, began_s: float) -> None:
        for entry in self._new:
            ms = max(0.0, 1000.0 * (began_s - entry.ready_s))
            self.formed_requests += 1
            self.formed_ms += ms
            mean = self.formation_ms
            self.formation_ms = ms if mean is None else mean + _FORMATION_GAIN * (ms - mean)
        self._new.clear()

    def tokens(self) -> list[float]:
        """Of each request in the engine."""
        return list(self.tokens_by_id().values())

    def tokens_by_id(self) -> dict[str, float]:
        reading = {id: float(work[1]) for id, work in self._reading.items()}
        return reading | {id: offset + self._produced for id, offset in self._decoding.items()}

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
