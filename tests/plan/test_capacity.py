"""Cache arithmetic: per family, per stage and rank, three kinds of concurrency, the fixed cost of V4's requests."""

from __future__ import annotations

import pytest
from gpu_plans import deployment, gib, plan
from hypothesis import given, settings
from hypothesis import strategies as st

from seekserve.plan.capacity import Capacity
from seekserve.plan.naive import naive_kv_bytes_per_token


@pytest.mark.parametrize(
    ("name", "gpu", "kv_dtype", "expected"),
    [
        ("deepseek-moe-16b", "h100", "bf16", 229_376),
        ("deepseek-v2", "h200", "bf16", 69_120),
        ("deepseek-v2-lite", "h100", "bf16", 31_104),
        ("deepseek-v3", "h200", "bf16", 70_272),
        ("deepseek-v3", "h200", "fp8_e4m3", 35_136),
        ("deepseek-v3.1", "h200", "fp8_e4m3", 35_136),
        ("deepseek-r1", "h200", "fp8_e4m3", 35_136),
        ("deepseek-v3.2", "h200", "bf16", 78_324),
        ("deepseek-v3.2", "h200", "fp8_e4m3", 43_188),
        ("deepseek-v4-flash", "b200", "fp8_e4m3", 3_461),
        ("deepseek-v4-pro", "b200", "fp8_e4m3", 4_954),
        ("r1-distill-qwen-32b", "h100", "bf16", 262_144),
        ("r1-distill-llama-70b", "h200", "fp8_e4m3", 163_840),
    ],
)
def test_the_plan_has_the_published_bytes_per_token(name: str, gpu: str, kv_dtype: str, expected: int) -> None:
    assert plan(name, gpu, gpus=8, kv_dtype=kv_dtype).kv.bytes_per_token == expected


def test_an_mtp_layer_keeps_a_cache_too() -> None:
    assert plan(gpus=8, mtp=1).kv.bytes_per_token == 35_712


def test_latent_caches_are_repeated_on_tp_ranks_and_divided_by_stages() -> None:
    whole = deployment(gpus=8, tp=8, pp=1, ep=8, attention_dp=False).ranks
    halves = deployment(gpu="h100", gpus=16, tp=8, pp=2, ep=8, attention_dp=False).ranks
    assert {rank.kv_bytes_per_token for rank in whole} == {35_136}
    by_stage = {rank.stage: rank.kv_bytes_per_token for rank in halves}
    assert (by_stage[0], by_stage[1]) == (31 * 576, 30 * 576)


def test_head_caches_are_divided_by_tp_until_heads_run_out() -> None:
    per_rank = {
        tp: deployment("r1-distill-llama-70b", "h200", gpus=tp, tp=tp, kv_dtype="bf16").ranks[0].kv_bytes_per_token
        for tp in (2, 4, 8)
    }
    assert per_rank == {2: 163_840, 4: 81_920, 8: 40_960}
    # 4 KV heads on 7 ranks: one head each, so the same as on 4
    seven = deployment("r1-distill-qwen-7b", "h200", gpus=4, tp=4, kv_dtype="bf16").ranks[0].kv_bytes_per_token
    assert seven == 57_344 // 4


def test_attention_dp_multiplies_the_cache_by_its_ranks() -> None:
    made = deployment(gpus=8, tp=8, pp=1, ep=8, attention_dp=True).capacity
    assert made.pools == 8
    assert made.blocks == 8 * made.blocks_per_pool


def test_v3_keeps_about_one_and_a_half_million_tokens_on_eight_h200() -> None:
    made = deployment(gpus=8, tp=8, pp=1, ep=8, attention_dp=False, kv_fraction=0.9)
    assert 1_400_000 < made.capacity.tokens < 1_650_000
    assert made.case.worst.left_over_bytes > 0


