"""A small model repository of the stock engine path, whole and right; tests break one thing in it.

Shapes after triton-inference-server/tensorrtllm_backend, all_models/inflight_batcher_llm, reduced to what is checked.
"""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["edit", "write_llmapi", "write_stock"]

_TENSORRT_LLM = """\
name: "tensorrt_llm"
backend: "tensorrtllm"
max_batch_size: 64
model_transaction_policy {{
  decoupled: true
}}
input [
  {{ name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true }},
  {{ name: "input_lengths" data_type: TYPE_INT32 dims: [ 1 ] reshape: {{ shape: [ ] }} }},
  {{ name: "request_output_len" data_type: TYPE_INT32 dims: [ 1 ] }}
]
output [
  {{ name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] }},
  {{ name: "sequence_length" data_type: TYPE_INT32 dims: [ -1 ] }}
]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
parameters: {{ key: "gpt_model_type" value: {{ string_value: "inflight_fused_batching" }} }}
parameters: {{
  key: "gpt_model_path"
  value: {{ string_value: "{engine}" }}
}}
parameters: {{ key: "kv_cache_free_gpu_mem_fraction" value: {{ string_value: "0.9" }} }}
"""
_PREPROCESSING = """\
name: "preprocessing"
backend: "python"
max_batch_size: 64
input [
  {{ name: "QUERY" data_type: TYPE_STRING dims: [ 1 ] }},
  {{ name: "REQUEST_OUTPUT_LEN" data_type: TYPE_INT32 dims: [ 1 ] }}
]
output [
  {{ name: "INPUT_ID" data_type: TYPE_INT32 dims: [ -1 ] }},
  {{ name: "REQUEST_INPUT_LEN" data_type: TYPE_INT32 dims: [ 1 ] }},
  {{ name: "REQUEST_OUTPUT_LEN" data_type: TYPE_INT32 dims: [ 1 ] }}
]
parameters {{ key: "tokenizer_dir" value: {{ string_value: "{tokenizer}" }} }}
"""
_POSTPROCESSING = """\
name: "postprocessing"
backend: "python"
max_batch_size: 64
input [
  {{ name: "TOKENS_BATCH" data_type: TYPE_INT32 dims: [ -1, -1 ] }},
  {{ name: "SEQUENCE_LENGTH" data_type: TYPE_INT32 dims: [ -1 ] }}
]
output [ {{ name: "OUTPUT" data_type: TYPE_STRING dims: [ -1 ] }} ]
parameters {{ key: "tokenizer_dir" value: {{ string_value: "{tokenizer}" }} }}
"""
_BLS = """\
name: "tensorrt_llm_bls"
backend: "python"
max_batch_size: 64
model_transaction_policy {{ decoupled: true }}
input [
  {{ name: "text_input" data_type: TYPE_STRING dims: [ 1 ] }},
  {{ name: "max_tokens" data_type: TYPE_INT32 dims: [ 1 ] }}
]
output [ {{ name: "text_output" data_type: TYPE_STRING dims: [ -1 ] }} ]
parameters: {{ key: "accumulate_tokens" value: {{ string_value: "false" }} }}
parameters: {{ key: "tensorrt_llm_model_name" value: {{ string_value: "tensorrt_llm" }} }}
"""
_ENSEMBLE = """\
name: "ensemble"
platform: "ensemble"
max_batch_size: 64
input [
  {{ name: "text_input" data_type: TYPE_STRING dims: [ 1 ] }},
  {{ name: "max_tokens" data_type: TYPE_INT32 dims: [ 1 ] }}
]
output [ {{ name: "text_output" data_type: TYPE_STRING dims: [ -1 ] }} ]
ensemble_scheduling {{
  step [
    {{
      model_name: "preprocessing" model_version: -1
      input_map {{ key: "QUERY" value: "text_input" }}
      input_map {{ key: "REQUEST_OUTPUT_LEN" value: "max_tokens" }}
      output_map {{ key: "INPUT_ID" value: "ids" }}
      output_map {{ key: "REQUEST_INPUT_LEN" value: "lengths" }}
      output_map {{ key: "REQUEST_OUTPUT_LEN" value: "wanted" }}
    }},
    {{
      model_name: "tensorrt_llm" model_version: -1
      input_map {{ key: "input_ids" value: "ids" }}
      input_map {{ key: "input_lengths" value: "lengths" }}
      input_map {{ key: "request_output_len" value: "wanted" }}
      output_map {{ key: "output_ids" value: "tokens" }}
      output_map {{ key: "sequence_length" value: "counts" }}
    }},
    {{
      model_name: "postprocessing" model_version: -1
      input_map {{ key: "TOKENS_BATCH" value: "tokens" }}
      input_map {{ key: "SEQUENCE_LENGTH" value: "counts" }}
      output_map {{ key: "OUTPUT" value: "text_output" }}
    }}
  ]
}}
"""
_MODELS = {
    "tensorrt_llm": _TENSORRT_LLM,
    "preprocessing": _PREPROCESSING,
    "postprocessing": _POSTPROCESSING,
    "tensorrt_llm_bls": _BLS,
    "ensemble": _ENSEMBLE,
}
_LLMAPI = """\
name: "tensorrt_llm"
backend: "python"
max_batch_size: 0
model_transaction_policy { decoupled: true }
input [ { name: "text_input" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""
_MODEL_YAML = """\
model: {model}
enable_iter_perf_stats: true
tensor_parallel_size: 8
kv_cache_config:
  free_gpu_memory_fraction: 0.8
triton_config:
  max_batch_size: 0
  decoupled: true
"""


def write_stock(folder: Path, *, ranks: int = 2) -> Path:
    """`folder`/{engine,tokenizer,repository}; returns the repository."""
    engine, tokenizer, repository = folder / "engine", folder / "tokenizer", folder / "repository"
    engine.mkdir()
    mapping = {"world_size": ranks, "tp_size": ranks, "pp_size": 1}
    config = {
        "version": "1.2.1",
        "pretrained_config": {"architecture": "LlamaForCausalLM", "dtype": "bfloat16", "mapping": mapping},
        "build_config": {"max_batch_size": 64, "max_seq_len": 4096, "max_num_tokens": 8192, "plugin_config": {}},
    }
    (engine / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for rank in range(ranks):
        (engine / f"rank{rank}.engine").write_bytes(b"plan")
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text("{}", encoding="utf-8")
    for name, text in _MODELS.items():
        (repository / name / "1").mkdir(parents=True)
        config_text = text.format(engine=engine, tokenizer=tokenizer)
        (repository / name / "config.pbtxt").write_text(config_text, encoding="utf-8")
        if 'backend: "python"' in text:
            (repository / name / "1" / "model.py").write_text("", encoding="utf-8")
    return repository


def write_llmapi(folder: Path) -> Path:
    model, repository = folder / "checkpoint", folder / "repository"
    model.mkdir()
    (model / "config.json").write_text("{}", encoding="utf-8")
    version = repository / "tensorrt_llm" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text("", encoding="utf-8")
    (version / "model.yaml").write_text(_MODEL_YAML.format(model=model), encoding="utf-8")
    (repository / "tensorrt_llm" / "config.pbtxt").write_text(_LLMAPI, encoding="utf-8")
    return repository


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text, (old, path)
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
