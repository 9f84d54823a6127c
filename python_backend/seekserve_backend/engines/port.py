"""The engine port: what the service may ask of any engine, and what every engine answers.

One thread (the service's engine loop) calls `add`, `cancel`, `step` and `close`; an adapter that needs other threads or
an event loop owns them behind this port. `stats()` may be called from any thread and must not block on a step. Every
added request ends in exactly one EndEvent.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Protocol

__all__ = [
    "EndEvent",
    "EndReason",
    "Engine",
    "EngineError",
    "EngineInfo",
    "EngineRequest",
    "EngineStats",
    "EngineStepReport",
    "GUIDE_KINDS",
    "Guide",
    "RUNTIME_CONTROLS",
    "Sampling",
    "TokenEvent",
]


RUNTIME_CONTROLS = ("beam_width", "speculation")
GUIDE_KINDS = ("json", "json_schema", "regex", "ebnf_grammar")
"""What an output can be held to; the stock ensemble's words."""


class EngineError(RuntimeError):
    """The engine as a whole failed: every running request has failed with it. The service decides what happens next."""


class EndReason(enum.Enum):
    STOP = "stop"  # EOS or another stop id (the id is not among the tokens)
    LENGTH = "length"  # max_tokens or the sequence limit
    CANCELLED = "cancelled"
    FAILED = "failed"  # this request alone failed; `message` is for the log, never for the client


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """Guided decoding: what the output must look like, whatever the model would rather say."""

    kind: str
    """One of GUIDE_KINDS."""
    text: str
    """The schema, expression or grammar; empty for json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Neutral by default: greedy, no penalties. Meanings as in transformers' logits processors."""

    temperature: float = 0.0
    """0: greedy."""
    top_k: int = 0
    """0: off."""
    top_p: float = 1.0
    """1: off."""
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    guide: Guide | None = None
    """Asked only of engines that say `has_guides`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    id: str
    prompt_ids: tuple[int, ...]
    """At least one token."""
    max_tokens: int
    """At least 1; prompt plus this is at most EngineInfo.max_seq_len_tokens."""
    sampling: Sampling = field(default_factory=Sampling)
    stop_ids: tuple[int, ...] = ()
    """Replaces the checkpoint's own EOS ids when not empty."""
    wants_logprobs: bool = False
    """Fill TokenEvent.logprobs; asked only of engines that say `has_logprobs`."""
    beam_width: int = 1
    """Above 1, up to EngineInfo.max_beam_width: the best of that many beams, all tokens with the last step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """Fixed for the life of the engine."""

    kind: str
    max_seq_len_tokens: int
    max_batch_size: int
    block_tokens: int
    kv_total_blocks: int
    vocab_size: int
    eos_ids: tuple[int, ...]
    has_logprobs: bool = False
    max_beam_width: int = 1
    repeats_seeds: bool = False
    """An explicit seed gives the same tokens again, whatever else is in the batch."""
    has_guides: bool = False
    """Guided decoding is built in and switched on."""
    may_pause: bool = False
    """When its cache is full it pauses a request and reads it again later; each needs room for what it holds alone."""
    reuses_prefixes: bool = False
    """Prompts that begin alike are read once, as long as the cache holds the beginning."""
    runtime_controls: frozenset[str] = frozenset()
    """What can be lowered from request to request while it runs: of RUNTIME_CONTROLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """A moment's numbers; cheap to take."""

    running: int
    kv_total_blocks: int
    kv_free_blocks: int
    """Not used by any request (reserved but unwritten blocks count as used)."""
    steps: int
    last_step_ms: float
    last_batch_size: int
    tokens_out: int
    """Tokens produced since the start."""
    prompt_tokens_in: int
    """Prompt tokens processed since the start."""
    kv_reused_blocks: int | None = None
    """Blocks that requests found in the cache since the start; None where the engine does not say."""
    queued: int | None = None
    """Requests that the engine holds but has not scheduled; None where it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEvent:
    id: str
    token_ids: tuple[int, ...]
    """One for plain decoding, several with speculation. Never empty, never a stop id."""
    logprobs: tuple[float, ...] = ()
    """Natural logarithm of each token's probability; as many as tokens, or none when not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndEvent:
    id: str
    reason: EndReason
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStepReport:
    step_ms: float
    batch_size: int
    """Requests that took part."""
    prefill_tokens: int
    tokens: tuple[TokenEvent, ...] = ()
    """At most one for each request."""
    ends: tuple[EndEvent, ...] = ()
    """After this request's last TokenEvent."""


class Engine(Protocol):
    """See the module docstring for threads and guarantees."""

    @property
    def info(self) -> EngineInfo: ...

    def can_add(self, request: EngineRequest) -> bool:
        """True when a batch slot and KV blocks are free now: for prompt + max_tokens, or for prompt + 1 where it may
        pause. No effects."""
        ...

    def add(self, request: EngineRequest) -> None:
        """Takes the request.

        Raises ValueError for a request that breaks EngineInfo's limits, a reused running id, or a false `can_add`.
        """
        ...

    def cancel(self, request_id: str) -> None:
        """Idempotent, unknown ids allowed. The EndEvent comes with the next `step`, its blocks are free by then."""
        ...

    def step(self, timeout_s: float) -> EngineStepReport:
        """Runs one iteration, or waits at most `timeout_s` for something to report when there is nothing to do.

        Raises EngineError when the engine as a whole is broken.
        """
        ...

    def stats(self) -> EngineStats: ...

    def close(self) -> None: ...
