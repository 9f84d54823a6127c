"""What the paced policy promises, one rule at a time."""

from __future__ import annotations

from typing import Any

import pytest

from seekserve_backend.contract.bundle import KvCache, Limits
from seekserve_backend.contract.policy import PacedOptions, Policy
from seekserve_backend.contract.refusal import ErrorCode
from seekserve_backend.contract.step_model import StepModel
from seekserve_backend.core.estimate import EngineEstimate
from seekserve_backend.core.held import Held
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.core.types import Accepted, End, Expire, Refused, Release, Request, Signals, StepReport, Terminal

MODEL = StepModel(
    base_points=((1, 10.0), (1025, 112.4)), kv_read_ms_per_token=0.0, attention_ms_per_token2=0.0, source="a test"
)
"""10 ms and 0.1 ms for each token in the step."""
CLASSES: dict[str, Any] = {
    "chat": {"priority": 0, "max_queue_requests": 1000, "deadline_ms": 1000, "tpot_slo_ms": 50},
    "draft": {"priority": 1, "max_queue_requests": 1000, "deadline_ms": 1000},
    "offline": {"priority": 2, "max_queue_requests": 1000, "deadline_ms": 300_000, "is_offline": True},
}


def scheduler(model: StepModel | None = MODEL, **changes: Any) -> Scheduler:
    paced = {"ramp_doubling_s": 0.0, "dear_cushion": 0.0, **changes.pop("paced", {})}
    data = {"kind": "paced", "default_class": "chat", "classes": CLASSES, "paced": paced, **changes}
    limits = Limits(max_seq_len_tokens=32768, max_batch_size=64, max_num_tokens=8192, prefill_chunk_tokens=1024)
    kv = KvCache(dtype="bf16", block_tokens=64, capacity_blocks=10_000, bytes_per_token=2)
    return Scheduler(Policy.from_data(data, "test"), limits, kv, model)


def ask(core: Scheduler, id: str, now: float = 0.0, **wishes: Any) -> Accepted | Refused:
    wishes = {"prompt_tokens": 1000, "max_tokens": 50, "arrival_s": now, **wishes}
    return core.submit(Request(id=id, **wishes), now)


def released(core: Scheduler, now: float = 0.0) -> list[str]:
    return [each.id for each in core.step(now, Signals()) if isinstance(each, Release)]


def read(core: Scheduler, id: str, now: float, tokens: int = 1000, step_ms: float = 110.0) -> None:
    core.observe(StepReport(step_ms=step_ms, prefill_tokens=tokens, firsts=(id,)), now)


def test_a_request_alone_goes_at_once() -> None:
    core = scheduler()
    assert isinstance(ask(core, "a"), Accepted)
    assert released(core) == ["a"]


def test_the_earliest_deadline_goes_first() -> None:
    core = scheduler()
    for id, deadline_ms in (("late", 9000), ("soon", 4000), ("middle", 6000)):
        ask(core, id, deadline_ms=deadline_ms)
    order = []
    now = 0.0
    for _ in range(30):
        for id in released(core, now):
            order.append(id)
            now += 0.11
            read(core, id, now)
    assert order == ["soon", "middle", "late"]


def test_more_prompts_than_the_engine_reads_next_wait_outside() -> None:
    core = scheduler(paced={"credit_cap_ms": 1e6, "prefill_ahead_chunks": 1.0})
    for n in range(6):
        ask(core, f"r{n}", deadline_ms=60_000)
    assert len(released(core)) <= 2


def test_who_cannot_have_its_first_token_in_time_is_refused_with_the_time_to_come_back() -> None:
    core = scheduler()
    answers = [ask(core, f"r{n}") for n in range(40)]
    accepted = [each for each in answers if isinstance(each, Accepted)]
    refused = [each for each in answers if isinstance(each, Refused)]
    assert 2 <= len(accepted) <= 12
    assert {each.code for each in refused} == {ErrorCode.OVERLOADED}
    assert all(each.retry_after_ms and each.retry_after_ms >= 500 for each in refused)
    assert "after its deadline of 1000 ms" in refused[0].reason


