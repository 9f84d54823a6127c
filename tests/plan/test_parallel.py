"""Legal shapes: every product is checked, and each refusal has its numbers and the nearest legal values."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_plans import deployment, messages, model

from seekserve.data import tiny_checkpoint_folder
from seekserve.plan.case import Target
from seekserve.plan.gpus import find_gpu
from seekserve.plan.model import read_model
from seekserve.plan.parallel import candidate_shapes, nearest, shape_findings
from seekserve.plan.shape import Shape
from seekserve.plan.support import support_for


@pytest.mark.parametrize(
    ("name", "flags", "rule", "numbers"),
    [
        ("deepseek-v3", {"gpus": 32, "tp": 32, "ep": 1}, "expert-block", ["2048 / moe_tp 32 = 64", "128", "moe_tp 16"]),
        (
            "deepseek-v3",
            {"gpus": 8, "tp": 8, "moe_tp": 4, "ep": 4},
            "expert-product",
            ["moe_tp 4 x ep 4 = 16", "tp is 8", "--ep 4 or 8"],
        ),
        ("deepseek-v3", {"gpus": 24, "tp": 24, "ep": 24}, "experts-divide", ["256 experts on ep 24", "--ep 16 or 32"]),
        ("deepseek-v3", {"gpus": 24, "tp": 24, "ep": 24}, "heads-divide", ["128 attention heads", "--tp 16 or 32"]),
        ("deepseek-v3", {"gpus": 8, "tp": 3}, "gpus-divide", ["tp 3 x pp 1 = 3", "8 are there", "--tp 2 or 4"]),
        ("deepseek-v3", {"gpus": 128, "tp": 128, "ep": 128}, "query-block", ["128 heads x 192 rows / tp 128 = 192"]),
        ("r1-distill-qwen-7b", {"gpus": 8, "tp": 8}, "heads-divide", ["28 attention heads on tp 8", "--tp 7 or 14"]),
        ("r1-distill-qwen-7b", {"gpus": 4, "tp": 4, "ep": 4}, "no-experts", ["ep 4", "--ep 1"]),
        ("r1-distill-llama-8b", {"gpus": 8, "tp": 8, "attention_dp": True}, "attention-dp", ["replicas"]),
        ("deepseek-v3", {"gpus": 8, "tp": 1, "attention_dp": True}, "attention-dp", ["tp 1 divides nothing"]),
        ("r1-distill-qwen-1.5b", {"gpus": 29, "tp": 1, "pp": 29, "nodes": 1}, "stages", ["pp 29", "28 layers"]),
    ],
)
def test_an_illegal_shape_is_refused_with_numbers(
    name: str, flags: dict[str, Any], rule: str, numbers: list[str]
) -> None:
    found = messages(name, "h200", **flags)
    assert found[rule].startswith("error: ")
    for number in numbers:
        assert number in found[rule]


def test_an_expert_that_stays_whole_may_have_any_width() -> None:
    """The shipped checkpoint's experts are 144 wide: a block and a part of one."""
    tiny = read_model(str(tiny_checkpoint_folder()))
    target = Target(
        gpu=find_gpu("h200"),
        gpus=2,
        nodes=1,
        engine="trtllm-pytorch",
        version="1.2.1",
        support=support_for(tiny.family, "trtllm-pytorch"),
    )
    whole, cut = Shape(tp=2, pp=1, ep=2, attention_dp=False), Shape(tp=2, pp=1, ep=1, attention_dp=False)
    assert "expert-block" not in {found.rule for found in shape_findings(tiny, target, whole)}
    [refused] = [found for found in shape_findings(tiny, target, cut) if found.rule == "expert-block"]
    assert "144 / moe_tp 2 = 72, which is no multiple of the 128-element scale block" in refused.message


def test_output_groups_of_v4_bound_tensor_parallelism() -> None:
    found = messages("deepseek-v4-flash", "b200", gpus=16, tp=16, ep=16)
    assert "8 output groups (o_groups) on tp 16 -> --tp 8" in found["output-groups"]


@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-v4-flash", "r1-distill-qwen-7b", "deepseek-moe-16b"])
def test_every_candidate_is_legal_and_uses_no_more_than_there_is(name: str) -> None:
    made = model(name)
    engine = "trtllm-engine" if name == "deepseek-moe-16b" else "trtllm-pytorch"
    support = support_for(made.family, engine)
    target = Target(gpu=find_gpu("b200"), gpus=8, nodes=1, engine=engine, version="1.2.1", support=support)
    shapes = list(candidate_shapes(made, target, {}))
    assert shapes
    assert len(shapes) == len(set(shapes))
    for shape in shapes:
        assert shape_findings(made, target, shape) == []
        assert 8 % shape.gpus == 0


def test_sizes_that_were_given_are_kept() -> None:
    made = deployment(gpus=8, pp=2)
    assert made.shape.pp == 2
    assert made.fits
    assert all(found.case.shape.pp == 2 for found in made.alternatives)


def test_v3_on_one_host_runs_as_tp_8_with_whole_experts() -> None:
    shape = deployment(gpus=8).shape
    assert (shape.tp, shape.pp, shape.ep, shape.attention_dp) == (8, 1, 8, False)


def test_two_hosts_are_pipeline_stages_rather_than_tp_over_the_network() -> None:
    made = deployment(gpu="h100", gpus=16, nodes=2)
    assert (made.shape.tp, made.shape.pp) == (8, 2)
    found = messages(gpu="h100", gpus=16, nodes=2, tp=16, pp=1, ep=16)
    assert "crosses nodes of 8 GPUs" in found["tp-crosses-nodes"]


def test_a_rack_with_one_nvlink_domain_is_no_network() -> None:
    made = deployment(gpu="gb200", gpus=8)
    assert (made.target.nodes, made.shape.tp, made.shape.pp) == (2, 8, 1)


def test_a_small_model_runs_as_replicas() -> None:
    made = deployment("r1-distill-qwen-7b", "h200", gpus=8)
    assert (made.shape.gpus, made.case.replicas) == (1, 8)


def test_gpus_without_a_switch_hold_as_many_replicas_as_they_can() -> None:
    made = deployment("r1-distill-qwen-7b", "l4", gpus=8)
    assert made.shape.gpus < 8
    assert made.case.sequences >= 8


def test_a_batch_that_one_cache_cannot_serve_divides_requests() -> None:
    assert deployment(gpus=8, max_batch_size=1024, isl=1000, osl=200).shape.attention_dp


def test_the_nearest_legal_values_stand_on_both_sides() -> None:
    assert nearest(lambda n: 256 % n == 0, 24, 256) == "16 or 32"
    assert nearest(lambda n: n == 1, 5, 5) == "1"
    assert nearest(lambda _: False, 5, 5) == "1"
