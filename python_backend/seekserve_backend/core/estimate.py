"""What the core believes about the engine: step times, the work in flight, and by how much the model is off.

The model gives the shape of step times, `bias` (measured over predicted, a slow average) their level, so an engine
that is slower or faster than planned is understood within seconds. Milliseconds are the engine's, measured ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from ..contract.policy import PacedOptions
from ..contract.step_model import StepModel
from .entry import Entry
from .step_clock import LearnedSteps, ModelledSteps, Steps
from .types import StepReport

__all__ = ["EngineEstimate"]


class EngineEstimate:
    def __init__(self, model: StepModel | None, options: PacedOptions, *, chunk_tokens: int) -> None:
        self.options = options
        self.steps: Steps = LearnedSteps() if model is None else ModelledSteps(model)
        self.chunk_tokens = chunk_tokens
        self.bias = 1.0
        self.decoding = 0
        self.kv_tokens = 0.0
        """Held by decoding requests."""
        self.step_ms = 0.0
        """Decayed mean of measured steps."""
        self.unread_ms = 0.0
        """Prompts that the engine holds and has not read, in model time."""
        self._reading: OrderedDict[str, tuple[Entry, float]] = OrderedDict()
        """Prompts in the engine and their tokens read, first come first."""
        self._decoding: dict[str, float] = {}
        """id -> prompt tokens less what every decoding request had produced when its first token came"""
        self._produced = 0.0
        """Tokens by each decoding request since the start."""

    def __len__(self) -> int:
        return len(self._reading) + len(self._decoding)

    def __contains__(self, id: str) -> bool:
        return id in self._reading or id in self._decoding

    @property
    def ms_per_prompt_token(self) -> float:
        """In model time, for a chunk read beside a usual batch."""
        base, reference = self.steps.base_ms, self.options.reference_batch
        return (base(reference + self.chunk_tokens) - base(reference)) / self.chunk_tokens

    @property
    def chunk_ms(self) -> float:
        return max(self.ms_per_prompt_token * self.chunk_tokens, 1e-6)

    def price_ms(self, prompt_tokens: int, cached_tokens: int = 0) -> float:
        """Model time of reading a prompt in the midst of other work; cached tokens are free."""
        new = prompt_tokens - cached_tokens
        pairs = prompt_tokens * prompt_tokens - cached_tokens * cached_tokens
        return self.ms_per_prompt_token * new + self.steps.attention_ms_per_token2 * pairs

    def decode_ms(self, more: int = 0) -> float:
        """A step without prefill, with all that the engine holds decoding, and `more` requests."""
        batch = len(self) + more
        if batch <= 0:
            return 0.0
        return self.bias * (self.steps.base_ms(batch) + self.steps.kv_read_ms_per_token * self.kv_tokens)

    def read_time_ms(self, price_ms: float) -> float:
        """Until a prompt of this price is read behind those that the engine holds: its steps carry decoding along."""
        decode_ms = 0.0
        if self.decoding:
            decode_ms = self.steps.base_ms(self.decoding) + self.steps.kv_read_ms_per_token * self.kv_tokens
        return self.bias * (self.unread_ms + price_ms) * (1.0 + decode_ms / self.chunk_ms)

    @property
    def most_prefill_share(self) -> float:
        """Part of the time that goes into prompts when every step is filled with them."""
        return self.chunk_ms / (self.chunk_ms + (self.decode_ms() / self.bias if self.decoding else 0.0))

    def start(self, entry: Entry) -> None:
        self._reading[entry.id] = (entry, float(entry.cached_tokens))
        self.unread_ms += entry.price_ms

    def first_token(self, id: str) -> Entry | None:
        entry = self._stop_reading(id)
        if entry is not None:
            self.decoding += 1
            self._decoding[id] = entry.prompt_tokens - self._produced
            self.kv_tokens += entry.prompt_tokens
        return entry

    def end(self, id: str) -> bool:
        if self._stop_reading(id) is not None:
            return True
        offset = self._decoding.pop(id, None)
        if offset is None:
            return False
        self.decoding -= 1
        self.kv_tokens = self.kv_tokens - offset - self._produced if self._decoding else 0.0
        return True

    def _stop_reading(self, id: str) -> Entry | None:
        found = self._reading.pop(id, None)
        if found is None:
            return None
        entry, read = found
        left_ms = entry.price_ms * (entry.prompt_tokens - read) / (entry.prompt_tokens - entry.cached_tokens)
        self.unread_ms = max(0.0, self.unread_ms - left_ms) if self._reading else 0.0
        return entry

    def observe(self, report: StepReport) -> None:
        """A step, before its first tokens and ends are noted."""
        chunks = self._read(report.prefill_tokens)
        tokens = self.decoding + int(sum(c for _, c in chunks))
        if tokens and report.step_ms > 0.0:
            self._learn(tokens, chunks, report.step_ms)
        if self.decoding:
            self._produced += report.decode_tokens / self.decoding
            self.kv_tokens += report.decode_tokens

    def _learn(self, tokens: int, chunks: list[tuple[float, float]], step_ms: float) -> None:
        options, steps = self.options, self.steps
        attention = sum(2.0 * prefix * c + c * c for prefix, c in chunks)
        predicted_ms = (
            steps.base_ms(tokens)
            + steps.kv_read_ms_per_token * self.kv_tokens
            + steps.attention_ms_per_token2 * attention
        )
        # One outlier (a page fault, a capture) must not move the average by itself.
        ratio = min(max(step_ms / predicted_ms, options.bias_min), 2.0 * options.bias_max)
        bias = self.bias + options.bias_gain * (ratio - self.bias)
        self.bias = 1.0 if steps.is_learned else min(max(bias, options.bias_min), options.bias_max)
        self.step_ms += options.bias_gain * (step_ms - self.step_ms) if self.step_ms else step_ms
        steps.learn(tokens, step_ms)

    def _read(self, tokens: int) -> list[tuple[float, float]]:
        """(tokens before it, tokens) of each chunk; first come first read, as engines with chunked prefill do."""
        chunks: list[tuple[float, float]] = []
        left = float(tokens)
        for id, (entry, read) in self._reading.items():
            if left <= 0.0:
                break
            c = min(left, entry.prompt_tokens - read)
            if c > 0.0:
                chunks.append((read, c))
                self._reading[id] = (entry, read + c)
                part = c / (entry.prompt_tokens - entry.cached_tokens)
                self.unread_ms = max(0.0, self.unread_ms - entry.price_ms * part)
                left -= c
        return chunks

    def shape(self) -> Mapping[str, float]:
        """For metrics."""
        return {"bias": self.bias, "step_ms": self.step_ms, "decode_ms": self.decode_ms()}
