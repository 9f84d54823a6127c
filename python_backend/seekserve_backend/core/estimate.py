"""What the core believes about the engine: step times, the work in flight, and by how much the model is off.

The model gives the shape of step times, `bias` (measured over predicted, a slow average) their level, so an engine
that is slower or faster than planned is understood within seconds. Milliseconds are the engine's, measured ones.
"""

from __future__ import annotations

from collections import OrderedDict

from ..contract.policy import PacedOptions
from ..contract.step_model import StepModel
from .entry import Entry
from .step_clock import LearnedSteps, ModelledSteps, Steps
from .types import StepReport

__all__ = ["EngineEstimate"]


class EngineEstimate:
    """`revision` grows with every change, so that what is worked out from it can be kept until the next one."""

    def __init__(self, model: StepModel | None, options: PacedOptions, *, chunk_tokens: int) -> None:
        self.steps: Steps = LearnedSteps() if model is None else ModelledSteps(model)
        self.chunk_tokens = chunk_tokens
        self.bias = 1.0
        self.decoding = 0
        self.kv_tokens = 0.0
        """Held by decoding requests."""
        self.step_ms = 0.0
        """Decayed mean of measured steps."""
        self.tokens_per_step = 1.0
        """Decayed mean of what a decoding request gets out of a step: more than one with speculation."""
        self.unread_ms = 0.0
        """Prompts that the engine holds and has not read, in model time."""
        self.unread_tokens = 0.0
        self.revision = 0
        self._reading: OrderedDict[str, Entry] = OrderedDict()
        """Prompts in the engine, first come first."""
        self._decoding: dict[str, float] = {}
        """id -> prompt tokens less what every decoding request had produced when its first token came"""
        self._produced = 0.0
        """Tokens by each decoding request since the start."""
        self.count = 0
        """Requests that the engine holds."""
        self.options = options

    @property
    def options(self) -> PacedOptions:
        return self._options

    @options.setter
    def options(self, options: PacedOptions) -> None:
        self._options = options
        self._price_tokens()

    def _price_tokens(self) -> None:
        base, reference = self.steps.base_ms, self._options.reference_batch
        self.ms_per_prompt_token = (base(reference + self.chunk_tokens) - base(reference)) / self.chunk_tokens
        """In model time, for a chunk read beside a usual batch."""
        self.chunk_ms = max(self.ms_per_prompt_token * self.chunk_tokens, 1e-6)
        self.revision += 1

    def __contains__(self, id: str) -> bool:
        return id in self._reading or id in self._decoding

    def price_ms(self, prompt_tokens: int, cached_tokens: int = 0) -> float:
        """Model time of reading a prompt in the midst of other work; cached tokens are free."""
        new = prompt_tokens - cached_tokens
        pairs = prompt_tokens * prompt_tokens - cached_tokens * cached_tokens
        return self.ms_per_prompt_token * new + self.steps.attention_ms_per_token2 * pairs

    def decode_ms(self) -> float:
        """A step without prefill, with all that the engine holds decoding."""
        if not self.count:
            return 0.0
        steps = self.steps
        return self.bias * (steps.base_ms(self.count) + steps.kv_read_ms_per_token * self.kv_tokens)

    @property
    def token_ms(self) -> float:
        """In which a decoding request makes one token, prompts read meanwhile among it."""
        step_ms = self.step_ms or self.next_decode_ms()
        return max(step_ms / self.tokens_per_step, 1e-3)

    def next_decode_ms(self) -> float:
        """The same with one request more."""
        steps = self.steps
        return self.bias * (steps.base_ms(self.count + 1) + steps.kv_read_ms_per_token * self.kv_tokens)

    def carried_ms(self) -> float:
        """By how much reading a prompt takes longer than its price, for each token: its steps carry decoding along."""
        if not self.decoding:
            return 0.0
        decode_ms = self.steps.base_ms(self.decoding) + self.steps.kv_read_ms_per_token * self.kv_tokens
        return self.bias * decode_ms / self.chunk_tokens

    def most_prefill_share(self) -> float:
        """Part of the time that goes into prompts when every step is filled with them."""
        return self.chunk_ms / (self.chunk_ms + (self.decode_ms() / self.bias if self.decoding else 0.0))

    def start(self, entry: Entry) -> None:
        entry.read_tokens = float(entry.cached_tokens)
        self._reading[entry.id] = entry
        self.unread_ms += entry.price_ms
        self.unread_tokens += entry.prompt_tokens - entry.cached_tokens
        self.count += 1
        self.revision += 1

    def first_token(self, id: str) -> bool:
        """False for one that the engine is not reading."""
        entry = self._reading.pop(id, None)
        if entry is None:
            return False
        self._leave_unread(entry)
        self.decoding += 1
        self._decoding[id] = entry.prompt_tokens - self._produced
        self.kv_tokens += entry.prompt_tokens
        self.revision += 1
        return True

    def end(self, id: str) -> bool:
        """False for one that the engine does not hold."""
        offset = self._decoding.pop(id, None)
        if offset is not None:
            self.decoding -= 1
            self.kv_tokens = self.kv_tokens - offset - self._produced if self._decoding else 0.0
        else:
            entry = self._reading.pop(id, None)
            if entry is None:
                return False
            self._leave_unread(entry)
        self.count -= 1
        self.revision += 1
        return True

    def _leave_unread(self, entry: Entry) -> None:
        """It is read no longer; usually nothing of it is left."""
        if not self._reading:
            self.unread_ms = self.unread_tokens = 0.0
        elif entry.read_tokens < entry.prompt_tokens:
            left = entry.prompt_tokens - entry.read_tokens
            part = entry.price_ms * left / (entry.prompt_tokens - entry.cached_tokens)
            self.unread_ms = max(0.0, self.unread_ms - part)
            self.unread_tokens -= left

    def observe(self, report: StepReport) -> None:
        """A step, before its first tokens and ends are noted."""
        read, attention = self._read(report.prefill_tokens) if report.prefill_tokens else (0.0, 0.0)
        tokens = self.decoding + int(read)
        if tokens and report.step_ms > 0.0:
            self._learn(tokens, attention, report.step_ms)
        if self.decoding:
            each = report.decode_tokens / self.decoding
            self._produced += each
            if report.step_ms > 0.0:
                self.tokens_per_step += self._options.bias_gain * (max(each, 1.0) - self.tokens_per_step)
            self.kv_tokens += report.decode_tokens
        self.revision += 1

    def _learn(self, tokens: int, attention: float, step_ms: float) -> None:
        options, steps = self._options, self.steps
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
        if steps.is_learned:
            steps.learn(tokens, step_ms)
            self._price_tokens()

    def _read(self, prefill_tokens: int) -> tuple[float, float]:
        """(prompt tokens read, pairs for attention); first come first read, as engines with chunked prefill do."""
        left, attention, unread_ms = float(prefill_tokens), 0.0, self.unread_ms
        for entry in self._reading.values():
            before = entry.read_tokens
            c = entry.prompt_tokens - before
            if c > left:
                c = left
            if c > 0.0:
                attention += 2.0 * before * c + c * c
                entry.read_tokens = before + c
                unread_ms -= entry.price_ms * (c / (entry.prompt_tokens - entry.cached_tokens))
                left -= c
                if left <= 0.0:
                    break
        self.unread_ms = unread_ms if unread_ms > 0.0 else 0.0
        self.unread_tokens -= prefill_tokens - left
        return prefill_tokens - left, attention
