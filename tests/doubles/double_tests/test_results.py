"""Results of the double: what a client sees while tokens arrive, and what it must not do."""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.doubles.double_tests.conftest import Make
from tests.doubles.double_tests.package import END, Package

PROMPT = [5, 6, 7, 8, 9]


async def stream(result: Any) -> list[list[int]]:
    return [list(part.outputs[0].token_ids_diff) async for part in result]


def one(package: Package, prompt: list[int] = PROMPT, *, streaming: bool = True, **params: Any) -> tuple[Any, Any]:
    """A whole life: the finished result, and the steps it came in."""

    async def go() -> tuple[Any, Any]:
        llm = await asyncio.to_thread(package.llm)
        result = llm.generate_async(prompt, sampling_params=package.params(**params), streaming=streaming)
        steps = await stream(result)
        await asyncio.to_thread(llm.shutdown)
        return result, steps

    return asyncio.run(go())


def test_prompt_comes_back_and_then_the_end(double: Make) -> None:
    result, steps = one(double())
    output = result.outputs[0]
    assert output.token_ids == [*PROMPT, END]
    assert steps == [[token] for token in [*PROMPT, END]]
    assert (output.finish_reason, output.stop_reason, result.finished, result.prompt) == ("stop", None, True, None)
    assert result.request_id == 2


def test_end_id_can_be_left_out_of_the_output(double: Make) -> None:
    result, steps = one(double(behaviour={"end_id_in_output": False}))
    assert result.outputs[0].token_ids == PROMPT
    assert steps[-1] == []


def test_iteration_gives_the_same_object_and_cumulative_tokens(double: Make) -> None:
    package = double()

    async def go() -> None:
        llm = await asyncio.to_thread(package.llm)
        result = llm.generate_async(PROMPT, sampling_params=package.params(), streaming=True)
        assert not asyncio.iscoroutine(result)
        seen = 0
        async for part in result:
            assert part is result
            seen += len(part.outputs[0].token_ids_diff)
            assert len(part.outputs[0].token_ids) == seen == part.outputs[0].length
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())


def test_without_streaming_there_is_one_response(double: Make) -> None:
    result, steps = one(double(), streaming=False)
    assert steps == [[*PROMPT, END]]
    assert result.outputs[0].finish_reason == "stop"


def test_stop_ids_are_cut_after_they_were_streamed(double: Make) -> None:
    result, steps = one(double(), stop_token_ids=[7])
    output = result.outputs[0]
    assert (output.token_ids, output.finish_reason, output.stop_reason) == ([5, 6], "stop", 7)
    assert steps == [[5], [6], []]


def test_stop_ids_stay_when_asked_for(double: Make) -> None:
    result, _ = one(double(), stop_token_ids=[7], include_stop_str_in_output=True)
    assert result.outputs[0].token_ids == [5, 6, 7]


def test_max_tokens_ends_with_length(double: Make) -> None:
    result, _ = one(double(), max_tokens=3)
    assert (result.outputs[0].token_ids, result.outputs[0].finish_reason) == ([5, 6, 7], "length")


def test_max_tokens_beyond_the_room_is_reduced(double: Make) -> None:
    result, _ = one(double(), list(range(2, 392)), max_tokens=500, ignore_eos=True)
    assert result.outputs[0].finish_reason == "length"
    assert result.outputs[0].length == 400 - 390


def test_defaults_are_32_tokens(double: Make) -> None:
    package = double()
    assert package.root.SamplingParams().max_tokens == 32


def test_speculation_gives_several_tokens_for_each_step(double: Make) -> None:
    _, steps = one(double(behaviour={"tokens_per_step": [2, 3]}))
    assert [len(step) for step in steps] == [1, 3, 2]


def test_last_step_may_be_empty(double: Make) -> None:
    result, steps = one(double(behaviour={"empty_last_step": True}))
    assert steps[-1] == []
    assert result.outputs[0].token_ids == [*PROMPT, END]


def test_stream_interval_groups_tokens(double: Make) -> None:
    package = double()

    async def go() -> list[list[int]]:
        llm = await asyncio.to_thread(package.llm, stream_interval=3)
        steps = await stream(llm.generate_async(PROMPT, sampling_params=package.params(), streaming=True))
        await asyncio.to_thread(llm.shutdown)
        return steps

    assert asyncio.run(go()) == [[5, 6, 7], [8, 9, 1]]


