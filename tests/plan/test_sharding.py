"""Which tensor goes where: the published figures, and sums that must hold for any shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu_plans import CONFIGS, deployment, gib, model
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.checkpoint.toy import full_size_v3, qwen_toy, v3_toy, write_sparse

from seekserve.plan.model import Model, read_model
from seekserve.plan.shape import Shape, stage_layers
from seekserve.plan.sharding import Splitter, mlp_tp, stage_weights
from seekserve.plan.storage import KINDS, Storage


def stages(made: Model, shape: Shape, mtp_layers: int = 0) -> list[int]:
    splitter = Splitter(config=made.config, shape=shape, gpus_per_node=8, is_fp8_block="fp8_block" in made.precision)
    return [
        found.total_bytes
        for found in stage_weights(made.groups, made.config, made.architecture, splitter, mtp_layers=mtp_layers)
    ]


@pytest.mark.parametrize(("attention_dp", "expected_gib"), [(False, 79.3), (True, 93.9)])
def test_v3_on_eight_h200_has_the_published_weights_per_gpu(attention_dp: bool, expected_gib: float) -> None:
    made = deployment(gpus=8, tp=8, pp=1, ep=8, attention_dp=attention_dp, mtp=0)
    assert gib(made.case.most_weights_bytes) == pytest.approx(expected_gib, rel=0.01)
    assert round(gib(made.case.most_weights_bytes), 1) == expected_gib


def test_mtp_weights_are_charged_only_when_asked_for() -> None:
    without, with_mtp = (deployment(gpus=8, tp=8, pp=1, ep=8, attention_dp=False, mtp=n) for n in (0, 1))
    more = gib(with_mtp.case.most_weights_bytes - without.case.most_weights_bytes)
    # 11.6 B parameters of which the experts and most projections are divided by 8
    assert 1.3 < more < 1.6
    assert "mtp" not in without.ranks[0].weights
    three = deployment(gpus=8, tp=8, pp=1, ep=8, attention_dp=False, mtp=3)
    assert three.case.most_weights_bytes == with_mtp.case.most_weights_bytes


@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-v2-lite", "deepseek-v4-flash", "r1-distill-llama-70b"])
def test_one_gpu_holds_every_byte_once(name: str) -> None:
    assert stages(model(name), Shape()) == [model(name).main_bytes]


@pytest.mark.parametrize("name", ["deepseek-v3", "deepseek-v3.2", "deepseek-v4-pro", "r1-distill-qwen-32b"])
@pytest.mark.parametrize("pp", [2, 3, 4])
def test_pipeline_stages_add_up_to_the_model(name: str, pp: int) -> None:
    assert sum(stages(model(name), Shape(pp=pp))) == model(name).main_bytes


@given(tp=st.sampled_from([1, 2, 4, 8, 16]), pp=st.integers(1, 4), attention_dp=st.booleans())
@settings(max_examples=25, deadline=None)
def test_ranks_together_hold_the_model_at_least_once(tp: int, pp: int, attention_dp: bool) -> None:
    made = model("deepseek-v3")
    shape = Shape(tp=tp, pp=pp, ep=tp, attention_dp=attention_dp)
    held = [size * tp for size in stages(made, shape)]
    assert sum(held) >= made.main_bytes
    plain = [size * tp for size in stages(made, Shape(tp=tp, pp=pp, ep=tp))]
    assert sum(held) >= sum(plain)


def test_experts_cost_the_same_whole_or_cut() -> None:
    made = model("deepseek-v3")
    assert stages(made, Shape(tp=8, ep=8)) == stages(made, Shape(tp=8, ep=1)) == stages(made, Shape(tp=8, ep=4))


def test_kv_heads_are_repeated_when_ranks_outnumber_them() -> None:
    made = model("r1-distill-qwen-7b")  # 4 KV heads, 28 heads
    four, seven = stages(made, Shape(tp=4))[0], stages(made, Shape(tp=7))[0]
    assert seven * 7 > four * 4


def test_stages_are_cut_with_the_rest_first() -> None:
    assert [len(layers) for layers in stage_layers(61, 4)] == [16, 15, 15, 15]
    assert list(stage_layers(3, 2)) == [range(2), range(2, 3)]


def test_shared_experts_are_cut_into_whole_blocks_and_never_across_nodes() -> None:
    assert mlp_tp(2048, Shape(tp=8), 8, 128) == 8
    assert mlp_tp(2048, Shape(tp=32), 8, 128) == 8
    assert mlp_tp(2048, Shape(tp=32), 32, 128) == 16
    assert mlp_tp(2048, Shape(tp=8, attention_dp=True), 8, 128) == 1


@pytest.mark.parametrize("fp8", [True, False])
@pytest.mark.parametrize("mtp_layers", [0, 1])
def test_headers_and_layout_agree_on_a_checkpoint(tmp_path: Path, fp8: bool, mtp_layers: int) -> None:
    toy = v3_toy(fp8=fp8, mtp_layers=mtp_layers)
    folder = toy.write(tmp_path / "whole")
    (tmp_path / "bare").mkdir()
    bare = tmp_path / "bare" / "config.json"
    bare.write_bytes((folder / "config.json").read_bytes())
    stored, declared = read_model(str(folder)), read_model(str(bare))
    assert stored.main_bytes == declared.main_bytes
    assert stored.mtp_layers == declared.mtp_layers == mtp_layers
    assert stored.precision == declared.precision
    for shape in (Shape(tp=2, ep=2), Shape(pp=2), Shape(tp=2, ep=1, attention_dp=True)):
        assert stages(stored, shape, mtp_layers) == stages(declared, shape, mtp_layers)


def test_a_folder_is_counted_by_its_headers_to_the_byte(tmp_path: Path) -> None:
    toy = qwen_toy()
    made = read_model(str(toy.write(tmp_path / "toy")))
    assert made.main_bytes == sum(tensor.size_bytes for tensor in toy.tensors.values())
    assert made.source == "headers of 1 safetensors files"


@pytest.mark.parametrize(
    ("kind", "rows", "columns", "expected"),
    [
        ("bf16", 576, 7168, 576 * 7168 * 2),
        ("fp8_block", 576, 7168, 576 * 7168 + 5 * 56 * 4),
        ("fp8_tensor", 100, 10, 1000 + 8),
        ("fp8_channel", 100, 10, 1000 + 400),
        ("mxfp4", 64, 64, 64 * 64 // 2 + 64 * 2),
        ("nvfp4", 64, 64, 64 * 64 // 2 + 64 * 4 + 8),
    ],
)
def test_a_projection_has_the_bytes_of_its_values_and_scales(kind: str, rows: int, columns: int, expected: int) -> None:
    assert KINDS[kind].size_bytes(rows, columns) == expected


def test_odd_numbers_of_4_bit_values_round_up_to_a_byte() -> None:
    assert Storage(4).size_bytes(3, 1) == 2


def test_the_headers_of_a_full_size_v3_give_the_published_figure(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "deepseek-v3.json").read_text(encoding="utf-8"))
    made = read_model(str(write_sparse(full_size_v3(config), tmp_path / "v3")))
    assert made.source == "headers of 163 safetensors files"
    assert made.mtp_layers == 1
    assert made.main_bytes == model("deepseek-v3").main_bytes
    for attention_dp, expected in ((False, 79.3), (True, 93.9)):
        [size] = stages(made, Shape(tp=8, ep=8, attention_dp=attention_dp))
        assert round(gib(size), 1) == expected
