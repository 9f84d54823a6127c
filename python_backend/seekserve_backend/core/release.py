"""The release gate of the policies `fcfs` and `static`: which waiting request may start next.

First in, first out within a class, classes by priority. A head that does not fit blocks its own and every less urgent
class: nobody is overtaken by a smaller request, at the price of idle capacity behind a large one. Probes wait at the
head of the most urgent class.
"""

from __future__ import annotations

from ..contract.policy import ClassPolicy, Policy
from ..contract.rungs import NORMAL, Rung
from .entry import Entry
from .queue import FifoQueue
from .refusals import Refusal
from .reserve import Reserve
from .types import StepReport

__all__ = ["ReleaseGate"]


class ReleaseGate:
    def __init__(self, policy: Policy, reserve: Reserve) -> None:
        self._reserve = reserve
        self._classes: dict[str, ClassPolicy] = {}
        self._lanes: dict[str, FifoQueue] = {}
        self.replace_policy(policy)

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes.values())

    def replace_policy(self, policy: Policy) -> None:
        """Nobody who waits is dropped: a class that the new policy lacks lives on until its queue is empty."""
        classes = dict(policy.classes)
        for name, lane in self._lanes.items():
            if len(lane):
                classes.setdefault(name, self._classes[name])
        self._max_running = policy.max_running
        # Sorting is stable: classes of one priority keep the policy's order.
        self._classes = dict(sorted(classes.items(), key=lambda item: item[1].priority))
        old = self._lanes
        self._lanes = {name: old.get(name) or FifoQueue() for name in self._classes}

    def judge(self, entry: Entry, now: float) -> Refusal | None:
        """Takes whatever the bounds let in."""
        return None

    def hopeless(self, now: float) -> Entry | None:
        """Nothing is given up before its deadline."""
        return None

    def asked(self, entry: Entry, now: float) -> None:
        """What is asked for changes nothing here."""

    def prepare(self, entry: Entry) -> None:
        entry.is_offline = False

    def push(self, entry: Entry) -> None:
        entry.lane = next(iter(self._lanes)) if entry.is_probe else entry.request_class
        lane = self._lanes.get(entry.lane) or self._lane_of_old_class(entry.lane)
        (lane.push_head if entry.is_probe else lane.push)(entry)

    def _lane_of_old_class(self, name: str) -> FifoQueue:
        """Of a class that the policy lacks, whose requests came with another kind of policy; behind all others."""
        if name not in self._lanes:  # an empty queue is false as well
            last = max(self._classes.values(), key=lambda rules: rules.priority)
            self._classes[name] = last
            self._lanes[name] = FifoQueue()
        return self._lanes[name]

    def remove(self, entry: Entry) -> None:
        self._lanes[entry.lane].remove(entry.id)

    def started(self, entry: Entry) -> None:
        """The engine has it."""

    def ended(self, entry: Entry, tokens: int) -> None:
        """The engine has it no longer."""

    def observe(self, report: StepReport) -> None:
        """Steps teach this gate nothing."""

    def begin_anew(self) -> None:
        """A new engine takes as much as an old one."""

    def tick(self, now: float) -> None:
        """Nothing here depends on time."""

    def next(self, now: float) -> Entry | None:
        """The entry to start now, taken out of its queue; None when nothing waits or the first in line does not fit."""
        if self._max_running is not None and self._reserve.used_slots >= self._max_running:
            return None
        head = self._first_that_fits()
        if head is not None:
            self._lanes[head.lane].remove(head.id)
        return head

    def _first_that_fits(self) -> Entry | None:
        """A head at its class's cap is passed; behind one for which there is no room only those go whose class has
        reserved some."""
        reserve, is_blocked = self._reserve, False
        for lane in self._lanes.values():
            head = lane.head()
            if head is None or not reserve.has_place(head):
                continue
            if self._may_start(head) and (reserve.fits_own(head) if is_blocked else reserve.fits(head)):
                return head
            if reserve.shares.is_plain:
                return None
            is_blocked = True
        return None

    def _may_start(self, head: Entry) -> bool:
        """Beside what the reserve says."""
        return True

    @property
    def rung(self) -> Rung:
        return NORMAL

    def gauges(self) -> dict[str, float]:
        return {}

    def waiting(self, request_class: str) -> int:
        return len(self._lanes[request_class])

    def ahead(self, request_class: str) -> int:
        """Requests that a newcomer of this class would have to wait for."""
        count = 0
        for name, lane in self._lanes.items():
            count += len(lane)
            if name == request_class:
                break
        return count

    def position(self, entry: Entry) -> int:
        return self.ahead(entry.lane) - self.waiting(entry.lane) + self._lanes[entry.lane].index(entry.id)

    def lengths(self) -> dict[str, int]:
        return {name: len(lane) for name, lane in self._lanes.items()}

    def queues(self) -> dict[str, FifoQueue]:
        """For `check_integrity`; not to be changed."""
        return self._lanes
