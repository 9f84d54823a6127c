"""What the client takes and gives: a request, its deltas, its completion. Plain data, no gRPC.

A field left at None is not sent at all, so the server's own default applies; nothing here invents one.
Times are seconds of `time.perf_counter`, counted from the moment the request was handed to gRPC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seekserve.client.chat import read_answer
from seekserve.errors import InputError

__all__ = ["Completion", "Delta", "GenerateRequest", "ServerInfo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One request, by exactly one of `prompt`, `messages`, `input_ids` and `resume_token`.

    Value ranges are the server's to judge.
    """

    prompt: str | None = None
    """Raw prompt, exactly as the model shall see it."""
    messages: Sequence[Mapping[str, Any]] | None = None
    """Chat messages in the OpenAI form; the server renders them with the model's template."""
    chat_options: Mapping[str, Any] | None = None
    """How `messages` are rendered: tools, tool_choice, thinking, reasoning_effort, response_format,
    chat_template_kwargs; judged by the server."""
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
    heartbeat_ms: int | None = None
    """Until the first token: a delta without text each so many ms, which also holds off the idle timeout."""
    resumable: bool | None = None
    """True: the stream gets a token, and the server keeps it for a while when the connection breaks."""
    resume_token: str | None = None
    """Instead of a prompt: the rest of the stream that has this token. Only what stands below and `tenant`,
    `heartbeat_ms` and `request_id` go with it."""
    resume_from_bytes: int | None = None
    """UTF-8 bytes of text that arrived before, over all connections."""
    resume_cancel: bool | None = None
    """True: the stream is given up and its work cancelled."""
    request_id: str | None = None
    exclude_input_in_output: bool | None = None
    """False: the output begins with the prompt (raw prompts only)."""
    guided_decoding_guide_type: str | None = None
    """json, json_schema, regex or ebnf_grammar, where the engine has them; `guided_decoding_guide` says what."""
    guided_decoding_guide: str | None = None
    stream: bool = True
    """False: the server answers with one response at the end."""
    parameters: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Triton request parameters, for what has no tensor."""

    def __post_init__(self) -> None:
        problems = []
        given = [
            name for name in ("prompt", "messages", "input_ids", "resume_token") if getattr(self, name) is not None
        ]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            problems.append(f"exactly one of prompt, messages, input_ids and resume_token is needed, got {found}")
        if self.chat_options is not None and self.messages is None:
            problems.append("chat_options need messages: other prompts are not rendered")
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
    chat_state: str | None = None
    """Of a chat: `thinking` when the answer began inside the reasoning, else `content`; None when the server did not
    say."""
    served_by: str | None = None
    """The model that answered, where the one that was asked handed the request on."""

    @property
    def reasoning(self) -> str | None:
        """The reasoning of a chat's answer, without its tags; None when there is none, or when it is no chat."""
        return read_answer(self.text, self.chat_state).reasoning

    @property
    def content(self) -> str:
        """The answer without its reasoning; the whole `text` when it is no chat."""
        return read_answer(self.text, self.chat_state).content

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
