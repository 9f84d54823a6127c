"""The config.json of an engine, in both shapes and in none, and an engine held against its bundle."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engine.trtllm_engine.machine import Case

from seekserve.errors import BundleError
from seekserve.trtllm.built_engine import EngineFacts, engine_faults, read_engine_config
from seekserve_backend.contract.bundle import Bundle

Document = dict[str, Any]


def newer() -> Document:
    return {
        "version": "1.2.1",
        "pretrained_config": {
            "architecture": "DeepseekV2ForCausalLM",
            "dtype": "bfloat16",
            "mapping": {"world_size": 2, "tp_size": 2, "pp_size": 1, "moe_tp_size": 2, "moe_ep_size": 1},
            "quantization": {"quant_algo": None, "kv_cache_quant_algo": None},
        },
        "build_config": {
            "max_batch_size": 8,
            "max_seq_len": 4096,
            "max_num_tokens": 8192,
            "max_beam_width": 1,
            "max_draft_len": 0,
            "kv_cache_type": "PAGED",
            "plugin_config": {"tokens_per_block": 32, "use_paged_context_fmha": True, "use_fp8_context_fmha": False},
        },
    }


def older() -> Document:
    """As builders before 0.8 wrote it (triton-inference-server/server issue 6878)."""
    return {
        "builder_config": {
            "name": "llama",
            "precision": "float16",
            "tensor_parallel": 2,
            "pipeline_parallel": 1,
            "max_batch_size": 8,
            "max_input_len": 3072,
            "max_output_len": 1024,
            "max_beam_width": 1,
            "int8": False,
            "quant_mode": 0,
        },
        "plugin_config": {"paged_kv_cache": True, "tokens_per_block": 64, "use_paged_context_fmha": False},
    }


def write(folder: Path, document: object, names: tuple[str, ...] = ("rank0.engine", "rank1.engine")) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(document))
    for name in names:
        (folder / name).write_bytes(b"engine")
    return folder


def test_the_newer_shape_is_read(tmp_path: Path) -> None:
    facts = read_engine_config(write(tmp_path, newer()))
    assert (facts.shape, facts.version, facts.tp, facts.world_size) == ("build_config", "1.2.1", 2, 2)
    assert (facts.dtype, facts.quant_algo, facts.kv_dtype) == ("bf16", None, "bf16")
    assert (facts.max_batch_size, facts.max_seq_len_tokens, facts.max_num_tokens) == (8, 4096, 8192)
    assert (facts.kv_cache_type, facts.tokens_per_block, facts.paged_context) == ("PAGED", 32, True)
    assert facts.engine_bytes == (6, 6)


def test_the_older_shape_is_read(tmp_path: Path) -> None:
    names = ("llama_float16_tp2_rank0.engine", "llama_float16_tp2_rank1.engine")
    facts = read_engine_config(write(tmp_path, older(), names))
    assert (facts.shape, facts.version, facts.tp, facts.world_size) == ("builder_config", None, 2, 2)
    assert (facts.max_seq_len_tokens, facts.max_num_tokens, facts.kv_dtype) == (4096, None, "fp16")
    assert (facts.kv_cache_type, facts.tokens_per_block) == ("PAGED", 64)
    assert facts.engine_bytes == (6, 6)


def test_prompt_and_answer_apart_are_one_length(tmp_path: Path) -> None:
    """As 0.8 to 0.10 wrote it, in the newer shape."""
    document = newer()
    del document["build_config"]["max_seq_len"]
    document["build_config"] |= {"max_input_len": 3000, "max_output_len": 96}
    assert read_engine_config(write(tmp_path, document)).max_seq_len_tokens == 3096


def test_a_quantised_engine_says_so(tmp_path: Path) -> None:
    document = newer()
    document["pretrained_config"]["quantization"] = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    facts = read_engine_config(write(tmp_path, document))
    assert (facts.quant_algo, facts.kv_dtype) == ("FP8", "fp8_e4m3")


def test_a_bit_mask_of_an_older_engine_is_not_guessed_at(tmp_path: Path) -> None:
    document = older()
    document["builder_config"]["quant_mode"] = 128
    assert read_engine_config(write(tmp_path, document)).kv_dtype is None


@pytest.mark.parametrize(
    ("document", "phrase"),
    [
        ({"version": "1.2.1"}, "this one has neither"),
        ({**newer(), **older()}, "this one has both"),
        ([], "holds no object"),
        ({**newer(), "build_config": {}}, r"(?s)max_batch_size is missing.*max_seq_len is missing"),
        ({**newer(), "build_config": 3}, "build_config is 3 where an object is due"),
        ({**newer(), "version": 1.2}, "version is 1.2 where text is due"),
        ({**newer(), "pretrained_config": None}, "pretrained_config is missing"),
    ],
)
def test_what_is_no_engine_config_is_refused(tmp_path: Path, document: object, phrase: str) -> None:
    with pytest.raises(BundleError, match=phrase):
        read_engine_config(write(tmp_path, document))


def test_a_batch_size_is_never_invented(tmp_path: Path) -> None:
    for document, section in ((newer(), "build_config"), (older(), "builder_config")):
        del document[section]["max_batch_size"]
        with pytest.raises(BundleError, match=f"{section}.max_batch_size is missing"):
            read_engine_config(write(tmp_path, document))


def test_no_file_and_no_json_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"no config\.json in it"):
        read_engine_config(tmp_path)
    (tmp_path / "config.json").write_text('{"version":\n')
    with pytest.raises(BundleError, match="line 2: is not JSON"):
        read_engine_config(tmp_path)


@pytest.fixture
def built(v2_lite: Case) -> tuple[EngineFacts, Bundle]:
    bundle = v2_lite.build().bundle
    return read_engine_config(v2_lite.out / "engine"), bundle


def test_an_engine_of_its_plan_has_no_faults(built: tuple[EngineFacts, Bundle]) -> None:
    facts, bundle = built
    assert engine_faults(facts, bundle, needs_paged_context=True) == []


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"tp": 2, "world_size": 2}, "tensor parallel size is 2 in the engine, 1 in the bundle"),
    ({"pp": 2, "world_size": 2}, "pipeline parallel size is 2"),
    ({"world_size": 4, "engine_bytes": (6,) * 4}, "world_size is 4 in the engine, and its TP 1 x PP 1"),
    ({"moe_ep": 8}, "expert parallel size is 8"),
    ({"max_batch_size": 4}, "max_batch_size is 4 in the engine, 256 in the bundle"),
    ({"max_seq_len_tokens": 6553600}, "max_seq_len is 6553600 in the engine, 8192 in the bundle"),
    ({"max_num_tokens": 4096}, "max_num_tokens is 4096"),
    ({"max_beam_width": 4}, "max_beam_width is 4"),
    ({"kv_dtype": "int8"}, "KV cache dtype is int8 in the engine, bf16 in the bundle"),
    ({"kv_cache_type": "CONTINUOUS"}, "only a paged cache"),
    ({"tokens_per_block": 64}, "tokens per KV block is 64"),
    ({"quant_algo": "FP8"}, "weights is FP8"),
    ({"dtype": "fp16"}, "weights is fp16 in the engine, bf16"),
    ({"version": "0.10.0"}, "TensorRT-LLM 0.10.0 built the engine, and the bundle is for 1.2.1"),
    ({"version": None}, "states no TensorRT-LLM version"),
    ({"paged_context": False}, "use_paged_context_fmha is off"),
    ({"engine_bytes": (None,)}, "rank0.engine is missing"),
    ({"engine_bytes": (0,)}, "rank0.engine is empty"),
]


@pytest.mark.parametrize(("change", "phrase"), CHANGES)
def test_each_difference_is_found(built: tuple[EngineFacts, Bundle], change: dict[str, Any], phrase: str) -> None:
    facts, bundle = built
    [fault] = engine_faults(replace(facts, **change), bundle, needs_paged_context=True)
    assert phrase in fault


def test_all_differences_are_in_one_report(built: tuple[EngineFacts, Bundle]) -> None:
    facts, bundle = built
    changed = replace(facts, tp=2, max_batch_size=4, version="1.1.0")
    assert len(engine_faults(changed, bundle)) == 4  # and the world size


@pytest.mark.parametrize(
    "change",
    [
        {"version": "1.2.1.post1"},
        {"max_seq_len_tokens": 8192 + 4, "max_draft_tokens": 4},
        {"kv_dtype": "fp16"},
        {"moe_ep": None, "kv_dtype": None, "tokens_per_block": None},
    ],
)
def test_what_is_the_same_in_other_words_is_no_fault(built: tuple[EngineFacts, Bundle], change: dict[str, Any]) -> None:
    facts, bundle = built
    assert engine_faults(replace(facts, **change), bundle) == []
