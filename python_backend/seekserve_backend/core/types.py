"""The nouns of the scheduling core: what goes in, what comes out. Data only, no decisions.

What there is one of for each request or step is a NamedTuple, made in half the time of a frozen dataclass.

Life of a request: offered (its bytes are being tokenised) -> queued -> running -> one terminal kind; one that another
model answers is routed instead of queued and running. Every offered request reaches exactly one terminal kind;
`Counts.balance()` is the sum that proves it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..contract.refusal import ErrorCode

__all__ = [
    "Accepted",
    "Counts",
    "Decision",
    "End",
    "Expire",
    "Phase",
    "Refused",
    "Release",
    "Request",
    "Signals",
    "Snapshot",
    "StepReport",
    "Terminal",
]


class Phase(enum.Enum):
    """Hashed by identity, as its members are compared: they are keys several times in each request's life."""

    __hash__ = object.__hash__

    INTAKE = "intake"
    QUEUED = "queued"
    RUNNING = "running"
    JOINED = "joined"
    """Receives the answer of another request; see `asides`."""
    ROUTED = "routed"  # handed on to another model; holds nothing here


class Terminal(enum.Enum):
    __hash__ = object.__hash__

    FINISHED = "finished"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    REFUSED = "refused"
    FAILED = "failed"
    ROUTED = "routed"  # another model answered it to the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A tokenised request as the core sees it: lengths and wishes, no text."""

    id: str
    prompt_tokens: int
    max_tokens: int | None
    """Asked for by the client; None: the policy's default."""
    request_class: str | None = None
    tenant: str = ""
    deadline_ms: int | None = None
    """From arrival to first token; None: the class's own."""
    arrival_s: float = 0.0
    """When its bytes arrived, on the service's clock."""
    is_probe: bool = False
    """Readiness probes are exempt from shedding (but not from limits)."""
    cached_tokens: int = 0
    """Leading prompt tokens that the engine's cache is believed to hold already."""
    answer_tokens: int = 0
    """Of the prompt's tokens, the last so many: an answer that was begun before, and goes on."""


class Accepted(NamedTuple):
    id: str
    max_tokens: int
    """What it may produce, after clamping."""
    request_class: str = ""
    """The class that it is served as."""
    route_to: str | None = None
    """Not queued here: the model that it is to be handed on to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A terminal answer at arrival."""

    id: str
    code: ErrorCode
    reason: str
    retry_after_ms: int | None = None
    field: str | None = None


class Release(NamedTuple):
    """Hand this request to the engine now."""

    id: str
    max_tokens: int
    queue_ms: float
    max_beam_width: int | None = None
    """Lowered under pressure, for engines that can; None: as asked."""
    no_speculation: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Expire:
    """Its deadline passed. `was_running` tells the service to cancel it in the engine as well."""

    id: str
    waited_ms: float
    deadline_ms: int
    was_running: bool
    retry_after_ms: int
    is_queue_timeout: bool = False
    """It had waited as long as its class may; `deadline_ms` is that time."""


Decision = Release | Expire


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What the engine says about itself at the time of a `step`; None where it does not know."""

    kv_free_blocks: int | None = None
    kv_total_blocks: int | None = None
    engine_running: int = 0
    is_draining: bool = False


class End(NamedTuple):
    """A running request ended: FINISHED, CANCELLED or FAILED."""

    id: str
    terminal: Terminal
    tokens: int = 0
    """Produced in all."""


class StepReport(NamedTuple):
    """Everything one engine step brought, as the core needs it."""

    step_ms: float
    batch_size: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    """Tokens of requests that had their first one before this step."""
    firsts: tuple[str, ...] = ()
    """Requests whose first token came."""
    ends: tuple[End, ...] = ()
    kv_used_blocks: int | None = None


@dataclass(slots=True)
class Counts:
    """Terminal-event accounting; counters only grow."""

    offered: int = 0
    terminals: dict[Terminal, int] = field(default_factory=lambda: dict.fromkeys(Terminal, 0))

    def balance(self, *, intake: int, queued: int, running: int, joined: int = 0, routed: int = 0) -> int:
        """Zero when nothing was lost or counted twice."""
        return self.offered - intake - queued - running - joined - routed - sum(self.terminals.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Numbers for status and metrics, taken under the service's lock."""

    intake: int
    queued_by_class: dict[str, int]
    queued_by_bucket: dict[str, int]
    running: int
    reserved_blocks: int
    offered: int
    terminals: dict[str, int]
    refused_by_code: dict[str, int]
    policy_name: str
    policy_generation: int
    joined: int = 0
    """Requests that receive the answer of another."""
    routed: int = 0
    """Handed on to another model and not ended."""
    refused_by_why: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """(class, code, why) -> requests."""
    ended_by_class: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(class, terminal kind) -> requests; adds up to `terminals`."""
    admitted_by_class: Mapping[str, int] = field(default_factory=dict)
    """Let into the queue."""
    gauges: Mapping[str, float] = field(default_factory=dict)
    """What the policy's gate knows about itself: pressure, credit, bias ..."""
