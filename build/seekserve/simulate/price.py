"""What a request costs an engine, in its milliseconds: the same for every policy, for routing and for judging fairness.

Not the scheduler's own price: this one is taken beside a fixed batch and never corrected by what is measured.
"""

from __future__ import annotations

from seekserve_backend.contract.step_model import StepModel

__all__ = ["Prices"]

REFERENCE_BATCH = 64


class Prices:
    def __init__(self, model: StepModel, *, chunk_tokens: int) -> None:
        alone_ms = model.base_ms(REFERENCE_BATCH)
        self.prompt_token_ms = (model.base_ms(REFERENCE_BATCH + chunk_tokens) - alone_ms) / chunk_tokens
        self.output_token_ms = alone_ms / REFERENCE_BATCH
        self._pair_ms = model.attention_ms_per_token2
        self._kv_ms = model.kv_read_ms_per_token

    def prompt_ms(self, prompt_tokens: int, cached_tokens: int = 0) -> float:
        new = prompt_tokens - cached_tokens
        pairs = prompt_tokens * prompt_tokens - cached_tokens * cached_tokens
        return self.prompt_token_ms * new + self._pair_ms * pairs

    def output_ms(self, prompt_tokens: int, output_tokens: float) -> float:
        """Its part of the steps that it decodes in."""
        return output_tokens * (self.output_token_ms + self._kv_ms * (prompt_tokens + output_tokens / 2.0))
