from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from seekserve_backend.contract.bundle import KvCache, Limits
from seekserve_backend.contract.policy import Policy
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.core.types import Accepted, Request


@pytest.fixture
def make_scheduler() -> Callable[..., Scheduler]:
    """`make_scheduler(max_batch_size=1, capacity_blocks=9, default_max_tokens=5, classes={...}, ...)`."""

    def make(
        *, max_batch_size: int = 4, max_seq_len_tokens: int = 100, capacity_blocks: int = 40, **policy: Any
    ) -> Scheduler:
        return Scheduler(
            Policy.from_data({"kind": "fcfs", "default_max_tokens": 8, **policy}, "test policy"),
            Limits(
                max_seq_len_tokens=max_seq_len_tokens,
                max_batch_size=max_batch_size,
                max_num_tokens=64,
                prefill_chunk_tokens=16,
            ),
            KvCache(dtype="bf16", block_tokens=4, capacity_blocks=capacity_blocks, bytes_per_token=8),
        )

    return make


@pytest.fixture
def accept() -> Callable[..., Accepted]:
    """Submits a small request straight away and expects it to be taken."""

    def submit(scheduler: Scheduler, id: str, now: float = 0.0, **wishes: Any) -> Accepted:
        wishes = {"prompt_tokens": 4, "max_tokens": 4, "arrival_s": now, **wishes}
        answer = scheduler.submit(Request(id=id, **wishes), now)
        assert isinstance(answer, Accepted), answer
        return answer

    return submit
