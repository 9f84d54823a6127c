"""What the rules of thumb do beside the size of the batch: urgent work moves to another model, beams are lowered."""

from __future__ import annotations

import pytest

from seekserve_backend.contract.bundle import KvCache, Limits
from seekserve_backend.contract.policy import Policy
from seekserve_backend.core.controls import unsupported
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.core.types import Accepted, Refused, Release, Request, Signals, StepReport

CLASSES = {
    "chat": {"priority": 0, "max_queue_requests": 99, "deadline_ms": 600_000},
    "low": {"priority": 1, "max_queue_requests": 99, "deadline_ms": 600_000},
}


def policy(**seed: object) -> Policy:
    data = {"kind": "seed", "default_class": "chat", "classes": CLASSES, "seed": {"form_requests": 1, **seed}}
    return Policy.from_data(data, "test")


def scheduler(chosen: Policy) -> Scheduler:
    limits = Limits(max_seq_len_tokens=100, max_batch_size=8, max_num_tokens=64, prefill_chunk_tokens=16)
    return Scheduler(chosen, limits, KvCache(dtype="bf16", block_tokens=4, capacity_blocks=25, bytes_per_token=8))


def submit(core: Scheduler, id: str, now: float, name: str = "chat", most: int = 4) -> Accepted | Refused:
    wish = Request(id=id, prompt_tokens=4, max_tokens=most, request_class=name, arrival_s=now)
    return core.submit(wish, now, variants=("int8",))


def test_at_level_2_urgent_work_moves_and_low_priority_is_refused() -> None:
    core = scheduler(policy(level2_route_to="int8"))
    slow = submit(core, "slow", 0.0)
    assert isinstance(slow, Accepted)
    assert slow.route_to is None
    core.step(0.0, Signals())
    core.step(2.0, Signals())
    core.observe(StepReport(step_ms=1.0, prefill_tokens=4, firsts=("slow",)), 2.0)
    for second in range(2, 63):
        core.step(float(second), Signals())
        if second % 20 == 0:  # keeps the latency in memory
            submit(core, f"s{second}", second - 2.0, "low")
            core.step(second + 0.1, Signals())
            core.step(second + 0.2, Signals())
            core.observe(StepReport(step_ms=1.0, prefill_tokens=4, firsts=(f"s{second}",)), second + 0.2)
    urgent, low = submit(core, "u", 62.5), submit(core, "l", 62.5, "low")
    assert isinstance(urgent, Accepted)
    assert urgent.route_to == "int8"
    assert isinstance(low, Refused)
    core.check_integrity()


def test_a_full_cache_lowers_beams_of_what_starts_then() -> None:
    core = scheduler(policy(cache_beam_width=2, cache_s=30.0))
    submit(core, "big", 0.0, most=84)  # 22 of 25 blocks
    assert [d.max_beam_width for d in core.step(0.0, Signals()) if isinstance(d, Release)] == [None]
    for second in range(1, 32):
        core.step(float(second), Signals())
    submit(core, "next", 32.0)
    assert [d.max_beam_width for d in core.step(32.1, Signals()) if isinstance(d, Release)] == [2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"level2_route_to": "int8"}, "level 2 routes to 'int8'"),
        ({"cache_beam_width": 2}, "a full cache lowers beam width"),
        ({"cache_no_speculation": True}, "a full cache lowers speculation"),
    ],
)
def test_what_the_engine_or_the_server_cannot_do_is_refused(options: dict[str, object], said: str) -> None:
    (problem,) = unsupported(policy(**options), (), ())
    assert problem.startswith(said)
    assert unsupported(policy(**options), ("beam_width", "speculation"), ("int8",)) == []
    assert unsupported(policy(), (), ()) == []


def test_a_route_under_a_kind_without_a_ladder_is_refused() -> None:
    with pytest.raises(ValueError, match="route_to needs the kind `paced`; `fcfs` has no ladder"):
        Policy.from_data({"kind": "fcfs", "rungs": [{"at": 1, "route_to": "int8"}]}, "p")
