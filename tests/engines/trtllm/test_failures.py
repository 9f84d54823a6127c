"""Cancels, faults of one request, death and silence of the engine, starts that fail, and the end."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.engines.trtllm.bundles import BLOCKS, Run, request, wait_until
from tests.engines.trtllm.conftest import World

from seekserve_backend.engines.port import EndReason, EngineError
from seekserve_backend.engines.trtllm.engine import TrtllmEngine

FOREVER = 118


def long(id: str = "a", **fields: Any) -> Any:
    return request(id, range(10, 20), FOREVER, stop_ids=(999,), **fields)


def serving(engine: TrtllmEngine, *ids: str) -> Run:
    """Long requests that have said something."""
    run = Run(engine).add(*(long(id) for id in ids))
    return run.until(lambda: len(run.events) == len(ids))


def test_a_cancelled_request_ends_at_once_and_gives_its_blocks_back(world: World) -> None:
    run = serving(world.start({"abort_delay_s": 0.3}), "a", "b")
    run.engine.cancel("a")
    report = run.step()
    assert [(end.id, end.reason) for end in report.ends] == [("a", EndReason.CANCELLED)]
    assert run.engine.stats().running == 1
    run.engine.cancel("b")
    run.step()
    assert run.engine.stats().kv_free_blocks == run.engine.stats().kv_total_blocks == BLOCKS
    again = Run(run.engine).add(request("a", range(30, 35))).until_ended("a")
    assert again.tokens("a") == list(range(30, 35)), "nothing of the request that had this id before"


@pytest.mark.parametrize("ends", [False, True])
def test_a_request_cancelled_in_the_engines_queue_needs_no_answer_from_it(world: World, ends: bool) -> None:
    run = Run(world.start({"hold_queue": True, "queued_abort_ends": ends})).add(long())
    run.engine.cancel("a")
    run.engine.cancel("a")
    run.engine.cancel("nobody")
    assert [end.reason for end in run.step().ends] == [EndReason.CANCELLED]
    assert run.step().ends == ()


def test_an_abort_that_is_lost_costs_the_others_nothing(world: World) -> None:
    run = serving(world.start({"abort_lost": True}), "a")
    run.engine.cancel("a")
    run.add(request("b", range(30, 40))).until_ended("b")
    assert run.tokens("b") == list(range(30, 40))
    assert run.ends["a"].reason is EndReason.CANCELLED


@pytest.mark.parametrize("after_tokens", [0, 3])
def test_a_fault_of_one_request_ends_that_one_alone(world: World, after_tokens: int) -> None:
    fault = {"message": "sampling broke", "after_tokens": after_tokens, "times": 1, "prompt_tail": [19]}
    engine = world.start({"request_error": fault})
    run = Run(engine).add(long("bad"), request("good", range(30, 60), 60)).until_ended("bad", "good")
    assert run.ends["bad"].reason is EndReason.FAILED
    assert "sampling broke" in run.ends["bad"].message
    assert run.tokens("good") == list(range(30, 60))


@pytest.mark.parametrize("kind", ["RequestError", "ValueError"])
def test_a_request_that_is_not_taken_fails_alone(world: World, kind: str) -> None:
    run = Run(world.start())
    world.order(submit_error={"message": "too long", "kind": kind, "times": 1})
    run.add(request("bad")).until_ended("bad")
    run.add(request("good")).until_ended("good")
    assert (run.ends["bad"].reason, run.ends["good"].reason) == (EndReason.FAILED, EndReason.STOP)
    assert run.engine.stats().running == 0


def broken(run: Run) -> EngineError:
    with pytest.raises(EngineError) as caught:
        run.until(lambda: False)
    with pytest.raises(EngineError):
        run.engine.step(0.0)
    with pytest.raises(EngineError):
        run.engine.add(request("later"))
    assert run.engine.stats().running == 0
    return caught.value


def test_a_background_fault_shows_at_the_next_request_and_ends_them_all(world: World) -> None:
    run = serving(world.start(), "a")
    world.order(fatal_error="CUDA error: an illegal memory access was encountered")
    run.add(request("b"))
    assert "illegal memory access" in str(broken(run))


def test_a_dead_engine_says_so_at_once_where_the_release_can(new_world: World) -> None:
    run = serving(new_world.start(), "a")
    new_world.order(dead=True)
    assert "is dead: EngineDeadError" in str(broken(run))


@pytest.mark.parametrize("order", [{"dead": True}, {"hang": True}], ids=str)
def test_an_engine_that_falls_silent_is_given_up(old_world: World, order: dict[str, Any]) -> None:
    run = serving(old_world.start(silence_s=1.0), "a", "b")
    old_world.order(**order)
    started = time.monotonic()
    assert "has said nothing for" in str(broken(run))
    assert time.monotonic() - started < 10
    started = time.monotonic()
    run.engine.close()
    assert time.monotonic() - started < 20, "a hung shutdown is left behind"


def test_a_slow_engine_is_no_silent_one(old_world: World) -> None:
    run = Run(old_world.start({"step_ms": 300}, silence_s=1.0)).add(request(prompt=range(10, 16))).until_ended("a")
    assert run.ends["a"].reason is EndReason.STOP


def test_an_idle_engine_may_be_silent(old_world: World) -> None:
    engine = old_world.start(silence_s=0.5)
    run = Run(engine).add(request()).until_ended("a")
    started = time.monotonic()
    wait_until(lambda: time.monotonic() > started + 2.0)
    run.add(request("b")).until_ended("b")


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ({"construct_oom": True}, "Executor worker returned error"),
        ({"construct_died": True}, "died during initialization"),
        ({"construct_error": "no kernel image"}, "Executor worker returned error"),
    ],
    ids=lambda value: str(value),
)
def test_a_start_that_fails_is_one_error_with_its_cause(world: World, behaviour: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineError, match=words) as caught:
        world.start(behaviour)
    assert "did not start with" in str(caught.value)
    if "construct_oom" in behaviour:
        assert "CUDA out of memory" in str(caught.value), "what really happened is in the cause"


def test_a_start_that_never_ends_is_given_up(old_world: World) -> None:
    with pytest.raises(EngineError, match="not done within 1 s"):
        old_world.start({"construct_hangs": True}, start_timeout_s=1.0)
    old_world.order(construct_hangs=False)


def test_an_argument_that_the_release_does_not_know_stops_the_start(world: World) -> None:
    with pytest.raises(EngineError, match="no_such_argument"):
        world.start(no_such_argument=1)


def test_another_release_than_the_bundles_is_refused_with_both(world: World) -> None:
    with pytest.raises(EngineError, match=rf"TensorRT-LLM {world.version} is installed.*built for 1\.0\.0"):
        world.start(version="1.0.0")


def test_engine_directories_are_refused_where_the_release_has_none(new_world: World) -> None:
    with pytest.raises(EngineError, match=r"1\.4\.0rc4 cannot run engines of trtllm-build.*trtllm-pytorch"):
        new_world.start(engine="trtllm-engine")


def test_closing_ends_running_requests_and_may_be_repeated(world: World) -> None:
    run = serving(world.start(), "a")
    run.engine.close()
    run.engine.close()
    with pytest.raises(EngineError, match="closed"):
        run.engine.step(0.0)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (request(prompt=()), "no tokens"),
        (request(prompt=(1000,)), "0 to 999"),
        (request(max_tokens=0), "max_tokens is 0"),
        (request(beam_width=2), "beam_width is 2, it must be 1 to 1"),
        (request(stop_ids=(-1,)), "stop ids"),
        (request("twice"), "this id is running"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_engine_would_choke_on_never_reaches_it(old_world: World, bad: Any, words: str) -> None:
    engine = old_world.start()
    engine.add(long("twice"))
    with pytest.raises(ValueError, match=words):
        engine.add(bad)


def test_no_more_is_taken_than_slots_and_blocks_hold(old_world: World) -> None:
    engine = old_world.start({"hold_queue": True}, kv_cache_config={"tokens_per_block": 8, "max_tokens": 512})
    for n in range(4):
        assert engine.can_add(long(f"r{n}"))
        engine.add(long(f"r{n}"))
    assert not engine.can_add(long("r5"))
    with pytest.raises(ValueError, match="ask can_add first"):
        engine.add(long("r5"))
