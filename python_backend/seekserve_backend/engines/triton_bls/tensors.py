"""An engine request as the stock model's typed input tensors, and the request that stops it.

Only what a request asks for is sent: an absent tensor leaves the executor's own default. Greedy decoding is top-k 1,
since the stock model knows no temperature of 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...contract.bundle import Retention
from ...contract.stock_model import STOCK_INPUT_BY_NAME
from ..port import EngineRequest, Sampling
from .port import InputTensor, StockCall

__all__ = ["generation_call", "stop_call"]

_OUTPUTS = ("output_ids", "sequence_length")
_LOGPROBS = "output_log_probs"


def generation_call(
    request: EngineRequest,
    *,
    stock_id: str,
    stop_ids: Sequence[int],
    vocab_size: int,
    seed: int,
    timeout_us: int,
    retention: Retention | None = None,
) -> StockCall:
    """`seed` is for a request that samples and names none: the executor would give all of those the same one.

    `stop_ids` in order of preference: the first goes to the executor as its end id, the rest as stop words.
    """
    inputs = [
        _row("input_ids", request.prompt_ids),
        _scalar("input_lengths", len(request.prompt_ids)),
        _scalar("request_output_len", request.max_tokens),
        # Beams change places until the last step, so they are read once.
        _scalar("streaming", request.beam_width == 1),
        _scalar("exclude_input_in_output", True),
    ]
    if stop_ids:
        inputs += [_scalar("end_id", stop_ids[0]), _scalar("pad_id", stop_ids[0])]
    if len(stop_ids) > 1:
        inputs.append(_stop_words(stop_ids[1:]))
    if request.beam_width > 1:
        inputs.append(_scalar("beam_width", request.beam_width))
    inputs += _sampling(request.sampling, vocab_size, seed)
    if request.wants_logprobs:
        inputs.append(_scalar("return_log_probs", True))
    if retention is not None:
        inputs += _retention(retention, len(request.prompt_ids))
    return StockCall(
        request_id=stock_id,
        inputs=tuple(inputs),
        outputs=(*_OUTPUTS, _LOGPROBS) if request.wants_logprobs else _OUTPUTS,
        timeout_us=timeout_us,
    )


def stop_call(stock_id: str) -> StockCall:
    """Ends the request of that id. The required tensors must be there, and are not looked at."""
    return StockCall(
        request_id=stock_id,
        inputs=(
            _row("input_ids", (0,)),
            _scalar("input_lengths", 1),
            _scalar("request_output_len", 1),
            _scalar("stop", True),
        ),
        outputs=_OUTPUTS,
    )


def _sampling(sampling: Sampling, vocab_size: int, seed: int) -> list[InputTensor]:
    out: list[InputTensor] = []
    if sampling.temperature == 0.0:
        out.append(_scalar("runtime_top_k", 1))
    else:
        # Neither top-k nor top-p means greedy to the executor, so top-p goes along even when it cuts nothing.
        out.append(_scalar("temperature", sampling.temperature))
        out.append(_scalar("runtime_top_k", sampling.top_k if sampling.top_k < vocab_size else 0))
        out.append(_scalar("runtime_top_p", sampling.top_p))
        out.append(_scalar("seed", seed if sampling.seed is None else sampling.seed))
    for name, neutral in (
        ("repetition_penalty", 1.0),
        ("presence_penalty", 0.0),
        ("frequency_penalty", 0.0),
        ("min_tokens", 0),
    ):
        value = getattr(sampling, name)
        if value != neutral:
            out.append(_scalar(name, value))
    return out


def _stop_words(ids: Sequence[int]) -> InputTensor:
    """Words of one token each: the ids, and below them where each word ends."""
    return InputTensor(
        name="stop_words_list",
        data_type=STOCK_INPUT_BY_NAME["stop_words_list"].data_type,
        shape=(1, 2, len(ids)),
        values=(*ids, *range(1, len(ids) + 1)),
    )


def _retention(retention: Retention, prompt_tokens: int) -> list[InputTensor]:
    kept = prompt_tokens if retention.prompt_tokens is None else min(retention.prompt_tokens, prompt_tokens)
    out = [
        _row("retention_token_range_starts", (0,)),
        _row("retention_token_range_ends", (kept,)),
        _row("retention_token_range_priorities", (retention.prompt_priority,)),
        _scalar("retention_decode_priority", retention.decode_priority),
    ]
    if retention.prompt_duration_s is not None:
        out.append(_row("retention_token_range_durations_ms", (round(retention.prompt_duration_s * 1000),)))
    return out


def _scalar(name: str, value: int | float | bool) -> InputTensor:
    return InputTensor(name=name, data_type=STOCK_INPUT_BY_NAME[name].data_type, shape=(1, 1), values=(value,))


def _row(name: str, values: Sequence[int]) -> InputTensor:
    return InputTensor(
        name=name, data_type=STOCK_INPUT_BY_NAME[name].data_type, shape=(1, len(values)), values=tuple(values)
    )
