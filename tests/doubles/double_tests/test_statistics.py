"""Iteration statistics of the double: when rows exist, how they are drained, what they say."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from tests.doubles.double_tests.conftest import Make
from tests.doubles.double_tests.package import Package

PROMPT = list(range(10, 21))


def llm_of(package: Package, **args: Any) -> Any:
    return package.llm(enable_iter_perf_stats=True, **args)


async def rows_of(llm: Any, timeout: float = 0.4) -> list[dict[str, Any]]:
    return [row async for row in llm.get_stats_async(timeout=timeout)]


async def run(package: Package, llm: Any, prompt: list[int] = PROMPT, **params: Any) -> Any:
    return await llm.generate_async(prompt, sampling_params=package.params(**params), streaming=True)


def test_there_is_nothing_before_the_first_submission(double: Make) -> None:
    package = double()

    async def go() -> None:
        llm = await asyncio.to_thread(llm_of, package)
        assert await rows_of(llm) == []
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())
    llm = llm_of(package)
    assert llm.get_stats(timeout=0.05) == []
    llm.shutdown()


def test_reading_drains_and_is_over_until_the_next_submission(double: Make) -> None:
    package = double()

    async def go() -> None:
        llm = await asyncio.to_thread(llm_of, package)
        await run(package, llm, max_tokens=4)
        rows = await rows_of(llm)
        assert [row["iter"] for row in rows] == [1, 2, 3, 4]
        assert await rows_of(llm) == []
        await run(package, llm, max_tokens=2)
        assert [row["iter"] for row in await rows_of(llm)] == [5, 6]
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())


def test_without_the_switch_there_are_no_rows(double: Make) -> None:
    package = double()

    async def go() -> None:
        llm = await asyncio.to_thread(package.llm)
        await run(package, llm)
        assert await rows_of(llm) == []
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())


def test_zero_timeout_lets_an_empty_queue_escape(double: Make) -> None:
    package = double()

    async def go() -> None:
        llm = await asyncio.to_thread(package.llm)
        await run(package, llm, max_tokens=1)
        with pytest.raises(asyncio.QueueEmpty):
            await rows_of(llm, 0)
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())


def test_rows_count_blocks_and_their_reuse(double: Make) -> None:
    package = double()

    async def go() -> None:
        llm = await asyncio.to_thread(llm_of, package)
        first = await run(package, llm, max_tokens=2)
        second = await run(package, llm, max_tokens=2)
        assert (first.cached_tokens, second.cached_tokens) == (0, 8)
        rows = await rows_of(llm)
        kv = [row["kvCacheStats"] for row in rows]
        assert all(each["freeNumBlocks"] + each["usedNumBlocks"] == each["maxNumBlocks"] == 100 for each in kv)
        assert kv[0]["usedNumBlocks"] == 3
        assert kv[-1]["usedNumBlocks"] == 0
        assert (kv[-1]["reusedBlocks"], kv[-1]["missedBlocks"], kv[-1]["cacheHitRate"]) == (2, 2, 0.5)
        flight = [row["inflightBatchingStats"] for row in rows]
        assert [each["numCtxTokens"] for each in flight] == [11, 0, 3, 0]
        assert [each["numContextRequests"] for each in flight] == [1, 0, 1, 0]
        assert [row["numCompletedRequests"] for row in rows] == [0, 1, 0, 1]
        assert re.fullmatch(r"\d\d-\d\d-\d{4} \d\d:\d\d:\d\d\.\d{6}", rows[0]["timestamp"])
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())


def test_salt_and_switched_off_reuse_share_nothing(double: Make) -> None:
    package = double()

    async def go() -> None:
        llm = await asyncio.to_thread(package.llm)
        params = package.params(max_tokens=1)
        for salt in ("a", "b"):
            assert (await llm.generate_async(PROMPT, sampling_params=params, cache_salt=salt)).cached_tokens == 0
        await asyncio.to_thread(llm.shutdown)
        llm = await asyncio.to_thread(package.llm, kv_cache_config={"enable_block_reuse": False, "max_tokens": 400})
        for _ in range(2):
            assert (await run(package, llm, max_tokens=1)).cached_tokens == 0
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())


def test_priority_decides_which_blocks_stay(double: Make) -> None:
    package = double()
    retention: Any = package.module("llmapi").KvCacheRetentionConfig

    async def go() -> None:
        llm = await asyncio.to_thread(package.llm, kv_cache_config={"max_tokens": 24, "tokens_per_block": 4})
        keep = retention([retention.TokenRangeRetentionConfig(0, None, 90)], decode_retention_priority=5)
        params = package.params(max_tokens=1)
        await llm.generate_async(PROMPT, sampling_params=params, kv_cache_retention_config=keep)
        for start in (100, 200, 300):
            await llm.generate_async([*range(start, start + 11)], sampling_params=package.params(max_tokens=1))
        again = await llm.generate_async(PROMPT, sampling_params=package.params(max_tokens=1))
        assert again.cached_tokens == 8
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())


def test_full_cache_makes_requests_wait(double: Make) -> None:
    package = double()

    async def go() -> None:
        llm = await asyncio.to_thread(llm_of, package, kv_cache_config={"max_tokens": 24, "tokens_per_block": 4})
        package.order(hold_queue=True)
        results = [
            llm.generate_async(PROMPT, sampling_params=package.params(max_tokens=9, ignore_eos=True), streaming=True)
            for _ in range(2)
        ]
        package.order()
        for result in results:
            await result
        rows = await rows_of(llm)
        assert {row["inflightBatchingStats"]["numScheduledRequests"] for row in rows} == {1}
        assert rows[0]["numActiveRequests"] == 2
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())


def test_maximal_utilisation_pauses_the_newest_and_all_end(double: Make) -> None:
    package = double()

    async def go() -> None:
        llm = await asyncio.to_thread(
            llm_of,
            package,
            kv_cache_config={"max_tokens": 32, "tokens_per_block": 4, "enable_block_reuse": False},
            scheduler_config={"capacity_scheduler_policy": "MAX_UTILIZATION"},
        )
        package.order(hold_queue=True)
        results = [
            llm.generate_async(PROMPT, sampling_params=package.params(max_tokens=9, ignore_eos=True), streaming=True)
            for _ in range(2)
        ]
        package.order()
        for result in results:
            await asyncio.wait_for(result.aresult(), 20)
            assert result.outputs[0].length == 9
        rows = await rows_of(llm)
        assert max(row["inflightBatchingStats"]["numScheduledRequests"] for row in rows) == 2
        assert sum(row["inflightBatchingStats"]["numPausedRequests"] for row in rows) == 1
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())


def test_batch_size_leaves_the_rest_in_the_queue(double: Make) -> None:
    package = double()
    package.order(hold_queue=True)

    async def go() -> None:
        llm = await asyncio.to_thread(llm_of, package, max_batch_size=2)
        results = [
            llm.generate_async([5 + i], sampling_params=package.params(max_tokens=3, ignore_eos=True), streaming=True)
            for i in range(4)
        ]
        package.order()
        for result in results:
            await result
        rows = await rows_of(llm)
        assert max(row["numQueuedRequests"] for row in rows) == 2
        assert {row["maxNumActiveRequests"] for row in rows} == {2}
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())


@pytest.mark.parametrize("profile", ["1.2.1", "1.3.0rc20"])
def test_keys_depend_on_the_release(double: Make, profile: str) -> None:
    package = double(profile)

    async def go() -> dict[str, Any]:
        llm = await asyncio.to_thread(llm_of, package, enable_iter_req_stats=True)
        await run(package, llm, max_tokens=2)
        row = (await rows_of(llm))[0]
        await asyncio.to_thread(llm.shutdown)
        return row

    row = asyncio.run(go())
    assert ("hostStepTimeMS" in row) is (profile != "1.2.1")
    assert ("numQueuedCtxTokens" in row["inflightBatchingStats"]) is (profile != "1.2.1")
    assert row["requestStats"][0]["stage"] == "GENERATION_IN_PROGRESS"
    assert row["specDecodingStats"] is None


def test_nested_objects_may_be_null(double: Make) -> None:
    package = double(behaviour={"stats_null": ["kvCacheStats", "inflightBatchingStats"]})

    async def go() -> None:
        llm = await asyncio.to_thread(llm_of, package)
        await run(package, llm, max_tokens=1)
        assert [row["kvCacheStats"] for row in await rows_of(llm)] == [None]
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())


def test_speculation_reports_drafts(double: Make) -> None:
    package = double()

    async def go() -> None:
        spec = {"decoding_type": "MTP", "num_nextn_predict_layers": 2}
        llm = await asyncio.to_thread(llm_of, package, speculative_config=spec)
        await run(package, llm)
        rows = await rows_of(llm)
        assert sum(row["specDecodingStats"]["numAcceptedTokens"] for row in rows) > 0
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())


def test_two_consumers_are_a_violation(double: Make) -> None:
    package = double()

    async def go() -> None:
        llm = await asyncio.to_thread(llm_of, package)
        await run(package, llm, max_tokens=1)
        reader = asyncio.create_task(rows_of(llm, 1.0))
        await asyncio.sleep(0.1)
        with pytest.raises(AssertionError, match="two-stats-consumers"):
            await rows_of(llm)
        with pytest.raises(AssertionError, match="two-stats-consumers"):
            llm.get_stats(timeout=0.1)
        await reader
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())
    assert package.violations() == ["two-stats-consumers", "two-stats-consumers"]
