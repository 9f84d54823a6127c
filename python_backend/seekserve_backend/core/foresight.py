"""What `paced` foresees: when a newcomer would have its first token, and how much of the engine is asked for.

A newcomer waits for credit enough for its own prompt and those before it, or for slots and cache to change hands,
whichever takes longer; then the engine reads the prompts that it holds, and this one. It judges and starts nothing.
Invariant: what it keeps from one look at the engine to the next is of the engine's present revision when it is used.
"""

from __future__ import annotations

import math

from ..contract.policy import PacedOptions, Policy
from .demand import Demand
from .entry import Entry
from .estimate import EngineEstimate
from .pace import Pace
from .reserve import Reserve
from .tenants import Tenants
from .turnover import Turnover
from .types import StepReport

__all__ = ["Foresight"]

_LEAST_STAY = 0.5


class Foresight:
    def __init__(self, policy: Policy, engine: EngineEstimate, pace: Pace, tenants: Tenants, reserve: Reserve) -> None:
        options = policy.paced
        self._engine, self._pace, self._tenants, self._reserve = engine, pace, tenants, reserve
        self._held = reserve.held
        self.asked = Demand()
        self.turnover = Turnover(start_tokens=options.start_output_tokens, gain=options.length_gain)
        self.token_share_ms = 0.0
        """Engine time of a token of an answer: its part of the step."""
        self.replace_policy(policy)

    def replace_policy(self, policy: Policy) -> None:
        self._options: PacedOptions = policy.paced
        self._seen = -1
        """Revision of what the engine holds at the last look."""
        deadlines_ms = [each.deadline_ms for each in policy.classes.values() if not each.is_offline]
        self._least_deadline_ms = float(min(deadlines_ms, default=0))

    # What is learned

    def note_asked(self, entry: Entry, now: float) -> None:
        """An urgent request came, whatever becomes of it."""
        memory_s = self._options.demand_memory_s
        share = self.asked.note(entry, now, memory_s)
        self._tenants.note_asked(entry.tenant, share, now, memory_s)

    def stepped(self, report: StepReport, decode_ms: float) -> None:
        self.turnover.made(report.decode_tokens + len(report.firsts))
        if report.step_ms > 0.0:
            self.token_share_ms = decode_ms / (self._held.count or 1)

    def _look(self) -> None:
        """What is asked of the engine for every arrival, kept until something in it changes."""
        engine, held = self._engine, self._held
        self._next_decode_ms, self._carried_ms = engine.decode_ms(held.count + 1), engine.carried_ms()
        self._unread_ms = engine.bias * held.unread_ms + self._carried_ms * held.unread_tokens
        """Until the prompts that the engine holds are read."""
        share, most = 1.0 - self._next_decode_ms / self._pace.target_ms, engine.most_prefill_share()
        least = self._options.min_prefill_share
        share = share if share < most else most
        self._share = share if share > least else least
        self._held_ms = self.turnover.tokens_per_end * engine.token_ms
        """How long a request holds its slot and its cache."""
        self._seen = held.revision

    @property
    def prefill_share(self) -> float:
        """Part of the engine's time that prompts get while the TPOT target holds."""
        if self._seen != self._held.revision:
            self._look()
        return self._share

    # One request

    def first_token_ms(self, entry: Entry, now: float) -> float:
        """From now on."""
        held, tenants, pace, reserve = self._held, self._tenants, self._pace, self._reserve
        if self._seen != held.revision:
            self._look()
        price_ms, bias, share = entry.price_ms, self._engine.bias, self._share
        wait_ms = (bias * (tenants.ahead_ms(entry) + price_ms) - pace.credit_ms) / share
        dear_ms = 0.0
        if price_ms > self.asked.usual_price_ms:
            dear_ms = self._options.dear_cushion * bias * self._dearness_ms(entry, now) / share
            wait_ms += dear_ms
        slots = pace.most_running - held.count
        most_blocks = reserve.most_blocks(self._options.kv_share) if reserve.may_pause else reserve.capacity_blocks
        blocks = most_blocks - reserve.used_blocks
        is_short = tenants.urgent >= slots or tenants.urgent_blocks + entry.need_blocks > blocks
        if is_short and (held.count or tenants.urgent):  # alone it may have all there is
            room_ms = self._room_ms(entry, slots, blocks) + dear_ms
            if room_ms > wait_ms:
                wait_ms = room_ms
        if not reserve.shares.is_plain:
            wait_ms = max(wait_ms, self._class_wait_ms(entry))
        read_ms = bias * price_ms + self._carried_ms * (entry.prompt_tokens - entry.cached_tokens)
        return (wait_ms if wait_ms > 0.0 else 0.0) + self._unread_ms + read_ms + self._next_decode_ms

    def start_ms(self, entry: Entry) -> float:
        """Until it starts, from now on: that takes any credit at all, and its slot."""
        pace, tenants, held = self._pace, self._tenants, self._held
        wait_ms = (self._engine.bias * tenants.ahead_ms(entry) - pace.credit_ms) / self.prefill_share
        missing = tenants.urgent + 1 - (pace.most_running - held.count)
        if missing > 0:
            turn_ms = entry.expected_tokens * self._engine.decode_ms(self._held.count) / max(pace.most_running, 1)
            wait_ms = max(wait_ms, missing * turn_ms)
        if not self._reserve.shares.is_plain:
            wait_ms = max(wait_ms, self._class_wait_ms(entry))
        return max(0.0, wait_ms)

    def left_ms(self, entry: Entry, now: float) -> float:
        """Between its first token and its deadline if it started now; below zero it is hopeless."""
        if self._seen != self._held.revision:
            self._look()
        return 1000.0 * (entry.deadline_s - now) - self._read_ms(entry) - self._next_decode_ms

    def whole_ms(self, entry: Entry) -> float:
        """Engine time of a request to its end: its prompt, and its part of the decode steps that it will be in."""
        engine = self._engine
        decode_ms = engine.decode_ms(self._held.count + 1) / (self._held.count + 1)
        return engine.bias * entry.price_ms + entry.expected_tokens * decode_ms

    def harm(self, entry: Entry) -> float:
        """Urgent requests that would come too late because they come while this prompt is read: the engine reads
        prompts to their end, one after the other."""
        if self._seen != self._held.revision:
            self._look()
        late_s = max(0.0, self._read_ms(entry) - self._least_deadline_ms) / 1000.0
        return late_s * self.asked.requests / self._options.demand_memory_s

    def _read_ms(self, entry: Entry) -> float:
        """Until its prompt is read behind those that the engine holds. After a look."""
        read_ms = self._engine.bias * entry.price_ms + self._carried_ms * (entry.prompt_tokens - entry.cached_tokens)
        return self._unread_ms + read_ms

    def _room_ms(self, entry: Entry, free_slots: int, free_blocks: int) -> float:
        """Until as many slots and blocks have changed hands as it and those before it lack. Longer for one that will
        take more of the engine than usual: for one of these several others could be served."""
        asked, luck, wait_ms = self.asked, self._options.wait_margin, 0.0
        slots, blocks = self._tenants.requests_ahead(entry)
        slots, blocks = slots + 1 - free_slots, blocks + entry.need_blocks - free_blocks
        if slots > 0:
            pace, bias, token_ms = self._pace, self._engine.bias, self.token_share_ms
            per_ms = pace.most_running / self._held_ms
            if pace.ramp.is_rising:
                per_ms += pace.ramp.growth_per_ms(slots)
            usual_ms = bias * asked.usual_price_ms + token_ms * asked.usual_tokens
            whole_ms = bias * entry.price_ms + token_ms * entry.expected_tokens
            stay = whole_ms / usual_ms if usual_ms else 1.0
            wait_ms = (slots + luck * math.sqrt(slots)) / per_ms * (stay if stay > _LEAST_STAY else _LEAST_STAY)
        if blocks > 0 and not self._may_pass(entry, free_blocks):
            stay = max(_LEAST_STAY, entry.need_blocks * entry.expected_tokens / max(asked.usual_stay, 1.0))
            late_blocks = blocks + luck * math.sqrt(blocks * entry.need_blocks)
            # What some outgrow is taken out of what others give back.
            wait_ms = max(wait_ms, late_blocks * self._held_ms / self._reserve.left_blocks * stay)
        return wait_ms

    def _may_pass(self, entry: Entry, free_blocks: int) -> bool:
        """Whether it is small enough to start at once, though the first in line, and it alone, waits for room."""
        head = self._tenants.first_urgent()
        if head is None or head.need_blocks <= free_blocks:
            return False
        before = [each.need_blocks for each in self._tenants.behind(head)]
        if len(before) + 1 < self._tenants.urgent:
            return False
        small = [blocks for blocks in before if blocks <= free_blocks]
        return entry.need_blocks + sum(small) <= free_blocks and len(small) < self._options.most_passes - head.passed

    def _class_wait_ms(self, entry: Entry) -> float:
        """The same where its class may not run so many."""
        shares, name = self._reserve.shares, entry.request_class
        cap = shares.cap(name)
        if cap is None:
            return 0.0
        missing = self._tenants.waiting.get(name, 0) + 1 - (cap - shares.running.get(name, 0))
        return max(0, missing) * entry.expected_tokens * self._engine.decode_ms(self._held.count) / cap

    def _dearness_ms(self, entry: Entry, now: float) -> float:
        """A dear prompt must leave room for the many cheap ones that come while it is read, unless its tenant asks for
        no more than its own part of the engine."""
        capacity, memory_s = self._share / self._engine.bias, self._options.demand_memory_s
        if self._tenants.asks_for_less_than_its_share(entry.tenant, capacity, now, memory_s=memory_s):
            return 0.0
        return entry.price_ms - self.asked.usual_price_ms

    # All of them

    def excess(self) -> float:
        """Urgent prompts that are asked for beyond what the engine can read at its target, in engine time by time."""
        return self.asked.share - self.prefill_share / self._engine.bias

    def demand_at(self, now: float) -> float:
        """Urgent work that arrives over what the engine can take at its target: above 1 some must be refused."""
        asked, memory_s = self.asked, self._options.demand_memory_s
        prompts = self._engine.bias * asked.share / self.prefill_share
        cache = asked.blocks * self._held_ms / (1000.0 * memory_s * self._reserve.left_blocks)
        return self._faded(now) * max(prompts, cache)

    def slot_demand_at(self, now: float) -> float:
        """The same of batch slots: too few while the engine is new."""
        if self._seen != self._held.revision:
            self._look()
        asked_s = 1000.0 * self._options.demand_memory_s
        return self._faded(now) * self.asked.requests * self._held_ms / (asked_s * self._pace.most_running)

    def _faded(self, now: float) -> float:
        return math.exp(min(self.asked.at_s - now, 0.0) / self._options.demand_memory_s)
