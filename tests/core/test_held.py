"""What the engine holds, against an engine that knows it exactly, and the guides' numbers written out."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from seekserve_backend.contract.policy import Policy
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.core.types import Accepted, End, Release, Request, Signals, StepReport, Terminal

Make = Callable[..., Scheduler]


def start(core: Scheduler, id: str, prompt: int, most: int, now: float = 0.0) -> None:
    assert isinstance(core.submit(Request(id=id, prompt_tokens=prompt, max_tokens=most, arrival_s=now), now), Accepted)


def test_the_guides_numbers_are_the_formula_written_out(make_scheduler: Make) -> None:
    core = make_scheduler(capacity_blocks=40)  # blocks of 4 tokens
    empty = core.snapshot().gauges
    assert (empty["memory_pressure"], empty["kv_fragmentation"], empty["batch_efficiency"]) == (0.0, 0.0, 1.0)
    assert "batch_formation_ms" not in empty
    start(core, "a", 10, 30)  # takes 10 blocks
    start(core, "b", 4, 4)  # takes 2
    core.step(0.0, Signals())
    reserved = core.snapshot().gauges
    assert reserved["kv_fragmentation"] == 1.0
    assert reserved["memory_pressure"] == pytest.approx((0 + 0.5 * 12) / 40 * 1.3)
    core.observe(StepReport(step_ms=20.0, prefill_tokens=14, firsts=("a", "b")), 0.03)
    read = core.snapshot().gauges
    # 11 + 5 tokens in 3 + 2 active blocks of 12 taken, which hold 48.
    assert read["kv_fragmentation"] == pytest.approx(1 - 16 / 48)
    assert read["memory_pressure"] == pytest.approx((5 + 0.5 * 7) / 40 * (1 + 0.3 * (1 - 16 / 48)))
    assert read["batch_efficiency"] == pytest.approx(16 / (2 * 11))
    assert read["batch_formation_ms"] == pytest.approx(10.0)
    core.observe(StepReport(step_ms=1.0, ends=(End(id="a", terminal=Terminal.CANCELLED),)), 0.04)
    assert core.snapshot().gauges["batch_efficiency"] == 1.0
    core.fail("b", 0.05)
    assert core.snapshot().gauges["memory_pressure"] == 0.0


def test_steps_that_take_no_time_form_batches_too(make_scheduler: Make) -> None:
    core = make_scheduler()
    for id in ("a", "b"):
        start(core, id, 4, 4)
    core.step(0.0, Signals())
    core.observe(StepReport(step_ms=0.0, ends=(End(id="b", terminal=Terminal.CANCELLED),)), 0.5)
    assert core.held.formed_requests == 0, "an end is no step"
    core.observe(StepReport(step_ms=0.0, batch_size=1, prefill_tokens=4, firsts=("a",)), 1.0)
    assert (core.held.formed_requests, core.held.formed_ms) == (1, 1000.0)


def test_memory_pressure_is_capped(make_scheduler: Make) -> None:
    core = make_scheduler(capacity_blocks=25, max_batch_size=1)
    start(core, "a", 60, 39)
    core.step(0.0, Signals())
    core.observe(StepReport(step_ms=1.0, prefill_tokens=60, firsts=("a",)), 0.01)
    for n in range(37):
        core.observe(StepReport(step_ms=1.0, decode_tokens=1), 0.02 + n)
    assert core.snapshot().gauges["memory_pressure"] == 0.99


@pytest.mark.parametrize("seed", range(6))
def test_it_follows_an_engine_that_reads_in_chunks_and_makes_a_token_a_step(seed: int, make_scheduler: Make) -> None:
    pick, core, now = random.Random(seed), make_scheduler(max_batch_size=6, capacity_blocks=200), 0.0
    engine: dict[str, list[int]] = {}
    wishes: dict[str, tuple[int, int]] = {}
    for turn in range(200):
        now += 0.01
        if pick.random() < 0.4:
            id, prompt, most = f"r{turn}", pick.randint(1, 60), pick.randint(1, 30)
            start(core, id, prompt, most, now)
            wishes[id] = (prompt, most)
        for decision in core.step(now, Signals()):
            assert isinstance(decision, Release)
            engine[decision.id] = [wishes[decision.id][0], 0, 0]
        budget, read, decoded, firsts, ends = 16, 0, 0, [], []
        for id, work in engine.items():
            if work[1] < work[0]:
                c = min(budget, work[0] - work[1])
                work[1], budget, read = work[1] + c, budget - c, read + c
                if work[1] == work[0]:
                    work[2] = 1
                    firsts.append(id)
            else:
                work[2] += 1
                decoded += 1
            if work[2] >= wishes[id][1]:
                ends.append(End(id=id, terminal=Terminal.FINISHED, tokens=work[2]))
        for end in ends:
            del engine[end.id]
        if pick.random() < 0.1 and engine:
            gone = pick.choice(list(engine))
            del engine[gone]
            ends.append(End(id=gone, terminal=Terminal.CANCELLED))
        core.observe(
            StepReport(step_ms=5.0, prefill_tokens=read, decode_tokens=decoded, firsts=tuple(firsts), ends=tuple(ends)),
            now,
        )
        exact = sorted(work[1] + work[2] for work in engine.values())
        assert sorted(core.held.tokens()) == pytest.approx(exact)
        core.check_integrity()
    assert core.held.formed_requests > 30


def test_seed_halves_a_batch_that_would_be_mostly_padding(make_scheduler: Make) -> None:
    def batch_after_a_review(*prompts: int, share: float = 0.7) -> float:
        core = make_scheduler(
            kind="seed",
            max_batch_size=16,
            capacity_blocks=400,
            seed={
                "form_requests": 1, "cold_batch": 16, "batch_mixed": 16, "batch_alike": 16, "efficiency_share": share,
            },
        )  # fmt: skip
        core.step(0.0, Signals())
        for n, prompt in enumerate(prompts):
            start(core, f"r{n}", prompt, 30, 0.1)
        core.step(0.2, Signals())
        firsts = tuple(f"r{n}" for n in range(len(prompts)))
        core.observe(StepReport(step_ms=5.0, prefill_tokens=sum(prompts), firsts=firsts), 0.21)
        core.step(10.1, Signals())
        return core.snapshot().gauges["max_running"]

    assert batch_after_a_review(60, 60, 50) == 16
    assert batch_after_a_review(60, 4, 4) == 8
    assert batch_after_a_review(60, 4, 4, share=0.0) == 16


def test_another_policy_finds_what_is_held_and_puts_its_own_price_on_it(make_scheduler: Make) -> None:
    core = make_scheduler(capacity_blocks=100)
    for id in ("read", "half", "gone"):
        start(core, id, 40, 8)
    core.step(0.0, Signals())
    core.observe(StepReport(step_ms=5.0, prefill_tokens=60, firsts=("read",)), 0.01)
    core.step(100.0, Signals())  # expires what had no first token; the engine holds them still
    held = core.held
    assert (held.count, held.decoding, held.unread_tokens, held.unread_ms) == (3, 1, 60, 0.0)
    policy = Policy.from_data({"kind": "paced"}, "test")
    core.replace_policy(policy)
    price_ms = core._gate.engine.price_ms(40)  # type: ignore[attr-defined]
    assert held.unread_ms == pytest.approx(1.5 * price_ms)
    for id in ("half", "gone", "read"):
        core.observe(StepReport(step_ms=1.0, ends=(End(id=id, terminal=Terminal.CANCELLED),)), 100.1)
    assert (held.count, held.unread_tokens, held.unread_ms, held.kv_tokens) == (0, 0, 0.0, 0.0)
    assert core.snapshot().gauges["expected_kv_tokens"] == 0.0
    core.check_integrity()
