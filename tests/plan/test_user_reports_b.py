"""Capacity reports from the field (group B): each trigger, and the right behaviour as its assertion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu_plans import deployment, gib, messages, plan

from seekserve.errors import ConflictError, DoesNotFit
from seekserve.plan.beside import read_saved_ranks, sharing_findings
from seekserve.plan.gpu_resolve import require_fit
from seekserve.plan.report_json import plan_json

V3 = {"gpus": 8, "tp": 8, "pp": 1, "ep": 8, "attention_dp": False}


def test_b1_the_smaller_of_two_caps_wins_and_says_what_the_other_would_give() -> None:
    made = deployment(**V3, kv_capacity_tokens=24576, kv_fraction=0.8, max_batch_size=4).capacity
    assert (made.binding_cap, made.tokens) == ("tokens", 24576)
    assert made.fraction_tokens > 1_000_000
    assert "24,576 tokens asked for win" in made.verdict
    assert f"{made.fraction_tokens:,} by the fraction" in made.verdict


def test_b1_the_fraction_wins_where_weights_leave_less_than_was_asked_for() -> None:
    made = deployment(**V3, kv_capacity_tokens=50_000_000, kv_fraction=0.5).capacity
    assert made.binding_cap == "fraction"
    assert made.tokens == made.fraction_tokens < 50_000_000
    assert "50,000,000 tokens asked for" in made.verdict


def test_b2_a_default_fraction_for_a_batch_of_one_is_called_what_it_is() -> None:
    found = messages("r1-distill-qwen-7b", "h100", gpus=1, max_batch_size=1, isl=500, osl=100)
    assert "a second model on these GPUs would find nothing left" in found["cache-takes-all"]


def test_b2_every_byte_of_a_gpu_is_accounted_for() -> None:
    for rank in deployment(**V3).ranks:
        assert sum(size for _, size in rank.rows()) == rank.total_bytes


def test_b2_two_plans_that_promise_the_same_memory_are_refused(tmp_path: Path) -> None:
    first = plan("r1-distill-qwen-7b", "h100", gpus=1)
    saved = tmp_path / "first.json"
    saved.write_text(json.dumps(plan_json(first)), encoding="utf-8")
    second = deployment("r1-distill-llama-8b", "h100", gpus=1)
    [finding] = sharing_findings(second.case, *read_saved_ranks(saved))
    assert finding.is_error
    assert "promised twice" in finding.message
    assert "fraction 0.9" in finding.message


def test_b2_two_capped_plans_may_share_a_gpu(tmp_path: Path) -> None:
    capped = {"gpus": 1, "kv_capacity_tokens": 100_000, "max_batch_size": 8, "isl": 1000, "osl": 200}
    saved = tmp_path / "first.json"
    saved.write_text(json.dumps(plan_json(plan("r1-distill-qwen-7b", "h100", **capped))), encoding="utf-8")
    second = deployment("r1-distill-llama-8b", "h100", **capped)
    assert sharing_findings(second.case, *read_saved_ranks(saved)) == []


def test_b3_without_chunks_the_prompt_limit_is_max_num_tokens() -> None:
    limits = {"max_seq_len_tokens": 32768, "max_num_tokens": 8192}
    made = plan(**V3, **limits, chunked_prefill=False)
    assert made.prompt_limit_tokens == 8192
    found = messages(**V3, **limits, chunked_prefill=False)
    assert "prompts end at 8192 tokens" in found["prompt-limit"]
    assert "max_seq_len 32768" in found["prompt-limit"]
    assert plan(**V3, **limits, chunked_prefill=True).prompt_limit_tokens == 32767


def test_b3_a_workload_of_longer_prompts_is_an_error_not_a_surprise() -> None:
    flags = {"max_seq_len_tokens": 32768, "max_num_tokens": 8192, "isl": 20000, "osl": 1000, "chunked_prefill": False}
    assert messages(**V3, **flags)["prompt-limit"].startswith("error: ")


def test_b4_the_step_is_charged_before_the_cache_gets_the_rest() -> None:
    small, large = (deployment(**V3, max_num_tokens=n, kv_fraction=0.9) for n in (3072, 65536))
    assert large.ranks[0].activations_bytes > 10 * small.ranks[0].activations_bytes
    assert large.capacity.tokens < small.capacity.tokens
    taken = large.ranks[0].activations_bytes - small.ranks[0].activations_bytes
    assert small.ranks[0].free_bytes - large.ranks[0].free_bytes == taken


def test_b4_the_documented_settings_for_attention_dp_do_not_fit_and_say_so() -> None:
    flags = {**V3, "attention_dp": True, "kv_fraction": 0.9, "max_num_tokens": 16384, "max_batch_size": 256}
    made = deployment(**flags)
    assert not made.fits
    found = messages(**flags)
    assert "--max-num-tokens" in (found.get("memory-overcommitted") or found["memory-fits"])
    assert deployment(**{**flags, "kv_fraction": 0.8, "max_num_tokens": 3072}).fits


def test_b6_capacity_is_blocks_times_block_size_and_sequences_apart() -> None:
    made = deployment(**V3, max_seq_len_tokens=5000)
    capacity = made.capacity
    assert capacity.tokens == capacity.blocks * capacity.block_tokens
    assert made.case.sequences == capacity.blocks // -(-5000 // 64)
    assert made.case.sequences * 5000 < capacity.tokens


def test_b7_weights_that_exceed_all_memory_are_said_first() -> None:
    made = plan(gpus=2)
    [error] = made.deployment.errors if made.deployment else ()
    assert error.message.startswith("does not fit: the weights alone take 626.9 GiB")
    assert "2 x h200-sxm-141gb have 280.8 GiB" in error.message
    assert error.hint.startswith("smallest that would: 8 x h200-sxm-141gb (TP 8, EP 8; 79.3 GiB of weights each)")
    with pytest.raises(DoesNotFit, match="weights alone"):
        require_fit(made)


def test_b7_four_gpus_fail_by_their_own_share() -> None:
    text = messages(gpus=4)["weights-fit"]
    assert "561.6 GiB" in text
    assert "8 x h200-sxm-141gb" in text


def test_b8_a_batch_above_the_cache_names_the_true_concurrency() -> None:
    tokens = 40 * 8192
    flags = {**V3, "max_batch_size": 512, "max_seq_len_tokens": 8192, "kv_capacity_tokens": tokens}
    made = deployment(**flags)
    assert made.fits
    assert made.case.sequences == 40
    text = messages(**flags)["batch-within-cache"]
    now = made.concurrency
    assert "max_batch_size 512 where the cache holds 40 sequences of 8192 tokens" in text
    for number in (f"{now.admitted} may be admitted", f"{now.steady} run steadily", f"{now.completing} can all run"):
        assert number in text
    assert now.admitted > now.steady > now.completing > 40


def test_b9_the_full_context_is_never_a_silent_default() -> None:
    made = plan(gpus=8)
    assert made.limits.max_seq_len_tokens == 8192
    text = messages(gpus=8)["sequence-chosen"]
    assert text.startswith("warning: ")
    assert "163,840" in text


def test_b9_a_workload_decides_the_limit() -> None:
    made = plan(gpus=8, isl=30000, osl=2000)
    assert made.limits.max_seq_len_tokens == 32000
    assert made.sources["limits.max_seq_len_tokens"] == "derived: isl + osl"
    assert "sequence-chosen" not in messages(gpus=8, isl=30000, osl=2000)


@pytest.mark.parametrize(
    ("gpu", "gpus", "texts"),
    [
        ("a6000", 8, ["SM86", "128x128-block FP8", "h200-sxm-141gb", "weights alone take 626.9 GiB", "384.0 GiB"]),
        ("rtx4090", 32, ["SM89", "Hopper (SM90)", "rtx-4090-24gb"]),
        ("a100", 8, ["Ampere (SM80)", "above 80.0 GiB", "16 x h100-sxm-80gb on 2 nodes", "8 x h200-sxm-141gb"]),
        ("a100", 16, ["Ampere (SM80)"]),
    ],
)
def test_b10_hardware_that_can_never_work_is_told_why(gpu: str, gpus: int, texts: list[str]) -> None:
    made = plan(gpu=gpu, gpus=gpus)
    with pytest.raises(ConflictError) as caught:
        require_fit(made)
    for text in texts:
        assert text in str(caught.value)


def test_b11_the_first_gpu_carries_its_neighbours() -> None:
    made = deployment(**V3)
    first, others = made.ranks
    assert (first.label, others.label) == ("rank 0", "ranks 1-7")
    assert gib(first.rank0_extra_bytes) == pytest.approx(7 * 500 / 1024)
    assert others.rank0_extra_bytes == 0
    assert made.capacity.deciding_rank == "rank 0"


def test_b11_the_charge_is_a_knob_and_goes_to_the_first_gpu_only() -> None:
    none, doubled = (deployment(**V3, rank0_overhead_mib=n) for n in (0, 1000))
    assert len(none.ranks) == 1
    assert none.capacity.tokens > deployment(**V3).capacity.tokens > doubled.capacity.tokens
    assert doubled.ranks[1].rank0_extra_bytes == 0
