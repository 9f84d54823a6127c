"""A scheduler with its plant: what the service and an engine are to each other, without threads and without waiting.

The plant works in steps; a request that arrives during one is judged at once and can start with the next.
Invariant: the scheduler's clock never runs backwards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from seekserve_backend.contract.bundle import KvCache, Limits
from seekserve_backend.contract.policy import Policy
from seekserve_backend.contract.routes import Origin
from seekserve_backend.contract.step_model import StepModel
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.core.types import End, Refused, Release, Request, Signals, StepReport, Terminal

from .plant import Plant, Step
from .records import Outcome

__all__ = ["IDLE_TICK_S", "Replica"]

IDLE_TICK_S = 0.005
"""How often a scheduler is asked whose queue is not empty while its engine is."""
_SIGNALS = Signals()
_BYTES_PER_TOKEN = 4


class Replica:
    def __init__(
        self,
        policy: Policy,
        limits: Limits,
        kv: KvCache,
        controller: StepModel | None,
        plant: Plant,
        *,
        number: int = 0,
    ) -> None:
        self.core = Scheduler(policy, limits, kv, controller)
        self.plant = plant
        self.number = number
        self.outcomes: dict[str, Outcome] = {}
        """Those that are queued or running here."""
        self.steps, self.busy_s = 0, 0.0
        self.gaps_ms: dict[int, int] = {}
        self.wakes_s = math.inf
        """When the step in progress ends, or when to ask the scheduler again."""
        self._step: Step | None = None
        self._started_s = 0.0
        self._leaving: list[str] = []
        self._failures = list(plant.options.failures_s)

    def submit(self, id: str, outcome: Outcome, now: float) -> Refused | None:
        arrival = outcome.arrival
        no = self.core.offer(
            id,
            prompt_bytes=_BYTES_PER_TOKEN * arrival.prompt_tokens,
            request_class=arrival.request_class,
            now=now,
            origin=Origin(tenant=arrival.tenant),
        )
        if no is not None:
            return no
        answer = self.core.submit(
            Request(
                id=id,
                prompt_tokens=arrival.prompt_tokens,
                max_tokens=arrival.max_tokens,
                tenant=arrival.tenant,
                arrival_s=now,
                cached_tokens=self.plant.expected_hit_tokens(arrival.cached_tokens, arrival.blocks),
            ),
            now,
        )
        if isinstance(answer, Refused):
            return answer
        self.outcomes[id] = outcome
        outcome.replica = self.number
        return None

    def wake(self, now: float) -> list[tuple[str, Outcome]]:
        """Ends the step in progress, lets the scheduler decide, starts the next one; who has ended, with its state."""
        ended = [*self._finish_step(now), *self._let_go(now)]
        for decision in self.core.step(now, _SIGNALS):
            outcome = self.outcomes[decision.id]
            if isinstance(decision, Release):
                self._start(decision, outcome, now)
            else:
                del self.outcomes[decision.id]
                outcome.state, outcome.hint_ms = "expired", decision.retry_after_ms
                if decision.was_running:
                    self._cancel_in_engine(decision.id, outcome, now)
                ended.append((decision.id, outcome))
        self._start_step(now)
        return ended

    def leave(self, id: str) -> None:
        """Its client hung up; it goes when the step in progress has ended, unless that step ends it."""
        self._leaving.append(id)

    @property
    def is_idle(self) -> bool:
        return self._step is None

    def gauges(self) -> Mapping[str, float]:
        snapshot = self.core.snapshot()
        return {**snapshot.gauges, "queued": float(sum(snapshot.queued_by_class.values())), "running": snapshot.running}

    def _start(self, decision: Release, outcome: Outcome, now: float) -> None:
        arrival = outcome.arrival
        outcome.released_s = now
        self.plant.add(
            decision.id,
            arrival.prompt_tokens,
            min(arrival.output_tokens, decision.max_tokens),
            arrival.cached_tokens,
            arrival.blocks,
        )

    def _let_go(self, now: float) -> list[tuple[str, Outcome]]:
        leaving, self._leaving = self._leaving, []
        gone = []
        for id in leaving:
            outcome = self.outcomes.get(id)
            if outcome is None or outcome.first_s is not None:
                continue
            del self.outcomes[id]
            outcome.state, outcome.hint_ms = "left", None
            self.core.cancel(id, now)
            if outcome.released_s is not None:
                self._cancel_in_engine(id, outcome, now)
            gone.append((id, outcome))
        return gone

    def _cancel_in_engine(self, id: str, outcome: Outcome, now: float) -> None:
        outcome.tokens = self.plant.cancel(id)
        end = End(id=id, terminal=Terminal.CANCELLED, tokens=outcome.tokens)
        self.core.observe(StepReport(step_ms=0.0, ends=(end,)), now)

    def _start_step(self, now: float) -> None:
        if len(self.plant):
            self._step = self.plant.step(now)
            self.steps += 1
            self._started_s = now
            self.busy_s += self._step.ms / 1000.0
            gap_ms = int(self._step.ms) + 1
            self._note_gap(gap_ms, self._step.decoding)
            for paused_s in self._step.resumed_s:
                self._note_gap(int(1000.0 * (now - paused_s) + self._step.ms) + 1, 1)
            self.wakes_s = now + self._step.ms / 1000.0
        else:
            self.wakes_s = now + IDLE_TICK_S if self.outcomes else math.inf

    def _note_gap(self, gap_ms: int, tokens: int) -> None:
        self.gaps_ms[gap_ms] = self.gaps_ms.get(gap_ms, 0) + tokens

    def _finish_step(self, now: float) -> list[tuple[str, Outcome]]:
        step, self._step = self._step, None
        if step is None:
            return []
        if self._fails_before(now):
            return self._fail(step, now)
        for id in step.firsts:
            self.outcomes[id].first_s = now
        ended, ends = [], []
        for id, tokens in step.ends:
            outcome = self.outcomes.pop(id)
            outcome.end_s, outcome.tokens, outcome.state = now, tokens, "finished"
            ended.append((id, outcome))
            ends.append(End(id=id, terminal=Terminal.FINISHED, tokens=tokens))
        self.core.observe(_report(step, ends), now)
        return ended

    def _fails_before(self, now: float) -> bool:
        """Failures while the engine stood idle hit nobody."""
        failures, started_s = self._failures, self._started_s
        while failures and failures[0] < started_s:
            failures.pop(0)
        if not failures or failures[0] > now:
            return False
        failures.pop(0)
        return True

    def _fail(self, step: Step, now: float) -> list[tuple[str, Outcome]]:
        """The engine raised: everything in it is lost, whatever the step had brought."""
        ended = []
        lost = [*step.ends, *self.plant.clear()]
        for id, tokens in lost:
            outcome = self.outcomes.pop(id)
            outcome.tokens, outcome.state, outcome.hint_ms = tokens, "failed", None
            ended.append((id, outcome))
        ends = tuple(End(id=id, terminal=Terminal.FAILED) for id, _ in ended)
        self.core.observe(StepReport(step_ms=step.ms, ends=ends), now)
        return ended


def _report(step: Step, ends: list[End]) -> StepReport:
    return StepReport(
        step_ms=step.ms,
        batch_size=step.decoding + len(step.firsts),
        prefill_tokens=step.prefill_tokens,
        decode_tokens=step.decode_tokens,
        firsts=tuple(step.firsts),
        ends=tuple(ends),
    )
