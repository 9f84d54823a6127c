"""What is loaded computes what the files say; anything else is refused with its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from safetensors.torch import load_file, save_file
from tiny_checkpoints import BLOCK, QUANTIZED, checkpoint_tensors, fp8_tensors, write
from tiny_models import CONFIGS, make_model

from seekserve_backend.engines.port import EngineRequest
from seekserve_backend.engines.reference.shards import WeightsError, dequantize_blocks
from seekserve_backend.engines.reference.weights import load_model

pytestmark = pytest.mark.needs_local


def logits(model: Any) -> Any:
    with torch.inference_mode():
        return model(input_ids=torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])).logits


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_a_plain_checkpoint_gives_the_same_logits(tmp_path: Path, name: str) -> None:
    loaded = load_model(write(tmp_path, name, checkpoint_tensors(name)))
    torch.testing.assert_close(logits(loaded.model), logits(make_model(name)))
    assert loaded.eos_ids == (1,)


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_an_fp8_checkpoint_gives_the_logits_of_its_dequantised_weights(tmp_path: Path, name: str) -> None:
    tensors = fp8_tensors(name)
    plain = {
        key: dequantize_blocks(tensor, tensors[key + "_scale_inv"], BLOCK) if key + "_scale_inv" in tensors else tensor
        for key, tensor in tensors.items()
        if not key.endswith("_scale_inv")
    }
    quantized = load_model(write(tmp_path / "fp8", name, tensors, **QUANTIZED))
    dequantised = load_model(write(tmp_path / "plain", name, plain))
    torch.testing.assert_close(logits(quantized.model), logits(dequantised.model))


def test_each_block_is_multiplied_by_its_own_scale() -> None:
    weight = torch.ones(3, 5).to(torch.float8_e4m3fn)
    scale = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert dequantize_blocks(weight, scale, (2, 2)).tolist() == [
        [1, 1, 2, 2, 3],
        [1, 1, 2, 2, 3],
        [4, 4, 5, 5, 6],
    ]


def test_a_single_file_without_index_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["v2"]))
    save_file(checkpoint_tensors("v2"), tmp_path / "model.safetensors")
    torch.testing.assert_close(logits(load_model(tmp_path).model), logits(make_model("v2")))


def test_links_as_in_the_hub_cache_are_followed(tmp_path: Path) -> None:
    blobs = write(tmp_path / "blobs", "v3", checkpoint_tensors("v3"))
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(path)
    load_model(snapshot)


def test_multi_token_prediction_layers_are_left_out(tmp_path: Path) -> None:
    tensors = checkpoint_tensors("v3")
    tensors["model.layers.3.eh_proj.weight"] = torch.ones(2, 2)
    load_model(write(tmp_path, "v3", tensors, num_nextn_predict_layers=1))


def test_a_tied_head_is_the_embedding(tmp_path: Path) -> None:
    tensors = checkpoint_tensors("v3")
    del tensors["lm_head.weight"]
    model = load_model(write(tmp_path, "v3", tensors, tie_word_embeddings=True)).model
    assert torch.equal(model.lm_head.weight, tensors["model.embed_tokens.weight"])


def test_router_and_its_bias_stay_float32_in_a_bf16_model(tmp_path: Path) -> None:
    model = load_model(write(tmp_path, "v3", checkpoint_tensors("v3")), compute_dtype="bfloat16").model
    gate = model.model.layers[1].mlp.gate
    assert (gate.weight.dtype, gate.e_score_correction_bias.dtype) == (torch.float32, torch.float32)
    assert model.lm_head.weight.dtype is torch.bfloat16
    assert torch.isfinite(logits(model)).all()


def test_eos_ids_of_the_generation_config_come_first(tmp_path: Path) -> None:
    folder = write(tmp_path, "v3", checkpoint_tensors("v3"))
    (folder / "generation_config.json").write_text('{"eos_token_id": [4, 7]}')
    assert load_model(folder).eos_ids == (4, 7)


def drop(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda tensors: tensors.__delitem__(key)


def put(key: str, tensor: Any) -> Callable[[dict[str, Any]], None]:
    return lambda tensors: tensors.__setitem__(key, tensor)


EXPERT = "model.layers.1.mlp.experts.3.up_proj.weight"


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (drop("model.norm.weight"), "1 tensors that config.json implies are missing: model.norm.weight"),
        (drop(EXPERT), f"missing: {EXPERT}"),
        (put("model.layers.0.extra.weight", torch.ones(1)), "not part of the model: model.layers.0.extra.weight"),
        (put("model.norm.weight", torch.ones(5)), r"model.norm.weight has shape \[5\], config.json implies \[64\]"),
        (put(EXPERT, torch.ones(5, 5)), "experts' tensors differ in shape"),
        (drop(EXPERT + "_scale_inv"), f"{EXPERT} is float8_e4m3fn but {EXPERT}_scale_inv is absent"),
        (
            put(EXPERT + "_scale_inv", torch.ones(1, 1)),
            r"up_proj.weight_scale_inv has shape \[1, 1\], .*up_proj.weight needs \[2, 4\] blocks",
        ),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name(
    tmp_path: Path, damage: Callable[[dict[str, Any]], None], says: str
) -> None:
    tensors = fp8_tensors("v3")
    damage(tensors)
    with pytest.raises(WeightsError, match=says):
        load_model(write(tmp_path, "v3", tensors, **QUANTIZED))


def test_fp8_without_quantization_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"quantization_config\.weight_block_size is absent"):
        load_model(write(tmp_path, "v3", fp8_tensors("v3")))


@pytest.mark.parametrize(
    ("name", "config", "says"),
    [
        ("v3", {"model_type": "deepseek_v32"}, "model_type 'deepseek_v32'; the reference engine runs deepseek_v2 and"),
        ("v3", {"scoring_func": "softmax"}, "scoring_func 'softmax'.*computes 'sigmoid'"),
        ("v2", {"topk_method": "noaux_tc"}, "topk_method 'noaux_tc'"),
        ("v2", {"norm_topk_prob": True}, "norm_topk_prob True"),
        ("v3", {"moe_layer_freq": 2}, "moe_layer_freq 2"),
    ],
)
def test_a_config_that_the_class_would_not_follow_is_refused(
    tmp_path: Path, name: str, config: dict[str, Any], says: str
) -> None:
    with pytest.raises(WeightsError, match=says):
        load_model(write(tmp_path, name, checkpoint_tensors(name), **config))


def test_a_cut_shard_is_refused_by_name(tmp_path: Path) -> None:
    folder = write(tmp_path, "v3", checkpoint_tensors("v3"))
    shard = folder / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.raises(WeightsError, match=r"cannot be read from model-00002-of-00002\.safetensors"):
        load_model(folder)


def test_an_index_that_points_elsewhere_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, "v3", checkpoint_tensors("v3"))
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"lm_head.weight": "../other.safetensors"}}')
    with pytest.raises(WeightsError, match=r"outside the folder: \.\./other\.safetensors"):
        load_model(folder)


def test_a_folder_without_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"config\.json cannot be read"):
        load_model(tmp_path)


def test_the_shipped_checkpoint_loads_and_answers_like_generate(repository_root: Path) -> None:
    folder = repository_root / "build" / "seekserve" / "data" / "tiny_deepseek_v3"
    if not (folder / "config.json").is_file():
        pytest.skip("the tiny checkpoint is not in this checkout")
    from tiny_models import assert_same_greedy, make_engine, run_all

    loaded = load_model(folder)
    weight_map = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    stored = load_file(folder / weight_map["lm_head.weight"])["lm_head.weight"]
    assert torch.equal(loaded.model.lm_head.weight, stored.float())
    requests = [
        (i, EngineRequest(id=str(i), prompt_ids=tuple(range(3 + i, 20 + 3 * i)), max_tokens=8, stop_ids=loaded.eos_ids))
        for i in range(4)
    ]
    for kv_dtype in ("bf16", "fp8_e4m3"):
        outcome = run_all(make_engine(loaded.model, kv_dtype=kv_dtype), requests)
        for _, request in requests:
            assert_same_greedy(loaded.model, request, *outcome[request.id], kv_dtype)
