"""Whose turn it is when some classes may not start anything: the queues of `Tenants`, without those classes.

As long as the tenant's own first is of an open class this costs nothing; behind a closed one its queue is searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .entry import Entry
from .reserve import Reserve
from .tenants import Tenant, Tenants

__all__ = ["first_offline", "first_urgent", "may_start"]

MayStart = Callable[[Entry], bool]


def may_start(reserve: Reserve) -> Iterable[MayStart]:
    """Who may be first, in two rounds: all whose class has a place, then those within what their class has reserved,
    who need not wait behind a larger one of another class."""
    shares = reserve.shares
    full = shares.full()
    yield lambda entry: entry.is_probe or entry.request_class not in full
    reserving = shares.reserving() - full
    if reserving:
        yield lambda entry: entry.request_class in reserving and reserve.fits_own(entry)


def first_urgent(tenants: Tenants, is_open: MayStart) -> Entry | None:
    found = ((tenant.served_ms, _first_of(tenant, is_open)) for tenant in tenants if tenant.urgent)
    return _least((served_ms, entry) for served_ms, entry in found if entry is not None)


def first_offline(tenants: Tenants, is_open: MayStart) -> Entry | None:
    found = ((tenant.served_ms, next(filter(is_open, tenant.offline.values()), None)) for tenant in tenants)
    return _least((served_ms, entry) for served_ms, entry in found if entry is not None)


def _first_of(tenant: Tenant, is_open: MayStart) -> Entry | None:
    head = tenant.first_urgent()
    if head is None or is_open(head):
        return head
    return min(filter(is_open, tenant.urgent.values()), key=lambda each: (each.due_s, each.order), default=None)


def _least(found: Iterable[tuple[float, Entry]]) -> Entry | None:
    best = min(found, key=lambda pair: pair[0], default=None)
    return None if best is None else best[1]
