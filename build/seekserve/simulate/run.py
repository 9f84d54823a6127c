"""Arrivals through a router into replicas, event by event, with clients that come back or hang up.

The same scheduling core that serves, in virtual time. Same arguments, same outcomes, byte for byte.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from .fleet import Router
from .records import Arrival, Clients, Outcome, Run, Sample
from .replica import Replica

__all__ = ["run"]

_RETURNS, _LOSES_PATIENCE = 0, 1


def run(
    arrivals: Sequence[Arrival],
    replicas: Sequence[Replica],
    *,
    router: Router | None = None,
    clients: Clients | None = None,
    drain_s: float = 600.0,
    sample_every_s: float | None = None,
) -> Run:
    """`arrivals` in the order of time; `drain_s`: how long after the last of them it goes on.

    `router` may be left out when there is one replica.
    """
    simulation = _Simulation(arrivals, replicas, router, clients or Clients(), sample_every_s)
    simulation.go(drain_s)
    for replica in replicas:
        replica.core.check_integrity()
    return Run(
        outcomes=simulation.outcomes,
        steps=sum(replica.steps for replica in replicas),
        busy_s=sum(replica.busy_s for replica in replicas),
        end_s=simulation.now,
        samples=simulation.samples,
        gaps_ms=_gaps_ms(replicas),
        breaker_openings=sum(replica.core.breaker.openings for replica in replicas),
        hit_tokens=sum(replica.plant.hit_tokens for replica in replicas),
        batch_formation_ms=_formation_ms(replicas),
        pauses=sum(replica.plant.pauses for replica in replicas),
        reread_tokens=sum(replica.plant.reread_tokens for replica in replicas),
    )


def _formation_ms(replicas: Sequence[Replica]) -> float:
    held = [replica.core.held for replica in replicas]
    formed = sum(each.formed_requests for each in held)
    return sum(each.formed_ms for each in held) / formed if formed else math.nan


def _gaps_ms(replicas: Sequence[Replica]) -> dict[int, int]:
    out: dict[int, int] = {}
    for replica in replicas:
        for gap_ms, tokens in replica.gaps_ms.items():
            out[gap_ms] = out.get(gap_ms, 0) + tokens
    return out


class _Simulation:
    def __init__(
        self,
        arrivals: Sequence[Arrival],
        replicas: Sequence[Replica],
        router: Router | None,
        clients: Clients,
        sample_every_s: float | None,
    ) -> None:
        self.now = 0.0
        self.outcomes = [Outcome(arrival) for arrival in arrivals]
        self.samples: list[Sample] = []
        self._arrivals = arrivals
        self._replicas = replicas
        self._router = router
        self._clients = clients
        self._arrived = 0
        self._events: list[tuple[float, int, int, int]] = []
        """(when, kind, number of the arrival, try)"""
        self._wakes: list[tuple[float, int]] = []
        """(when, replica), with times that are no longer true still in it"""
        self._sample_every_s = sample_every_s
        self._sample_s = math.inf if sample_every_s is None else 0.0

    def go(self, drain_s: float) -> None:
        arrivals = self._arrivals
        last_s = (arrivals[-1].time_s if arrivals else 0.0) + drain_s
        while True:
            arrival_s = arrivals[self._arrived].time_s if self._arrived < len(arrivals) else math.inf
            event_s = self._events[0][0] if self._events else math.inf
            wake_s = self._next_wake_s()
            at = min(arrival_s, event_s, wake_s)
            if at > last_s:  # also when nothing is left to happen
                break
            while self._sample_s <= at:
                self._sample()
            self.now = at
            # Who arrives at the very end of a step is judged before the scheduler hears of that step.
            if arrival_s == at:
                self._arrived += 1
                self._ask(self._arrived - 1, 1)
            elif event_s == at:
                _, kind, n, attempt = heapq.heappop(self._events)
                (self._ask if kind == _RETURNS else self._lose_patience)(n, attempt)
            else:
                self._wake(heapq.heappop(self._wakes)[1])

    def _next_wake_s(self) -> float:
        wakes, replicas = self._wakes, self._replicas
        while wakes and wakes[0][0] != replicas[wakes[0][1]].wakes_s:
            heapq.heappop(wakes)
        return wakes[0][0] if wakes else math.inf

    def _wake(self, number: int) -> None:
        replica = self._replicas[number]
        for id, outcome in replica.wake(self.now):
            self._gone(id)
            if outcome.state != "finished":
                self._come_back(id, outcome)
        if replica.wakes_s < math.inf:
            heapq.heappush(self._wakes, (replica.wakes_s, number))

    def _ask(self, n: int, attempt: int) -> None:
        outcome = self.outcomes[n]
        id = f"{n}.{attempt}"
        outcome.asked_s, outcome.tries = self.now, attempt
        outcome.state, outcome.released_s, outcome.first_s = "open", None, None
        number = self._router.choose(id, outcome.arrival) if self._router else 0
        replica = self._replicas[number]
        no = replica.submit(id, outcome, self.now)
        if no is not None:
            outcome.state, outcome.hint_ms = "refused", no.retry_after_ms
            self._gone(id)
            self._come_back(id, outcome)
            return
        if self._clients.patience_s is not None:
            heapq.heappush(self._events, (self.now + self._clients.patience_s, _LOSES_PATIENCE, n, attempt))
        if replica.is_idle:
            self._wake(number)

    def _lose_patience(self, n: int, attempt: int) -> None:
        outcome = self.outcomes[n]
        is_waiting = outcome.tries == attempt and outcome.state == "open" and outcome.first_s is None
        if is_waiting:
            self._replicas[outcome.replica].leave(f"{n}.{attempt}")

    def _come_back(self, id: str, outcome: Outcome) -> None:
        """The hint is None for those who left without an answer or whose engine failed, and for "never"."""
        clients = self._clients
        was_told_never = outcome.state in ("refused", "expired") and outcome.hint_ms is None
        if outcome.tries > clients.retries or (was_told_never and clients.honours_hint):
            return
        hint_s = clients.backoff_s if outcome.hint_ms is None else outcome.hint_ms / 1000.0
        wait_s = hint_s if clients.honours_hint else clients.backoff_s
        outcome.wasted_tokens += outcome.tokens
        outcome.tokens = 0
        n, _, attempt = id.partition(".")
        heapq.heappush(self._events, (self.now + wait_s, _RETURNS, int(n), int(attempt) + 1))

    def _gone(self, id: str) -> None:
        if self._router is not None:
            self._router.gone(id)

    def _sample(self) -> None:
        gauges = [replica.gauges() for replica in self._replicas]
        pools = [replica.plant.options.kv_tokens for replica in self._replicas]
        held = sum(replica.plant.kv_tokens for replica in self._replicas)
        pool = sum(tokens for tokens in pools if tokens is not None)
        self.samples.append(
            Sample(
                time_s=self._sample_s,
                queued=round(sum(each["queued"] for each in gauges)),
                running=round(sum(each["running"] for each in gauges)),
                kv_share=held / pool if pool else math.nan,
                pressure=max(each.get("pressure", math.nan) for each in gauges),
                rung=max(each.get("rung", math.nan) for each in gauges),
                bias=sum(each.get("bias", math.nan) for each in gauges) / len(gauges),
                is_broken=any(each.get("breaker", 0.0) > 0.0 for each in gauges),
                memory_pressure=max(each["memory_pressure"] for each in gauges),
                batch_efficiency=sum(each["batch_efficiency"] for each in gauges) / len(gauges),
            )
        )
        self._sample_s += self._sample_every_s or math.inf
