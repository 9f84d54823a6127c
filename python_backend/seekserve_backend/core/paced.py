"""The `paced` gate: requests are charged engine milliseconds and released at the pace that the TPOT target leaves.

A decode step of everything in flight takes its time; what is left of the target may be spent on prompts, and is saved
up as credit. The earliest deadline goes first, tenants take turns by engine time, offline work fills what urgent work
leaves and has a floor. Who cannot have its first token in time is refused at arrival, with the time until it could.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping

from ..contract.bundle import KvCache, Limits
from ..contract.policy import ClassPolicy, Policy
from ..contract.refusal import ErrorCode
from ..contract.rungs import Rung
from ..contract.step_model import StepModel
from .entry import Entry
from .estimate import EngineEstimate
from .lengths import OutputLengths
from .open_turns import first_offline, first_urgent, may_start
from .pressure import Ladder
from .ramp import Ramp
from .refusals import Refusal
from .reserve import Reserve
from .shares import Shares
from .tenants import Tenants
from .types import StepReport

__all__ = ["PacedGate"]


class PacedGate:
    def __init__(self, policy: Policy, limits: Limits, kv: KvCache, step_model: StepModel | None) -> None:
        options = policy.paced
        self._block_tokens = kv.block_tokens
        self.engine = EngineEstimate(step_model, options, chunk_tokens=limits.prefill_chunk_tokens)
        self.outputs = OutputLengths(start_tokens=options.start_output_tokens, gain=options.length_gain)
        self._tenants = Tenants()
        self._lengths: dict[str, int] = {}
        self._held_tokens = 0.0
        """KV tokens that requests in the engine are expected to come to."""
        self._long: str | None = None
        """The long prompt that the engine is reading."""
        self._floor_ms = 0.0
        self._asked_share = 0.0
        """Urgent prompts that arrived lately, in engine time by time."""
        self._asked_s = 0.0
        self._mean_price_ms = 0.0
        self._asked_by_class: dict[str, float] = {}
        self._shares: Shares | None = None
        self.ladder = Ladder(policy.rungs, up_s=options.rung_up_s, down_s=options.rung_down_s)
        self._ramp = Ramp(
            start_requests=options.ramp_start_requests,
            doubling_s=options.ramp_doubling_s,
            most_requests=limits.max_batch_size,
        )
        self.replace_policy(policy)
        self._credit_ms = self._credit_cap_ms
        self._most_running = limits.max_batch_size

    def replace_policy(self, policy: Policy) -> None:
        self._policy = policy
        self._options = self.engine.options = policy.paced
        promised = [each.tpot_slo_ms for each in policy.classes.values() if each.tpot_slo_ms and not each.is_offline]
        self.target_ms = policy.paced.slo_margin * min(promised, default=policy.paced.default_tpot_slo_ms)
        self._tenants.replace_weights(policy.tenant_weights)
        self.ladder.replace(policy.rungs, up_s=policy.paced.rung_up_s, down_s=policy.paced.rung_down_s)
        urgent = [each.priority for each in policy.classes.values() if not each.is_offline]
        self._top_priority = min(urgent, default=0)
        self._lengths = {**dict.fromkeys(policy.classes, 0), **{k: n for k, n in self._lengths.items() if n}}

    # Arrival

    def prepare(self, entry: Entry) -> None:
        engine = self.engine
        entry.is_offline = self._rules(entry.request_class).is_offline and not entry.is_probe
        entry.due_s = entry.arrival_s if entry.is_probe else entry.deadline_s
        entry.price_ms = engine.price_ms(entry.prompt_tokens, entry.cached_tokens)
        expected = self.outputs.expected_tokens(entry.request_class, entry.bucket, entry.max_tokens)
        entry.expected_tokens = min(expected * self._options.length_margin, entry.max_tokens)
        entry.whole_ms = self._whole_ms(entry)

    def asked(self, entry: Entry, now: float) -> None:
        self.prepare(entry)
        if not entry.is_offline:
            self._note_asked(entry, now)

    def judge(self, entry: Entry, now: float) -> Refusal | None:
        self.prepare(entry)
        if entry.is_offline:
            return self._judge_offline(entry, now)
        if not entry.was_routed:
            self._note_asked(entry, now)
        by_rung = None if entry.is_probe else self._shed_by_rung(entry)
        if by_rung is not None:
            return by_rung
        late_ms = 1000.0 * (now - entry.deadline_s) + self._first_token_ms(entry, now)
        if late_ms <= 0.0:
            return None if entry.queue_due_s == math.inf else self._waits_too_long(entry, now)
        return Refusal(
            code=ErrorCode.OVERLOADED,
            reason=f"{self._tenants.urgent} requests are waiting: its first token would come about {late_ms:.0f} ms "
            f"after its deadline of {entry.deadline_ms} ms",
            wait_ms=late_ms,
        )

    def _waits_too_long(self, entry: Entry, now: float) -> Refusal | None:
        """For its class, though its first token would come in time. It starts once there is any credit."""
        ahead_ms = self.engine.bias * self._tenants.ahead_ms(entry) - self._credit_ms
        wait_ms = max(ahead_ms / self._prefill_share, self._slot_wait_ms(entry), self._class_wait_ms(entry))
        over_ms = 1000.0 * (now - entry.queue_due_s) + max(0.0, wait_ms)
        if over_ms <= 0.0:
            return None
        most_ms = 1000.0 * (entry.queue_due_s - entry.arrival_s)
        return Refusal(
            code=ErrorCode.OVERLOADED,
            reason=f"{self._tenants.urgent} requests are waiting: it would wait about {over_ms:.0f} ms longer than the "
            f"{most_ms:.0f} ms that class {entry.request_class} may",
            wait_ms=over_ms,
        )

    def _judge_offline(self, entry: Entry, now: float) -> Refusal | None:
        """As much is taken as can be served in good time, under pressure by the floor alone: what would wait until its
        deadline is better told so now, and an empty queue would be no floor at all."""
        is_pressed = self.ladder.rung.refuse_offline or self.ladder.rung.critical_only
        spare = 0.0 if is_pressed else 1.0 - self._demand_at(now)
        share = max(self._options.offline_floor, spare)
        wait_ms = (self._tenants.offline_ms + entry.whole_ms) / share if share > 0.0 else math.inf
        left_ms = self._options.offline_patience * 1000.0 * (entry.deadline_s - now)
        if wait_ms <= left_ms:
            return None
        return Refusal(
            code=ErrorCode.OVERLOADED,
            reason=f"{self._tenants.offline} offline requests wait for {100.0 * share:.0f} % of the engine (pressure "
            f"{self.ladder.pressure:.2f}, rung {self.ladder.level}), and this one could not be served in time",
            wait_ms=wait_ms - left_ms,
        )

    def _first_token_ms(self, entry: Entry, now: float) -> float:
        engine, bias = self.engine, self.engine.bias
        short_ms = bias * (self._tenants.ahead_ms(entry) + entry.price_ms) - self._credit_ms
        short_ms += self._options.dear_cushion * bias * self._dearness_ms(entry, now)
        wait_ms = max(0.0, short_ms / self._prefill_share, self._slot_wait_ms(entry), self._class_wait_ms(entry))
        return wait_ms + engine.read_time_ms(entry.price_ms) + engine.decode_ms(1)

    def _slot_wait_ms(self, entry: Entry) -> float:
        """Where the batch is full, or still being ramped up: until as many have ended as wait before this one."""
        missing = self._tenants.urgent + 1 - (self._most_running - len(self.engine))
        if missing <= 0:
            return 0.0
        return missing * entry.expected_tokens * self.engine.decode_ms() / max(self._most_running, 1)

    def _class_wait_ms(self, entry: Entry) -> float:
        """The same where its class may not run so many."""
        cap = None if self._shares is None else self._shares.cap(entry.request_class)
        if self._shares is None or cap is None:
            return 0.0
        missing = self.waiting(entry.request_class) + 1 - (cap - self._shares.running.get(entry.request_class, 0))
        return max(0, missing) * entry.expected_tokens * self.engine.decode_ms() / cap

    def _dearness_ms(self, entry: Entry, now: float) -> float:
        """A dear prompt must leave room for the many cheap ones that come while it is read, unless its tenant asks for
        no more than its own part of the engine."""
        above_ms = entry.price_ms - self._mean_price_ms
        if above_ms <= 0.0:
            return 0.0
        capacity, memory_s = self._prefill_share / self.engine.bias, self._options.demand_memory_s
        if self._tenants.asks_for_less_than_its_share(entry.tenant, capacity, now, memory_s=memory_s):
            return 0.0
        return above_ms

    @property
    def _prefill_share(self) -> float:
        """Part of the engine's time that prompts get while the TPOT target holds."""
        by_target = 1.0 - self.engine.decode_ms(1) / self.target_ms
        return max(self._options.min_prefill_share, min(by_target, self.engine.most_prefill_share))

    def _shed_by_rung(self, entry: Entry) -> Refusal | None:
        """From the least important class up, as large a part as makes the rest fit; never of the top class."""
        rung, priority = self.ladder.rung, self._rules(entry.request_class).priority
        if priority <= self._top_priority or not (rung.shed_by_priority or rung.critical_only):
            return None
        part = 1.0
        if not rung.critical_only:
            excess = self._asked_share - self._prefill_share / self.engine.bias
            for name in sorted(self._asked_by_class, key=lambda each: -self._rules(each).priority):
                if name == entry.request_class:
                    break
                excess -= self._asked_by_class[name]
            part = excess / max(self._asked_by_class.get(entry.request_class, 0.0), 1e-9)
        # By tenant, so that the same ones are served throughout instead of all now and then.
        slot = zlib.crc32((entry.tenant or entry.id).encode()) % 128
        return self._by_rung(entry, f"class {entry.request_class} is shed") if slot < 128.0 * part else None

    def _by_rung(self, entry: Entry, what: str) -> Refusal:
        ladder = self.ladder
        return Refusal(
            code=ErrorCode.OVERLOADED,
            reason=f"pressure is {ladder.pressure:.2f} (rung {ladder.level}): {what}",
            wait_ms=1000.0 * (300.0 if entry.is_offline else self._options.rung_down_s),
        )

    def _note_asked(self, entry: Entry, now: float) -> None:
        memory_s = self._options.demand_memory_s
        keep = math.exp(-max(0.0, now - self._asked_s) / memory_s)
        more = entry.price_ms / (1000.0 * memory_s)
        self._asked_by_class = {name: share * keep for name, share in self._asked_by_class.items() if share > 1e-6}
        self._asked_by_class[entry.request_class] = self._asked_by_class.get(entry.request_class, 0.0) + more
        self._asked_share = sum(self._asked_by_class.values())
        self._asked_s = now
        mean = self._mean_price_ms
        self._mean_price_ms = mean + 0.01 * (entry.price_ms - mean) if mean else entry.price_ms
        self._tenants.note_asked(entry, now, memory_s=memory_s)

    def _demand_at(self, now: float) -> float:
        """Urgent work that arrives over what the engine can take at its target: above 1 some must be refused."""
        faded = math.exp(-max(0.0, now - self._asked_s) / self._options.demand_memory_s)
        return self.engine.bias * self._asked_share * faded / self._prefill_share

    # Queue

    def push(self, entry: Entry) -> None:
        entry.lane = entry.request_class
        self._lengths[entry.lane] = self._lengths.get(entry.lane, 0) + 1
        self._tenants.push(entry)

    def remove(self, entry: Entry) -> None:
        self._lengths[entry.lane] -= 1
        self._tenants.remove(entry)

    def hopeless(self, now: float) -> Entry | None:
        """A queued request, first in its tenant's line, that could not make its deadline if it went now."""
        if not self._tenants.urgent:
            return None
        step_ms = self.engine.decode_ms(1)
        for tenant in self._tenants:
            head = tenant.first_urgent()
            if head is None or head.is_probe:
                continue
            if 1000.0 * (now - head.deadline_s) + self.engine.read_time_ms(head.price_ms) + step_ms > 0.0:
                return head
        return None

    # Release

    def tick(self, reserve: Reserve, now: float) -> None:
        """Before each round of releases."""
        self._shares = reserve.shares
        kv = self._held_tokens / (self._options.kv_share * reserve.capacity_blocks * self._block_tokens)
        self.ladder.update(max(self._demand_at(now), kv), now)
        self._most_running = self._ramp.limit(
            now, is_slow=self.engine.step_ms > self.target_ms / self._options.slo_margin
        )

    def next(self, reserve: Reserve, now: float) -> Entry | None:
        if reserve.used_slots >= self._most_running:
            return None
        # What the floor owes goes first: urgent prompts would else always be there before it.
        entry = self._next_by_floor(reserve) if self._tenants.offline else None
        if entry is None and self._tenants.urgent:
            entry = self._next_urgent(reserve)
        if entry is None and self._tenants.offline:
            entry = self._next_offline(reserve, now)
        if entry is None:
            return None
        self.remove(entry)
        cost_ms = self.engine.bias * entry.price_ms
        self._credit_ms -= cost_ms
        self._tenants.charge(entry.tenant, cost_ms)
        if entry.is_offline:
            had_ms = self._floor_ms - self._whole_ms(entry)
            self._floor_ms = max(had_ms, -self._options.offline_floor_cap_ms)
        return entry

    def _next_urgent(self, reserve: Reserve) -> Entry | None:
        if not reserve.shares.is_plain:
            return self._next_urgent_of_classes(reserve)
        tenant = self._tenants.next_urgent()
        head = None if tenant is None else tenant.first_urgent()
        if head is None or head.is_probe:
            return head if head is not None and reserve.fits(head) else None
        may_go = self._credit_ms > 0.0 and not self._is_held_back(head) and self._has_room(head, reserve)
        return head if may_go else None

    def _next_urgent_of_classes(self, reserve: Reserve) -> Entry | None:
        """Where classes have limits: who waits for its class alone does not hold up the others."""
        for is_open in may_start(reserve):
            head = first_urgent(self._tenants, is_open)
            if head is None or (head.is_probe and not reserve.fits(head)):
                continue
            if head.is_probe or (
                self._credit_ms > 0.0 and not self._is_held_back(head) and self._has_room(head, reserve)
            ):
                return head
        return None

    def _next_by_floor(self, reserve: Reserve) -> Entry | None:
        head = self._first_offline(reserve)
        if head is None or self._floor_ms < self._whole_ms(head):
            return None
        if self._is_held_back(head) or not self._has_room(head, reserve):
            return None
        return head

    def _next_offline(self, reserve: Reserve, now: float) -> Entry | None:
        """Into what urgent work leaves."""
        if not self._tenants.urgent and not len(self.engine):
            return self._first_offline_that_fits(reserve)  # nothing is idle because of pressure that is over
        if self._tenants.urgent or self.ladder.rung.stop_offline or self._credit_ms <= 0.5 * self._credit_cap_ms:
            return None
        if self._demand_at(now) * self._options.offline_headroom > 1.0:
            return None
        return self._first_offline_that_fits(reserve)

    def _first_offline_that_fits(self, reserve: Reserve) -> Entry | None:
        head = self._first_offline(reserve)
        may_go = head is not None and not self._is_held_back(head) and self._has_room(head, reserve)
        return head if may_go else None

    def _first_offline(self, reserve: Reserve) -> Entry | None:
        if not reserve.shares.is_plain:
            full = reserve.shares.full()
            if not any(n for name, n in self._lengths.items() if self._rules(name).is_offline and name not in full):
                return None
            is_open = next(iter(may_start(reserve)))
            return first_offline(self._tenants, is_open)
        tenant = self._tenants.next_offline()
        return None if tenant is None else tenant.first_offline()

    def _is_held_back(self, entry: Entry) -> bool:
        """Prompts enough are in the engine; more would wait there, out of our order. Of long ones, one at a time."""
        if entry.prompt_tokens > self._options.long_prompt_tokens and self._long is not None:
            return True
        return self.engine.unread_ms >= self._options.prefill_ahead_chunks * self.engine.chunk_ms

    def _has_room(self, entry: Entry, reserve: Reserve) -> bool:
        if not reserve.fits(entry):
            return False
        room = self._options.kv_share * reserve.capacity_blocks * self._block_tokens
        return not len(self.engine) or self._held_tokens + entry.prompt_tokens + entry.expected_tokens <= room

    def _whole_ms(self, entry: Entry) -> float:
        """Engine time of a request to its end: its prompt, and its part of the decode steps that it will be in."""
        engine = self.engine
        decode_ms = engine.decode_ms(1) / (len(engine) + 1)
        return engine.bias * entry.price_ms + entry.expected_tokens * decode_ms

    def started(self, entry: Entry) -> None:
        self._held_tokens += entry.prompt_tokens + entry.expected_tokens
        if entry.prompt_tokens > self._options.long_prompt_tokens:
            self._long = entry.id
        self.engine.start(entry)

    # Engine

    def observe(self, report: StepReport) -> None:
        engine = self.engine
        engine.observe(report)
        for id in report.firsts:
            if engine.first_token(id) is not None and self._long == id:
                self._long = None
        if report.step_ms <= 0.0:
            return
        decode_ms = min(engine.decode_ms(), report.step_ms)
        left_ms = max(self.target_ms - decode_ms, self._options.min_prefill_share * self.target_ms)
        self._credit_ms = min(self._credit_ms + left_ms, self._credit_cap_ms)
        # Saved up only while somebody waits for it; what offline work got for nothing counts as had.
        most_ms = self._options.offline_floor_cap_ms if self._tenants.offline else 0.0
        self._floor_ms = min(self._floor_ms + self._options.offline_floor * report.step_ms, most_ms)

    def ended(self, entry: Entry, tokens: int) -> None:
        if not self.engine.end(entry.id):
            return
        if self._long == entry.id:
            self._long = None
        if tokens:
            self.outputs.observe(entry.request_class, entry.bucket, tokens)
            share_ms = self.engine.decode_ms() / max(len(self.engine), 1)
            self._tenants.charge_if_known(entry.tenant, tokens * share_ms)
        self._held_tokens = max(0.0, self._held_tokens - entry.prompt_tokens - entry.expected_tokens)
        if not len(self.engine):
            self._held_tokens, self._credit_ms = 0.0, self._credit_cap_ms

    @property
    def _credit_cap_ms(self) -> float:
        return max(self._options.credit_cap_ms, 2.0 * self.engine.bias * self.engine.chunk_ms)

    # Numbers

    @property
    def rung(self) -> Rung:
        return self.ladder.rung

    def gauges(self) -> Mapping[str, float]:
        engine = self.engine
        return {
            "pressure": self.ladder.pressure,
            "rung": float(self.ladder.level),
            "credit_ms": self._credit_ms,
            "bias": engine.bias,
            "step_ms": engine.step_ms,
            "target_step_ms": self.target_ms,
            "prefill_share": self._prefill_share,
            "expected_kv_tokens": self._held_tokens,
            "output_error_tokens": self.outputs.error_tokens,
            "max_running": float(self._most_running),
        }

    def _rules(self, name: str) -> ClassPolicy:
        return self._policy.classes.get(name) or self._policy.classes[self._policy.default_class]

    def is_full(self, request_class: str) -> bool:
        return self._lengths.get(request_class, 0) >= self._rules(request_class).max_queue_requests

    def waiting(self, request_class: str) -> int:
        return self._lengths.get(request_class, 0)

    def ahead(self, request_class: str) -> int:
        return self._tenants.urgent + (self._tenants.offline if self._rules(request_class).is_offline else 0)

    def position(self, entry: Entry) -> int:
        """By deadline, as if tenants took no turns; offline ones after all urgent ones."""
        queued = [each for tenant in self._tenants for each in (*tenant.urgent.values(), *tenant.offline.values())]
        place = (entry.is_offline, 0.0 if entry.is_offline else entry.due_s, entry.order)
        return sum((e.is_offline, 0.0 if e.is_offline else e.due_s, e.order) < place for e in queued)

    def lengths(self) -> dict[str, int]:
        return dict(self._lengths)

    def queues(self) -> Mapping[str, Iterable[Entry]]:
        return {tenant.name: [*tenant.urgent.values(), *tenant.offline.values()] for tenant in self._tenants}
