"""Each rule across arguments fires on its case, names the argument, and is silent on the neighbouring one."""

from __future__ import annotations

from typing import Any

import pytest

from seekserve.trtllm import ModelCase, validate_llm_args
from seekserve.trtllm.model_rules import MODEL_RULES
from seekserve.trtllm.rules import RULES

Args = dict[str, Any]
CONNECTOR = {"connector_module": "m", "connector_scheduler_class": "S", "connector_worker_class": "W"}
HOPPER_V3 = ModelCase(architecture="deepseek_v3", sm=90, weights="fp8_block")
V4 = ModelCase(architecture="deepseek_v4", sm=100)


def spec(**settings: object) -> Args:
    return {"speculative_config": settings}


def kv(**settings: object) -> Args:
    return {"kv_cache_config": settings}


def graphs(**settings: object) -> Args:
    return {"cuda_graph_config": settings}


def sparse(algorithm: str, **settings: object) -> Args:
    return {"sparse_attention_config": {"algorithm": algorithm, **settings}}


# rule, version, refused arguments, accepted arguments, severity
CASES: list[tuple[str, str, Args, Args, str]] = [
    ("cache-dtype", "1.2.1", kv(dtype="bfloat16"), kv(dtype="auto"), "error"),
    ("cache-dtype", "1.4", kv(dtype="float16"), kv(dtype="fp8"), "error"),
    (
        "cuda-graph-sizes",
        "1.4",
        {"cuda_graph_config": {"batch_sizes": [1, 2, 64], "max_batch_size": 32}},
        {"cuda_graph_config": {"batch_sizes": [1, 2, 64], "max_batch_size": 64}},
        "error",
    ),
    (
        "cuda-graph-sizes",
        "1.2.1",
        {"max_batch_size": 32, "cuda_graph_config": {"max_batch_size": 64}},
        {"max_batch_size": 64, "cuda_graph_config": {"max_batch_size": 64}},
        "warning",
    ),
    (
        "batch-above-tokens",
        "1.2.1",
        {"max_batch_size": 512, "max_num_tokens": 256},
        {"max_batch_size": 256, "max_num_tokens": 256},
        "warning",
    ),
    (
        "expert-shape",
        "1.2.1",
        {"tensor_parallel_size": 8, "moe_expert_parallel_size": 4, "moe_tensor_parallel_size": 4},
        {"tensor_parallel_size": 8, "moe_expert_parallel_size": 4, "moe_tensor_parallel_size": 2},
        "error",
    ),
    (
        "expert-shape",
        "1.4",
        {"tensor_parallel_size": 8, "moe_expert_parallel_size": 3},
        {"tensor_parallel_size": 8, "moe_expert_parallel_size": 8},
        "error",
    ),
    (
        "expert-slots",
        "1.4",
        {"tensor_parallel_size": 8, "moe_expert_parallel_size": 8, "moe_config": {"load_balancer": {"num_slots": 260}}},
        {"tensor_parallel_size": 8, "moe_expert_parallel_size": 8, "moe_config": {"load_balancer": {"num_slots": 288}}},
        "error",
    ),
    (
        "attention-dp-off",
        "1.2.1",
        {"attention_dp_config": {"enable_balance": True}},
        {"enable_attention_dp": True, "attention_dp_config": {"enable_balance": True}},
        "warning",
    ),
    (
        "attention-dp-balance",
        "1.2.1",
        {"enable_attention_dp": True, "attention_dp_config": {"enable_balance": True, "timeout_iters": -1}},
        {"enable_attention_dp": True, "attention_dp_config": {"enable_balance": False, "timeout_iters": -1}},
        "error",
    ),
    (
        "attention-dp-lora",
        "1.4",
        {"enable_attention_dp": True, "lora_config": {"cuda_graph_specialize_lora": True}},
        {"lora_config": {"cuda_graph_specialize_lora": True}},
        "error",
    ),
    ("scheduler-backend", "1.4", {"scheduler_config": {"dynamic_batch_config": {}}}, {"scheduler_config": {}}, "error"),
    (
        "connector-policy",
        "1.2.1",
        {"scheduler_config": {"capacity_scheduler_policy": "MAX_UTILIZATION"}, "kv_connector_config": CONNECTOR},
        {"kv_connector_config": CONNECTOR},
        "error",
    ),
    ("statistics-off", "1.2.1", {"enable_iter_req_stats": True}, {"enable_iter_perf_stats": True}, "warning"),
    (
        "events-without-reuse",
        "1.2.1",
        kv(event_buffer_max_size=1024, enable_block_reuse=False),
        kv(event_buffer_max_size=1024),
        "warning",
    ),
    (
        "transfer-blocks",
        "1.2.1",
        {"max_num_tokens": 8200, "cache_transceiver_config": {"backend": "UCX"}},
        {"max_num_tokens": 8192, "cache_transceiver_config": {"backend": "UCX"}},
        "error",
    ),
    (
        "helix-blocks",
        "1.4",
        {"context_parallel_size": 2, "cp_config": {"cp_type": "HELIX", "tokens_per_block": 64}},
        {"context_parallel_size": 2, "cp_config": {"cp_type": "HELIX", "tokens_per_block": 32}},
        "error",
    ),
    ("disk-cache", "1.4", kv(disk_cache_size=1), kv(disk_cache_size=1, disk_cache_path="/cache"), "error"),
    ("pool-ratio", "1.4", kv(pool_ratio=[0.5, 0.4]), kv(pool_ratio=[0.5, 0.5]), "error"),
    (
        "packed-cache",
        "1.4",
        kv(dtype="fp8_ds_mla", enable_kv_pool_rebalance=True),
        kv(dtype="fp8", enable_kv_pool_rebalance=True),
        "error",
    ),
    (
        "ray",
        "1.2.1",
        {"ray_worker_extension_cls": "a.B"},
        {"ray_worker_extension_cls": "a.B", "orchestrator_type": "ray"},
        "error",
    ),
    ("lora-prefetch", "1.2.1", {"peft_cache_config": {"lora_prefetch_dir": "/l"}}, {"peft_cache_config": {}}, "error"),
    ("cuda-graph-mode", "1.4", graphs(num_tokens=None), graphs(num_tokens=[64]), "error"),
    ("cuda-graph-mode", "1.4", graphs(max_seq_len=64, mode="decode"), graphs(max_seq_len=64, mode="encode"), "error"),
    (
        "connector-class",
        "1.4",
        {"kv_connector_config": {"connector_module": "m"}},
        {"kv_connector_config": {"connector": "lmcache"}},
        "error",
    ),
    (
        "argument-missing",
        "1.2.1",
        {"kv_connector_config": {"connector_module": "m"}},
        {"kv_connector_config": CONNECTOR},
        "error",
    ),
    (
        "calibration-file",
        "1.4",
        {"layer_wise_benchmarks_config": {"calibration_mode": "COLLECT"}},
        {"layer_wise_benchmarks_config": {"calibration_mode": "COLLECT", "calibration_file_path": "/c"}},
        "error",
    ),
    ("indexer-width", "1.4", sparse("deepseek_v4", index_head_dim=64), sparse("dsa", index_head_dim=64), "error"),
    (
        "indexer-width",
        "1.4",
        sparse("dsa", index_head_dim=64, indexer_k_dtype="fp4"),
        sparse("deepseek_v4", index_head_dim=64, indexer_k_dtype="fp8"),
        "error",
    ),
]


