"""From one row of logits to one token id, by transformers' own logits processors in the order `generate` uses.

Presence and frequency penalty are ours (transformers has none), by the OpenAI definition over produced tokens. Each
request draws from its own generator, so its tokens do not depend on what else is in the batch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers.generation.logits_process import (
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from ..port import Sampling

__all__ = ["Sampler"]

Processor = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Sampler:
    """Decides one request's tokens; with `is_plain_greedy` that is the arg max of the raw logits and nothing else."""

    def __init__(self, sampling: Sampling, *, prompt_tokens: int, stop_ids: tuple[int, ...]) -> None:
        self._processors = _processors(sampling, prompt_tokens, stop_ids)
        self._generator: torch.Generator | None = None
        if sampling.temperature > 0:
            self._generator = torch.Generator()
            if sampling.seed is None:
                self._generator.seed()
            else:
                self._generator.manual_seed(sampling.seed)
        self.is_plain_greedy = not self._processors and self._generator is None

    def pick(self, ids: torch.Tensor, logits: torch.Tensor) -> int:
        """`ids` [tokens so far], `logits` [vocabulary] in float32."""
        scores = logits[None]
        for process in self._processors:
            scores = process(ids[None], scores)
        if self._generator is None:
            return int(scores.argmax())
        return int(torch.multinomial(scores.softmax(dim=-1), 1, generator=self._generator))


def _processors(sampling: Sampling, prompt_tokens: int, stop_ids: tuple[int, ...]) -> list[Processor]:
    out: list[Processor] = []
    if sampling.repetition_penalty != 1.0:
        out.append(RepetitionPenaltyLogitsProcessor(float(sampling.repetition_penalty)))
    if sampling.presence_penalty or sampling.frequency_penalty:
        out.append(_produced_penalty(sampling, prompt_tokens))
    if sampling.min_tokens > 0 and stop_ids:
        out.append(MinNewTokensLengthLogitsProcessor(prompt_tokens, sampling.min_tokens, list(stop_ids)))
    if sampling.temperature > 0:
        if sampling.temperature != 1.0:
            out.append(TemperatureLogitsWarper(float(sampling.temperature)))
        if sampling.top_k:
            out.append(TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1.0:
            out.append(TopPLogitsWarper(float(sampling.top_p)))
    return out


def _produced_penalty(sampling: Sampling, prompt_tokens: int) -> Processor:
    def process(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        count = torch.bincount(ids[0, prompt_tokens:], minlength=scores.shape[-1])
        penalty = sampling.frequency_penalty * count + sampling.presence_penalty * (count > 0)
        return scores - penalty.to(scores.dtype)

    return process
