"""Topology `llmapi`: the stock LLM-API model alone, configured from the bundle.

`decoupled` and `max_batch_size` stand in config.pbtxt and in model.yaml alike: the model reads the second, Triton the
first unless it may complete configurations, and both must say the same. model.py comes from the user's own image.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from seekserve.errors import ConflictError
from seekserve.trtllm import raise_errors, validate_llm_args
from seekserve_backend.contract.bundle import Bundle, TrtllmSpec

from .model_config import CONFIG_FILE, KIND_CPU_NOTES, VERSION_FOLDER, ModelConfig, TensorConfig, config_text
from .render import Rendering, RenderOptions, bundle_header
from .stock_files import NEEDED

__all__ = ["MODEL_YAML", "llmapi"]

MODEL_YAML = "model.yaml"
_BATCH_NOTES = ("The stock model takes one request at a time and batches inside the engine.",)
_SAMPLING: Final = {
    "best_of": "INT32",
    "temperature": "FP32",
    "top_k": "INT32",
    "top_p": "FP32",
    "frequency_penalty": "FP32",
    "presence_penalty": "FP32",
    "max_tokens": "INT32",
}


def _in(name: str, data_type: str, size: int = 1, *, is_optional: bool = True) -> TensorConfig:
    return TensorConfig(name=name, data_type=f"TYPE_{data_type}", dims=(size,), is_optional=is_optional)


def _out(data_type: str, size: int, *names: str) -> tuple[TensorConfig, ...]:
    return tuple(TensorConfig(name=name, data_type=f"TYPE_{data_type}", dims=(size,)) for name in names)


# Those of every image; newer ones know lora_* and image_url too, which are declared when the image's own config.pbtxt
# is there to say so. Source: TensorRT-LLM, triton_backend/all_models/llmapi/tensorrt_llm/config.pbtxt @c8c6df08b.
_INPUTS: Final = (
    _in("text_input", "STRING", -1, is_optional=False),
    _in("streaming", "BOOL"),
    *(_in(f"sampling_param_{name}", data_type) for name, data_type in _SAMPLING.items()),
    _in("sampling_param_stop", "STRING", -1),
    _in("sampling_param_seed", "UINT64"),
    _in("sampling_param_exclude_input_from_output", "BOOL"),
    _in("sampling_param_return_perf_metrics", "BOOL"),
    *(_in(f"return_{name}", "BOOL") for name in ("finish_reason", "stop_reason", "cumulative_logprob")),
    _in("stop", "BOOL"),
)
_OUTPUTS: Final = (
    *_out("STRING", -1, "text_output", "finish_reason", "stop_reason"),
    *_out("FP32", -1, "cumulative_logprob"),
    *_out("INT32", -1, "kv_cache_reused_block", "kv_cache_missed_block"),
    *_out("INT32", -1, "kv_cache_alloc_new_blocks", "kv_cache_alloc_total_blocks"),
    *_out("FP32", -1, "kv_cache_hit_rate"),
    *_out("INT64", 1, "arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns"),
    *_out("FP32", 1, "acceptance_rate"),
    *_out("INT32", 1, "total_accepted_draft_tokens", "total_draft_tokens"),
)


def llmapi(bundle: Bundle, options: RenderOptions) -> Rendering:
    spec = bundle.trtllm
    assert spec is not None, "the caller has checked the engine kind"
    name, stock, warnings = options.model_name, options.stock_files, []
    yaml_text, found = _model_yaml(bundle, spec, options)
    warnings += found
    if options.placement.instances > 1:
        warnings += _instances(options)
    model = ModelConfig(
        name=name,
        backend="python",
        max_batch_size=0,
        is_decoupled=options.is_streaming,
        inputs=stock.inputs if stock is not None and stock.inputs else _INPUTS,
        outputs=stock.outputs if stock is not None and stock.outputs else _OUTPUTS,
        parameters=options.placement.parameters,
        instances=options.placement.instances,
    )
    text = config_text(model, header=bundle_header(bundle), batch_notes=_BATCH_NOTES, instance_notes=KIND_CPU_NOTES)
    files = {f"{name}/{CONFIG_FILE}": text, f"{name}/{VERSION_FOLDER}/{MODEL_YAML}": yaml_text}
    if stock is None:
        warnings.append(f"{' and '.join(NEEDED)} are not in it yet: they come from the image that will serve")
    else:
        files |= {f"{name}/{VERSION_FOLDER}/{file}": content for file, content in stock.texts.items()}
    return Rendering(models=(model,), files=files, warnings=tuple(warnings))


def _model_yaml(bundle: Bundle, spec: TrtllmSpec, options: RenderOptions) -> tuple[str, list[str]]:
    import yaml

    args = {
        "model": os.fspath(options.bundle_dir / spec.model_dir),
        "tokenizer": os.fspath(options.bundle_dir / "tokenizer"),
        # Our backend tokenises itself and may switch the engine's tokenizer off; the stock model needs it.
        **{key: value for key, value in options.llm_args.items() if key not in ("model", "skip_tokenizer_init")},
    }
    findings = validate_llm_args(args, spec.version, engine_kind="trtllm-pytorch")
    raise_errors(findings, f"llm_args.yaml of the bundle for TensorRT-LLM {spec.version}")
    triton: dict[str, Any] = {"max_batch_size": 0, "decoupled": options.is_streaming}
    if options.cancellation_check_ms is not None:
        triton["cancellation_check_period_ms"] = options.cancellation_check_ms
    document: Mapping[str, Any] = {**args, "triton_config": triton}
    header = "".join(f"# {line}\n" for line in bundle_header(bundle))
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=False, width=10_000)
    return header + text, [finding.text for finding in findings if not finding.is_error]


def _instances(options: RenderOptions) -> list[str]:
    stock = options.stock_files
    if stock is None:
        return ["several instances need a model.py that reads gpu_device_ids (images since early 2026); not checked"]
    if not stock.has_instances:
        raise ConflictError(
            f"{options.placement.instances} instances, but {stock.folder / 'model.py'} does not read gpu_device_ids, "
            "so all of them would take the same GPUs",
            hint="take model.py from a newer image, or render one instance",
        )
    return []
