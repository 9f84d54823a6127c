"""What else the paced policy foresees: slots, cache, the ramp, speculation, long offline prompts, other tenants."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.test_paced import ask, read, released, scheduler

from seekserve_backend.contract.bundle import KvCache, Limits
from seekserve_backend.contract.policy import Policy
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.core.types import Accepted, End, Refused, Signals, StepReport, Terminal

FREE = {"credit_cap_ms": 1e6, "prefill_ahead_chunks": 1e6}
"""Prompts hold nobody back."""


def accepted(core: Scheduler, ids: str, count: int, now: float = 0.0, **wishes: Any) -> int:
    answers = [ask(core, f"{ids}{n}", now, prompt_tokens=10, **wishes) for n in range(count)]
    return sum(isinstance(each, Accepted) for each in answers)


@pytest.mark.parametrize(("deadline_ms", "least", "most"), [(1000, 0, 3), (60_000, 8, 200)])
def test_who_would_wait_for_reserved_cache_is_refused(deadline_ms: int, least: int, most: int) -> None:
    core = scheduler(paced=FREE)  # a cache of 640,000 tokens holds 19 that may come to 32,768 each
    assert accepted(core, "first", 19, max_tokens=32_700) == 19
    assert len(released(core)) == 19
    assert least <= accepted(core, "next", 200, max_tokens=32_700, deadline_ms=deadline_ms) <= most
    small = accepted(core, "small", 5, max_tokens=50, deadline_ms=1000)
    assert small == 5, "there is room for small ones"
    assert released(core) == [f"small{n}" for n in range(5)]


def test_the_ramp_is_foreseen() -> None:
    counts = {}
    for doubling_s in (0.0, 10.0):
        core = scheduler(paced={**FREE, "ramp_doubling_s": doubling_s})
        core.step(0.0, Signals())
        counts[doubling_s] = accepted(core, "r", 40, max_tokens=200)
    assert counts[0.0] == 40
    assert 4 <= counts[10.0] <= 8


def test_with_long_deadlines_all_that_the_ramp_will_let_in_is_taken() -> None:
    core = scheduler(paced={**FREE, "ramp_doubling_s": 10.0})
    core.step(0.0, Signals())
    assert accepted(core, "r", 40, deadline_ms=60_000) == 40


def test_a_step_may_last_as_long_as_the_tokens_that_speculation_gets_out_of_it() -> None:
    core = scheduler()
    ask(core, "a")
    released(core)
    read(core, "a", 0.1)
    for n in range(300):
        core.observe(StepReport(step_ms=20.0, decode_tokens=2), 0.2 + n / 50)
    gauges = core.snapshot().gauges
    assert gauges["target_step_ms"] == pytest.approx(2 * 0.92 * 50.0, rel=0.02)


def arrive(core: Scheduler, seconds: int) -> float:
    """Ten urgent requests a second, each of which is over at once; one more keeps decoding."""
    ask(core, "stays")
    released(core)
    read(core, "stays", 0.0)
    now = 0.0
    for n in range(10 * seconds):
        now += 0.1
        ask(core, f"u{n}", now, prompt_tokens=10, max_tokens=1)
        for id in released(core, now):
            end = End(id=id, terminal=Terminal.FINISHED, tokens=1)
            core.observe(StepReport(step_ms=12.0, prefill_tokens=10, decode_tokens=1, firsts=(id,), ends=(end,)), now)
    return now


def test_a_long_offline_prompt_waits_until_few_urgent_requests_suffer_and_others_pass_it() -> None:
    core = scheduler(paced={"offline_harm": 0.01})
    now = arrive(core, 10)
    assert isinstance(ask(core, "long", now, prompt_tokens=30_000, request_class="offline"), Accepted)
    assert isinstance(ask(core, "short", now, prompt_tokens=100, request_class="offline"), Accepted)
    assert released(core, now) == ["short"]
    read(core, "short", now + 0.1, tokens=100)
    end = End(id="short", terminal=Terminal.FINISHED, tokens=1)
    stays = End(id="stays", terminal=Terminal.FINISHED, tokens=1)
    core.observe(StepReport(step_ms=10.0, ends=(end, stays)), now + 0.2)
    assert released(core, now + 0.2) == ["long"], "an idle engine takes it"


def test_a_long_offline_prompt_that_has_no_hope_of_a_quiet_time_is_told_so() -> None:
    core = scheduler()
    now = arrive(core, 10)
    answer = ask(core, "long", now, prompt_tokens=30_000, request_class="offline", deadline_ms=5000)
    assert isinstance(answer, Refused)
    assert answer.retry_after_ms is not None
    assert "urgent requests would come too late" in answer.reason


def test_the_offline_queue_of_another_tenant_does_not_shut_one_out() -> None:
    core = scheduler()
    many = [ask(core, f"m{n}", tenant="many", request_class="offline", max_tokens=5000) for n in range(400)]
    assert isinstance(many[-1], Refused)
    assert isinstance(ask(core, "f", tenant="few", request_class="offline", max_tokens=5000), Accepted)


def test_a_full_batch_waits_by_turns() -> None:
    core = scheduler(paced=FREE)
    assert accepted(core, "run", 64, tenant="many", max_tokens=2000, deadline_ms=300_000) == 64
    assert len(released(core)) == 64
    wishes = {"max_tokens": 200, "deadline_ms": 3000}
    queued = accepted(core, "many", 200, tenant="many", **wishes)
    assert 0 < queued < 200
    assert accepted(core, "few", 1, tenant="few", **wishes) == 1


def test_without_a_promise_a_slow_engine_is_not_held_to_the_default_pace() -> None:
    limits = Limits(max_seq_len_tokens=4096, max_batch_size=16, max_num_tokens=512, prefill_chunk_tokens=64)
    kv = KvCache(dtype="fp32", block_tokens=16, capacity_blocks=1000, bytes_per_token=4)
    core = Scheduler(Policy(), limits, kv)
    now, started = 0.0, 0
    for n in range(300):
        ask(core, f"r{n}", now, prompt_tokens=20, max_tokens=1)
        firsts = tuple(released(core, now))
        started += len(firsts)
        now += 0.4
        ends = tuple(End(id=id, terminal=Terminal.FINISHED, tokens=1) for id in firsts)
        core.observe(StepReport(step_ms=400.0, prefill_tokens=20 * len(firsts), firsts=firsts, ends=ends), now)
    assert started >= 295
    assert core.snapshot().gauges["max_running"] == 16.0, "the ramp is not held back"


def test_prompts_that_are_found_to_cost_nothing_leave_nobody_without_hope() -> None:
    limits = Limits(max_seq_len_tokens=128, max_batch_size=4, max_num_tokens=64, prefill_chunk_tokens=32)
    kv = KvCache(dtype="fp32", block_tokens=8, capacity_blocks=64, bytes_per_token=4)
    core = Scheduler(Policy(), limits, kv)
    for n in range(40):
        assert isinstance(ask(core, f"r{n}", n / 100, prompt_tokens=8 + n % 5, max_tokens=2), Accepted)
        assert released(core, n / 100) == [f"r{n}"]
        done = End(id=f"r{n}", terminal=Terminal.FINISHED, tokens=2)
        core.observe(StepReport(step_ms=5.0 - (8 + n % 5) / 10, prefill_tokens=8 + n % 5, firsts=(f"r{n}",)), n / 100)
        core.observe(StepReport(step_ms=5.0, decode_tokens=1, ends=(done,)), n / 100)
    assert core.snapshot().terminals["expired"] == 0


def test_probes_teach_nothing() -> None:
    """Their one token and tiny prompt would pass for usual, and everybody else for dear."""
    core, untaught = scheduler(), scheduler()
    for n in range(200):
        now = float(n)
        assert isinstance(ask(core, f"p{n}", now, prompt_tokens=2, max_tokens=1, is_probe=True), Accepted)
        assert released(core, now) == [f"p{n}"]
        end = End(id=f"p{n}", terminal=Terminal.FINISHED, tokens=1)
        core.observe(StepReport(step_ms=10.0, prefill_tokens=2, firsts=(f"p{n}",), ends=(end,)), now)
    found = []
    for each, now in ((core, 200.0), (untaught, 0.0)):
        accepted(each, "q", 2, now)
        gauges = each.snapshot().gauges
        usual_ms = gauges["price_ms"] / gauges["bias"]
        taken = accepted(each, "r", 2000, now)
        released(each, now)
        found.append((usual_ms, taken, each.snapshot().gauges["expected_kv_tokens"]))
    assert found[0] == pytest.approx(found[1], rel=0.05)


def test_the_first_few_requests_count_alike_for_what_is_usual() -> None:
    core = scheduler()
    ask(core, "odd", prompt_tokens=10)
    usual_ms = core.snapshot().gauges["price_ms"]
    for n in range(9):
        ask(core, f"r{n}", prompt_tokens=1000)
    assert core.snapshot().gauges["price_ms"] > 80.0 * usual_ms


def test_small_ones_pass_a_head_that_waits_for_room_and_only_so_many() -> None:
    """One of 60,000 tokens at the head, forty of 200 behind it, and for ever more of those."""
    core = scheduler(paced={**FREE, "most_passes": 4})  # 10,000 blocks
    ask(core, "runs", prompt_tokens=10, max_tokens=32_000)  # 501
    for n in range(18):
        ask(core, f"runs{n}", prompt_tokens=10, max_tokens=32_700)  # 512 each: 283 are left
    assert len(released(core)) == 19
    core.observe(StepReport(step_ms=10.0, prefill_tokens=190, firsts=("runs", *(f"runs{n}" for n in range(18)))), 0.1)
    assert isinstance(ask(core, "large", 0.1, prompt_tokens=20_000, max_tokens=40, deadline_ms=60_000), Accepted)
    small = 0
    started: list[str] = []
    for round_number in range(30):
        now = 0.2 + 0.1 * round_number
        for _ in range(2):
            answer = ask(core, f"small{small}", now, prompt_tokens=150, max_tokens=50, deadline_ms=59_950)
            small += isinstance(answer, Accepted)
        for id in released(core, now):
            started.append(id)
            end = End(id=id, terminal=Terminal.FINISHED, tokens=5)
            core.observe(StepReport(step_ms=10.0, prefill_tokens=150, firsts=(id,), ends=(end,)), now)
        core.check_integrity()
    assert [id[:5] for id in started] == 4 * ["small"]
    end = End(id="runs0", terminal=Terminal.FINISHED, tokens=5)
    core.observe(StepReport(step_ms=10.0, ends=(end,)), 4.0)
    assert released(core, 4.0)[0] == "large"


def test_a_newcomer_that_may_pass_is_not_refused_for_want_of_room() -> None:
    core = scheduler(paced=FREE)
    for n in range(19):
        ask(core, f"runs{n}", prompt_tokens=10, max_tokens=32_700)
    assert len(released(core)) == 19
    assert isinstance(ask(core, "large", prompt_tokens=20_000, max_tokens=12_000, deadline_ms=60_000), Accepted)
    assert isinstance(ask(core, "small", prompt_tokens=150, max_tokens=50, deadline_ms=1000), Accepted)
    later = ask(core, "later", prompt_tokens=150, max_tokens=50, deadline_ms=70_000)
    assert isinstance(later, Accepted)
    assert released(core) == ["small", "later"]
    assert isinstance(ask(core, "no", prompt_tokens=20_000, max_tokens=12_000, deadline_ms=1000), Refused)
