"""On an engine that pauses requests when its cache is full, room is given for what is expected, not for max_tokens."""

from __future__ import annotations

import pytest
from tests.core.test_paced import CLASSES, MODEL, ask, read, released

from seekserve_backend.contract.bundle import KvCache, Limits
from seekserve_backend.contract.policy import Policy
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.core.types import Accepted, End, Refused, Signals, StepReport, Terminal


def scheduler(kind: str = "paced", *, may_pause: bool = True) -> Scheduler:
    """A cache of 100 blocks of 64 tokens; answers are expected to have 120 tokens."""
    paced = {
        "ramp_doubling_s": 0.0,
        "dear_cushion": 0.0,
        "credit_cap_ms": 1e6,
        "prefill_ahead_chunks": 1e6,
        "start_output_tokens": 100.0,
        "length_margin": 1.2,
        "kv_share": 0.95,
    }
    data = {"kind": kind, "default_class": "chat", "classes": CLASSES, "paced": paced}
    limits = Limits(max_seq_len_tokens=6000, max_batch_size=64, max_num_tokens=8192, prefill_chunk_tokens=1024)
    kv = KvCache(dtype="bf16", block_tokens=64, capacity_blocks=100, bytes_per_token=2, may_pause=may_pause)
    return Scheduler(Policy.from_data(data, "test"), limits, kv, MODEL)


def started(core: Scheduler, count: int, *, now: float = 0.0) -> list[str]:
    """Of so many that may come to 3,000 tokens each."""
    for n in range(count):
        answer = ask(core, f"r{n}", now, prompt_tokens=200, max_tokens=2800, deadline_ms=100_000)
        assert isinstance(answer, Accepted)
    return released(core, now)


@pytest.mark.parametrize(
    ("kind", "may_pause", "count"),
    [
        ("paced", False, 2),  # 47 blocks each
        ("paced", True, 19),  # 320 tokens are 5 blocks, of the 95 that expectations may fill
        ("fcfs", True, 25),  # 4 blocks to begin with: what the engine would do left to itself
    ],
)
def test_how_many_are_started_at_once(kind: str, may_pause: bool, count: int) -> None:
    core = scheduler(kind, may_pause=may_pause)
    assert len(started(core, 30)) == count
    core.check_integrity()


def test_what_has_outgrown_its_room_counts_as_taken() -> None:
    core = scheduler()
    ids = started(core, 10)
    now = 0.0
    for id in ids:
        now += 0.02
        read(core, id, now, tokens=200, step_ms=20.0)
    for _ in range(600):  # 200 + 600 tokens: 13 blocks each
        now += 0.02
        core.observe(StepReport(step_ms=20.0, decode_tokens=len(ids), batch_size=len(ids)), now)
    assert isinstance(ask(core, "late", now, prompt_tokens=200, max_tokens=2800, deadline_ms=100_000), Accepted)
    assert released(core, now) == [], "130 blocks are held where 50 were given and 100 are there"
    refused = ask(core, "urgent", now, prompt_tokens=200, max_tokens=2800, deadline_ms=1000)
    assert isinstance(refused, Refused), "and a short deadline cannot be kept"
    assert core.snapshot().reserved_blocks == 50
    core.check_integrity()


def test_a_change_of_policy_leaves_what_runs_its_room() -> None:
    core = scheduler()
    started(core, 10)
    core.replace_policy(Policy.from_data({"kind": "fcfs", "default_class": "chat", "classes": CLASSES}, "other"))
    core.check_integrity()
    core.replace_policy(Policy.from_data({"kind": "paced", "default_class": "chat", "classes": CLASSES}, "again"))
    core.check_integrity()
    assert core.snapshot().reserved_blocks == 50


def test_requests_may_outgrow_the_whole_cache_in_our_books() -> None:
    """What the engine has paused of them cannot be seen from here."""
    core = scheduler()
    ids = started(core, 10)
    core.observe(StepReport(step_ms=20.0, prefill_tokens=2000, firsts=tuple(ids), batch_size=10), 0.1)
    core.observe(StepReport(step_ms=20.0, decode_tokens=10 * 2000, batch_size=10), 0.2)
    assert isinstance(ask(core, "late", 0.3, prompt_tokens=200, max_tokens=2800, deadline_ms=100_000), Accepted)
    assert released(core, 0.3) == []
    assert isinstance(ask(core, "urgent", 0.3, prompt_tokens=200, max_tokens=2800, deadline_ms=1000), Refused)
    gauges = core.snapshot().gauges
    assert gauges["pressure"] >= 1.0
    core.check_integrity()


def outgrown() -> tuple[Scheduler, list[str]]:
    """Ten hold 13 blocks each where they were given 5, and nobody waits."""
    core = scheduler()
    ids = started(core, 10)
    core.observe(StepReport(step_ms=20.0, prefill_tokens=2000, firsts=tuple(ids), batch_size=10), 0.1)
    core.observe(StepReport(step_ms=20.0, decode_tokens=10 * 600, batch_size=10), 0.2)
    core.step(0.2, Signals())
    return core, ids


def test_what_was_outgrown_is_forgotten_when_it_ends_though_nobody_waits() -> None:
    core, ids = outgrown()
    assert core.snapshot().gauges["memory_pressure"] == 0.99, "80 blocks more than were given"
    ends = tuple(End(id=id, terminal=Terminal.FINISHED, tokens=600) for id in ids[1:])
    core.observe(StepReport(step_ms=20.0, ends=ends), 0.3)
    core.step(0.3, Signals())
    answer = ask(core, "next", 0.3, prompt_tokens=2000, max_tokens=2800, deadline_ms=3000)
    assert isinstance(answer, Accepted), "87 blocks are free, and it is expected to need 34"
    assert core.snapshot().gauges["pressure"] < 0.5


def test_what_is_outgrown_while_nobody_waits_is_seen_by_who_comes_next() -> None:
    core, _ = outgrown()
    answers = [ask(core, f"n{n}", 0.2, prompt_tokens=200, max_tokens=2800, deadline_ms=1000) for n in range(12)]
    assert not any(isinstance(each, Accepted) for each in answers), "130 blocks are held, and there are 100"
