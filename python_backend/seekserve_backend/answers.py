"""What the service asks for and answers, free of Triton: the inbound request and the outgoing chunk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .engines.port import Sampling

__all__ = ["Chunk", "Inbound", "InvalidInput"]


class InvalidInput(ValueError):
    """The client's input is wrong; `field` names the tensor and the message holds the bound."""

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"{field}: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbound:
    """A request as copied out of Triton's tensors. Exactly one of text, messages and input_ids is given."""

    client_id: str = ""
    text: bytes | None = None
    messages: bytes | None = None
    chat_options: bytes | None = None
    """JSON, only beside messages."""
    input_ids: tuple[int, ...] | None = None
    max_tokens: int | None = None
    stream: bool = False
    stop_words: tuple[str, ...] = ()
    end_id: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    sampling_given: frozenset[str] = frozenset()
    """Fields of `sampling` that the client named itself."""
    echo_prompt: bool = False
    wants_num_input_tokens: bool = False
    wants_num_output_tokens: bool = False
    wants_logprobs: bool = False
    beam_width: int = 1
    request_class: str | None = None
    tenant: str = ""
    deadline_ms: int | None = None
    heartbeat_ms: int | None = None
    resumable: bool = False
    resume_token: str | None = None
    """Given instead of a prompt: the rest of a stream whose connection was lost."""
    resume_from_bytes: int = 0
    resume_cancel: bool = False
    endpoint: str = ""
    """Path of the HTTP front end that was called; empty where the request came straight to Triton."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Forwarded ones, by name in lower case."""
    is_probe: bool = False
    is_routed: bool = False
    """Handed on by another model of this server, which must not get it back."""

    @property
    def prompt_bytes(self) -> int:
        if self.input_ids is not None:
            return 4 * len(self.input_ids)
        if self.text is not None:
            return len(self.text)
        return len(self.messages or b"") + len(self.chat_options or b"")


class Chunk(NamedTuple):
    """One response. `finish_reason` on the last one only. A tuple, because one is made for each token and client."""

    text: str
    completion_tokens: int
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    queue_ms: float | None = None
    num_input_tokens: int | None = None
    num_output_tokens: int | None = None
    logprobs: tuple[float, ...] | None = None
    """Of the tokens whose text this chunk completes."""
    cumulative_logprob: float | None = None
    chat_state: str | None = None
    """Where a chat's answer begins: `thinking` or `content`. On the first response."""
    resume_token: str | None = None
    is_heartbeat: bool = False
    """Says only that the request still waits; worthless once anything else was sent."""
    served_by: str | None = None
    """The model that produced it, where that is not the one that was asked; on the first and the last response."""
