"""The `paced` gate: requests are charged engine milliseconds and released at the pace that the TPOT target leaves.

The earliest deadline goes first, tenants take turns by engine time, offline work fills what urgent work leaves and has
a floor (`pace`). Who cannot have its first token in time (`foresight`) is refused at arrival, with the time until then.
Invariant: nobody starts past the ramp and the reserve, and none but probes without credit or a floor, or before the
engine has read most of what it holds.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Mapping

from ..contract.bundle import KvCache, Limits
from ..contract.policy import ClassPolicy, Policy
from ..contract.refusal import ErrorCode
from ..contract.rungs import Rung
from ..contract.step_model import StepModel
from .entry import Entry
from .estimate import EngineEstimate
from .foresight import Foresight
from .lengths import OutputLengths
from .open_turns import first_offline, first_urgent, may_start
from .pace import Pace
from .pressure import Ladder
from .refusals import Refusal, Why
from .reserve import Reserve
from .tenants import Tenants
from .types import Phase, StepReport

__all__ = ["PacedGate"]


class PacedGate:
    def __init__(
        self, policy: Policy, limits: Limits, kv: KvCache, step_model: StepModel | None, reserve: Reserve
    ) -> None:
        options = policy.paced
        self._reserve, self._held = reserve, reserve.held
        self._kv = kv
        self.engine = EngineEstimate(step_model, options, reserve.held, chunk_tokens=limits.prefill_chunk_tokens)
        self.outputs = OutputLengths(start_tokens=options.start_output_tokens, gain=options.length_gain)
        self._tenants = Tenants()
        self._pace = Pace(policy, self.engine, most_requests=limits.max_batch_size)
        self._foresight = Foresight(policy, self.engine, self._pace, self._tenants, reserve)
        self._held_tokens = 0.0
        """KV tokens that requests in the engine are expected to come to."""
        self._room_tokens = options.kv_share * kv.capacity_blocks * kv.block_tokens
        self._long: str | None = None
        """The long prompt that the engine is reading."""
        self._harm_left = 0.0
        """Urgent requests that long offline prompts may still cost."""
        self.ladder = Ladder(policy.rungs, up_s=options.rung_up_s, down_s=options.rung_down_s)
        self._take_policy(policy)

    def replace_policy(self, policy: Policy) -> None:
        self.engine.options = policy.paced
        self._pace.replace_policy(policy)
        self._foresight.replace_policy(policy)
        self.ladder.replace(policy.rungs, up_s=policy.paced.rung_up_s, down_s=policy.paced.rung_down_s)
        self._take_policy(policy)

    def _take_policy(self, policy: Policy) -> None:
        self._policy, self._options = policy, policy.paced
        self._tenants.replace_weights(policy.tenant_weights)
        self._is_offline = {name: each.is_offline for name, each in policy.classes.items()}
        self._is_default_offline = self._is_offline[policy.default_class]
        urgent = [each.priority for each in policy.classes.values() if not each.is_offline]
        self._top_priority = min(urgent, default=0)

    # Arrival

    def prepare(self, entry: Entry) -> None:
        name = entry.request_class
        entry.is_offline = self._is_offline.get(name, self._is_default_offline) and not entry.is_probe
        entry.due_s = entry.arrival_s if entry.is_probe else entry.deadline_s
        entry.price_ms = self.engine.price_ms(entry.prompt_tokens, entry.cached_tokens)
        expected = self._options.length_margin * self.outputs.mean_tokens(name, entry.bucket)
        entry.expected_tokens = expected if expected < entry.max_tokens else entry.max_tokens
        if self._kv.may_pause and entry.phase is not Phase.RUNNING:  # what runs has been given its room
            entry.need_blocks = self._kv.blocks_for(entry.prompt_tokens + math.ceil(entry.expected_tokens))
        if entry.is_offline:
            entry.whole_ms = self._foresight.whole_ms(entry)

    def asked(self, entry: Entry, now: float) -> None:
        self.prepare(entry)
        if not entry.is_offline:
            self._foresight.note_asked(entry, now)

    def judge(self, entry: Entry, now: float) -> Refusal | None:
        self.prepare(entry)
        if entry.is_offline:
            return self._judge_offline(entry, now)
        options, foresight = self._options, self._foresight
        if not (entry.was_routed or entry.is_probe):
            foresight.note_asked(entry, now)
        if self._harm_left < options.offline_harm_cap_requests:
            self._harm_left += options.offline_harm
        rung = self.ladder.rung
        if (rung.shed_by_priority or rung.critical_only) and not entry.is_probe:
            by_rung = self._shed_by_rung(entry, rung)
            if by_rung is not None:
                return by_rung
        late_ms = 1000.0 * (now - entry.deadline_s) + foresight.first_token_ms(entry, now)
        if late_ms <= 0.0:
            return None if entry.queue_due_s == math.inf else self._waits_too_long(entry, now)
        return Refusal(
            code=ErrorCode.OVERLOADED,
            why=Why.TOO_LATE,
            reason=f"{self._tenants.urgent} requests are waiting: its first token would come about {late_ms:.0f} ms "
            f"after its deadline of {entry.deadline_ms} ms",
            wait_ms=late_ms,
        )

    def _waits_too_long(self, entry: Entry, now: float) -> Refusal | None:
        """For its class, though its first token would come in time."""
        over_ms = 1000.0 * (now - entry.queue_due_s) + self._foresight.start_ms(entry)
        if over_ms <= 0.0:
            return None
        most_ms = 1000.0 * (entry.queue_due_s - entry.arrival_s)
        return Refusal(
            code=ErrorCode.OVERLOADED,
            why=Why.TOO_LATE,
            reason=f"{self._tenants.urgent} requests are waiting: it would wait about {over_ms:.0f} ms longer than the "
            f"{most_ms:.0f} ms that class {entry.request_class} may",
            wait_ms=over_ms,
        )

    def _judge_offline(self, entry: Entry, now: float) -> Refusal | None:
        """As much is taken as can be served in good time, under pressure by the floor alone: what would wait until its
        deadline is better told so now, and an empty queue would be no floor at all."""
        foresight = self._foresight
        foresight.asked.forget(now, self._options.demand_memory_s)
        harm = foresight.harm(entry)
        if harm > self._harm_left and self._held.count:
            gain_per_s = self._options.offline_harm * foresight.asked.requests / self._options.demand_memory_s
            wait_ms = 1000.0 * (harm - self._harm_left) / max(gain_per_s, 1e-9)
            if wait_ms > 1000.0 * (entry.deadline_s - now):
                return Refusal(
                    code=ErrorCode.OVERLOADED,
                    why=Why.OFFLINE_FULL,
                    reason=f"while its prompt of {entry.prompt_tokens} tokens is read about {harm:.0f} urgent requests "
                    "would come too late; it has to wait for a quieter time",
                    wait_ms=wait_ms,
                )
        is_pressed = self.ladder.rung.refuse_offline or self.ladder.rung.critical_only
        spare = 0.0 if is_pressed else 1.0 - foresight.demand_at(now)
        share = max(self._options.offline_floor, spare)
        wait_ms = (self._tenants.offline_ahead_ms(entry) + entry.whole_ms) / share if share > 0.0 else math.inf
        left_ms = self._options.offline_patience * 1000.0 * (entry.deadline_s - now)
        if wait_ms <= left_ms:
            return None
        return Refusal(
            code=ErrorCode.OVERLOADED,
            why=Why.OFFLINE_FULL,
            reason=f"{self._tenants.offline} offline requests wait for {100.0 * share:.0f} % of the engine (pressure "
            f"{self.ladder.pressure:.2f}, rung {self.ladder.level}), and this one could not be served in time",
            wait_ms=wait_ms - left_ms,
        )

    def _shed_by_rung(self, entry: Entry, rung: Rung) -> Refusal | None:
        """From the least important class up, as large a part as makes the rest fit; never of the top class."""
        if self._rules(entry.request_class).priority <= self._top_priority:
            return None
        part = 1.0
        if not rung.critical_only:
            excess, by_class = self._foresight.excess(), self._foresight.asked.by_class
            for name in sorted(by_class, key=lambda each: -self._rules(each).priority):
                if name == entry.request_class:
                    break
                excess -= by_class[name]
            part = excess / max(by_class.get(entry.request_class, 0.0), 1e-9)
        # By tenant, so that the same ones are served throughout instead of all now and then.
        slot = zlib.crc32((entry.tenant or entry.id).encode()) % 128
        return self._by_rung(entry, f"class {entry.request_class} is shed") if slot < 128.0 * part else None

    def _by_rung(self, entry: Entry, what: str) -> Refusal:
        ladder = self.ladder
        return Refusal(
            code=ErrorCode.OVERLOADED,
            why=Why.RUNG,
            reason=f"pressure is {ladder.pressure:.2f} (rung {ladder.level}): {what}",
            wait_ms=1000.0 * (300.0 if entry.is_offline else self._options.rung_down_s),
        )

    # Queue

    def push(self, entry: Entry) -> None:
        self._tenants.push(entry)

    def remove(self, entry: Entry) -> None:
        self._tenants.remove(entry)

    def hopeless(self, now: float) -> Entry | None:
        """A queued request, first in its tenant's line, that could not make its deadline if it went now."""
        if not self._tenants.urgent:
            return None
        for tenant in self._tenants:
            head = tenant.first_urgent()
            if head is not None and not head.is_probe and self._foresight.left_ms(head, now) < 0.0:
                return head
        return None

    # Release

    def tick(self, now: float) -> None:
        """Before each round of releases."""
        room_tokens = self._options.kv_share * self._reserve.left_blocks * self._kv.block_tokens
        self._room_tokens = max(room_tokens, 1.0)
        self.ladder.update(max(self._foresight.demand_at(now), self._held_tokens / self._room_tokens), now)
        self._pace.tick(now)

    def next(self, now: float) -> Entry | None:
        pace, tenants = self._pace, self._tenants
        if self._held.count >= pace.most_running:
            return None
        # What the floor owes goes first: urgent prompts would else always be there before it.
        entry = self._next_by_floor() if tenants.offline else None
        if entry is None and tenants.urgent:
            if self._reserve.shares.is_plain:
                head = tenants.first_urgent()
                entry = None if head is None else self._head_or_next(head)
            else:
                entry = self._next_urgent_of_classes()
        if entry is None and tenants.offline:
            entry = self._next_offline(now)
        if entry is None:
            return None
        cost_ms = self.engine.bias * entry.price_ms
        pace.credit_ms -= cost_ms
        tenants.take(entry, cost_ms)
        if entry.is_offline:
            pace.pay_floor(self._foresight.whole_ms(entry))
        return entry

    def _next_urgent_of_classes(self) -> Entry | None:
        """Where classes have limits: who waits for its class alone does not hold up the others."""
        for is_open in may_start(self._reserve):
            head = first_urgent(self._tenants, is_open)
            entry = None if head is None else self._head_or_next(head, is_open)
            if entry is not None:
                return entry
        return None

    def _head_or_next(self, head: Entry, is_open: Callable[[Entry], bool] | None = None) -> Entry | None:
        """Where the first in line waits for room alone, one behind it that has some may pass it, a few times."""
        if head.is_probe:
            return head if self._reserve.fits(head) else None
        if self._pace.credit_ms <= 0.0 or not self._may_be_read(head):
            return None
        if self._has_room(head):
            return head
        if head.passed >= self._options.most_passes:
            return None
        for other in self._tenants.behind(head):
            if (is_open is None or is_open(other)) and self._may_go(other):
                head.passed += 1
                return other
        return None

    def _next_by_floor(self) -> Entry | None:
        head = self._first_offline(0.0) or self._first_offline(math.inf)
        if head is None or self._pace.floor_ms < self._foresight.whole_ms(head):
            return None
        return head if self._may_go(head) else None

    def _next_offline(self, now: float) -> Entry | None:
        """Into what urgent work leaves."""
        if not self._tenants.urgent and not self._held.count:
            # Nothing is idle because of pressure that is over, or for fear of requests that may come.
            return self._first_offline_that_fits(math.inf)
        pace, foresight = self._pace, self._foresight
        if self._tenants.urgent or self.ladder.rung.stop_offline or pace.credit_ms <= 0.5 * pace.credit_cap_ms:
            return None
        if max(foresight.demand_at(now), foresight.slot_demand_at(now)) * self._options.offline_headroom > 1.0:
            return None
        head = self._first_offline_that_fits(self._harm_left)
        if head is not None:
            self._harm_left -= foresight.harm(head)
        return head

    def _first_offline_that_fits(self, most_harm: float) -> Entry | None:
        head = self._first_offline(most_harm)
        return head if head is not None and self._may_go(head) else None

    def _first_offline(self, most_harm: float) -> Entry | None:
        """Of a class that may start one, where classes have limits."""
        reserve, harm = self._reserve, self._foresight.harm
        if reserve.shares.is_plain:
            return self._tenants.first_offline(lambda each: harm(each) <= most_harm)
        full = reserve.shares.full()
        if not any(n for name, n in self._tenants.waiting.items() if self._rules(name).is_offline and name not in full):
            return None
        is_open = next(iter(may_start(reserve)))
        return first_offline(self._tenants, lambda each: is_open(each) and harm(each) <= most_harm)

    def _may_go(self, entry: Entry) -> bool:
        return self._may_be_read(entry) and self._has_room(entry)

    def _may_be_read(self, entry: Entry) -> bool:
        """Held back while prompts enough are in the engine: more would wait there, out of our order. Of long ones, one
        is read at a time."""
        if self._held.unread_ms >= self._options.prefill_ahead_chunks * self.engine.chunk_ms:
            return False
        return self._long is None or entry.prompt_tokens <= self._options.long_prompt_tokens

    def _has_room(self, entry: Entry) -> bool:
        """For all that it may come to, or is expected to."""
        reserve = self._reserve
        if not reserve.fits(entry):
            return False
        if not reserve.may_pause or not self._held.count:
            return True
        return reserve.used_blocks + entry.need_blocks <= reserve.most_blocks(self._options.kv_share)

    def started(self, entry: Entry) -> None:
        self._held_tokens += entry.prompt_tokens + entry.expected_tokens
        if entry.prompt_tokens > self._options.long_prompt_tokens:
            self._long = entry.id

    # Engine

    def observe(self, report: StepReport) -> None:
        engine = self.engine
        engine.observe(report)
        decode_ms = engine.decode_ms(self._held.count)
        self._foresight.stepped(report, decode_ms)
        if self._long in report.firsts:
            self._long = None
        if report.step_ms > 0.0:
            self._pace.stepped(report.step_ms, decode_ms, owes=self._tenants.offline > 0)

    def begin_anew(self) -> None:
        self._pace.ramp.restart()

    def ended(self, entry: Entry, tokens: int) -> None:
        foresight = self._foresight
        if entry.is_probe:  # its short answer says nothing of the others'
            foresight.turnover.made(-tokens)
        else:
            foresight.turnover.ended()
            if tokens:
                self.outputs.observe(entry.request_class, entry.bucket, tokens)
                self._tenants.charge(entry.tenant, tokens * foresight.token_share_ms)
        if self._long == entry.id:
            self._long = None
        if self._held.count:
            left_tokens = self._held_tokens - entry.prompt_tokens - entry.expected_tokens
            self._held_tokens = left_tokens if left_tokens > 0.0 else 0.0
        else:
            self._held_tokens = 0.0
            self._pace.fill()

    # Numbers

    @property
    def rung(self) -> Rung:
        return self.ladder.rung

    def gauges(self) -> Mapping[str, float]:
        engine, pace, usual_ms = self.engine, self._pace, self._foresight.asked.usual_price_ms
        return {
            "pressure": self.ladder.pressure,
            "rung": float(self.ladder.level),
            **({"price_ms": engine.bias * usual_ms} if usual_ms else {}),
            "credit_ms": pace.credit_ms,
            "bias": engine.bias,
            "step_ms": engine.step_ms,
            "target_step_ms": pace.target_ms,
            "prefill_share": self._foresight.prefill_share,
            "expected_kv_tokens": self._held_tokens,
            **({} if self.outputs.error_tokens is None else {"output_error_tokens": self.outputs.error_tokens}),
            "max_running": float(pace.most_running),
        }

    def _rules(self, name: str) -> ClassPolicy:
        return self._policy.classes.get(name) or self._policy.classes[self._policy.default_class]

    def waiting(self, request_class: str) -> int:
        return self._tenants.waiting.get(request_class, 0)

    def ahead(self, request_class: str) -> int:
        return self._tenants.urgent + (self._tenants.offline if self._rules(request_class).is_offline else 0)

    def position(self, entry: Entry) -> int:
        """By deadline, as if tenants took no turns; offline ones after all urgent ones."""
        queued = [each for tenant in self._tenants for each in (*tenant.urgent.values(), *tenant.offline.values())]
        place = (entry.is_offline, 0.0 if entry.is_offline else entry.due_s, entry.order)
        return sum((e.is_offline, 0.0 if e.is_offline else e.due_s, e.order) < place for e in queued)

    def lengths(self) -> dict[str, int]:
        waiting = self._tenants.waiting
        return dict.fromkeys(self._policy.classes, 0) | {name: n for name, n in waiting.items() if n}

    def queues(self) -> Mapping[str, Iterable[Entry]]:
        return {tenant.name: [*tenant.urgent.values(), *tenant.offline.values()] for tenant in self._tenants}
