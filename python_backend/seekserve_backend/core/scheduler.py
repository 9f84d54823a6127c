"""The scheduler: joins books, admission, release gate and reserve, and returns what to do as data.

It decides nothing itself: `Admission` says who is taken, `ReleaseGate` who is next, `Reserve` what fits; another policy
brings its own pair. The caller holds one lock around every call, hands in the time, and reports every End of the
engine: also those of expired requests, since their slot and blocks stay reserved until then.
Invariant: each offered request ends in exactly one terminal kind and never starts after it (`check_integrity`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from ..contract.bundle import KvCache, Limits
from ..contract.metric_names import UNKNOWN_CLASS
from ..contract.policy import Policy
from ..contract.refusal import ErrorCode
from ..contract.routes import Origin
from ..contract.rungs import Rung
from ..contract.step_model import StepModel
from .admission import Admission
from .asides import Asides
from .books import Books
from .breaker import Breaker, BreakerState
from .buckets import Buckets
from .classes import NOWHERE, bound_sampling, choose_class
from .deadlines import Deadlines
from .door import Door
from .entry import Entry
from .gate import Gate, make_gate
from .held import Held
from .integrity import IntegrityError, check_parts
from .openings import AtWork, Opening, at_work
from .refusals import Refusal, Why
from .reserve import Reserve
from .routing import Routing
from .types import (
    Accepted,
    Decision,
    Expire,
    Phase,
    Refused,
    Release,
    Request,
    Signals,
    Snapshot,
    StepReport,
    Terminal,
)

__all__ = ["IntegrityError", "Scheduler"]

_OPENINGS_KEPT = 8
_ENGINE_ENDS = (Terminal.FINISHED, Terminal.CANCELLED, Terminal.FAILED)
# Looked up by name for every request; an attribute of an Enum takes three times as long.
_INTAKE, _QUEUED, _RUNNING = Phase.INTAKE, Phase.QUEUED, Phase.RUNNING
_FINISHED, _FAILED = Terminal.FINISHED, Terminal.FAILED
_CLOSED = BreakerState.CLOSED


class Scheduler:
    """All times are seconds on the caller's clock, which must not run backwards."""

    def __init__(self, policy: Policy, limits: Limits, kv: KvCache, step_model: StepModel | None = None) -> None:
        self._policy = policy
        self._has_no_routes = policy.has_no_routes
        self._engine = (limits, kv, step_model)
        self._admission = Admission(policy, limits, kv)
        self._reserve = self._new_reserve(limits, kv)
        self._gate: Gate = make_gate(policy, limits, kv, step_model, self._reserve)
        self._buckets = Buckets(policy.bucket_edges_tokens)
        self._deadlines = Deadlines()
        self._books = Books()
        self.asides = Asides(self._books)
        self.routing = Routing(self._books, self._deadlines)
        self.breaker = Breaker(policy.breaker)
        self._door = Door(policy, self._books, self.breaker)
        self.openings: deque[Opening] = deque(maxlen=_OPENINGS_KEPT)
        """Of the breaker, for whoever takes them away to tell them."""
        self._is_draining = False
        self._pause: tuple[float, str] | None = None
        self._accepted = 0

    def offer(
        self,
        id: str,
        *,
        prompt_bytes: int,
        request_class: str | None,
        now: float,
        is_probe: bool = False,
        origin: Origin = NOWHERE,
        sampling: Mapping[str, float] | None = None,
    ) -> Refused | None:
        """Bytes arrived. None: it is in intake, and `submit`, `cancel` or `fail` must follow.

        `request_class`: as the client names it. `sampling`: what it named; `sampling_of` says what becomes of it.
        """
        books, policy = self._books, self._policy
        name, not_its_class = request_class or policy.default_class, None
        if not is_probe and (origin.headers or not self._has_no_routes):
            chosen = choose_class(policy, request_class, origin)
            if isinstance(chosen, Refusal):
                name, not_its_class = policy.default_class, chosen
            else:
                name = chosen
        no = (
            (self._door.in_use(id) if id in books.live or id in self._reserve.leaving else None)
            or (self._door.draining() if self._is_draining and not is_probe else None)
            or (self._door.paused(*self._pause, now) if self._pause is not None and not is_probe else None)
            or (self._door.broken(now) if self.breaker.state is not _CLOSED and not is_probe else None)
            or not_its_class
            or (self._admission.judge_class(name) if name not in policy.classes else None)
            or self._admission.judge_bytes(
                prompt_bytes, intake=books.by_phase[_INTAKE], waiting=books.by_phase[_QUEUED], is_probe=is_probe
            )
        )
        if no is not None:
            return self._refuse(id, no, None, name)
        rules = policy.classes[name]
        changed = bound_sampling(name, rules, sampling or {}) if rules.sampling and not is_probe else None
        if isinstance(changed, Refusal):
            return self._refuse(id, changed, None, name)
        books.open(Entry(id=id, phase=_INTAKE, arrival_s=now, request_class=name, is_probe=is_probe, sampling=changed))
        return None

    def sampling_of(self, id: str) -> Mapping[str, float]:
        """What the class of an offered request sets otherwise than its client did."""
        entry = self._books.live.get(id)
        return {} if entry is None else entry.sampling or {}

    def class_of(self, id: str) -> str:
        """Of an offered request, as the policy's routes say; empty for one that is not there any more."""
        entry = self._books.live.get(id)
        return "" if entry is None else entry.request_class

    def submit(
        self, request: Request, now: float, *, variants: Collection[str] = (), is_at_door: bool = False
    ) -> Accepted | Refused:
        """Tokenised: from intake, or straight away (then it counts as offered here).

        `variants`: models that can take it now. An Accepted with `route_to` is for one of them; `routing` is told what
        becomes of it. `is_at_door`: it comes only now, without an `offer` that has judged whether anything is taken.
        """
        id, offered = request.id, self._books.live.get(request.id)
        if (id in self._reserve.leaving) if offered is None else (offered.phase is not _INTAKE):
            return self._refuse(id, self._door.in_use(id), None, request.request_class or self._policy.default_class)
        entry = offered or Entry(
            id=id, phase=_INTAKE, arrival_s=now, request_class=self._policy.default_class, is_probe=False
        )
        arrival_s = entry.arrival_s = request.arrival_s
        name = entry.request_class = request.request_class or entry.request_class
        is_probe = entry.is_probe = entry.is_probe or request.is_probe
        route_to = self._route_to(entry, variants) if variants else None
        classes, reserve = self._policy.classes, self._reserve
        blocks = reserve.capacity_blocks if reserve.shares.is_plain else reserve.blocks_for_class(name)
        verdict = (
            (self._door.draining() if self._is_draining and not is_probe else None)
            or (
                self._door.paused(*self._pause, now)
                if self._pause and (is_at_door or not offered) and not is_probe
                else None
            )
            or (self._door.broken(now) if is_at_door and self.breaker.state is not _CLOSED else None)
            or (self._admission.judge_class(name) if name not in classes else None)
            or self._admission.judge(request, entry, now, self._gate, blocks, is_routed=route_to is not None)
        )
        if isinstance(verdict, Refusal):
            return self._refuse(id, verdict, offered, name)
        prompt_tokens = entry.prompt_tokens = request.prompt_tokens
        entry.tenant, entry.ready_s = request.tenant, now
        max_tokens, entry.need_blocks, entry.deadline_ms = verdict
        entry.max_tokens = max_tokens
        due_s = entry.deadline_s = arrival_s + entry.deadline_ms / 1000.0
        if request.cached_tokens > 0:
            entry.cached_tokens = min(request.cached_tokens, prompt_tokens - 1)
        timeout_ms = classes[name].queue_timeout_ms
        if timeout_ms is not None and not is_probe:
            entry.queue_due_s = arrival_s + timeout_ms / 1000.0
            due_s = min(due_s, entry.queue_due_s)
        bucket = entry.bucket = self._buckets.label(prompt_tokens)
        self._accepted = entry.order = self._accepted + 1
        if route_to is not None:
            self._gate.asked(entry, now)
            if offered is None:
                self._books.open(entry)
            self.routing.start(entry)
            return Accepted(id, max_tokens, name, route_to)
        late = self._gate.judge(entry, now)
        if late is not None and not is_probe:
            return self._refuse(id, late, offered, name)
        if offered is None:
            self._books.open(entry)
        self._books.admit(entry)
        self._gate.push(entry)
        self._deadlines.set(id, due_s)
        self._buckets.enter(bucket)
        return Accepted(id, max_tokens, name)

    def _route_to(self, entry: Entry, variants: Collection[str]) -> str | None:
        rung = self._gate.rung
        is_routed = rung.routes(entry.request_class) and rung.route_to in variants and not entry.is_probe
        return rung.route_to if is_routed else None

    def step(self, now: float, signals: Signals) -> tuple[Decision, ...]:
        """Expires who is late, then releases who fits. Its cost grows with those two, not with the queue."""
        self._note_signals(signals, now)
        decisions: list[Decision] = [self._expire(id, now) for id in self._deadlines.pop_due(now)]
        while (late := self._gate.hopeless(now)) is not None:
            decisions.append(self._expire(late.id, now))
        if self._reserve.may_pause:
            self._reserve.note_growth()
        self._gate.tick(now)
        rung, start = self._gate.rung, self._gate.next
        while (entry := start(now)) is not None:
            decisions.append(self._release(entry, rung, now))
        if self._reserve.running:
            self._door.drain.resume(now)
        return tuple(decisions)

    def observe(self, report: StepReport, now: float) -> None:
        """What one engine step brought. Unknown ids and those that have ended already are ignored."""
        running = self._reserve.running
        failed_ids = {id for id, terminal, _ in report.ends if terminal is _FAILED}
        before: tuple[AtWork, ...] = at_work(running.values(), self.held, now) if failed_ids else ()
        self._reserve.held.observe(report, now)
        self._gate.observe(report)
        for id in report.firsts:
            if id in running:
                self._deadlines.discard(id)
        ended = ended_well = 0
        for id, terminal, tokens in report.ends:
            if terminal not in _ENGINE_ENDS:
                raise ValueError(f"End of {id!r}: an engine cannot end a request as {terminal.value}")
            is_live = id in running
            entry = self._reserve.give(id)
            if entry is None:
                continue
            self._gate.ended(entry, tokens)
            ended += 1
            if is_live:
                self._deadlines.discard(id)
                self._books.close(entry, terminal)
            ended_well += terminal is _FINISHED
        if ended_well and self.breaker.ended_well(ended_well, now):
            # What comes in now meets an engine that is new, or was ill.
            self._gate.begin_anew()
        if failed_ids and self.breaker.failed(now):
            self.openings.append(Opening(number=self.breaker.openings, at_s=now, running=before, failed_ids=failed_ids))
        self._door.drain.observe(ended, now, is_busy=self._reserve.used_slots > 0)

    def cancel(self, id: str, now: float) -> Phase | None:
        """Returns the phase it was in, None when there is nothing to cancel.

        A running one stays RUNNING until the engine's End comes; meanwhile it no longer expires.
        """
        entry = self._books.live.get(id)
        if entry is None:
            return None
        phase = entry.phase
        if phase is Phase.RUNNING:
            self._deadlines.discard(id)
        else:
            self._end_waiting(entry, Terminal.CANCELLED)
        return phase

    def fail(self, id: str, now: float) -> None:
        """Tokeniser or engine failed. For a running or expired one this says too that the engine no longer holds it."""
        entry = self._books.live.get(id)
        holder = self._reserve.give(id)
        if holder is not None:
            self._gate.ended(holder, 0)
            self._door.drain.observe(0, now, is_busy=self._reserve.used_slots > 0)
        if entry is not None:
            self._end_waiting(entry, Terminal.FAILED)

    def reject(self, id: str, now: float) -> None:
        """What a request in intake asks for turned out not to be possible: the client's mistake, nobody's failure."""
        entry = self._books.live.get(id)
        if entry is not None and entry.phase is Phase.INTAKE:
            self._books.refuse(ErrorCode.INVALID, Why.INVALID, entry, self._counted_class(entry.request_class))
        else:
            self.fail(id, now)

    def count_unreadable(self) -> None:
        """A request arrived of which nothing can be known, and was told so."""
        self._books.refuse(ErrorCode.INVALID, Why.INVALID, None, UNKNOWN_CLASS)

    def set_draining(self, now: float) -> None:
        """From now on only probes are taken; what was accepted is served to its end. There is no way back."""
        self._is_draining = True

    def pause(self, until_s: float, reason: str) -> None:
        """From now until `resume` only probes and what has been offered already are taken.

        Refusals give `reason` and, as their hint, the time until `until_s` behind the requests that are left.
        """
        self._pause = (until_s, reason)

    def resume(self) -> None:
        self._pause = None

    def replace_engine(self, limits: Limits, kv: KvCache, step_model: StepModel | None) -> None:
        """The limits of another engine, about which nothing is measured yet.

        Nothing may be running and nothing but probes may wait; what still left the old engine is gone with it.
        """
        waiting = [entry for queue in self._gate.queues().values() for entry in queue]
        self._engine = (limits, kv, step_model)
        self._admission = Admission(self._policy, limits, kv)
        self._reserve = self._new_reserve(limits, kv)
        self._gate = make_gate(self._policy, limits, kv, step_model, self._reserve)
        for entry in reversed(waiting):  # each goes to the head
            answer_tokens = 1 if kv.may_pause else entry.max_tokens
            entry.need_blocks = kv.blocks_for(entry.prompt_tokens + answer_tokens)
            self._gate.prepare(entry)
            self._gate.push(entry)

    def replace_policy(self, policy: Policy) -> None:
        """Takes effect between steps. Accepted requests keep their limits and deadlines, and their place if the kind
        stays; another kind orders them by its own rules."""
        is_another_kind = policy.kind != self._policy.kind
        self._policy = policy
        self._has_no_routes = policy.has_no_routes
        self._door.policy, self.breaker.options = policy, policy.breaker
        self._admission.policy = policy
        self._reserve.replace_classes(policy.classes)
        if is_another_kind:
            self._gate = self._new_gate(policy)
        else:
            self._gate.replace_policy(policy)
        self._buckets = Buckets(policy.bucket_edges_tokens)
        for queue in self._gate.queues().values():
            for entry in queue:
                entry.bucket = self._buckets.label(entry.prompt_tokens)
                self._buckets.enter(entry.bucket)

    def _new_reserve(self, limits: Limits, kv: KvCache) -> Reserve:
        reserve = Reserve(
            slots=limits.max_batch_size,
            capacity_blocks=kv.capacity_blocks,
            block_tokens=kv.block_tokens,
            may_pause=kv.may_pause,
        )
        reserve.replace_classes(self._policy.classes)
        return reserve

    def _new_gate(self, policy: Policy) -> Gate:
        """With everything in it that the old one held. Nobody who was accepted is judged again."""
        gate = make_gate(policy, *self._engine, self._reserve)
        for entry in self._reserve.holders():
            gate.prepare(entry)
            gate.started(entry)
        self.held.reprice()
        # A running request without a deadline has had its first token.
        firsts = tuple(id for id in self._reserve.running if id not in self._deadlines)
        gate.observe(StepReport(step_ms=0.0, firsts=firsts))
        waiting = [entry for queue in self._gate.queues().values() for entry in queue]
        for entry in sorted(waiting, key=lambda each: each.order):
            gate.prepare(entry)
            gate.push(entry)
        return gate

    def next_deadline_s(self) -> float | None:
        """When `step` must be called at the latest if nothing else happens."""
        return self._deadlines.next_s()

    def position(self, id: str) -> int | None:
        """Requests to be released before this queued one; None when it is not queued. Walks the queue."""
        entry = self._books.live.get(id)
        return self._gate.position(entry) if entry is not None and entry.phase is Phase.QUEUED else None

    def snapshot(self) -> Snapshot:
        books = self._books
        return Snapshot(
            intake=books.by_phase[Phase.INTAKE],
            queued_by_class=self._gate.lengths(),
            queued_by_bucket=self._buckets.counts(),
            running=books.by_phase[Phase.RUNNING],
            joined=books.by_phase[Phase.JOINED],
            reserved_blocks=self._reserve.used_blocks,
            offered=books.counts.offered,
            terminals={kind.value: n for kind, n in books.counts.terminals.items()},
            refused_by_code={code.value: n for code, n in books.refused_by_code.items()},
            refused_by_why=books.refused_by_reason(self._policy.classes),
            ended_by_class=books.ended_by_class(self._policy.classes),
            admitted_by_class=dict.fromkeys(self._policy.classes, 0) | books.admitted,
            policy_name=self._policy.name,
            policy_generation=self._policy.generation,
            routed=books.by_phase[Phase.ROUTED],
            gauges=self._gauges(),
        )

    def _gauges(self) -> dict[str, float]:
        states = {BreakerState.CLOSED: 0.0, BreakerState.HALF_OPEN: 0.5, BreakerState.OPEN: 1.0}
        return {
            **self._gate.gauges(),
            **self.routing.gauges(),
            **self.held.gauges(taken_blocks=self._reserve.taken_blocks, total_blocks=self._reserve.capacity_blocks),
            "breaker": states[self.breaker.state],
            "breaker_openings": float(self.breaker.openings),
        }

    @property
    def held(self) -> Held:
        """What the engine holds, and the numbers that guides make of it."""
        return self._reserve.held

    def check_integrity(self) -> None:
        """Counts everything again, the slow way. Raises IntegrityError with both sides of the first sum that is off."""
        check_parts(self._books, self._gate, self._reserve, self._deadlines, self._buckets)

    def _refuse(self, id: str, no: Refusal, offered: Entry | None, request_class: str) -> Refused:
        hint_ms = self._door.refusal_hint_ms(no)
        self._books.refuse(no.code, no.why, offered, self._counted_class(request_class))
        return Refused(id=id, code=no.code, reason=no.reason, retry_after_ms=hint_ms, field=no.field)

    def _counted_class(self, request_class: str) -> str:
        return request_class if request_class in self._policy.classes else UNKNOWN_CLASS

    def _note_signals(self, signals: Signals, now: float) -> None:
        if signals.is_draining:
            self.set_draining(now)
        total, free = signals.kv_total_blocks, signals.kv_free_blocks
        if total is not None:
            self._reserve.limit(total)
            if free == total and signals.engine_running == 0:
                for entry in list(self._reserve.leaving.values()):
                    self._reserve.give(entry.id)
                    self._gate.ended(entry, 0)

    def _expire(self, id: str, now: float) -> Expire:
        entry = self._books.live[id]
        was_running = entry.phase is Phase.RUNNING
        is_queue_timeout = entry.phase is Phase.QUEUED and entry.queue_due_s <= min(now, entry.deadline_s)
        if was_running:
            self._reserve.leave(entry)
        self._end_waiting(entry, Terminal.EXPIRED)
        return Expire(
            id=id,
            waited_ms=entry.waited_ms(now),
            deadline_ms=round(1000.0 * (entry.queue_due_s - entry.arrival_s))
            if is_queue_timeout
            else entry.deadline_ms,
            is_queue_timeout=is_queue_timeout,
            was_running=was_running,
            retry_after_ms=self._door.hint_ms(self._books.by_phase[Phase.QUEUED], Terminal.EXPIRED),
        )

    def _release(self, entry: Entry, rung: Rung, now: float) -> Release:
        self._buckets.leave(entry.bucket)
        self._books.move(entry, _RUNNING)
        if entry.queue_due_s < entry.deadline_s:
            self._deadlines.set(entry.id, entry.deadline_s)
        self._reserve.take(entry)
        self._gate.started(entry)
        max_tokens = entry.max_tokens
        if entry.is_offline and rung.offline_max_tokens is not None:
            max_tokens = min(max_tokens, rung.offline_max_tokens)
        waited_ms = 1000.0 * (now - entry.arrival_s) if now > entry.arrival_s else 0.0
        return Release(entry.id, max_tokens, waited_ms, rung.max_beam_width, rung.no_speculation)

    def _end_waiting(self, entry: Entry, terminal: Terminal) -> None:
        """Ends an entry that holds no reserve any more."""
        if entry.phase is Phase.QUEUED:
            self._gate.remove(entry)
            self._buckets.leave(entry.bucket)
        self._deadlines.discard(entry.id)
        self._books.close(entry, terminal)
