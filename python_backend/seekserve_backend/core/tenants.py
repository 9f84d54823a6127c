"""Queues by tenant: urgent requests by deadline, offline ones in order of arrival, and whose turn it is.

The tenant that has had the least engine time for its weight goes next (virtual counters, as in VTC, OSDI 2024, with
milliseconds of the engine for tokens). A tenant that comes back after a pause starts level with the others: time that
it did not use is not saved up.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter

from .entry import Entry

__all__ = ["Tenant", "Tenants"]

_KEPT_IDLE = 1024
_ASKS = 1e-3
"""Below this part of the engine's time a tenant does not count as asking."""

_MOST_SUMMED = 256
_PASSED = 16
_SLACK = 64
_served_ms = attrgetter("served_ms")
_place = attrgetter("due_s", "order")


class Tenant:
    __slots__ = (
        "asked_s",
        "asked_share",
        "line",
        "name",
        "offline",
        "offline_ms",
        "served_ms",
        "urgent",
        "urgent_blocks",
        "urgent_ms",
        "weight",
    )

    def __init__(self, name: str, weight: float) -> None:
        self.name = name
        self.weight = weight
        self.served_ms = 0.0
        """Engine time it has had, divided by its weight."""
        self.line: deque[Entry] = deque()
        """By deadline, with some that have left still in it."""
        self.urgent: dict[str, Entry] = {}
        self.urgent_ms = 0.0
        self.urgent_blocks = 0
        self.offline: OrderedDict[str, Entry] = OrderedDict()
        self.offline_ms = 0.0
        """Engine time of all its waiting offline work to its end."""
        self.asked_share = 0.0
        """Urgent prompts that arrived lately, in engine time by time; as of `asked_s`."""
        self.asked_s = 0.0

    @property
    def is_waiting(self) -> bool:
        return bool(self.urgent or self.offline)

    def first_urgent(self) -> Entry | None:
        line, urgent = self.line, self.urgent
        while line:
            entry = line[0]
            if urgent.get(entry.id) is entry:
                return entry
            line.popleft()
        return None

    def enter_line(self, entry: Entry) -> None:
        """Nearly all come in the order of their deadlines and go to its end, which no heap is quick at."""
        line, due_s = self.line, entry.due_s
        if not line or (last := line[-1]).due_s < due_s or (last.due_s == due_s and last.order < entry.order):
            line.append(entry)
        else:
            line.insert(bisect(line, _place(entry), key=_place), entry)

    def tidy_line(self) -> None:
        """Those that left from its midst are in it until they are first, or most of it."""
        urgent = self.urgent
        if len(self.line) > 2 * len(urgent) + _SLACK:
            self.line = deque(each for each in self.line if urgent.get(each.id) is each)

    def first_offline(self, may_go: Callable[[Entry], bool]) -> Entry | None:
        """The first that may, or None; those behind a few that may not are not looked at."""
        return next(filter(may_go, itertools.islice(self.offline.values(), _PASSED)), None)


