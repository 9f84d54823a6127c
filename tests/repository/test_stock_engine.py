"""The stock C++ model's configuration: complete tensors, parameters from the bundle alone, the unset left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from toy_trtllm import ENGINE_ARGS, toy_trtllm

from seekserve.errors import ConfigError, ConflictError, InputError
from seekserve.repository.check import parse_config
from seekserve.repository.placement import Placement
from seekserve.repository.render import Rendering, RenderOptions, render
from seekserve_backend.contract.stock_model import STOCK_INPUTS, STOCK_OUTPUTS

OPTIONS = RenderOptions(
    model_name="chat", bundle_dir=Path("/srv/b"), topology="stock-engine", llm_args=ENGINE_ARGS, has_paged_context=True
)
SHIPPED = {"FORCE_CPU_ONLY_INPUT_TENSORS", "executor_worker_path"}
ALWAYS = {"gpt_model_type", "gpt_model_path", "max_beam_width", "exclude_input_in_output"}


def rendered(version: str = "1.2.1", **options: Any) -> Rendering:
    return render(toy_trtllm("trtllm-engine", version, tp=2), dataclasses.replace(OPTIONS, **options))


def parameters(llm_args: Mapping[str, Any], **options: Any) -> dict[str, str]:
    config = parse_config(rendered(llm_args=llm_args, **options).files["tensorrt_llm/config.pbtxt"])
    return {key: value.string_value for key, value in config.parameters.items()}


@pytest.mark.parametrize("version", ["1.2.1", "1.3.0rc20"])
def test_every_tensor_of_the_stock_model_is_declared_with_its_type(version: str) -> None:
    config = parse_config(rendered(version).files["tensorrt_llm/config.pbtxt"])
    assert [tensor.name for tensor in config.input] == [tensor.name for tensor in STOCK_INPUTS]
    assert [tensor.name for tensor in config.output] == [tensor.name for tensor in STOCK_OUTPUTS]
    by_name = {tensor.name: tensor for tensor in config.input}
    assert by_name["input_lengths"].HasField("reshape")
    assert by_name["input_ids"].allow_ragged_batch
    assert list(by_name["stop_words_list"].dims) == [2, -1]


def test_the_front_names_the_stock_model_and_clients_call_the_front() -> None:
    rendering = rendered(stock_name="engine")
    assert [model.name for model in rendering.models] == ["chat", "engine"]
    assert rendering.models[0].parameters["stock_model"] == "engine"
    assert set(rendering.files) == {
        "chat/config.pbtxt", "chat/policy.json", "chat/1/.keep", "engine/config.pbtxt", "engine/1/.keep",
    }  # fmt: skip


def test_what_nobody_set_is_absent() -> None:
    assert set(parameters({})) == SHIPPED | ALWAYS


@pytest.mark.parametrize(
    ("args", "name", "text"),
    [
        ({"kv_cache_config": {"max_tokens": 4096}}, "max_tokens_in_paged_kv_cache", "4096"),
        ({"kv_cache_config": {"max_attention_window": [4096, 512]}}, "max_attention_window_size", "4096,512"),
        ({"kv_cache_config": {"host_cache_size": 1 << 30}}, "kv_cache_host_memory_bytes", "1073741824"),
        ({"kv_cache_config": {"enable_block_reuse": False}}, "enable_kv_cache_reuse", "false"),
        ({"kv_cache_config": {"free_gpu_memory_fraction": 0.5}}, "kv_cache_free_gpu_mem_fraction", "0.5"),
        (
            {"scheduler_config": {"capacity_scheduler_policy": "MAX_UTILIZATION"}},
            "batch_scheduler_policy",
            "max_utilization",
        ),
        ({"batching_type": "STATIC"}, "gpt_model_type", "V1"),
        ({"extended_runtime_perf_knob_config": {"multi_block_mode": False}}, "multi_block_mode", "false"),
        ({"peft_cache_config": {"max_adapter_size": 32}}, "lora_cache_max_adapter_size", "32"),
        ({"max_beam_width": 4}, "max_beam_width", "4"),
    ],
)
def test_the_bundles_arguments_become_the_models_parameters(args: Mapping[str, Any], name: str, text: str) -> None:
    assert parameters(args)[name] == text


def test_what_the_engine_fixed_and_what_is_null_leaves_no_trace() -> None:
    args = {
        "tensor_parallel_size": 2,
        "max_batch_size": 64,
        "build_config": {"max_seq_len": 1},
        "kv_cache_config": {"dtype": "fp8", "tokens_per_block": 64, "max_tokens": None},
    }
    assert set(parameters(args)) == SHIPPED | ALWAYS


def test_an_argument_without_a_counterpart_is_no_silent_loss() -> None:
    args = {
        "cuda_graph_config": {"enable_padding": True},
        "scheduler_config": {"capacity_scheduler_policy": "STATIC_BATCH"},
    }
    with pytest.raises(ConflictError, match="2 problems") as caught:
        rendered(llm_args=args)
    assert "cuda_graph_config.enable_padding has no counterpart in the stock model" in str(caught.value)
    assert "STATIC_BATCH, but the stock model knows" in str(caught.value)


def test_a_users_parameter_is_added_and_validated() -> None:
    assert parameters({}, stock_parameters={"stats_check_period_ms": "20"})["stats_check_period_ms"] == "20"
    with pytest.raises(ConfigError, match="stats_check_period_ms"):
        rendered(stock_parameters={"stats_check_period_ms": "often"})


def test_a_parameter_that_the_bundle_decides_is_not_decided_twice() -> None:
    same = {"kv_cache_free_gpu_mem_fraction": "0.85"}
    assert parameters(ENGINE_ARGS, stock_parameters=same)["kv_cache_free_gpu_mem_fraction"] == "0.85"
    with pytest.raises(ConflictError, match=r"is '0\.5' on the command line, but '0\.85' by the bundle"):
        rendered(stock_parameters={"kv_cache_free_gpu_mem_fraction": "0.5"})


def test_the_cancellation_period_has_one_value() -> None:
    name = "cancellation_check_period_ms"
    assert parameters({}, cancellation_check_ms=20, stock_parameters={name: "20"})[name] == "20"
    with pytest.raises(ConflictError, match=f"--cancellation-check-ms is 20, but --stock-parameter {name} is 50"):
        rendered(cancellation_check_ms=20, stock_parameters={name: "50"})


def test_gpus_come_as_lists_and_as_one_instance() -> None:
    assert parameters({}, placement=Placement(gpus=((4, 5),)))["gpu_device_ids"] == "4,5"
    with pytest.raises(InputError, match="use --gpus"):
        rendered(stock_parameters={"gpu_device_ids": "0,1"})
    with pytest.raises(ConflictError, match="behind one scheduler"):
        rendered(placement=Placement(instances=2, gpus=((0, 1), (2, 3))))


def test_an_engine_without_paged_context_cannot_chunk() -> None:
    with pytest.raises(ConfigError, match="use_paged_context_fmha"):
        rendered(has_paged_context=False)
    assert any(
        "use_paged_context_fmha" in warning for warning in rendered(llm_args={}, has_paged_context=False).warnings
    )


def test_a_version_without_engines_has_no_stock_model() -> None:
    with pytest.raises(ConfigError, match=r"TensorRT-LLM 1\.4\.0rc4 does not have"):
        rendered("1.4.0rc4")


def test_front_and_stock_model_need_two_names() -> None:
    with pytest.raises(InputError, match="is the name of the model in front of it too"):
        rendered(stock_name="chat")


def test_the_number_of_nodes_is_said_when_there_are_several() -> None:
    bundle = toy_trtllm("trtllm-engine", tp=16, nodes=2)
    text = render(bundle, OPTIONS).files["tensorrt_llm/config.pbtxt"]
    assert parse_config(text).parameters["num_nodes"].string_value == "2"
