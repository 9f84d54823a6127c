"""Failures a test can order from the double, and cancellation."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.doubles.double_tests.conftest import Make
from tests.doubles.double_tests.package import DOUBLES, Package

PROMPT = [5, 6, 7]
LONG: dict[str, Any] = {"ignore_eos": True, "max_tokens": 300}


def begin(package: Package, llm: Any, **params: Any) -> Any:
    return llm.generate_async(PROMPT, sampling_params=package.params(**params), streaming=True)


async def never_ends(result: Any, within_s: float = 0.15) -> bool:
    try:
        await asyncio.wait_for(result.aresult(), within_s)
    except (asyncio.TimeoutError, TimeoutError):
        return True
    return False


def test_abort_of_a_running_request_keeps_its_tokens(double: Make) -> None:
    package = double()

    async def go() -> None:
        llm = await asyncio.to_thread(package.llm)
        result = begin(package, llm, **LONG)
        await result.__anext__()
        result.abort()
        assert result.aborted()
        assert not result.finished
        await result
        assert result.finished
        assert result.outputs[0].finish_reason == "cancelled"
        assert result.outputs[0].token_ids[:1] == PROMPT[:1]
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())


@pytest.mark.parametrize("ends", [False, True])
def test_abort_in_the_queue_may_never_end(double: Make, ends: bool) -> None:
    package = double()
    package.order(hold_queue=True, queued_abort_ends=ends)

    async def go() -> None:
        llm = await asyncio.to_thread(package.llm)
        result = begin(package, llm)
        result.abort()
        assert await never_ends(result, 20 if ends else 0.15) is not ends
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())


def test_abort_can_be_slow_or_lost(double: Make) -> None:
    package = double()
    package.order(abort_lost=True)

    async def go() -> None:
        llm = await asyncio.to_thread(package.llm)
        result = begin(package, llm, **LONG)
        result.abort()
        package.order(abort_delay_s=0.05)
        await result.__anext__()
        before = result.outputs[0].length
        result.abort()
        await result
        assert result.outputs[0].length > before
        assert result.outputs[0].finish_reason == "cancelled"
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())


def test_one_request_can_fail_alone(double: Make) -> None:
    package = double()
    error: Any = package.module("executor").RequestError
    package.order(request_error={"message": "bad luck", "after_tokens": 2, "prompt_tail": [7], "times": 1})

    async def go() -> None:
        llm = await asyncio.to_thread(package.llm)
        result = begin(package, llm)
        steps = [(await result.__anext__()).outputs[0].token_ids_diff for _ in range(2)]
        assert steps == [[5], [6]]
        with pytest.raises(error, match="bad luck"):
            await result.__anext__()
        assert (await begin(package, llm)).outputs[0].finish_reason == "stop"
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())


@pytest.mark.parametrize("kind", ["RequestError", "ValueError", "RuntimeError"])
def test_submission_can_fail(double: Make, kind: str) -> None:
    package = double()
    package.order(submit_error={"message": "no", "kind": kind, "times": 1})
    llm = package.llm()
    with pytest.raises((ValueError, RuntimeError)) as caught:
        begin(package, llm)
    assert type(caught.value).__name__ == kind
    assert begin(package, llm).result().finished
    llm.shutdown()


@pytest.mark.parametrize("profile", ["1.2.1", "1.3.0rc20"])
def test_death_of_the_engine_leaves_results_waiting(double: Make, profile: str) -> None:
    package = double(profile)

    async def go() -> None:
        llm = await asyncio.to_thread(package.llm)
        result = begin(package, llm, **LONG)
        await result.__anext__()
        package.order(dead=True)
        assert await never_ends(result)
        assert await never_ends(begin(package, llm))
        package.order(dead_after_submit="raise")
        package.module("_double.behaviour").BEHAVIOUR.refresh()
        with pytest.raises(RuntimeError):
            begin(package, llm)

    asyncio.run(go())


def test_death_of_the_engine_is_an_error_in_the_newest_release(double: Make) -> None:
    package = double("1.4.0rc4")
    error: Any = package.module("executor").EngineDeadError
    assert not issubclass(error, package.module("executor").RequestError)

    async def go() -> None:
        llm = await asyncio.to_thread(package.llm)
        result = begin(package, llm, **LONG)
        await result.__anext__()
        package.order(dead=True)
        with pytest.raises(error):
            await result
        with pytest.raises(error):
            begin(package, llm)
        await asyncio.wait_for(asyncio.to_thread(llm.shutdown), 20)

    asyncio.run(go())


def test_older_releases_have_no_such_error(double: Make) -> None:
    assert not hasattr(double().module("executor"), "EngineDeadError")


def test_background_error_is_raised_at_the_next_submission(double: Make) -> None:
    package = double()
    llm = package.llm()
    package.order(fatal_error="worker broke")
    with pytest.raises(RuntimeError, match="worker broke"):
        begin(package, llm)
    with pytest.raises(RuntimeError, match="shutting down"):
        begin(package, llm)


def test_engine_that_hangs_goes_on_when_released(double: Make) -> None:
    package = double()

    async def go() -> None:
        llm = await asyncio.to_thread(package.llm)
        result = begin(package, llm, **LONG)
        await result.__anext__()
        package.order(hang=True)
        assert await never_ends(result)
        closing = asyncio.create_task(asyncio.to_thread(llm.shutdown))
        await asyncio.sleep(0.1)
        assert not closing.done()
        package.order()
        await asyncio.wait_for(closing, 20)

    asyncio.run(go())


@pytest.mark.parametrize(
    ("behaviour", "words", "cause"),
    [
        ({"construct_error": "no"}, "Executor worker returned error", "no"),
        ({"construct_oom": True}, "Executor worker returned error", "CUDA out of memory"),
        ({"construct_died": True}, "died during initialization", None),
        ({"gpus": 0}, "Only 0 GPUs are available, but 1 are required", None),
    ],
)
def test_construction_can_fail(double: Make, behaviour: dict[str, Any], words: str, cause: str | None) -> None:
    package = double(behaviour=behaviour)
    with pytest.raises(RuntimeError, match=words) as caught:
        package.llm()
    assert (cause is None) or cause in str(caught.value.__cause__)


def test_unknown_behaviour_is_an_error(double: Make) -> None:
    with pytest.raises(RuntimeError, match="no behaviour named hangs"):
        double(behaviour={"hangs": True})


def test_process_can_kill_itself(tmp_path: Path, double: Make) -> None:
    package = double()
    code = (
        f"import tensorrt_llm as t, time; t.LLM(model={str(package.model)!r}, skip_tokenizer_init=True); time.sleep(20)"
    )
    environ = {**os.environ, "PYTHONPATH": str(DOUBLES), "DOUBLE_TRTLLM_BEHAVIOUR": '{"kill": true}'}
    child = subprocess.run([sys.executable, "-c", code], env=environ, cwd=tmp_path, timeout=20, capture_output=True)
    assert child.returncode == -9


def test_loss_of_a_worker_process_is_death(double: Make) -> None:
    package = double("1.4.0rc4", behaviour={"workers": 2})
    error: Any = package.module("executor").EngineDeadError

    async def go() -> None:
        llm = await asyncio.to_thread(package.llm)
        children = llm_children()
        assert len(children) == 2
        assert (await begin(package, llm)).finished
        result = begin(package, llm, **LONG)
        await result.__anext__()
        os.kill(children[0], signal.SIGKILL)
        with pytest.raises(error):
            await result
        await asyncio.to_thread(llm.shutdown)
        assert llm_children() == []

    asyncio.run(go())


def test_workers_need_a_python(double: Make) -> None:
    package = double(behaviour={"workers": 1})
    before = sys.executable
    sys.executable = ""
    try:
        with pytest.raises(RuntimeError, match="died during initialization"):
            package.llm()
    finally:
        sys.executable = before


def llm_children() -> list[int]:
    found = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return sorted(int(pid) for path in found for pid in path.read_text().split())
