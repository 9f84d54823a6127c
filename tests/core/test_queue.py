from __future__ import annotations

from seekserve_backend.core.entry import Entry
from seekserve_backend.core.queue import FifoQueue
from seekserve_backend.core.types import Phase


def entry(id: str) -> Entry:
    return Entry(id=id, phase=Phase.QUEUED, arrival_s=0.0, request_class="c", is_probe=False)


def test_entries_leave_in_the_order_they_came() -> None:
    queue = FifoQueue()
    for id in "abc":
        queue.push(entry(id))
    seen = []
    while (head := queue.head()) is not None:
        seen.append(head.id)
        queue.remove(head.id)
    assert seen == ["a", "b", "c"]


def test_removal_from_the_middle_keeps_the_order_of_the_others() -> None:
    queue = FifoQueue()
    for id in "abcd":
        queue.push(entry(id))
    queue.remove("b")
    assert [e.id for e in queue] == ["a", "c", "d"]
    assert queue.index("d") == 2


def test_an_entry_pushed_to_the_head_is_next() -> None:
    queue = FifoQueue()
    queue.push(entry("a"))
    queue.push_head(entry("b"))
    assert [e.id for e in queue] == ["b", "a"]


def test_an_empty_queue_has_no_head() -> None:
    assert FifoQueue().head() is None