def test_logprobs_are_one_for_each_token(double: Make) -> None:
    result, _ = one(double(), logprobs=2, prompt_logprobs=1)
    output = result.outputs[0]
    assert [len(places) for places in output.logprobs] == [2] * 6
    assert [next(iter(places)) for places in output.logprobs] == output.token_ids
    assert all(places[token].rank == 1 for places, token in zip(output.logprobs, output.token_ids, strict=True))
    assert len(output.prompt_logprobs) == len(PROMPT)
    assert output.cumulative_logprob is None


@pytest.mark.parametrize(("profile", "given", "places"), [("1.2.1", 0, 0), ("1.4.0rc4", 0, 1), ("1.2.1", True, 1)])
def test_what_no_logprobs_means_changed(double: Make, profile: str, given: int, places: int) -> None:
    result, _ = one(double(profile), logprobs=given)
    assert len(result.outputs[0].logprobs) == places * 6


def test_several_sequences_have_no_reason_before_the_end(double: Make) -> None:
    package = double()

    async def go() -> None:
        llm = await asyncio.to_thread(package.llm)
        params = package.params(n=2, temperature=1.0)
        result = llm.generate_async(PROMPT, sampling_params=params, streaming=True)
        async for part in result:
            if not part.finished:
                assert [output.finish_reason for output in part.outputs] == [None, None]
        assert [output.finish_reason for output in result.outputs] == ["stop", "stop"]
        assert result.outputs[0].token_ids != result.outputs[1].token_ids
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())


def test_beams_come_whole(double: Make) -> None:
    package = double()

    async def go() -> None:
        llm = await asyncio.to_thread(package.llm, max_beam_width=2)
        params = package.params(use_beam_search=True, best_of=2, n=2)
        result = await llm.generate_async(PROMPT, sampling_params=params, streaming=False)
        assert [output.length for output in result.outputs] == [6, 6]
        too_wide = package.params(use_beam_search=True, best_of=4, n=1)
        with pytest.raises(package.module("executor").RequestError, match="beam"):
            await llm.generate_async(PROMPT, sampling_params=too_wide, streaming=False)
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())


def test_params_are_changed_by_the_call(double: Make) -> None:
    package = double()
    params = package.params()
    llm = package.llm(return_perf_metrics=True)
    result = llm.generate_async(PROMPT, sampling_params=params, streaming=False).result()
    assert params.return_perf_metrics is True
    assert result.metrics_dict["finished_reason"] == "stop"
    assert result.outputs[0].request_perf_metrics.timing_metrics.first_token_time.total_seconds() > 0
    llm.shutdown()


def test_script_decides_by_the_longest_tail(double: Make, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"*": [40], "9": [41], "8,9": [42, 43]}))
    result, _ = one(double(DOUBLE_TRTLLM_SCRIPT=str(script)))
    assert result.outputs[0].token_ids == [42, 43, END]


def test_synchronous_use_without_a_loop_works(double: Make) -> None:
    package = double()
    llm = package.llm()
    assert [
        part.outputs[0].token_ids_diff
        for part in llm.generate_async(PROMPT, sampling_params=package.params(), streaming=True)
    ]
    batch = llm.generate([PROMPT, [7]], sampling_params=package.params())
    assert [result.outputs[0].token_ids for result in batch] == [[*PROMPT, END], [7, END]]
    llm.shutdown()


def test_asynchronous_use_of_a_result_made_without_a_loop_fails(double: Make) -> None:
    package = double()
    llm = package.llm()
    result = llm.generate_async(PROMPT, sampling_params=package.params(), streaming=True)
    with pytest.raises(AssertionError, match="event loop"):
        asyncio.run(result.aresult())
    llm.shutdown()


def test_mixing_synchronous_and_asynchronous_use_fails(double: Make) -> None:
    package = double()

    async def go() -> None:
        llm = package.llm()
        result = llm.generate_async(PROMPT, sampling_params=package.params(), streaming=True)
        next(result)
        with pytest.raises(package.module("_double.queues").MixedSyncAsyncAPIError):
            await result.aresult()
        llm.shutdown()

    asyncio.run(go())


