"""Tensor names, types and ranks of the served model: those of the stock TensorRT-LLM ensemble, and ours beside them.

The renderer writes config.pbtxt from these tables and the backend reads requests by them, so the two cannot drift.
Source of the stock names: triton-inference-server/tensorrtllm_backend,
all_models/inflight_batcher_llm/ensemble/config.pbtxt. Clients of the stock ensemble send rank-2 tensors `[1, 1]`: the
model declares `max_batch_size` 8 (a batch above 1 is refused by name) and dims `[1]` or `[-1]`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["INPUTS", "INPUT_BY_NAME", "LEAST_HEARTBEAT_MS", "OUTPUTS", "Handling", "TensorSpec"]

LEAST_HEARTBEAT_MS = 100
"""Shortest interval that `heartbeat_ms` may ask for: each heartbeat costs the server about as much as a token."""


class Handling(enum.Enum):
    """What the backend does with an input."""

    USED = "used"
    NEUTRAL_ONLY = "neutral_only"
    """Accepted when it asks for nothing (the neutral value), INVALID_ARG otherwise: never silently ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    name: str
    data_type: str
    """Triton's TYPE_ name without the prefix: STRING, INT32, INT64, UINT64, FP32, BOOL."""
    dims: tuple[int, ...] = (1,)
    handling: Handling = Handling.USED
    neutral: object = None
    """For NEUTRAL_ONLY: the value that asks for nothing; None where every value is harmless with one sequence."""
    ours: bool = False
    help: str = ""


def _in(name: str, data_type: str, help: str, *, dims: tuple[int, ...] = (1,), ours: bool = False) -> TensorSpec:
    return TensorSpec(name=name, data_type=data_type, dims=dims, ours=ours, help=help)


def _neutral(name: str, data_type: str, neutral: object, *, dims: tuple[int, ...] = (1,)) -> TensorSpec:
    return TensorSpec(name=name, data_type=data_type, dims=dims, handling=Handling.NEUTRAL_ONLY, neutral=neutral)


INPUTS: tuple[TensorSpec, ...] = (
    _in("text_input", "STRING", "raw prompt, exactly as the model shall see it (one BOS is added when missing)"),
    _in("max_tokens", "INT32", "tokens to produce at most"),
    _in("stream", "BOOL", "true: one response for each piece of text; false: one response at the end"),
    _in("stop_words", "STRING", "texts that end the output; they are not part of it", dims=(-1,)),
    _in("end_id", "INT32", "token id that ends the output, instead of the checkpoint's own"),
    _in("temperature", "FP32", "0 or absent: greedy"),
    _in("top_k", "INT32", "0: off"),
    _in("top_p", "FP32", "0 or 1: off"),
    _in("seed", "UINT64", "makes sampling repeatable"),
    _in("repetition_penalty", "FP32", "1: off"),
    _in("presence_penalty", "FP32", "0: off"),
    _in("frequency_penalty", "FP32", "0: off"),
    _in("min_tokens", "INT32", "no end before this many tokens"),
    _in("exclude_input_in_output", "BOOL", "true (default): the output holds only what the model produced"),
    _in("return_num_input_tokens", "BOOL", "fill num_input_tokens"),
    _in("return_num_output_tokens", "BOOL", "fill num_output_tokens"),
    _neutral("pad_id", "INT32", None),
    _neutral("bad_words", "STRING", "", dims=(-1,)),
    _neutral("num_return_sequences", "INT32", 1),
    _in("beam_width", "INT32", "above 1: the best of so many beams, in one piece; refused by engines without beams"),
    _neutral("length_penalty", "FP32", None),
    _in("return_log_probs", "BOOL", "fill output_log_probs and cum_log_probs; refused by engines without them"),
    _neutral("return_context_logits", "BOOL", False),
    _neutral("return_generation_logits", "BOOL", False),
    _neutral("return_perf_metrics", "BOOL", False),
    _neutral("decoder_text_input", "STRING", ""),
    _neutral("embedding_bias_words", "STRING", "", dims=(-1,)),
    _in("guided_decoding_guide_type", "STRING", "json, json_schema, regex or ebnf_grammar, where the engine has them"),
    _in("guided_decoding_guide", "STRING", "the schema, expression or grammar; nothing for json"),
    _in(
        "messages", "STRING", "JSON list of chat messages (OpenAI form), rendered with the model's template", ours=True
    ),
    _in("chat_options", "STRING", "JSON object beside messages: tools, thinking, reasoning_effort, ...", ours=True),
    _in("input_ids", "INT32", "token ids instead of text", dims=(-1,), ours=True),
    _in("request_class", "STRING", "class of the policy; absent: its default class", ours=True),
    _in("tenant", "STRING", "who is asking", ours=True),
    _in("deadline_ms", "INT32", "time from arrival to first token, after which an answer is useless", ours=True),
    _in("heartbeat_ms", "INT32", "until the first token: an empty response with queue_ms each so many ms", ours=True),
    _in("resumable", "BOOL", "true: the first response carries a resume_token; needs stream true", ours=True),
    _in(
        "resume_token", "STRING", "instead of a prompt: the rest of the stream that this token was given to", ours=True
    ),
    _in("resume_from_bytes", "INT32", "UTF-8 bytes of text_output that arrived before, in all", ours=True),
    _in("resume_cancel", "BOOL", "true, with resume_token: the stream is given up, its work cancelled", ours=True),
)
INPUT_BY_NAME = {spec.name: spec for spec in INPUTS}

OUTPUTS: tuple[TensorSpec, ...] = (
    TensorSpec(name="text_output", data_type="STRING", dims=(-1,), help="the piece of text since the last response"),
    TensorSpec(name="finish_reason", data_type="STRING", ours=True, help="stop or length, on the last response only"),
    TensorSpec(name="prompt_tokens", data_type="INT32", ours=True, help="tokens of the prompt, on the last response"),
    TensorSpec(name="completion_tokens", data_type="INT32", ours=True, help="tokens produced, on the last response"),
    TensorSpec(
        name="queue_ms",
        data_type="FP32",
        ours=True,
        help="time from arrival to release, on the first and the last response; so far, on a heartbeat",
    ),
    TensorSpec(
        name="resume_token", data_type="STRING", ours=True, help="of a resumable stream, on its first response only"
    ),
    TensorSpec(
        name="chat_state",
        data_type="STRING",
        ours=True,
        help="thinking or content: where the answer to messages begins, on the first response",
    ),
    TensorSpec(
        name="served_by",
        data_type="STRING",
        ours=True,
        help="the model that answered, where that is another one; on the first and the last response",
    ),
    TensorSpec(name="num_input_tokens", data_type="INT32", help="as prompt_tokens, when asked for"),
    TensorSpec(name="num_output_tokens", data_type="INT32", help="as completion_tokens, when asked for"),
    TensorSpec(
        name="output_log_probs",
        data_type="FP32",
        dims=(-1, -1),
        help="one row: the natural log probability of each token whose text this response completes",
    ),
    TensorSpec(name="cum_log_probs", data_type="FP32", dims=(-1,), help="their sum since the first response"),
)
