"""Responses of one request: how its tokens are cut into steps, and what the last one says."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tensorrt_llm.executor.result import Logprob, Response

from .behaviour import BEHAVIOUR
from .metrics import metrics_of
from .work import Sequence_, Work

__all__ = ["Answers"]


class Answers:
    def __init__(self, *, tokens_per_block: int, has_cumulative: bool) -> None:
        self._tokens_per_block = tokens_per_block
        self._has_cumulative = has_cumulative

    def step(self, work: Work, iteration: int) -> None:
        """What is new of a request that goes on."""
        self._send(work, iteration, is_final=False)

    def last(self, work: Work, iteration: int) -> None:
        """Without streaming one response for each sequence; the reasons come with the final one."""
        if work.streaming and BEHAVIOUR.get("empty_last_step"):
            self._send(work, iteration, is_final=False)
        if work.streaming or work.is_beam:
            self._send(work, iteration, is_final=True)
            return
        final = len(work.sequences) - 1
        for index in range(len(work.sequences)):
            self._send(work, iteration, is_final=index == final, only=index)

    def cancelled(self, work: Work, iteration: int) -> None:
        everywhere = dict.fromkeys(range(len(work.sequences)), "CANCELLED")
        self._send(work, iteration, is_final=True, finish=everywhere)

    def failed(self, work: Work, error: BaseException) -> None:
        work.send(Response(error=error))

    def _send(
        self,
        work: Work,
        iteration: int,
        *,
        is_final: bool,
        only: int | None = None,
        finish: Mapping[int, str] | None = None,
    ) -> None:
        tokens = {
            index: _take(work, sequence)
            for index, sequence in enumerate(work.sequences)
            if only is None or index == only
        }
        if finish is None:
            finish = {index: each.finish for index, each in enumerate(work.sequences) if each.finish and is_final}
        holding = work.holding
        work.send(
            Response(
                tokens=tokens,
                is_whole=work.is_beam,
                logprobs={} if work.logprobs is None else {index: _places(work, new) for index, new in tokens.items()},
                prompt_logprobs=self._prompt_logprobs(work),
                cumulative=self._cumulative(work),
                finish=finish,
                is_final=is_final,
                iteration=work.steps,
                cached_tokens=holding.reused * self._tokens_per_block if holding is not None else 0,
                metrics=metrics_of(work, finish.get(0), iteration, time.monotonic())
                if is_final and work.wants_metrics
                else None,
            )
        )
        work.was_sent = True

    def _prompt_logprobs(self, work: Work) -> list[Any] | None:
        if work.prompt_logprobs is None or work.was_sent:
            return None
        return [{token: Logprob(value, rank)} for _, ((token, value, rank), *_) in work.logprobs_of(work.prompt_ids)]

    def _cumulative(self, work: Work) -> dict[int, float]:
        """On PyTorch the engine often has none."""
        if not self._has_cumulative and not BEHAVIOUR.get("cumulative_logprob"):
            return {}
        return {
            index: sum(places[0][1] for _, places in work.logprobs_of(each.token_ids))
            for index, each in enumerate(work.sequences)
        }


def _take(work: Work, sequence: Sequence_) -> list[int]:
    """What was not sent yet; of a beam everything, because beams change behind."""
    new = sequence.token_ids if work.is_beam else sequence.token_ids[len(sequence.token_ids) - sequence.unsent :]
    sequence.unsent = 0
    ends_here = sequence.finish == "END_ID" and bool(new)
    return list(new[:-1] if ends_here and not BEHAVIOUR.get("end_id_in_output") else new)


def _places(work: Work, token_ids: Sequence[int]) -> list[dict[int, Logprob]]:
    return [{token: Logprob(value, rank) for token, value, rank in places} for _, places in work.logprobs_of(token_ids)]
