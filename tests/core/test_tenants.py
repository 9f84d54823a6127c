"""The line of a tenant's urgent requests, in whatever order they come and go."""

from __future__ import annotations

import random

import pytest

from seekserve_backend.core.entry import Entry
from seekserve_backend.core.tenants import Tenants
from seekserve_backend.core.types import Phase


def urgent(order: int, due_s: float) -> Entry:
    entry = Entry(id=f"r{order}", phase=Phase.QUEUED, arrival_s=0.0, request_class="chat", is_probe=False)
    entry.tenant, entry.due_s, entry.order, entry.need_blocks, entry.price_ms = "", due_s, order, 2, 1.0
    return entry


@pytest.mark.parametrize("seed", range(4))
def test_the_first_is_the_one_with_the_earliest_deadline_whoever_came_and_went(seed: int) -> None:
    pick, tenants = random.Random(seed), Tenants()
    waiting: list[Entry] = []
    for order in range(1500):
        # Mostly in the order of arrival, some earlier, some equal to others.
        entry = urgent(order, float(pick.choice((order // 10, order // 10, pick.randrange(200)))))
        tenants.push(entry)
        waiting.append(entry)
        while waiting and pick.random() < 0.5:
            gone = min(waiting, key=lambda each: (each.due_s, each.order)) if pick.random() < 0.5 else waiting[-1]
            waiting.remove(gone)
            tenants.remove(gone)
        expected = min(waiting, key=lambda each: (each.due_s, each.order), default=None)
        assert tenants.first_urgent() is expected
        assert (tenants.urgent, tenants.urgent_blocks) == (len(waiting), 2 * len(waiting))
        assert tenants.waiting["chat"] == len(waiting)
    (only,) = tenants
    assert len(only.line) <= 2 * len(waiting) + 64 + 1


def test_an_id_that_comes_again_does_not_take_the_place_it_had() -> None:
    tenants = Tenants()
    first, other, again = urgent(1, 9.0), urgent(2, 5.0), urgent(3, 7.0)
    again.id = first.id
    for entry in (other, first):
        tenants.push(entry)
    tenants.remove(first)
    tenants.push(again)
    tenants.take(other, 1.0)
    assert tenants.first_urgent() is again


def test_a_tenant_that_comes_while_nobody_waits_starts_level_with_who_was_served() -> None:
    """Hours that another had for itself are no claim on the next ones."""
    tenants = Tenants()
    order = 0

    def come(name: str) -> None:
        nonlocal order
        order += 1
        entry = urgent(order, float(order))
        entry.tenant = name
        tenants.push(entry)

    for _ in range(1000):
        come("old")
        head = tenants.first_urgent()
        assert head is not None
        tenants.take(head, 50.0)
    turns = []
    come("new")
    for _ in range(20):
        come("old")
        come("new")
        head = tenants.first_urgent()
        assert head is not None
        turns.append(head.tenant)
        tenants.take(head, 50.0)
    assert turns.count("old") == pytest.approx(10, abs=1)
