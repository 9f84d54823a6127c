"""Parameter counts and KV bytes of every family, from its real config alone, against the published figures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from seekserve.checkpoint import ModelConfig, kv_cost, read_config
from seekserve.checkpoint.families import identify, missing_fields
from seekserve.checkpoint.findings import Collector
from seekserve.checkpoint.layout import layout
from seekserve.checkpoint.parameters import Parameters, count_parameters

CONFIGS = Path(__file__).parent / "configs"


@dataclass(frozen=True)
class Published:
    file: str
    family: str
    main_b: float
    active_b: float
    layers: int
    mtp_layers: int
    kv_bf16: int
    kv_fp8: int
    tolerance: float = 0.0005
    """Relative; the figures are rounded, and those of V4 leave out the hyper-connections."""


MODELS = [
    Published("deepseek-moe-16b", "deepseek_moe", 16.38, 2.83, 28, 0, 229_376, 114_688),
    Published("deepseek-v2", "deepseek_v2", 235.74, 21.38, 60, 0, 69_120, 34_560),
    Published("deepseek-v2-lite", "deepseek_v2_lite", 15.71, 2.66, 27, 0, 31_104, 15_552),
    Published("deepseek-v3", "deepseek_v3", 671.03, 37.55, 61, 1, 70_272, 35_136),
    Published("deepseek-v3.1", "deepseek_v3_1", 671.03, 37.55, 61, 1, 70_272, 35_136),
    Published("deepseek-r1", "deepseek_v3", 671.03, 37.55, 61, 1, 70_272, 35_136),
    Published("deepseek-v3.2", "deepseek_v3_2", 671.88, 38.40, 61, 1, 78_324, 43_188),
    Published("deepseek-v4-flash", "deepseek_v4_flash", 284.3, 13.8, 43, 1, 6_229, 3_461),
    Published("deepseek-v4-pro", "deepseek_v4_pro", 1572.9, 49.7, 61, 1, 8_918, 4_954, 0.002),
    Published("deepseek-v4.1-flash", "deepseek_v4_1_flash", 551.5 + 196.6, 16.4, 40, 3, 2_890, 1_610, 0.005),
    Published("r1-distill-qwen-1.5b", "r1_distill_qwen", 1.777, 1.777, 28, 0, 28_672, 14_336),
    Published("r1-distill-qwen-7b", "r1_distill_qwen", 7.616, 7.616, 28, 0, 57_344, 28_672),
    Published("r1-distill-qwen-14b", "r1_distill_qwen", 14.770, 14.770, 48, 0, 196_608, 98_304),
    Published("r1-distill-qwen-32b", "r1_distill_qwen", 32.764, 32.764, 64, 0, 262_144, 131_072),
    Published("r1-distill-llama-8b", "r1_distill_llama", 8.030, 8.030, 32, 0, 131_072, 65_536),
    Published("r1-distill-llama-70b", "r1_distill_llama", 70.554, 70.554, 80, 0, 327_680, 163_840),
]
by_file = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.file)


def load(name: str) -> tuple[ModelConfig, str, str]:
    config, findings = read_config(CONFIGS / f"{name}.json"), Collector()
    identity = identify(config, None, findings, "config.json")
    assert missing_fields(config, identity.architecture, findings, "config.json") == []
    assert findings.findings == []
    return config, identity.architecture, identity.family


def parameters(name: str) -> Parameters:
    config, architecture, _ = load(name)
    return count_parameters(layout(config, architecture))


def test_every_config_here_is_in_the_table() -> None:
    assert {path.stem for path in CONFIGS.glob("*.json")} == {model.file for model in MODELS}


@by_file
def test_family_and_layers_come_from_the_content(model: Published) -> None:
    config, _, family = load(model.file)
    assert (family, config.num_hidden_layers) == (model.family, model.layers)
    assert config.num_nextn_predict_layers == model.mtp_layers


@by_file
def test_parameter_counts_equal_the_published_ones(model: Published) -> None:
    counted = parameters(model.file)
    assert counted.main / 1e9 == pytest.approx(model.main_b, rel=model.tolerance)
    assert counted.active is not None
    assert counted.active / 1e9 == pytest.approx(model.active_b, rel=max(model.tolerance, 0.001))
    assert counted.total == counted.main + counted.mtp == sum(counted.by_part.values())
    assert (counted.mtp > 0) == (model.mtp_layers > 0)


@by_file
def test_kv_bytes_per_token_equal_the_published_ones(model: Published) -> None:
    config, architecture, _ = load(model.file)
    assert kv_cost(config, architecture, "bf16").per_token_bytes == model.kv_bf16
    assert kv_cost(config, architecture, "fp8_e4m3").per_token_bytes == model.kv_fp8


def test_v3_mtp_layer_counts_its_own_weights_and_is_stored_with_copies() -> None:
    counted = parameters("deepseek-v3")
    assert counted.mtp / 1e9 == pytest.approx(11.61, abs=0.005)
    assert counted.stored / 1e9 == pytest.approx(684.49, abs=0.005)


def test_v41_has_the_total_that_the_hub_shows_to_the_unit() -> None:
    counted = parameters("deepseek-v4.1-flash")
    assert counted.total == counted.stored == 763_205_315_794
    assert counted.by_part["engram_tables"] == 196_613_849_600
    assert counted.mtp == 14_225_362_530
    assert counted.main - counted.by_part["engram_tables"] == 552_366_103_664


def test_v3_with_an_mtp_layer_needs_a_larger_cache() -> None:
    config, architecture, _ = load("deepseek-v3")
    assert kv_cost(config, architecture, "bf16", mtp_layers=1).per_token_bytes == 71_424
    assert kv_cost(config, architecture, "fp8_e4m3", mtp_layers=1).per_token_bytes == 35_712


@pytest.mark.parametrize(
    ("file", "kv_dtype", "expected"),
    [
        ("deepseek-v3.2", "bf16", 74_420),
        ("deepseek-v3.2", "fp8_e4m3", 39_284),
        ("deepseek-v4-flash", "bf16", 5_893),
        ("deepseek-v4-flash", "fp8_e4m3", 3_125),
        ("deepseek-v4-pro", "bf16", 8_438),
        ("deepseek-v4-pro", "fp8_e4m3", 4_474),
        ("deepseek-v4.1-flash", "bf16", 2_730),
        ("deepseek-v4.1-flash", "fp8_e4m3", 1_450),
        ("deepseek-v4.1-flash", "nvfp4", 890),
    ],
)
def test_a_4_bit_indexer_takes_less(file: str, kv_dtype: str, expected: int) -> None:
    config, architecture, _ = load(file)
    assert kv_cost(config, architecture, kv_dtype, indexer_dtype="fp4").per_token_bytes == expected


@pytest.mark.parametrize(
    ("file", "kv_dtype", "window", "state"),
    [
        ("deepseek-v4-flash", "bf16", 5_636_096, 38_010_880),
        ("deepseek-v4-flash", "fp8_e4m3", 2_818_048, 38_010_880),
        ("deepseek-v4-pro", "bf16", 7_995_392, 55_574_528),
        ("deepseek-v4-pro", "fp8_e4m3", 3_997_696, 55_574_528),
        ("deepseek-v4.1-flash", "bf16", 5_242_880, 0),
        ("deepseek-v3", "bf16", 0, 0),
    ],
)
def test_v4_holds_a_window_and_compressor_state_per_request(file: str, kv_dtype: str, window: int, state: int) -> None:
    config, architecture, _ = load(file)
    cost = kv_cost(config, architecture, kv_dtype)
    assert (cost.per_request_window_bytes, cost.per_request_state_bytes) == (window, state)
    assert cost.per_request_bytes == window + state


@by_file
def test_pipeline_stages_add_up_to_the_whole_cache(model: Published) -> None:
    config, architecture, _ = load(model.file)
    cut = model.layers // 2
    stages = [range(cut), range(cut, model.layers)]
    parts = [kv_cost(config, architecture, "bf16", layers=stage) for stage in stages]
    whole = kv_cost(config, architecture, "bf16")
    assert sum(part.per_token_bytes for part in parts) == whole.per_token_bytes
    assert sum(part.per_request_bytes for part in parts) == whole.per_request_bytes


@by_file
def test_only_head_caches_are_divided_by_tensor_parallelism(model: Published) -> None:
    config, architecture, _ = load(model.file)
    is_latent = architecture.startswith(("deepseek_v",))
    assert kv_cost(config, architecture, "bf16").is_divided_by_tp is not is_latent


def test_a_longer_ratio_list_belongs_to_draft_layers_and_changes_nothing() -> None:
    raw = json.loads((CONFIGS / "deepseek-v4-flash.json").read_text(encoding="utf-8"))
    raw["compress_ratios"] = [*raw["compress_ratios"], 0, 0]
    from seekserve.checkpoint.config import parse_config

    config = parse_config(raw, "config.json", Collector())
    assert config is not None
    assert kv_cost(config, "deepseek_v4", "bf16").per_token_bytes == 6_229
