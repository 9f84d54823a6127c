"""What the client takes and gives: a request, its deltas, its completion. Plain data, no gRPC.

A field left at None is not sent at all, so the server's own default applies; nothing here invents one.
Times are seconds of `time.perf_counter`, counted from the moment the request was handed to gRPC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seekserve.errors import InputError

__all__ = ["Completion", "Delta", "GenerateRequest", "ServerInfo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One request, by exactly one of `prompt`, `messages` and `input_ids`. Value ranges are the server's to judge."""

    prompt: str | None = None
    """Raw prompt, exactly as the model shall see it."""
    messages: Sequence[Mapping[str, Any]] | None = None
    """Chat messages in the OpenAI form; the server renders them with the model's template."""
    input_ids: Sequence[int] | None = None
    max_tokens: int | None = None
    stop: Sequence[str] | None = None
    """Texts that end the output; an empty list asks for nothing and is not sent."""
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    min_tokens: int | None = None
    beam_width: int | None = None
    """Above 1 the best of so many beams, where the engine has them; comes in one piece."""
    logprobs: bool | None = None
    """True: the logarithm of each token's probability, where the engine has them."""
    request_class: str | None = None
    tenant: str | None = None
    deadline_ms: int | None = None
    """Time from arrival to first token, after which the answer is useless to the caller."""
    request_id: str | None = None
    chat_options: Mapping[str, Any] | None = None
    """Beside `messages`: tools, tool_choice, chat_template_kwargs, reasoning_effort, thinking."""
    exclude_input_in_output: bool | None = None
    """False: the output begins with the prompt (raw prompts only)."""
    guided_decoding_guide_type: str | None = None
    """json, json_schema, regex or ebnf_grammar, where the engine has them; `guided_decoding_guide` says what."""
    guided_decoding_guide: str | None = None
    resumable: bool | None = None
    """True: the first response carries a token with which an interrupted answer can be continued."""
    resume_token: str | None = None
    stream: bool = True
    """False: the server answers with one response at the end."""
    parameters: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Triton request parameters, for what has no tensor."""

    def __post_init__(self) -> None:
        problems = []
        given = [name for name in ("prompt", "messages", "input_ids") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            problems.append(f"exactly one of prompt, messages and input_ids is needed, got {found}")
        if isinstance(self.stop, str):
            problems.append(f"stop must be a list of texts, got the text {self.stop!r}")
        # The same prefix is reserved by tritonclient: the server would read such a name as an order to itself.
        problems += [
            f"parameters: {name!r} starts with the reserved `triton_`"
            for name in self.parameters
            if name.startswith("triton_")
        ]
        if problems:
            raise InputError("request: " + "; ".join(problems))


class Delta(NamedTuple):
    """One piece of the answer. A tuple, because one is made for each streamed response."""

    text: str
    """What was added since the last delta; may be empty while the server holds back half a character or a stop text."""
    completion_tokens: int | None
    """Tokens produced so far; None when the server does not say."""
    queue_ms: float | None
    at_s: float
    """When it arrived, in seconds since the request was sent."""
    logprobs: tuple[float, ...] = ()
    """Of the tokens whose text this piece completes; empty unless asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The whole answer; `text` is always the deltas put together."""

    text: str
    finish_reason: str | None
    """stop, length or cancelled; None when the server ended the stream without saying."""
    prompt_tokens: int | None
    completion_tokens: int | None
    queue_ms: float | None
    ttft_s: float | None
    """First delta with any text in it; None when there was none."""
    e2e_s: float
    deltas: tuple[Delta, ...]
    logprobs: tuple[float, ...] = ()
    """Natural logarithm of each token's probability; empty unless asked for."""
    cumulative_logprob: float | None = None

    @property
    def tokens_per_s(self) -> float | None:
        """Completion tokens over the whole time, queueing and prefill included."""
        return None if self.completion_tokens is None or self.e2e_s <= 0 else self.completion_tokens / self.e2e_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What a Triton server says of itself."""

    name: str
    version: str
    extensions: tuple[str, ...]
