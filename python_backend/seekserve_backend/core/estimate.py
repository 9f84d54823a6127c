"""What the core believes about the engine: step times with the work in flight, and by how much the model is off.

The model gives the shape of step times, `bias` (measured over predicted, a slow average) their level, so an engine
that is slower or faster than planned is understood within seconds. Milliseconds are the engine's, measured ones.
"""

from __future__ import annotations

from ..contract.policy import PacedOptions
from ..contract.step_model import StepModel
from .held import Held, Work
from .step_clock import LearnedSteps, ModelledSteps, Steps
from .types import StepReport

__all__ = ["EngineEstimate"]

_LEAST_TOKEN_MS = 1e-3


class EngineEstimate:
    """`held`: what the engine works on; it notes each step first."""

    def __init__(self, model: StepModel | None, options: PacedOptions, held: Held, *, chunk_tokens: int) -> None:
        self._held = held
        self.steps: Steps = LearnedSteps() if model is None else ModelledSteps(model)
        self.chunk_tokens = chunk_tokens
        self.bias = 1.0
        self.step_ms = 0.0
        """Decayed mean of measured steps."""
        self.tokens_per_step = 1.0
        """Decayed mean of what a decoding request gets out of a step: more than one with speculation."""
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

    def price_ms(self, prompt_tokens: int, cached_tokens: int = 0) -> float:
        """Model time of reading a prompt in the midst of other work; cached tokens are free."""
        new = prompt_tokens - cached_tokens
        pairs = prompt_tokens * prompt_tokens - cached_tokens * cached_tokens
        return self.ms_per_prompt_token * new + self.steps.attention_ms_per_token2 * pairs

    def decode_ms(self, requests: int) -> float:
        """A step without prefill, with so many decoding what is held now."""
        steps = self.steps
        if not requests:
            return 0.0
        return self.bias * (steps.base_ms(requests) + steps.kv_read_ms_per_token * self._held.kv_tokens)

    @property
    def token_ms(self) -> float:
        """In which a decoding request makes one token, prompts read meanwhile among it."""
        token_ms = (self.step_ms or self.decode_ms(self._held.count + 1)) / self.tokens_per_step
        return token_ms if token_ms > _LEAST_TOKEN_MS else _LEAST_TOKEN_MS

    def carried_ms(self) -> float:
        """By how much reading a prompt takes longer than its price, for each token: its steps carry decoding along."""
        return self.decode_ms(self._held.decoding) / self.chunk_tokens

    def most_prefill_share(self) -> float:
        """Part of the time that goes into prompts when every step is filled with them."""
        held, chunk_ms = self._held, self.chunk_ms
        return chunk_ms / (chunk_ms + self.decode_ms(held.count) / self.bias) if held.decoding else 1.0

    def observe(self, report: StepReport) -> None:
        """A step that `held` has noted."""
        work = self._held.last
        if report.step_ms <= 0.0:
            return
        tokens = work.decoding + work.read_tokens
        if tokens:
            self._learn(tokens, work, report.step_ms)
        if work.decoding:
            each = report.decode_tokens / work.decoding
            self.tokens_per_step += self._options.bias_gain * ((each if each > 1.0 else 1.0) - self.tokens_per_step)

    def _learn(self, tokens: int, work: Work, step_ms: float) -> None:
        options, steps = self._options, self.steps
        gain, least, most = options.bias_gain, options.bias_min, options.bias_max
        self.step_ms += gain * (step_ms - self.step_ms) if self.step_ms else step_ms
        if steps.is_learned:
            steps.learn(tokens, step_ms)
            self._price_tokens()
            return
        predicted_ms = (
            steps.base_ms(tokens)
            + steps.kv_read_ms_per_token * work.kv_tokens
            + steps.attention_ms_per_token2 * work.attention_pairs
        )
        # One outlier (a page fault, a capture) must not move the average by itself.
        ratio = step_ms / predicted_ms
        ratio = least if ratio < least else 2.0 * most if ratio > 2.0 * most else ratio
        bias = self.bias + gain * (ratio - self.bias)
        self.bias = least if bias < least else most if bias > most else bias