def test_results_and_engines_are_not_for_users_to_make_or_pickle(double: Make) -> None:
    package = double()
    with pytest.raises(RuntimeError):
        package.module("llmapi").RequestOutput()
    llm = package.llm()
    with pytest.raises(RuntimeError):
        pickle.dumps(llm)
    llm.shutdown()


def test_shutdown_is_idempotent_and_final(double: Make) -> None:
    package = double()
    llm = package.llm()
    llm.shutdown()
    llm.shutdown()
    with pytest.raises(RuntimeError, match="shutting down"):
        llm.generate_async(PROMPT, sampling_params=package.params())


def test_shutdown_cancels_what_is_left(double: Make) -> None:
    package = double()

    async def go() -> str:
        llm = await asyncio.to_thread(package.llm)
        params = package.params(ignore_eos=True, max_tokens=300)
        result = llm.generate_async(PROMPT, sampling_params=params, streaming=True)
        await result.__anext__()
        await asyncio.to_thread(llm.shutdown)
        return str((await result).outputs[0].finish_reason)

    assert asyncio.run(go()) == "cancelled"


@pytest.mark.parametrize(
    ("inputs", "error"),
    [((5, 6), TypeError), ([], IndexError), ({"text": "a"}, AssertionError), ([1.0], TypeError), ("text", ValueError)],
)
def test_inputs_are_checked(double: Make, inputs: Any, error: type[Exception]) -> None:
    package = double()
    llm = package.llm()
    with pytest.raises(error):
        llm.generate_async(inputs, sampling_params=package.params())
    llm.shutdown()


def test_end_id_is_needed_without_a_tokenizer(double: Make) -> None:
    package = double()
    llm = package.llm()
    with pytest.raises(ValueError, match="end_id"):
        llm.generate_async(PROMPT, sampling_params=package.root.SamplingParams())
    with pytest.raises(TypeError):
        llm.generate_async(PROMPT, sampling_params={"max_tokens": 3})
    llm.shutdown()


@pytest.mark.parametrize(("profile", "error"), [("1.2.1", "ValueError"), ("1.3.0rc20", "RequestError")])
def test_long_prompt_without_chunks_is_refused_at_once(double: Make, profile: str, error: str) -> None:
    package = double(profile)
    llm = package.llm(max_num_tokens=4)
    with pytest.raises((ValueError, RuntimeError)) as caught:
        llm.generate_async(PROMPT, sampling_params=package.params())
    assert type(caught.value).__name__ == error
    llm.shutdown()
    chunked = package.llm(max_num_tokens=4, enable_chunked_prefill=True)
    assert chunked.generate(PROMPT, sampling_params=package.params()).outputs[0].length == 6
    chunked.shutdown()


@pytest.mark.parametrize("given", [{"max_tokens": 0}, {"top_p": 0.0}, {"stop": "x"}])
def test_engine_refuses_later_what_the_constructor_lets_pass(double: Make, given: dict[str, Any]) -> None:
    package = double()
    error: Any = package.module("executor").RequestError
    llm = package.llm()
    result = llm.generate_async(PROMPT, sampling_params=package.params(**given), streaming=True)
    with pytest.raises(error):
        result.result()
    llm.shutdown()


def test_violations_are_loud_and_recorded(double: Make) -> None:
    package = double()
    llm = package.llm()
    with pytest.raises(AssertionError, match="positional"):
        llm.generate_async(PROMPT, package.params())
    with pytest.raises(AssertionError, match="private"):
        llm._executor  # noqa: B018
    with pytest.raises(AssertionError, match="private"):
        llm._mine = 1
    result = llm.generate_async(PROMPT, sampling_params=package.params(max_tokens=0), streaming=True)
    with pytest.raises(package.module("executor").RequestError):
        result.result()
    with pytest.raises(AssertionError, match="after"):
        result.finished  # noqa: B018
    with pytest.raises(AssertionError, match="vocabulary"):
        llm.generate_async([1000], sampling_params=package.params())
    caught: list[BaseException] = []

    def elsewhere() -> None:
        try:
            llm.generate_async(PROMPT, sampling_params=package.params())
        except AssertionError as error:
            caught.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert len(caught) == 1
    llm.shutdown()
    assert package.violations() == [
        "positional-arguments",
        "private-attribute",
        "private-attribute",
        "after-exception",
        "token-range",
        "second-thread",
    ]