class Tenants:
    def __init__(self) -> None:
        self._all: dict[str, Tenant] = {}
        self._only: Tenant | None = None
        """Where there is but one, as on most servers."""
        self._level_ms = 0.0
        """Had by whoever went last, before it went: with which one starts who comes while nobody waits."""
        self.waiting: dict[str, int] = {}
        """Requests by class."""
        self._weights: Mapping[str, float] = {}
        self.urgent = 0
        self.urgent_blocks = 0
        """Of cache, that waiting urgent requests may come to need."""
        self.offline = 0

    def replace_weights(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        for tenant in self._all.values():
            tenant.weight = weights.get(tenant.name, 1.0)

    def __iter__(self) -> Iterator[Tenant]:
        return iter(self._all.values())

    def get(self, name: str) -> Tenant | None:
        return self._all.get(name)

    def push(self, entry: Entry) -> None:
        tenant, name = self._all.get(entry.tenant) or self._of(entry.tenant), entry.request_class
        self.waiting[name] = self.waiting.get(name, 0) + 1
        if not (tenant.urgent or tenant.offline or tenant is self._only):
            others = [each.served_ms for each in self._all.values() if each.is_waiting]
            tenant.served_ms = max(tenant.served_ms, min(others, default=self._level_ms))
        if entry.is_offline:
            tenant.offline[entry.id] = entry
            self.offline += 1
            tenant.offline_ms += entry.whole_ms
        else:
            blocks = entry.need_blocks
            tenant.enter_line(entry)
            tenant.urgent[entry.id] = entry
            tenant.urgent_ms += entry.price_ms
            tenant.urgent_blocks += blocks
            self.urgent += 1
            self.urgent_blocks += blocks

    def take(self, entry: Entry, cost_ms: float) -> None:
        """It goes, at its tenant's expense."""
        tenant = self.remove(entry)
        served_ms = tenant.served_ms
        if served_ms > self._level_ms:
            self._level_ms = served_ms
        tenant.served_ms = served_ms + cost_ms / tenant.weight

    def remove(self, entry: Entry) -> Tenant:
        tenant = self._all[entry.tenant]
        self.waiting[entry.request_class] -= 1
        if entry.is_offline:
            del tenant.offline[entry.id]
            self.offline -= 1
            tenant.offline_ms = tenant.offline_ms - entry.whole_ms if tenant.offline else 0.0
            return tenant
        urgent, blocks = tenant.urgent, entry.need_blocks
        del urgent[entry.id]
        if tenant.line[0] is entry:
            tenant.line.popleft()
        else:
            tenant.tidy_line()
        tenant.urgent_ms = tenant.urgent_ms - entry.price_ms if urgent else 0.0
        tenant.urgent_blocks -= blocks
        self.urgent -= 1
        self.urgent_blocks -= blocks
        return tenant

    def note_asked(self, name: str, share: float, now: float, memory_s: float) -> None:
        """An urgent request arrived, whatever becomes of it; `share` of the time over which it is remembered."""
        tenant = self._all.get(name) or self._of(name)
        if now > tenant.asked_s:
            tenant.asked_share *= math.exp((tenant.asked_s - now) / memory_s)
            tenant.asked_s = now
        tenant.asked_share += share

    def asks_for_less_than_its_share(self, name: str, capacity: float, now: float, *, memory_s: float) -> bool:
        """Whether a tenant's urgent work fits into its part of `capacity`, shared by weight with others that ask.

        One that asks alone competes with nobody but itself: False.
        """
        own = self._of(name)
        others = sum(
            tenant.weight
            for tenant in self._all.values()
            if tenant is not own and tenant.asked_share * math.exp(-(now - tenant.asked_s) / memory_s) > _ASKS
        )
        return others > 0.0 and own.asked_share <= capacity * own.weight / (own.weight + others)

    def _of(self, name: str) -> Tenant:
        tenant = self._all.get(name)
        if tenant is None:
            self._forget_idle()
            tenant = self._all[name] = Tenant(name, self._weights.get(name, 1.0))
            self._only = tenant if len(self._all) == 1 else None
        return tenant

    def charge(self, name: str, ms: float) -> None:
        """Of a tenant that has been forgotten nothing is kept."""
        tenant = self._all.get(name)
        if tenant is not None:
            tenant.served_ms += ms / tenant.weight

    def first_urgent(self) -> Entry | None:
        """Whose turn it is, and first in its tenant's line."""
        if self._only is not None:
            return self._only.first_urgent()
        waiting = [tenant for tenant in self._all.values() if tenant.urgent]
        return min(waiting, key=_served_ms).first_urgent() if waiting else None

    def behind(self, head: Entry) -> Iterator[Entry]:
        """The next few in the line of `head`, the first of it, then who is first with each other tenant."""
        own = self._all[head.tenant]
        for each in itertools.islice(own.line, _PASSED):
            if each is not head and own.urgent.get(each.id) is each:
                yield each
        if self._only is None:
            for other in sorted((t for t in self._all.values() if t.urgent and t is not own), key=_served_ms):
                first = other.first_urgent()
                if first is not None:
                    yield first

    def first_offline(self, may_go: Callable[[Entry], bool]) -> Entry | None:
        waiting = [tenant for tenant in self._all.values() if tenant.offline]
        return min(waiting, key=_served_ms).first_offline(may_go) if waiting else None

    def ahead_ms(self, entry: Entry) -> float:
        """Prompts that go before this urgent one: its own tenant's, and of each other's as much as its turn allows."""
        own = self._all.get(entry.tenant)
        own_ms = 0.0
        if own is not None:
            # A queue this long is hopeless for a newcomer whatever its deadline; the exact sum would cost too much.
            own_ms = own.urgent_ms if len(own.urgent) > _MOST_SUMMED else self._own_ahead_ms(own, entry)
            if own is self._only:
                return own_ms
        turn_ms = own_ms + entry.price_ms
        weight = 1.0 if own is None else own.weight
        others = (t for t in self._all.values() if t is not own and t.urgent)
        return own_ms + sum(min(t.urgent_ms, turn_ms * t.weight / weight) for t in others)

    def requests_ahead(self, entry: Entry) -> tuple[int, int]:
        """(how many, blocks of cache that they may need) of urgent ones before a newcomer, by turns as above."""
        own = self._all.get(entry.tenant)
        if own is not None and own is self._only and len(own.urgent) > _MOST_SUMMED:
            return self.urgent, self.urgent_blocks
        requests, blocks = (0, 0) if own is None else self._own_ahead(own, entry)
        weight = 1.0 if own is None else own.weight
        turn = requests + 1
        for other in self._all.values():
            if other is not own and other.urgent:
                waiting = len(other.urgent)
                part = min(1.0, turn * other.weight / (weight * waiting))
                requests += math.ceil(part * waiting)
                blocks += math.ceil(part * other.urgent_blocks)
        return requests, blocks

    def offline_ahead_ms(self, entry: Entry) -> float:
        """Engine time of offline work before this newcomer, by turns as above."""
        own = self._all.get(entry.tenant)
        own_ms, weight = (0.0, 1.0) if own is None else (own.offline_ms, own.weight)
        turn_ms = own_ms + entry.whole_ms
        others = (t for t in self._all.values() if t is not own and t.offline)
        return own_ms + sum(min(t.offline_ms, turn_ms * t.weight / weight) for t in others)

    @staticmethod
    def _own_ahead(own: Tenant, entry: Entry) -> tuple[int, int]:
        line, due_s = own.line, entry.due_s
        if len(own.urgent) > _MOST_SUMMED or not line or line[-1].due_s <= due_s:
            return len(own.urgent), own.urgent_blocks
        ahead = [each.need_blocks for each in own.urgent.values() if each.due_s <= due_s]
        return len(ahead), sum(ahead)

    @staticmethod
    def _own_ahead_ms(own: Tenant, entry: Entry) -> float:
        return sum(each.price_ms for each in own.urgent.values() if each.due_s <= entry.due_s)

    def _forget_idle(self) -> None:
        """Names come from clients: those that wait for nothing are forgotten when there are too many."""
        if len(self._all) >= _KEPT_IDLE:
            self._all = {name: tenant for name, tenant in self._all.items() if tenant.is_waiting}
