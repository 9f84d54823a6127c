"""A scheduler that pauses says when to come back; one that gets another engine has that engine's limits."""

from __future__ import annotations

import pytest

from seekserve_backend.contract.bundle import KvCache, Limits
from seekserve_backend.contract.policy import Policy
from seekserve_backend.contract.refusal import ErrorCode
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.core.types import Accepted, End, Refused, Request, Signals, StepReport, Terminal

LIMITS = Limits(max_seq_len_tokens=128, max_batch_size=4, max_num_tokens=64, prefill_chunk_tokens=32)
KV = KvCache(dtype="fp32", block_tokens=8, capacity_blocks=64, bytes_per_token=4)
SMALL = Limits(max_seq_len_tokens=16, max_batch_size=1, max_num_tokens=16, prefill_chunk_tokens=16)


def core() -> Scheduler:
    return Scheduler(Policy(), LIMITS, KV)


def offer(core: Scheduler, id: str, now: float, *, is_probe: bool = False) -> Refused | None:
    return core.offer(id, prompt_bytes=4, request_class=None, now=now, is_probe=is_probe)


def released(core: Scheduler, now: float) -> list[str]:
    """Within a second, since some policies wait for company."""
    return [decision.id for tenth in range(11) for decision in core.step(now + tenth / 10, Signals())]


def test_a_pause_is_told_as_the_time_that_is_left() -> None:
    made = core()
    made.pause(40.0, "another variant is loaded")
    hints = []
    for now in (0.0, 20.0, 39.0):
        refused = offer(made, f"at {now}", now)
        assert refused is not None
        assert (refused.code, refused.reason) == (ErrorCode.NOT_SERVING, "another variant is loaded")
        hints.append(refused.retry_after_ms or 0)
    assert hints == sorted(hints, reverse=True)
    made.resume()
    assert offer(made, "later", 40.0) is None
    made.check_integrity()


def test_who_was_offered_before_the_pause_and_probes_are_taken() -> None:
    made = core()
    assert offer(made, "early", 0.0) is None
    made.pause(10.0, "paused")
    assert offer(made, "probe", 1.0, is_probe=True) is None
    for id in ("early", "probe"):
        assert isinstance(made.submit(Request(id=id, prompt_tokens=4, max_tokens=4, arrival_s=0.0), 1.0), Accepted)
    assert isinstance(made.submit(Request(id="new", prompt_tokens=4, max_tokens=4, arrival_s=1.0), 1.0), Refused)
    made.check_integrity()


@pytest.mark.parametrize("kind", ["fcfs", "static", "seed", "paced"])
def test_another_engine_brings_its_limits_and_a_waiting_probe_survives(kind: str) -> None:
    made = Scheduler(Policy(kind=kind), LIMITS, KV)
    made.submit(Request(id="a", prompt_tokens=4, max_tokens=4, arrival_s=0.0), 0.0)
    assert released(made, 0.0) == ["a"]
    made.observe(StepReport(step_ms=1.0, ends=(End(id="a", terminal=Terminal.FINISHED),)), 2.0)
    made.pause(10.0, "paused")
    made.submit(Request(id="probe", prompt_tokens=4, max_tokens=1, arrival_s=2.0, is_probe=True), 2.0)
    made.replace_engine(SMALL, KV, None)
    made.resume()
    made.check_integrity()
    too_long = made.submit(Request(id="b", prompt_tokens=20, max_tokens=4, arrival_s=2.0), 2.0)
    assert isinstance(too_long, Refused)
    assert too_long.code is ErrorCode.TOO_LARGE
    made.submit(Request(id="c", prompt_tokens=4, max_tokens=4, arrival_s=2.0), 2.0)
    assert released(made, 2.0) == ["probe"]  # one slot
    made.check_integrity()
