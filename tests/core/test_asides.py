"""Requests without work of their own stand in the books, whatever becomes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seekserve_backend.contract.bundle import KvCache, Limits
from seekserve_backend.contract.policy import Policy
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.core.types import Accepted, Phase, Request, Terminal

ENDS = (Terminal.FINISHED, Terminal.CANCELLED, Terminal.EXPIRED, Terminal.FAILED)


def core() -> Scheduler:
    limits = Limits(max_seq_len_tokens=64, max_batch_size=2, max_num_tokens=64, prefill_chunk_tokens=64)
    return Scheduler(Policy(), limits, KvCache(dtype="fp8", block_tokens=8, capacity_blocks=16, bytes_per_token=1))


def offer(made: Scheduler, id: str) -> None:
    assert made.offer(id, prompt_bytes=1, request_class=None, now=0.0) is None


@given(lives=st.lists(st.tuples(st.booleans(), st.sampled_from((*ENDS, "cancel", "fail", "part"))), max_size=20))
def test_the_books_balance_at_every_moment(lives: list[tuple[bool, Terminal | str]]) -> None:
    made = core()
    for n, (from_intake, end) in enumerate(lives):
        id = f"r{n}"
        if from_intake:
            offer(made, id)
        made.asides.join(id, 0.0, request_class="interactive")
        assert made.snapshot().joined == 1
        made.check_integrity()
        if isinstance(end, Terminal):
            made.asides.settle(id, end)
        elif end == "cancel":
            assert made.cancel(id, 0.0) is Phase.JOINED
        elif end == "fail":
            made.fail(id, 0.0)
        else:
            made.asides.part(id)
            assert isinstance(made.submit(Request(id=id, prompt_tokens=3, max_tokens=2), 0.0), Accepted)
            assert made.cancel(id, 0.0) is Phase.QUEUED
        made.check_integrity()
    snapshot = made.snapshot()
    assert snapshot.offered == sum(snapshot.terminals.values()) == len(lives)


def test_a_refusal_is_counted_with_its_code() -> None:
    made = core()
    made.asides.refuse()
    made.check_integrity()
    assert (made.snapshot().offered, made.snapshot().refused_by_code["invalid"]) == (1, 1)


def test_only_what_has_no_work_can_join_and_only_what_joined_can_part() -> None:
    made = core()
    offer(made, "a")
    for wrong in (made.asides.part, lambda id: made.asides.settle(id, Terminal.FINISHED)):
        with pytest.raises(ValueError, match="has not joined"):
            wrong("a")
    made.submit(Request(id="a", prompt_tokens=3, max_tokens=2), 0.0)
    with pytest.raises(ValueError, match="queued and cannot join"):
        made.asides.join("a", 0.0)
