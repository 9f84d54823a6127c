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
from .demand import Demand
from .entry import Entry
from .estimate import EngineEstimate
from .lengths import OutputLengths
from .open_turns import first_offline, first_urgent, may_start
from .pressure import Ladder
from .ramp import Ramp
from .refusals import Refusal, Why
from .reserve import Reserve
from .shares import Shares
from .tenants import Tenants
from .turnover import Turnover
from .types import StepReport

__all__ = ["PacedGate"]

_SLOW = 2.0
_LEAST_STAY = 0.5


class PacedGate:
    def __init__(
        self, policy: Policy, limits: Limits, kv: KvCache, step_model: StepModel | None, reserve: Reserve
    ) -> None:
        options = policy.paced
        self._reserve = reserve
        self._held = reserve.held
        self._block_tokens = kv.block_tokens
        self.engine = EngineEstimate(step_model, options, reserve.held, chunk_tokens=limits.prefill_chunk_tokens)
        self.outputs = OutputLengths(start_tokens=options.start_output_tokens, gain=options.length_gain)
        self._tenants = Tenants()
        self._lengths: dict[str, int] = {}
        self._held_tokens = 0.0
        """KV tokens that requests in the engine are expected to come to."""
        self._turnover = Turnover(start_tokens=options.start_output_tokens, gain=options.length_gain)
        self._room_tokens = options.kv_share * kv.capacity_blocks * kv.block_tokens
        self._long: str | None = None
        """The long prompt that the engine is reading."""
        self._floor_ms = 0.0
        self._token_share_ms = 0.0
        """Engine time of a token of an answer: its part of the step."""
        self._asked = Demand()
        self._harm_left = 0.0
        """Urgent requests that long offline prompts may still cost."""
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
        self._seen = -1
        promised = [each.tpot_slo_ms for each in policy.classes.values() if each.tpot_slo_ms and not each.is_offline]
        self._has_promise = bool(promised)
        self._token_target_ms = policy.paced.slo_margin * min(promised, default=policy.paced.default_tpot_slo_ms)
        self.target_ms = self._step_target_ms()
        """Of a step."""
        self._tenants.replace_weights(policy.tenant_weights)
        self.ladder.replace(policy.rungs, up_s=policy.paced.rung_up_s, down_s=policy.paced.rung_down_s)
        self._is_offline = {name: each.is_offline for name, each in policy.classes.items()}
        self._is_default_offline = self._is_offline[policy.default_class]
        deadlines_ms = [each.deadline_ms for each in policy.classes.values() if not each.is_offline]
        self._least_deadline_ms = float(min(deadlines_ms, default=0))
        urgent = [each.priority for each in policy.classes.values() if not each.is_offline]
        self._top_priority = min(urgent, default=0)
        self._lengths = {**dict.fromkeys(policy.classes, 0), **{k: n for k, n in self._lengths.items() if n}}

    def _step_target_ms(self) -> float:
        target_ms = self._token_target_ms * self.engine.tokens_per_step
        if self._has_promise:
            return target_ms
        # Nobody asked for a pace: one that a slow engine could not keep for a single request would stop everything.
        return max(target_ms, _SLOW * self.engine.bias * self.engine.steps.base_ms(1))

    # Arrival

    def prepare(self, entry: Entry) -> None:
        name = entry.request_class
        entry.is_offline = self._is_offline.get(name, self._is_default_offline) and not entry.is_probe
        entry.due_s = entry.arrival_s if entry.is_probe else entry.deadline_s
        entry.price_ms = self.engine.price_ms(entry.prompt_tokens, entry.cached_tokens)
        expected = self._options.length_margin * self.outputs.mean_tokens(name, entry.bucket)
        entry.expected_tokens = expected if expected < entry.max_tokens else entry.max_tokens
        if entry.is_offline:
            entry.whole_ms = self._whole_ms(entry)

    def asked(self, entry: Entry, now: float) -> None:
        self.prepare(entry)
        if not entry.is_offline:
            self._note_asked(entry, now)

    def _note_asked(self, entry: Entry, now: float) -> None:
        share = self._asked.note(entry, now, self._options.demand_memory_s)
        self._tenants.note_asked(entry.tenant, share, now, self._options.demand_memory_s)

    def judge(self, entry: Entry, now: float) -> Refusal | None:
        self.prepare(entry)
        if entry.is_offline:
            return self._judge_offline(entry, now)
        options = self._options
        if not (entry.was_routed or entry.is_probe):
            self._note_asked(entry, now)
        if self._harm_left < options.offline_harm_cap_requests:
            self._harm_left += options.offline_harm
        rung = self.ladder.rung
        if (rung.shed_by_priority or rung.critical_only) and not entry.is_probe:
            by_rung = self._shed_by_rung(entry, rung)
            if by_rung is not None:
                return by_rung
        late_ms = 1000.0 * (now - entry.deadline_s) + self._first_token_ms(entry, now)
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
        """For its class, though its first token would come in time. It starts once there is any credit."""
        tenants = self._tenants
        wait_ms = (self.engine.bias * tenants.ahead_ms(entry) - self._credit_ms) / self._share
        missing = tenants.urgent + 1 - (self._most_running - self._held.count)
        if missing > 0:
            turn_ms = entry.expected_tokens * self.engine.decode_ms() / max(self._most_running, 1)
            wait_ms = max(wait_ms, missing * turn_ms)
        if not self._reserve.shares.is_plain:
            wait_ms = max(wait_ms, self._class_wait_ms(self._reserve.shares, entry))
        over_ms = 1000.0 * (now - entry.queue_due_s) + max(0.0, wait_ms)
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
        self._asked.forget(now, self._options.demand_memory_s)
        harm = self._harm(entry)
        if harm > self._harm_left and self._held.count:
            gain_per_s = self._options.offline_harm * self._asked.requests / self._options.demand_memory_s
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
        spare = 0.0 if is_pressed else 1.0 - self._demand_at(now)
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

    def _first_token_ms(self, entry: Entry, now: float) -> float:
        held, reserve, bias = self._held, self._reserve, self.engine.bias
        if self._seen != held.revision:
            self._look()
        price_ms, tenants = entry.price_ms, self._tenants
        short_ms = bias * (tenants.ahead_ms(entry) + price_ms) - self._credit_ms
        dear_ms = 0.0
        if price_ms > self._asked.usual_price_ms:
            dear_ms = self._options.dear_cushion * bias * self._dearness_ms(entry, now)
        wait_ms = (short_ms + dear_ms) / self._share
        slots, blocks = self._most_running - held.count, reserve.capacity_blocks - reserve.used_blocks
        if tenants.urgent >= slots or tenants.urgent_blocks + entry.need_blocks > blocks:
            wait_ms = max(wait_ms, self._room_ms(entry, slots, blocks) + dear_ms / self._share)
        if not self._reserve.shares.is_plain:
            wait_ms = max(wait_ms, self._class_wait_ms(self._reserve.shares, entry))
        return (wait_ms if wait_ms > 0.0 else 0.0) + self._read_ms(entry) + self._next_decode_ms

    def _read_ms(self, entry: Entry) -> float:
        """Until its prompt is read behind those that the engine holds."""
        held = self._held
        tokens = held.unread_tokens + entry.prompt_tokens - entry.cached_tokens
        return self.engine.bias * (held.unread_ms + entry.price_ms) + self._carried_ms * tokens

    def _room_ms(self, entry: Entry, free_slots: int, free_blocks: int) -> float:
        """Until as many slots and blocks have changed hands as it and those before it lack. Longer for one that will
        take more of the engine than usual: for one of these several others could be served."""
        asked, luck, wait_ms = self._asked, self._options.wait_margin, 0.0
        slots, blocks = self._tenants.requests_ahead(entry)
        slots, blocks = slots + 1 - free_slots, blocks + entry.need_blocks - free_blocks
        if slots > 0:
            per_ms = self._most_running / self._held_ms
            if self._ramp.is_rising:
                per_ms += self._ramp.growth_per_ms(slots)
            bias, token_ms = self.engine.bias, self._token_share_ms
            usual_ms = bias * asked.usual_price_ms + token_ms * asked.usual_tokens
            whole_ms = bias * entry.price_ms + token_ms * entry.expected_tokens
            stay = whole_ms / usual_ms if usual_ms else 1.0
            wait_ms = (slots + luck * math.sqrt(slots)) / per_ms * (stay if stay > _LEAST_STAY else _LEAST_STAY)
        if blocks > 0:
            stay = max(_LEAST_STAY, entry.need_blocks * entry.expected_tokens / max(asked.usual_stay, 1.0))
            late_blocks = blocks + luck * math.sqrt(blocks * entry.need_blocks)
            wait_ms = max(wait_ms, late_blocks * self._held_ms / self._reserve.capacity_blocks * stay)
        return wait_ms

    def _class_wait_ms(self, shares: Shares, entry: Entry) -> float:
        """The same where its class may not run so many."""
        cap = shares.cap(entry.request_class)
        if cap is None:
            return 0.0
        missing = self.waiting(entry.request_class) + 1 - (cap - shares.running.get(entry.request_class, 0))
        return max(0, missing) * entry.expected_tokens * self.engine.decode_ms() / cap

    def _dearness_ms(self, entry: Entry, now: float) -> float:
        """A dear prompt must leave room for the many cheap ones that come while it is read, unless its tenant asks for
        no more than its own part of the engine."""
        capacity, memory_s = self._prefill_share / self.engine.bias, self._options.demand_memory_s
        if self._tenants.asks_for_less_than_its_share(entry.tenant, capacity, now, memory_s=memory_s):
            return 0.0
        return entry.price_ms - self._asked.usual_price_ms

    @property
    def _prefill_share(self) -> float:
        """Part of the engine's time that prompts get while the TPOT target holds."""
        if self._seen != self._held.revision:
            self._look()
        return self._share

    def _look(self) -> None:
        """What is asked of the engine for every arrival, kept until something in it changes."""
        engine = self.engine
        self._next_decode_ms, self._carried_ms = engine.next_decode_ms(), engine.carried_ms()
        by_target = 1.0 - self._next_decode_ms / self.target_ms
        self._share = max(self._options.min_prefill_share, min(by_target, engine.most_prefill_share()))
        self._held_ms = self._turnover.tokens_per_end * engine.token_ms
        """How long a request holds its slot and its cache."""
        self._seen = self._held.revision

    def _shed_by_rung(self, entry: Entry, rung: Rung) -> Refusal | None:
        """From the least important class up, as large a part as makes the rest fit; never of the top class."""
        if self._rules(entry.request_class).priority <= self._top_priority:
            return None
        part = 1.0
        if not rung.critical_only:
            excess = self._asked.share - self._prefill_share / self.engine.bias
            for name in sorted(self._asked.by_class, key=lambda each: -self._rules(each).priority):
                if name == entry.request_class:
                    break
                excess -= self._asked.by_class[name]
            part = excess / max(self._asked.by_class.get(entry.request_class, 0.0), 1e-9)
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

    def _demand_at(self, now: float) -> float:
        """Urgent work that arrives over what the engine can take at its target: above 1 some must be refused."""
        engine, asked, memory_s = self.engine, self._asked, self._options.demand_memory_s
        prompts = engine.bias * asked.share / self._prefill_share
        cache = asked.blocks * self._held_ms / (1000.0 * memory_s * self._reserve.capacity_blocks)
        return self._faded(now) * max(prompts, cache)

    def _slot_demand_at(self, now: float) -> float:
        """The same of batch slots: too few while the engine is new."""
        asked_s = 1000.0 * self._options.demand_memory_s
        return self._faded(now) * self._asked.requests * self._held_ms / (asked_s * self._most_running)

    def _faded(self, now: float) -> float:
        return math.exp(min(self._asked.at_s - now, 0.0) / self._options.demand_memory_s)

    # Queue

    def push(self, entry: Entry) -> None:
        lane = entry.lane = entry.request_class
        self._lengths[lane] = self._lengths.get(lane, 0) + 1
        self._tenants.push(entry)

    def remove(self, entry: Entry) -> None:
        self._lengths[entry.lane] -= 1
        self._tenants.remove(entry)

    def hopeless(self, now: float) -> Entry | None:
        """A queued request, first in its tenant's line, that could not make its deadline if it went now."""
        if not self._tenants.urgent:
            return None
        if self._seen != self._held.revision:
            self._look()
        for tenant in self._tenants:
            head = tenant.first_urgent()
            if head is None or head.is_probe:
                continue
            if 1000.0 * (now - head.deadline_s) + self._read_ms(head) + self._next_decode_ms > 0.0:
                return head
        return None

    # Release

    def tick(self, now: float) -> None:
        """Before each round of releases."""
        self._room_tokens = self._options.kv_share * self._reserve.capacity_blocks * self._block_tokens
        self.ladder.update(max(self._demand_at(now), self._held_tokens / self._room_tokens), now)
        self._most_running = self._ramp.limit(
            now, is_slow=self.engine.step_ms > self.target_ms / self._options.slo_margin
        )

    def next(self, now: float) -> Entry | None:
        if self._held.count >= self._most_running:
            return None
        tenants, reserve = self._tenants, self._reserve
        # What the floor owes goes first: urgent prompts would else always be there before it.
        entry = self._next_by_floor() if tenants.offline else None
        if entry is None and tenants.urgent:
            head = tenants.first_urgent() if reserve.shares.is_plain else self._next_urgent_of_classes()
            if head is None or head.is_probe:
                entry = head if head is not None and reserve.fits(head) else None
            elif self._credit_ms > 0.0 and self._may_go(head):
                entry = head
        if entry is None and tenants.offline:
            entry = self._next_offline(now)
        if entry is None:
            return None
        self._lengths[entry.lane] -= 1
        cost_ms = self.engine.bias * entry.price_ms
        self._credit_ms -= cost_ms
        tenants.take(entry, cost_ms)
        if entry.is_offline:
            had_ms = self._floor_ms - self._whole_ms(entry)
            self._floor_ms = max(had_ms, -self._options.offline_floor_cap_ms)
        return entry

    def _next_urgent_of_classes(self) -> Entry | None:
        """Where classes have limits: who waits for its class alone does not hold up the others."""
        for is_open in may_start(self._reserve):
            head = first_urgent(self._tenants, is_open)
            if head is None or (head.is_probe and not self._reserve.fits(head)):
                continue
            if head.is_probe or (self._credit_ms > 0.0 and self._may_go(head)):
                return head
        return None

    def _next_by_floor(self) -> Entry | None:
        head = self._first_offline(0.0) or self._first_offline(math.inf)
        if head is None or self._floor_ms < self._whole_ms(head):
            return None
        return head if self._may_go(head) else None

    def _next_offline(self, now: float) -> Entry | None:
        """Into what urgent work leaves."""
        if not self._tenants.urgent and not self._held.count:
            # Nothing is idle because of pressure that is over, or for fear of requests that may come.
            return self._first_offline_that_fits(math.inf)
        if self._tenants.urgent or self.ladder.rung.stop_offline or self._credit_ms <= 0.5 * self._credit_cap_ms:
            return None
        if max(self._demand_at(now), self._slot_demand_at(now)) * self._options.offline_headroom > 1.0:
            return None
        head = self._first_offline_that_fits(self._harm_left)
        if head is not None:
            self._harm_left -= self._harm(head)
        return head

    def _first_offline_that_fits(self, most_harm: float) -> Entry | None:
        head = self._first_offline(most_harm)
        return head if head is not None and self._may_go(head) else None

    def _first_offline(self, most_harm: float) -> Entry | None:
        """Of a class that may start one, where classes have limits."""
        reserve = self._reserve
        if reserve.shares.is_plain:
            return self._tenants.first_offline(lambda each: self._harm(each) <= most_harm)
        full = reserve.shares.full()
        if not any(n for name, n in self._lengths.items() if self._rules(name).is_offline and name not in full):
            return None
        is_open = next(iter(may_start(reserve)))
        return first_offline(self._tenants, lambda each: is_open(each) and self._harm(each) <= most_harm)

    def _harm(self, entry: Entry) -> float:
        """Urgent requests that would come too late because they come while this prompt is read: the engine reads
        prompts to their end, one after the other."""
        if self._seen != self._held.revision:
            self._look()
        late_s = max(0.0, self._read_ms(entry) - self._least_deadline_ms) / 1000.0
        return late_s * self._asked.requests / self._options.demand_memory_s

    def _may_go(self, entry: Entry) -> bool:
        """Held back while prompts enough are in the engine: more would wait there, out of our order. Of long ones, one
        is read at a time. It needs room for all that it may come to, and among the others for what it is expected to.
        """
        held, options = self._held, self._options
        if held.unread_ms >= options.prefill_ahead_chunks * self.engine.chunk_ms:
            return False
        if self._long is not None and entry.prompt_tokens > options.long_prompt_tokens:
            return False
        if not self._reserve.fits(entry):
            return False
        return not held.count or self._held_tokens + entry.prompt_tokens + entry.expected_tokens <= self._room_tokens

    def _whole_ms(self, entry: Entry) -> float:
        """Engine time of a request to its end: its prompt, and its part of the decode steps that it will be in."""
        engine = self.engine
        decode_ms = engine.next_decode_ms() / (self._held.count + 1)
        return engine.bias * entry.price_ms + entry.expected_tokens * decode_ms

    def started(self, entry: Entry) -> None:
        self._held_tokens += entry.prompt_tokens + entry.expected_tokens
        if entry.prompt_tokens > self._options.long_prompt_tokens:
            self._long = entry.id

    # Engine

    def observe(self, report: StepReport) -> None:
        engine = self.engine
        engine.observe(report)
        self._turnover.made(report.decode_tokens + len(report.firsts))
        if self._long in report.firsts:
            self._long = None
        if report.step_ms <= 0.0:
            return
        decode_ms = engine.decode_ms()
        self._token_share_ms = decode_ms / max(self._held.count, 1)
        self.target_ms = self._step_target_ms()
        left_ms = max(self.target_ms - min(decode_ms, report.step_ms), self._options.min_prefill_share * self.target_ms)
        self._credit_ms = min(self._credit_ms + left_ms, self._credit_cap_ms)
        # Saved up only while somebody waits for it; what offline work got for nothing counts as had.
        most_ms = self._options.offline_floor_cap_ms if self._tenants.offline else 0.0
        self._floor_ms = min(self._floor_ms + self._options.offline_floor * report.step_ms, most_ms)

    def begin_anew(self) -> None:
        self._ramp.restart()

    def ended(self, entry: Entry, tokens: int) -> None:
        if entry.is_probe:
            self._turnover.made(-tokens)
        else:
            self._turnover.ended()
        if self._long == entry.id:
            self._long = None
        if tokens and not entry.is_probe:  # a probe's short answer says nothing of the others'
            self.outputs.observe(entry.request_class, entry.bucket, tokens)
            self._tenants.charge(entry.tenant, tokens * self._token_share_ms)
        self._held_tokens = max(0.0, self._held_tokens - entry.prompt_tokens - entry.expected_tokens)
        if not self._held.count:
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
            **({"price_ms": engine.bias * self._asked.usual_price_ms} if self._asked.usual_price_ms else {}),
            "credit_ms": self._credit_ms,
            "bias": engine.bias,
            "step_ms": engine.step_ms,
            "target_step_ms": self.target_ms,
            "prefill_share": self._prefill_share,
            "expected_kv_tokens": self._held_tokens,
            **({} if self.outputs.error_tokens is None else {"output_error_tokens": self.outputs.error_tokens}),
            "max_running": float(self._most_running),
        }

    def _rules(self, name: str) -> ClassPolicy:
        return self._policy.classes.get(name) or self._policy.classes[self._policy.default_class]

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