def fired(args: Args, version: str, rule: str, **more: Any) -> list[str]:
    return [each.severity for each in validate_llm_args(args, version, **more) if each.rule == rule]


@pytest.mark.parametrize(("rule", "version", "refused", "accepted", "severity"), CASES)
def test_a_rule_fires_on_its_case_and_not_beside_it(
    rule: str, version: str, refused: Args, accepted: Args, severity: str
) -> None:
    assert severity in fired(refused, version, rule)
    assert fired(accepted, version, rule) == []


# rule, version, case, refused arguments, accepted arguments, severity
MODEL_CASES: list[tuple[str, str, ModelCase, Args, Args, str]] = [
    (
        "mla-chunk",
        "1.2.1",
        HOPPER_V3,
        {"enable_chunked_prefill": True, "max_num_tokens": 2080},
        {"enable_chunked_prefill": True, "max_num_tokens": 2048},
        "error",
    ),
    (
        "mla-chunk",
        "1.2.1",
        ModelCase(architecture="deepseek_v3", sm=100),
        {"enable_chunked_prefill": True, "max_num_tokens": 20},
        {"enable_chunked_prefill": True, "max_num_tokens": 2080},
        "error",
    ),
    ("mla-block", "1.2.1", HOPPER_V3, kv(tokens_per_block=32), kv(tokens_per_block=64), "error"),
    (
        "indexer-block",
        "1.2.1",
        ModelCase(architecture="deepseek_v32"),
        kv(tokens_per_block=32),
        kv(tokens_per_block=64),
        "warning",
    ),
    ("v4-block", "1.4", V4, kv(tokens_per_block=64), kv(tokens_per_block=256), "error"),
    ("v4-beams", "1.4", V4, {"max_beam_width": 2}, {"max_beam_width": 1}, "error"),
    (
        "v4-hopper",
        "1.4",
        ModelCase(architecture="deepseek_v4", sm=90),
        kv(dtype="fp8"),
        kv(dtype="fp8_ds_mla"),
        "error",
    ),
    (
        "mla-chunked",
        "1.4",
        ModelCase(architecture="deepseek_v3", sm=89),
        {"enable_chunked_prefill": True},
        {"enable_chunked_prefill": False},
        "error",
    ),
    (
        "mla-reuse",
        "1.2.1",
        ModelCase(architecture="deepseek_v2", sm=89),
        kv(enable_block_reuse=True),
        kv(enable_block_reuse=False),
        "warning",
    ),
    (
        "w4a8-kv",
        "1.2.1",
        ModelCase(architecture="deepseek_v3", weights="w4afp8", sm=90),
        kv(dtype="fp8"),
        kv(dtype="auto"),
        "error",
    ),
    (
        "relaxed-acceptance",
        "1.2.1",
        ModelCase(architecture="deepseek_v32"),
        spec(decoding_type="MTP", use_relaxed_acceptance_for_thinking=True),
        spec(decoding_type="MTP"),
        "error",
    ),
    (
        "moe-backend",
        "1.2.1",
        HOPPER_V3,
        {"moe_config": {"backend": "TRTLLM"}},
        {"moe_config": {"backend": "CUTLASS"}},
        "error",
    ),
    (
        "moe-combine",
        "1.2.1",
        HOPPER_V3,
        {"moe_config": {"use_low_precision_moe_combine": True}},
        {"moe_config": {"use_low_precision_moe_combine": False}},
        "warning",
    ),
    (
        "moe-combine",
        "1.4",
        ModelCase(architecture="deepseek_v4", weights="fp8_block", sm=100),
        {"moe_config": {"use_low_precision_moe_combine": True}},
        {"moe_config": {"use_low_precision_moe_combine": False}},
        "warning",
    ),
    (
        "indexer-precision",
        "1.4",
        ModelCase(architecture="deepseek_v32", sm=90),
        {"sparse_attention_config": {"algorithm": "dsa", "indexer_k_dtype": "fp4"}},
        {"sparse_attention_config": {"algorithm": "dsa", "indexer_k_dtype": "fp8"}},
        "error",
    ),
]


