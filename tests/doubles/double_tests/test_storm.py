"""Many requests at once with aborts in between: each one ends once, and no block stays behind."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.doubles.double_tests.conftest import Make


@pytest.mark.parametrize("policy", ["GUARANTEED_NO_EVICT", "MAX_UTILIZATION"])
@pytest.mark.parametrize("seed", range(3))
def test_every_request_ends_and_gives_its_blocks_back(double: Make, policy: str, seed: int) -> None:
    package = double(behaviour={"step_ms": 0.2, "queued_abort_ends": True})
    chance = random.Random(seed)

    async def one(llm: Any) -> str:
        await asyncio.sleep(chance.random() / 20)
        prompt = [chance.randrange(2, 6) for _ in range(chance.randrange(1, 20))]
        params = package.params(ignore_eos=True, max_tokens=chance.randrange(1, 30))
        result = llm.generate_async(prompt, sampling_params=params, streaming=chance.random() < 0.7)
        leaves_after = chance.randrange(0, 40)
        if leaves_after == 0:
            result.abort()
        steps = 0
        async for part in result:
            steps += 1
            if steps == leaves_after and not part.finished:
                result.abort()
        return str(result.outputs[0].finish_reason)

    async def go() -> None:
        llm = await asyncio.to_thread(
            package.llm,
            max_batch_size=5,
            max_num_tokens=24,
            enable_chunked_prefill=True,
            kv_cache_config={"tokens_per_block": 4, "max_tokens": 64},
            scheduler_config={"capacity_scheduler_policy": policy},
            enable_iter_perf_stats=True,
        )
        reasons = await asyncio.wait_for(asyncio.gather(*(one(llm) for _ in range(40))), 60)
        assert set(reasons) <= {"length", "cancelled"}
        rows = [row async for row in llm.get_stats_async(timeout=0.4)]
        assert all(row["kvCacheStats"]["usedNumBlocks"] <= 16 for row in rows)
        last = await llm.generate_async([9], sampling_params=package.params(max_tokens=1), streaming=False)
        assert last.finished
        rows = [row async for row in llm.get_stats_async(timeout=0.4)]
        assert rows[-1]["kvCacheStats"]["usedNumBlocks"] == 0
        await asyncio.to_thread(llm.shutdown)

    asyncio.run(go())
    assert package.violations() == []
