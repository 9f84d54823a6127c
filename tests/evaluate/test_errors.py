"""The error tables: weights of FP8 blocks against their originals, KV latents against what FP8 pages hold."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from tiny_checkpoints import QUANTIZED, checkpoint_tensors, fp8_tensors, write
from tiny_models import make_model

from seekserve.errors import CheckpointError
from seekserve.evaluate.error_report import errors_json, errors_lines, verdict
from seekserve.evaluate.kv_errors import KvErrors, LayerKvError, measure_kv_errors
from seekserve.evaluate.run import Comparison, Evaluation, Side
from seekserve.evaluate.statistics import Pairs, mcnemar_p, paired_difference
from seekserve.evaluate.target import Asking
from seekserve.evaluate.weight_errors import GroupError, TensorError, WeightErrors, measure_weight_errors

pytestmark = pytest.mark.needs_local

PROMPTS = [(0, 5, 9, 33), (0, 7), (0, *range(10, 60)), (0, 4, 4)]


def quiet(_done: int, _total: int) -> None:
    pass


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("original"), "v3", checkpoint_tensors("v3"), num_nextn_predict_layers=0)


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantized")
    return write(folder, "v3", fp8_tensors("v3"), num_nextn_predict_layers=0, **QUANTIZED)


def test_fp8_blocks_are_measured_by_part_against_the_original(original: Path, quantized: Path) -> None:
    errors = measure_weight_errors(quantized, original, quiet)
    assert {group.part for group in errors.groups} == {"attention", "dense_mlp", "routed_experts", "shared_experts"}
    assert set(errors.equal_parts) == {"embedding", "head", "norms", "router"}
    # e4m3 has three bits of mantissa: uniform rounding within a binade gives about 2.6 %.
    assert all(0.015 < group.relative < 0.04 for group in errors.groups)
    assert [tensor.relative for tensor in errors.worst] == sorted((t.relative for t in errors.worst), reverse=True)
    assert errors.not_compared == 0
    assert (errors.precision, errors.baseline_precision) == ("fp8_block", "fp32")


def test_a_tensor_s_error_is_the_formula_s(original: Path, quantized: Path) -> None:
    worst = measure_weight_errors(quantized, original, quiet).worst[0]
    stored = fp8_tensors("v3")
    weight, scale = stored[worst.name], stored[worst.name + "_scale_inv"]
    rows, columns = weight.shape
    wide = scale.repeat_interleave(24, 0)[:rows].repeat_interleave(20, 1)[:, :columns]
    baseline = checkpoint_tensors("v3")[worst.name]
    expected = (weight.float() * wide - baseline).norm() / baseline.norm()
    assert worst.relative == pytest.approx(float(expected), rel=1e-4)


def test_a_checkpoint_against_itself_is_equal_everywhere(quantized: Path) -> None:
    errors = measure_weight_errors(quantized, quantized, quiet)
    assert errors.groups == errors.worst == ()
    assert "attention" in errors.equal_parts


def test_another_model_is_refused(original: Path, tmp_path: Path) -> None:
    changed = {name: tensor[:, :-4] if "embed" in name else tensor for name, tensor in checkpoint_tensors("v3").items()}
    changed = {name: tensor.contiguous() for name, tensor in changed.items()}
    with pytest.raises(CheckpointError, match="not the same model"):
        measure_weight_errors(write(tmp_path, "v3", changed), original, quiet)


@pytest.mark.parametrize("name", ["v3", "v2_lite"])
def test_kv_errors_are_those_of_the_latents_that_the_model_computes(tmp_path: Path, name: str) -> None:
    measured = measure_kv_errors(write(tmp_path, name, checkpoint_tensors(name)), PROMPTS, quiet)
    assert measured.tokens == sum(map(len, PROMPTS))
    latents = [_latents(name, prompt) for prompt in PROMPTS]
    for layer in measured.layers:
        kv = torch.cat([each[layer.layer][0].flatten() for each in latents])
        rope = torch.cat([each[layer.layer][1].flatten() for each in latents])
        assert layer.latent_relative == pytest.approx(_relative(kv), rel=1e-2)
        assert layer.rope_relative == pytest.approx(_relative(rope), rel=1e-2)
        assert layer.largest == pytest.approx(float(torch.cat((kv, rope)).abs().max()), rel=1e-3)
        assert 0.01 < layer.latent_relative < 0.05
        assert layer.saturated_share == 0


def _latents(name: str, prompt: tuple[int, ...]) -> list[tuple[Any, Any]]:
    from transformers import DynamicCache

    cache = DynamicCache()
    with torch.inference_mode():
        make_model(name)(torch.tensor([prompt]), cache=cache, use_cache=True)
    return [(layer.keys, layer.values) for layer in cache.layers]


def _relative(values: Any) -> float:
    return float((values.to(torch.float8_e4m3fn).float() - values).norm() / values.norm())


def test_values_out_of_range_and_too_small_are_counted(tmp_path: Path) -> None:
    tensors = checkpoint_tensors("v3")
    gains = torch.ones(16)
    gains[0], gains[1] = 1e4, 1e-6
    tensors["model.layers.1.self_attn.kv_a_layernorm.weight"] = gains
    layers = measure_kv_errors(write(tmp_path, "v3", tensors), PROMPTS, quiet).layers
    # One value in sixteen of the latent is cut off or lost, and the row has eight more with rotary positions.
    assert 0.5 / 24 < layers[1].saturated_share <= 1 / 24
    assert layers[1].zero_share == pytest.approx(1 / 24, rel=0.1)
    assert layers[1].largest > 448
    assert layers[0].saturated_share == 0


def evaluation(*, right: int, weights: WeightErrors | None) -> Evaluation:
    pairs = Pairs(both=right, only_first=0, only_second=1000 - right, neither=0)
    layer = LayerKvError(
        layer=3, latent_relative=0.027, rope_relative=0.02, saturated_share=0.0, zero_share=0.0004, largest=15.0
    )
    sides = [
        Side(name=kv, facts={"weights": "fp8_block", "kv": kv}, answers=(), right=()) for kv in ("fp8_e4m3", "bf16")
    ]
    return Evaluation(
        match="exact",
        asking=Asking(max_tokens=1, concurrency=1),
        sets=(),
        target=sides[0],
        other=sides[1],
        comparison=Comparison(pairs=pairs, interval=paired_difference(pairs), p=mcnemar_p(pairs), max_drop_points=1.5),
        weights=weights,
        weights_reason="" if weights else "no baseline: give OTHER",
        kv=KvErrors(tokens=9, layers=(layer,)),
    )


@pytest.mark.parametrize(
    ("right", "says"), [(999, "are fine"), (990, "cannot be called fine yet"), (980, "are not fine")]
)
def test_whether_fp8_is_fine_is_one_measured_sentence(right: int, says: str) -> None:
    text = verdict(evaluation(right=right, weights=None))
    assert f"fp8_block weights with fp8_e4m3 KV {says} for this model on 1000 questions" in text
    assert "by at most 2.7 %, cut off 0 % of the values and lose 0.04 %" in text


def test_numbers_that_are_none_are_printed_in_words_and_null_in_json() -> None:
    odd = TensorError(name="w", part="attention", parameters=2, difference_squared=math.nan, baseline_squared=1.0)
    weights = WeightErrors(
        precision="fp8_block",
        baseline=Path("b"),
        baseline_precision="bf16",
        groups=(GroupError(part="attention", tensors=1, parameters=2, relative=math.nan, worst=math.inf),),
        equal_parts=("head",),
        worst=(odd,),
        not_compared=3,
    )
    text = "\n".join(errors_lines(evaluation(right=999, weights=weights)))
    for words in ("not finite", "infinite", "equal bit for bit: head", "3 tensors are in one of the two only"):
        assert words in text
    data: Any = json.loads(json.dumps(errors_json(evaluation(right=999, weights=weights)), allow_nan=False))
    assert data["weights"]["groups"][0]["relative"] is None
    assert data["kv_fp8"]["layers"][0]["largest"] == 15.0


def test_missing_weight_errors_come_with_the_reason() -> None:
    text = "\n".join(errors_lines(evaluation(right=999, weights=None)))
    assert "weight errors were not measured: no baseline: give OTHER" in text