@pytest.mark.parametrize(("rule", "version", "case", "refused", "accepted", "severity"), MODEL_CASES)
def test_a_rule_of_the_model_fires_on_its_case_and_not_beside_it(
    rule: str, version: str, case: ModelCase, refused: Args, accepted: Args, severity: str
) -> None:
    assert severity in fired(refused, version, rule, case=case)
    assert fired(accepted, version, rule, case=case) == []


def test_rules_of_the_model_are_silent_when_nothing_is_known_of_it() -> None:
    for _, version, _, refused, _, _ in MODEL_CASES:
        rules = {each.rule for each in validate_llm_args(refused, version)}
        assert not rules & {rule for rule, *_ in MODEL_CASES}


def test_the_engine_brings_its_own_cache_type() -> None:
    assert fired(kv(dtype="fp8"), "1.2.1", "engine-kv-dtype", engine_kind="trtllm-engine") == ["error"]
    assert fired(kv(dtype="auto"), "1.2.1", "engine-kv-dtype", engine_kind="trtllm-engine") == []
    args = {"guided_decoding_backend": "llguidance"}
    assert fired(args, "1.2.1", "engine-guided", engine_kind="trtllm-engine") == ["error"]


def test_an_engine_s_load_format_is_written_small() -> None:
    for word, found in (("AUTO", ["error"]), ("VISION_ONLY", ["error"]), ("auto", []), ("dummy", [])):
        assert fired({"load_format": word}, "1.2.1", "engine-load-format", engine_kind="trtllm-engine") == found
    assert fired({"load_format": "AUTO"}, "1.2.1", "engine-load-format") == []


def test_the_name_of_mtp_s_length_changes_between_1_2_and_1_4() -> None:
    old, new = spec(decoding_type="MTP", num_nextn_predict_layers=3), spec(decoding_type="MTP", max_draft_len=3)
    assert validate_llm_args(old, "1.2.1") == []
    assert validate_llm_args(new, "1.4") == []
    [deprecated] = validate_llm_args(old, "1.4")
    assert (deprecated.severity, deprecated.hint) == ("warning", "write speculative_config.max_draft_len")


def test_no_rule_stumbles_over_values_of_another_type() -> None:
    for wrong in (None, [], {}, "x", 1.5, True):
        for _, version, refused, _, _ in CASES:
            validate_llm_args(dict.fromkeys(refused, wrong), version, case=HOPPER_V3)
            nested = {key: dict.fromkeys(value, wrong) for key, value in refused.items() if isinstance(value, dict)}
            validate_llm_args(nested, version, case=V4)


def test_every_rule_has_its_sentence() -> None:
    names = [rule.__name__ for rule in (*RULES, *MODEL_RULES)]
    assert len(set(names)) == len(names)