def test_a_hopeless_request_is_given_up_before_its_deadline() -> None:
    core = scheduler()
    ask(core, "first", deadline_ms=60_000, prompt_tokens=8000)
    assert released(core) == ["first"]
    ask(core, "second", deadline_ms=2000)
    decisions = core.step(1.9, Signals())
    assert [type(each) for each in decisions] == [Expire]
    assert core.snapshot().terminals["expired"] == 1


def test_a_dear_prompt_needs_more_room_than_a_cheap_one() -> None:
    answers = {}
    for cushion in (0.0, 3.0):
        core = scheduler(paced={"dear_cushion": cushion})
        for n in range(3):
            ask(core, f"c{n}", prompt_tokens=200, deadline_ms=2000)
        answers[cushion] = type(ask(core, "dear", prompt_tokens=6000, deadline_ms=2000))
    assert answers == {0.0: Accepted, 3.0: Refused}


def test_one_long_prompt_is_read_at_a_time() -> None:
    core = scheduler(paced={"credit_cap_ms": 1e6, "prefill_ahead_chunks": 100.0})
    for n in range(3):
        ask(core, f"long{n}", prompt_tokens=9000, deadline_ms=60_000)
    ask(core, "short", prompt_tokens=100, deadline_ms=70_000)
    assert released(core) == ["long0"]


def test_tenants_take_turns_by_engine_time() -> None:
    core = scheduler(paced={"credit_cap_ms": 50.0})
    for n in range(8):
        ask(core, f"many{n}", tenant="many", deadline_ms=100_000)
    for n in range(2):
        ask(core, f"few{n}", tenant="few", deadline_ms=100_000)
    order: list[str] = []
    now = 0.0
    while len(order) < 10:
        now += 0.11
        for id in released(core, now):
            order.append(id)
            read(core, id, now)
        core.observe(StepReport(step_ms=20.0, decode_tokens=len(order)), now)
    assert {"few0", "few1"} <= set(order[:4])


def test_a_busy_tenant_does_not_use_up_the_room_of_another() -> None:
    core = scheduler()
    answers = [ask(core, f"m{n}", tenant="many") for n in range(40)]
    assert isinstance(answers[-1], Refused)
    assert isinstance(ask(core, "f", tenant="few"), Accepted)


def test_offline_work_waits_for_urgent_work_and_has_a_floor() -> None:
    core = scheduler(paced={"offline_floor": 0.5})
    ask(core, "off", request_class="offline")
    for n in range(5):
        ask(core, f"r{n}", deadline_ms=100_000)
    now, seen = 0.0, released(core)
    assert "off" not in seen
    for id in seen:
        read(core, id, now)
    for _ in range(200):
        now += 0.11
        for n in range(2):
            ask(core, f"more{now:.2f}{n}", now, deadline_ms=100_000)
        for id in released(core, now):
            seen.append(id)
            read(core, id, now)
            core.observe(StepReport(step_ms=1.0, ends=(End(id=id, terminal=Terminal.FINISHED, tokens=5),)), now)
    assert "off" in seen


def test_the_bias_follows_a_slower_engine_within_seconds() -> None:
    engine = EngineEstimate(MODEL, PacedOptions(), Held(64), chunk_tokens=1024)
    for _ in range(150):
        engine.observe(StepReport(step_ms=20.0 * 1.5, prefill_tokens=0, decode_tokens=0))
    assert engine.bias == 1.0, "a step of nothing teaches nothing"
    core = scheduler()
    ask(core, "a")
    released(core)
    read(core, "a", 0.1)
    for n in range(200):
        core.observe(StepReport(step_ms=10.1 * 1.5, decode_tokens=1), 0.2 + n / 100)
    assert core._gate.engine.bias == pytest.approx(1.5, rel=0.05)  # type: ignore[attr-defined]


def test_without_a_model_the_step_time_is_learned() -> None:
    core = scheduler(None, paced={"credit_cap_ms": 1e6, "prefill_ahead_chunks": 1e6})
    for n in range(400):
        tokens = n % 7 + 1
        ask(core, f"r{n}", prompt_tokens=tokens, max_tokens=1)
        assert released(core) == [f"r{n}"]
        end = End(id=f"r{n}", terminal=Terminal.FINISHED, tokens=1)
        core.observe(StepReport(step_ms=3.0 + 0.5 * tokens, prefill_tokens=tokens, firsts=(f"r{n}",), ends=(end,)), 0.0)
    engine = core._gate.engine  # type: ignore[attr-defined]
    assert engine.steps.base_ms(4) == pytest.approx(5.0, rel=0.02)
    assert engine.price_ms(256) == pytest.approx(128.0, rel=0.05)


