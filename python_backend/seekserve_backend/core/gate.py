"""What the scheduler asks of a release gate, whatever the policy: who is next, and who had better be refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from ..contract.bundle import KvCache, Limits
from ..contract.policy import Policy
from ..contract.rungs import Rung
from ..contract.step_model import StepModel
from .entry import Entry
from .refusals import Refusal
from .reserve import Reserve
from .types import StepReport

__all__ = ["Gate", "make_gate"]


class Gate(Protocol):
    def replace_policy(self, policy: Policy) -> None: ...

    def judge(self, entry: Entry, now: float) -> Refusal | None:
        """A request that would be queued: a reason to refuse it at once, or None."""
        ...

    def asked(self, entry: Entry, now: float) -> None:
        """A request came that is answered elsewhere: the work was asked for all the same."""
        ...

    def prepare(self, entry: Entry) -> None:
        """Fills in what this gate wants to know of an accepted request; `judge` does it for those that it lets in."""
        ...

    def push(self, entry: Entry) -> None: ...

    def remove(self, entry: Entry) -> None: ...

    def hopeless(self, now: float) -> Entry | None:
        """A queued request that can no longer make its deadline, if there is one; the caller removes it."""
        ...

    def tick(self, now: float) -> None:
        """Before each round of `next`."""
        ...

    def next(self, now: float) -> Entry | None:
        """The request to start now, taken out of its queue."""
        ...

    def started(self, entry: Entry) -> None:
        """After the reserve took it."""
        ...

    def ended(self, entry: Entry, tokens: int) -> None:
        """`tokens` it produced in all. After the reserve got it back."""
        ...

    def observe(self, report: StepReport) -> None:
        """A step, after the reserve's `held` noted it and before its ends."""
        ...

    def begin_anew(self) -> None:
        """The engine failed and serves again: its caches are cold."""
        ...

    @property
    def rung(self) -> Rung:
        """What the pressure asks of requests that start now."""
        ...

    def gauges(self) -> Mapping[str, float]:
        """For metrics; absent is absent."""
        ...

    def waiting(self, request_class: str) -> int: ...

    def ahead(self, request_class: str) -> int: ...

    def position(self, entry: Entry) -> int: ...

    def lengths(self) -> dict[str, int]: ...

    def queues(self) -> Mapping[str, Iterable[Entry]]: ...


def make_gate(policy: Policy, limits: Limits, kv: KvCache, step_model: StepModel | None, reserve: Reserve) -> Gate:
    """`reserve`: what the engine holds; it outlives the gate."""
    if policy.kind == "paced":
        from .paced import PacedGate

        return PacedGate(policy, limits, kv, step_model, reserve)
    if policy.kind == "seed":
        from .seed import SeedGate

        return SeedGate(policy, limits.max_batch_size, reserve)
    from .release import ReleaseGate

    return ReleaseGate(policy, reserve)
