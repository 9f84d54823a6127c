"""The proof of the books: every running sum of the core is counted again from the live requests and compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .books import Books
from .buckets import Buckets
from .deadlines import Deadlines
from .entry import Entry
from .gate import Gate
from .reserve import Reserve
from .types import Phase, Terminal

__all__ = ["IntegrityError", "check_parts"]


class IntegrityError(AssertionError):
    """The core contradicts itself: a bug, never the fault of a request."""

    def __init__(self, what: str, kept: object, expected: object) -> None:
        super().__init__(f"{what}: the core has {kept!r}, it should be {expected!r}")


def check_parts(books: Books, gate: Gate, reserve: Reserve, deadlines: Deadlines, buckets: Buckets) -> None:
    live = books.live.values()
    ids = {phase: [e.id for e in live if e.phase is phase] for phase in Phase}
    queued = [e for queue in gate.queues().values() for e in queue]
    holders = reserve.holders()
    in_phase = {phase: len(found) for phase, found in ids.items()}

    _same("live requests by phase", books.by_phase, in_phase)
    _same("queued ids", sorted(ids[Phase.QUEUED]), sorted(e.id for e in queued))
    _same("running ids", sorted(ids[Phase.RUNNING]), sorted(reserve.running))
    _same("ids both live and leaving", [], [i for i in reserve.leaving if i in books.live])
    _same("held ids", sorted(reserve.held.tokens_by_id()), sorted(e.id for e in holders))
    _same("slots in use", reserve.used_slots, len(holders))
    _same("reserved blocks", reserve.used_blocks, sum(e.need_blocks for e in holders))
    if not reserve.shares.is_plain:
        _same("running by class", _positive(reserve.shares.running), _count_classes(holders, blocks=False))
        _same("blocks by class", _positive(reserve.shares.blocks), _count_classes(holders, blocks=True))
    _same("queued by bucket", buckets.counts(), _count_buckets(buckets, [e.prompt_tokens for e in queued]))
    _same("refusals", books.counts.terminals[Terminal.REFUSED], sum(books.refused_by_code.values()))
    _same("refusals by reason", books.refusals, sum(books.refused_by_reason(()).values()))
    for kind, n in books.counts.terminals.items():
        _same(
            f"{kind.value} by class",
            n,
            sum(m for (_, each), m in books.ended_by_class(()).items() if each == kind.value),
        )
    _same("queued without a deadline", [], [e.id for e in queued if e.id not in deadlines])
    _same("deadlines of others", len(deadlines), sum(e.id in deadlines for e in live))
    balance = books.counts.balance(
        intake=in_phase[Phase.INTAKE],
        queued=in_phase[Phase.QUEUED],
        running=in_phase[Phase.RUNNING],
        joined=in_phase[Phase.JOINED],
        routed=in_phase[Phase.ROUTED],
    )
    _same("offered minus live minus ended", balance, 0)
    _at_most("slots in use", reserve.used_slots, reserve.slots)
    _at_most("blocks reserved", reserve.used_blocks, reserve.built_blocks)


def _count_classes(holders: Iterable[Entry], *, blocks: bool) -> dict[str, int]:
    counted: dict[str, int] = {}
    for entry in holders:
        counted[entry.request_class] = counted.get(entry.request_class, 0) + (entry.need_blocks if blocks else 1)
    return _positive(counted)


def _positive(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: counts[name] for name in sorted(counts) if counts[name]}


def _count_buckets(buckets: Buckets, lengths_tokens: list[int]) -> dict[str, int]:
    counted = dict.fromkeys(buckets.counts(), 0)
    for tokens in lengths_tokens:
        counted[buckets.label(tokens)] += 1
    return counted


def _same(what: str, kept: object, counted: object) -> None:
    if kept != counted:
        raise IntegrityError(what, kept, counted)


def _at_most(what: str, used: int, limit: int) -> None:
    if used > limit:
        raise IntegrityError(what, used, f"at most {limit}")
