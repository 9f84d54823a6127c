"""Numbers from the engine's rows: what is taken from them, and what is not."""

from __future__ import annotations

import json
import logging
import time

import pytest
from tests.engines.trtllm.bundles import BLOCK_TOKENS, BLOCKS, Run, request, wait_until
from tests.engines.trtllm.conftest import World

from seekserve_backend.contract.bundle import Retention
from seekserve_backend.engines.trtllm.statistics import Row, Statistics, read_row

ROW = {
    "numActiveRequests": 5,
    "numQueuedRequests": 2,
    "kvCacheStats": {"maxNumBlocks": 100, "usedNumBlocks": 7, "tokensPerBlock": 32, "reusedBlocks": 11},
    "inflightBatchingStats": {"numScheduledRequests": 3, "numPausedRequests": 1},
    "specDecodingStats": None,
}


def statistics(planned: int = 100, block_tokens: int = 32, pools: int = 1) -> Statistics:
    return Statistics(planned_blocks=planned, block_tokens=block_tokens, pools=pools)


def test_a_row_is_read_for_what_it_has() -> None:
    expected = Row(total_blocks=100, block_tokens=32, used_blocks=7, reused_blocks=11, active=5, queued=2 + 2 + 1)
    assert read_row(ROW) == read_row(json.dumps(ROW)) == expected


@pytest.mark.parametrize(
    "row",
    [
        {},
        None,
        [],
        {"kvCacheStats": None, "inflightBatchingStats": None},
        {"kvCacheStats": {"maxNumBlocks": None, "tokensPerBlock": "many"}},
        {"kvCacheStats": [1, 2]},
    ],
    ids=str,
)
def test_a_row_may_lack_anything(row: object) -> None:
    numbers = statistics()
    numbers.take(row, 0.0)
    assert (numbers.total_blocks, numbers.reused_blocks, numbers.queued(0.0, is_idle=False)) == (100, None, None)


def test_before_any_row_the_plan_counts() -> None:
    assert (statistics().total_blocks, statistics().reused_blocks) == (100, None)


@pytest.mark.parametrize(
    ("block_tokens", "pools", "total"), [(32, 1, 100), (64, 1, 50), (16, 1, 200), (32, 8, 800)], ids=str
)
def test_the_engines_blocks_are_counted_in_the_bundles_size(block_tokens: int, pools: int, total: int) -> None:
    numbers = statistics(block_tokens=block_tokens, pools=pools)
    numbers.take(ROW, 0.0)
    assert numbers.total_blocks == total


def test_fewer_blocks_than_planned_are_a_warning_with_both_numbers(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        statistics(planned=101).take(ROW, 0.0)
        assert caplog.text == ""
        numbers = statistics(planned=120)
        numbers.take(ROW, 0.0)
        numbers.take(ROW, 1.0)
    assert caplog.text.count("100 KV blocks where the plan has 120") == 1


def test_an_old_row_says_nothing_of_the_queue() -> None:
    numbers = statistics()
    numbers.take(ROW, 10.0)
    assert numbers.queued(11.0, is_idle=False) == 5
    assert numbers.queued(13.0, is_idle=False) is None
    assert numbers.queued(13.0, is_idle=True) == 0


def test_the_engines_own_total_replaces_the_plans(world: World, caplog: pytest.LogCaptureFixture) -> None:
    engine = world.start(kv_cache_config={"tokens_per_block": BLOCK_TOKENS, "max_tokens": BLOCK_TOKENS * BLOCKS // 2})
    assert engine.stats().kv_total_blocks == BLOCKS
    run = Run(engine).add(request(prompt=range(10, 60), max_tokens=60)).until_ended("a")
    wait_until(lambda: engine.stats().kv_total_blocks == BLOCKS // 2)
    assert engine.stats().kv_free_blocks == BLOCKS // 2
    assert f"{BLOCKS // 2} KV blocks where the plan has {BLOCKS}" in caplog.text
    assert run.engine.info.kv_total_blocks == BLOCKS, "fixed for the life of the engine"


def test_a_prompt_that_comes_again_finds_its_blocks(world: World) -> None:
    run = Run(world.start()).add(request("a", range(10, 60), 10)).until_ended("a")
    run.add(request("b", range(10, 60), 10)).until_ended("b")
    wait_until(lambda: bool(run.engine.stats().kv_reused_blocks))


def test_what_waits_inside_the_engine_is_seen(world: World) -> None:
    # Four places in the batch by the bundle, two by the engine's own arguments.
    engine = world.start({"step_ms": 5}, max_batch_size=2)
    run = Run(engine).add(*(request(f"r{n}", range(10, 20), 118, stop_ids=(999,)) for n in range(4)))
    run.until(lambda: engine.stats().queued == 2)
    assert engine.stats().running == 4
    for n in range(4):
        engine.cancel(f"r{n}")
    run.step()
    assert (engine.stats().queued, engine.stats().running) == (0, 0)


def test_an_engine_without_statistics_serves_by_its_own_books(world: World) -> None:
    engine = world.start(enable_iter_perf_stats=False)
    run = Run(engine).add(request()).until_ended("a")
    stats = run.engine.stats()
    assert (stats.kv_total_blocks, stats.kv_free_blocks, stats.kv_reused_blocks) == (BLOCKS, BLOCKS, None)


@pytest.mark.parametrize("retention", [Retention(prompt_priority=90, prompt_tokens=16, decode_priority=10), None])
def test_hot_prefixes_outlive_what_comes_after_them_when_the_bundle_says_so(
    world: World, retention: Retention | None
) -> None:
    small = {"tokens_per_block": BLOCK_TOKENS, "max_tokens": BLOCK_TOKENS * 30}
    run = Run(world.start(retention=retention, kv_cache_config=small))
    run.add(request("hot", range(10, 28), 4)).until_ended("hot")
    for n in range(5):  # in all, more than the cache holds
        run.add(request(f"r{n}", range(100 * n + 100, 100 * n + 164), 8)).until_ended(f"r{n}")
    time.sleep(0.3)
    before = run.engine.stats().kv_reused_blocks or 0
    run.add(request("again", range(10, 28), 4)).until_ended("again")
    time.sleep(0.3)
    assert ((run.engine.stats().kv_reused_blocks or 0) > before) == (retention is not None)