def test_v4_sets_the_fixed_cost_of_every_request_aside() -> None:
    few, many = (
        deployment("deepseek-v4-flash", "b200", gpus=8, tp=8, attention_dp=False, max_batch_size=n) for n in (8, 512)
    )
    rank = few.ranks[0]
    assert gib(rank.kv_bytes_per_request) == pytest.approx((2_818_048 + 38_010_880) / 1024**3)
    assert few.capacity.tokens > many.capacity.tokens
    assert many.capacity.reserved_requests == 512
    assert many.capacity.kv_bytes(rank) <= 0.9 * many.ranks[0].free_bytes


@pytest.mark.parametrize(
    ("name", "gpu", "times"),
    [("deepseek-v3", "h200", 71), ("deepseek-v2", "h200", 71), ("deepseek-v4-flash", "b200", 814)],
)
def test_the_per_head_formula_is_wrong_by_a_factor_for_latent_attention(name: str, gpu: str, times: int) -> None:
    made = plan(name, gpu, gpus=8)
    assert made.deployment is not None
    naive = naive_kv_bytes_per_token(made.deployment.case)
    assert naive is not None
    assert round(naive / made.kv.bytes_per_token) == times


def test_the_per_head_formula_is_right_for_plain_attention() -> None:
    assert naive_kv_bytes_per_token(deployment("r1-distill-llama-8b", "h100", gpus=1).case) is None


@given(blocks=st.integers(0, 10**6), pools=st.integers(1, 16), isl=st.integers(1, 10**5), osl=st.integers(1, 10**4))
@settings(max_examples=200)
def test_more_is_admitted_than_runs_steadily_than_completes(blocks: int, pools: int, isl: int, osl: int) -> None:
    made = Capacity(
        pools=pools,
        block_tokens=64,
        blocks_per_pool=blocks,
        fraction_tokens=blocks * 64 * pools,
        asked_tokens=None,
        binding_cap="fraction",
        reserved_requests=0,
        deciding_rank="rank 0",
    )
    now = made.concurrency(isl, osl)
    assert now.admitted >= now.steady >= now.completing
    assert now.completing * (isl + osl) <= made.tokens


@pytest.mark.parametrize(
    ("name", "gpu", "block", "why"),
    [
        ("deepseek-v3", "h200", 64, "FlashMLA on Hopper"),
        ("deepseek-v3", "b200", 32, "powers of two"),
        ("deepseek-v3.2", "b200", 64, "indexer"),
        ("deepseek-v4-flash", "b200", 128, "128 or 256"),
        ("r1-distill-llama-8b", "h100", 32, "powers of two"),
        ("deepseek-v2-lite", "h100", 32, "powers of two"),
    ],
)
def test_the_block_size_follows_family_and_gpu(name: str, gpu: str, block: int, why: str) -> None:
    made = plan(name, gpu, gpus=8)
    assert made.kv.block_tokens == block
    assert why in made.sources["kv_cache.block_tokens"]


def test_the_default_batch_leaves_a_fifth_of_the_cache_free() -> None:
    made = deployment("r1-distill-llama-70b", "h100", gpus=4, isl=4000, osl=1000)
    used = made.case.max_batch_size * made.shape.kv_pools * 4500
    assert used <= 0.8 * made.capacity.tokens
    assert not [found for found in made.findings if found.rule in ("cache-headroom", "batch-within-cache")]


def test_field_rules_about_headroom_are_warnings() -> None:
    tokens = 40 * 5000
    flags = {"gpus": 8, "kv_capacity_tokens": tokens, "isl": 4000, "osl": 1000, "max_batch_size": 38}
    found = {each.rule: each for each in deployment(**flags).findings}
    assert found["cache-headroom"].severity == "warning"
    assert "keeps 20% free" in found["cache-headroom"].message
    share = {each.rule: each for each in deployment("r1-distill-qwen-1.5b", "h200", gpus=1).findings}
    assert "at most 70%" in share["cache-share"].message
