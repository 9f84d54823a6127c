"""What people and machines read: shares that add up, bars of one width, JSON with the agreed keys."""

from __future__ import annotations

import json
import re

import pytest
from gpu_plans import deployment, plan

from seekserve.plan.naive import aiconfigurator_differences
from seekserve.plan.precisions import precision_options
from seekserve.plan.report import plan_text
from seekserve.plan.report_explain import explain_text
from seekserve.plan.report_json import plan_json

V3 = {"gpus": 8, "tp": 8, "pp": 1, "ep": 8, "attention_dp": False}


def test_the_table_has_bytes_and_shares_for_every_rank_that_differs() -> None:
    text = plan_text(plan(**V3))
    for words in ("rank 0", "ranks 1-7", "79.29 GiB  56.5%", "KV cache", "left over", "wrong by 71 x"):
        assert words in text


def test_bars_have_one_width_whatever_is_in_them() -> None:
    for made in (plan(**V3), plan(gpus=16, gpu="h100"), plan("deepseek-v4-flash", "b200", gpus=8)):
        bars = [line.strip() for line in plan_text(made).splitlines() if line.startswith("  [")]
        assert bars
        assert {bar.index("]") for bar in bars} == {61}


def test_a_plan_that_does_not_fit_is_marked_and_shows_its_numbers() -> None:
    text = plan_text(plan(gpus=2))
    assert "NO PLAN" in text
    assert "ERROR    weights-fit: does not fit" in text
    assert "!]" in text


def test_json_has_the_agreed_keys_and_is_plain_json() -> None:
    report = json.loads(json.dumps(plan_json(plan(**V3), explain=True)))
    assert report["fits"] is True
    memory = report["memory"]
    assert memory["kv_bytes_per_token"] == 35_136
    assert memory["binding_cap"] == "fraction"
    assert memory["prompt_limit_tokens"] == 8191
    assert memory["kv_capacity_tokens"] == memory["kv_capacity_blocks"] * 64
    assert memory["weights_bytes_per_gpu"] == pytest.approx(79.3 * 1024**3, rel=0.01)
    assert memory["max_sequences"] == memory["kv_capacity_blocks"] // 128
    assert report["shape"]["tp"] == 8
    assert report["limits"]["max_seq_len_tokens"] == 8192
    assert all({"severity", "code", "message", "hint"} <= finding.keys() for finding in report["findings"])
    for rank in memory["ranks"]:
        parts = [size for name, size in rank.items() if name.endswith("_bytes") and name != "total_bytes"]
        assert sum(parts) == rank["total_bytes"]
        assert sum(rank["shares"].values()) == pytest.approx(1, abs=0.001)
    assert set(report["sources"]) == set(plan(**V3).sources)


def test_the_other_planners_figure_stands_beside_ours_itemised() -> None:
    rows = {row.part: row for row in aiconfigurator_differences(deployment(**V3).case)}
    total = rows["all weights"]
    assert total.theirs_gib == pytest.approx(84.6, abs=0.05)
    assert total.ours_gib == pytest.approx(79.3, abs=0.05)
    parts = [row for part, row in rows.items() if part != "all weights"]
    assert sum(row.theirs_gib - row.ours_gib for row in parts) == pytest.approx(total.theirs_gib - total.ours_gib)
    assert rows["routed_experts"].theirs_gib / rows["routed_experts"].ours_gib == pytest.approx(61 / 58, rel=0.001)
    text = explain_text(plan(**V3))
    # 84.605, printed to two places: which way it falls differs between Python 3.11 and 3.12.
    assert re.search(r"84\.6\d there, +79\.29 here", text)
    assert "90.0 GiB there" in text
    assert aiconfigurator_differences(deployment(gpu="b200", gpus=8).case) == ()


@pytest.mark.parametrize(
    ("name", "gpu", "words"),
    [
        ("deepseek-v3", "h200", ["with fp8_block weights hardly any are", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1"]),
        ("deepseek-v2-lite", "h100", ["trtllm-build has no flag for it"]),
    ],
)
def test_explain_says_what_there_is_of_tf32(name: str, gpu: str, words: list[str]) -> None:
    text = explain_text(plan(name, gpu, gpus=8))
    for word in ("TF32: Hopper has it for products of FP32 numbers", *words):
        assert word in text


def test_explain_names_the_source_of_every_value_and_the_formula_of_every_buffer() -> None:
    made = plan(**V3)
    text = explain_text(made)
    for key in made.sources:
        assert key in text
    assert "1280 tokens x 8 experts x 31744 B" in text


def test_other_precisions_are_computed_for_this_model() -> None:
    options = {option.kind: option for option in precision_options(deployment(**V3).case)}
    assert options["fp8_block"].is_own
    assert options["fp8_block"].verdict == "fits"
    assert options["bf16"].verdict == "does not fit"
    assert options["bf16"].weights_bytes_per_gpu > 1.9 * options["fp8_block"].weights_bytes_per_gpu
    assert options["nvfp4"].verdict == "no kernels on this GPU"
    assert options["int8"].verdict == "not run by this engine for this model"
