"""The pace at which `paced` may start prompts: the target of a step, credit, what the floor owes, and the ramp.

A decode step of everything in flight takes its time; what is left of the target may be spent on prompts, and is saved
up as credit. Offline work saves up its floor in the same way.
Invariant: neither is ever above its cap, and credit is full while the engine is empty.
"""

from __future__ import annotations

from ..contract.policy import PacedOptions, Policy
from .estimate import EngineEstimate
from .ramp import Ramp

__all__ = ["Pace"]

_SLOW = 2.0


class Pace:
    def __init__(self, policy: Policy, engine: EngineEstimate, *, most_requests: int) -> None:
        self._engine = engine
        self.most_running = most_requests
        """Few at first."""
        self.ramp = Ramp(
            start_requests=policy.paced.ramp_start_requests,
            doubling_s=policy.paced.ramp_doubling_s,
            most_requests=most_requests,
        )
        self.replace_policy(policy)
        self.credit_ms = self.credit_cap_ms
        self.floor_ms = 0.0
        """What offline work is owed."""

    def replace_policy(self, policy: Policy) -> None:
        self._options: PacedOptions = policy.paced
        promised = [each.tpot_slo_ms for each in policy.classes.values() if each.tpot_slo_ms and not each.is_offline]
        self._has_promise = bool(promised)
        self._token_target_ms = policy.paced.slo_margin * min(promised, default=policy.paced.default_tpot_slo_ms)
        self.target_ms = self._step_target_ms()
        """Of a step."""

    def _step_target_ms(self) -> float:
        engine = self._engine
        target_ms = self._token_target_ms * engine.tokens_per_step
        if self._has_promise:
            return target_ms
        # Nobody asked for a pace: one that a slow engine could not keep for a single request would stop everything.
        return max(target_ms, _SLOW * engine.bias * engine.steps.base_ms(1))

    @property
    def credit_cap_ms(self) -> float:
        cap_ms, chunks_ms = self._options.credit_cap_ms, 2.0 * self._engine.bias * self._engine.chunk_ms
        return cap_ms if cap_ms > chunks_ms else chunks_ms

    def tick(self, now: float) -> None:
        is_slow = self._engine.step_ms > self.target_ms / self._options.slo_margin
        self.most_running = self.ramp.limit(now, is_slow=is_slow)

    def stepped(self, step_ms: float, decode_ms: float, *, owes: bool) -> None:
        """A step was made that would have taken `decode_ms` without prompts; `owes`: offline work waits."""
        options = self._options
        target_ms = self.target_ms = self._step_target_ms()
        left_ms = target_ms - (decode_ms if decode_ms < step_ms else step_ms)
        least_ms = options.min_prefill_share * target_ms
        credit_ms, cap_ms = self.credit_ms + (left_ms if left_ms > least_ms else least_ms), self.credit_cap_ms
        self.credit_ms = credit_ms if credit_ms < cap_ms else cap_ms
        # Saved up only while somebody waits for it; what offline work got for nothing counts as had.
        floor_ms, most_ms = (
            self.floor_ms + options.offline_floor * step_ms,
            options.offline_floor_cap_ms if owes else 0.0,
        )
        self.floor_ms = floor_ms if floor_ms < most_ms else most_ms

    def pay_floor(self, whole_ms: float) -> None:
        """Offline work of so much engine time starts."""
        self.floor_ms = max(self.floor_ms - whole_ms, -self._options.offline_floor_cap_ms)

    def fill(self) -> None:
        """The engine is empty."""
        self.credit_ms = self.credit_cap_ms