def test_under_pressure_offline_requests_are_refused_and_lower_classes_shed() -> None:
    core = scheduler(paced={"rung_up_s": 0.0, "demand_memory_s": 1.0})
    now = 0.0
    kinds: dict[str, list[type]] = {"chat": [], "draft": [], "offline": []}
    for n in range(400):
        now += 0.01
        for name in kinds:
            kinds[name].append(type(ask(core, f"{name}{n}", now, request_class=name)))
        core.step(now, Signals())
    assert core._gate.ladder.level >= 2  # type: ignore[attr-defined]
    assert Refused in kinds["offline"]
    assert kinds["draft"][-50:].count(Refused) == 50


def test_the_ramp_lets_few_run_at_first_and_all_later() -> None:
    core = scheduler(paced={"ramp_doubling_s": 10.0, "credit_cap_ms": 1e9, "prefill_ahead_chunks": 1e6})
    for n in range(40):
        ask(core, f"r{n}", prompt_tokens=10, deadline_ms=10_000_000)
    assert len(released(core, 0.0)) == 4
    assert len(released(core, 10.0)) == 4
    assert len(released(core, 20.0)) == 8
    assert len(released(core, 100.0)) == 24


def test_after_an_open_breaker_the_ramp_begins_anew() -> None:
    core = scheduler(
        paced={"ramp_doubling_s": 10.0, "credit_cap_ms": 1e9, "prefill_ahead_chunks": 1e6},
        breaker={"faults_in_a_row": 1, "pause_s": 1.0, "probes": 1},
    )
    for now in (0.0, 100.0):
        core.step(now, Signals())  # ramped up
    ask(core, "ill", 100.0, prompt_tokens=10, deadline_ms=10_000_000)
    assert released(core, 100.0) == ["ill"]
    core.observe(StepReport(step_ms=1.0, ends=(End(id="ill", terminal=Terminal.FAILED),)), 100.1)
    assert core.offer("probe", prompt_bytes=1, request_class=None, now=102.0) is None
    ask(core, "probe", 102.0, prompt_tokens=10, deadline_ms=10_000_000)
    assert released(core, 102.0) == ["probe"]
    core.observe(StepReport(step_ms=1.0, ends=(End(id="probe", terminal=Terminal.FINISHED, tokens=1),)), 102.1)
    for n in range(40):
        ask(core, f"r{n}", 103.0, prompt_tokens=10, deadline_ms=10_000_000)
    assert len(released(core, 103.0)) == 4


def test_an_idle_engine_takes_offline_work_whatever_the_rung() -> None:
    core = scheduler(rungs=[{"at": 0.0, "stop_offline": True}], paced={"rung_up_s": 0.0, "offline_floor": 0.0})
    core.step(0.0, Signals())
    assert core._gate.ladder.level == 1  # type: ignore[attr-defined]
    ask(core, "urgent")
    assert released(core) == ["urgent"]
    read(core, "urgent", 0.1)
    ask(core, "off", 0.1, request_class="offline")
    assert released(core, 0.2) == []
    core.observe(StepReport(step_ms=1.0, ends=(End(id="urgent", terminal=Terminal.FINISHED, tokens=1),)), 0.3)
    assert released(core, 0.3) == ["off"]


def test_who_would_wait_longer_than_its_class_may_is_told_so_at_arrival() -> None:
    classes = {**CLASSES, "chat": {**CLASSES["chat"], "deadline_ms": 60_000, "queue_timeout_ms": 300}}
    core = scheduler(classes=classes)
    answers = [ask(core, f"r{n}", prompt_tokens=8000) for n in range(12)]
    assert isinstance(answers[0], Accepted)
    refused = [answer for answer in answers if isinstance(answer, Refused)]
    assert refused
    assert (refused[0].code, "longer than the 300 ms that class chat may" in refused[0].reason) == (
        ErrorCode.OVERLOADED,
        True,
    )
    assert isinstance(ask(core, "probe", prompt_tokens=8000, is_probe=True), Accepted)
    core.check_integrity()
