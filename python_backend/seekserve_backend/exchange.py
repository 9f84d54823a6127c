"""Replacing the engine of a running service by that of another bundle, and how far that is.

A `Variant` is everything that changes with the bundle. An `Exchange` is one replacement from the order to its end; the
engine loop alone carries it out and writes it, anybody may read it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from .answers import Inbound
from .contract.bundle import KvCache, Limits
from .contract.refusal import ErrorCode
from .contract.step_model import StepModel
from .core.types import End, Terminal
from .desk import Desk
from .engines.port import Engine, EngineInfo
from .live import Live
from .text.token_bytes import TokenBytes
from .work import Work

__all__ = ["Exchange", "ExchangeState", "Variant", "fail_the_rest"]

_OUT_OF_TIME = "the model is replaced by another variant, and the time for requests that still ran is up; send it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    bundle_dir: str
    limits: Limits
    kv: KvCache
    step_model: StepModel | None
    engine_factory: Callable[[], Engine]
    """Makes a fresh engine at each call."""
    encode: Callable[[Inbound], tuple[int, ...]]
    vocabulary: TokenBytes
    check: Callable[[EngineInfo], None] = lambda _info: None
    """Raises when the policy asks for what the new engine cannot do."""


class ExchangeState(enum.Enum):
    DRAINING = "draining"  # nothing new is taken, what was accepted runs to its end or to the deadline
    LOADING = "loading"  # the old engine is closed, the new one is being made
    DONE = "done"
    FAILED = "failed"  # the old variant serves, with a new engine; or nothing does, and the heartbeat says so


class Exchange:
    def __init__(self, variant: Variant, *, deadline_s: float, taken: Callable[[Variant], None]) -> None:
        """`deadline_s`: on the service's clock; then running requests are failed. `taken` is called under its lock."""
        self.variant = variant
        self.deadline_s = deadline_s
        self.taken = taken
        self.state = ExchangeState.DRAINING
        self.text = ""
        """After a failure: why, for the operator."""
        self.failed_requests = 0

    @property
    def is_over(self) -> bool:
        return self.state in (ExchangeState.DONE, ExchangeState.FAILED)

    def fail(self, text: str) -> None:
        self.text = text
        self.state = ExchangeState.FAILED


def fail_the_rest(desk: Desk, open_lives: Sequence[Live], in_engine: Collection[Work], *, load_s: float) -> None:
    """At the deadline: everything that is open, and what the engine holds. The engine is closed after this."""
    desk.outbox.flush()
    probes = [live for work in in_engine for live in work.lives if live.inbound.is_probe]
    for live in (*open_lives, *probes):
        desk.fail(live, ErrorCode.NOT_SERVING, _OUT_OF_TIME, retry_after_ms=int(load_s * 1000.0) + 1)
    # What had ended for its client already, and was only leaving the engine.
    desk.observe_ends(*(End(id=work.id, terminal=Terminal.FINISHED) for work in in_engine))
