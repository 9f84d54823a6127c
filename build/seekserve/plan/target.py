"""The inputs of a deployment on GPUs, as one table beside `inputs.FIELDS`: flag, variable, place in the file, type.

Sources that disagree about the parallel shape are an error instead of a silent override: such a mistake costs an hour
of loading before it shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from .inputs import FIELDS, FieldSpec, Given, Inputs

__all__ = ["ALL_FIELDS", "TARGET_FIELDS", "shape_disagreements"]


def _spec(name: str, flag: str, key: str, kind: type, text: str, **more: object) -> FieldSpec:
    return FieldSpec(name=name, flag=flag, file_key=key, plan_key=key, kind=kind, help=text, **more)  # type: ignore[arg-type]


TARGET_FIELDS: tuple[FieldSpec, ...] = (
    _spec("gpu", "--gpu", "target.gpu", str, "GPU of the catalogue, or `auto` for those of this machine."),
    _spec("gpus", "--gpus", "target.gpus", int, "GPUs on all nodes together. [default: one node full]"),
    _spec("nodes", "--nodes", "target.nodes", int, "Hosts that the GPUs are on. [default: as few as they fill]"),
    _spec("tp", "--tp", "parallel.tp", int, "Tensor parallel size. [default: searched]"),
    _spec("pp", "--pp", "parallel.pp", int, "Pipeline stages. [default: searched]"),
    _spec("ep", "--ep", "parallel.ep", int, "Expert parallel size inside TP. [default: searched]"),
    _spec("moe_tp", "--moe-tp", "parallel.moe_tp", int, "Ranks that share one expert. [default: TP / EP]"),
    _spec(
        "attention_dp",
        "--attention-dp",
        "parallel.attention_dp",
        bool,
        "Divide requests over the TP ranks instead of attention heads. [default: searched]",
    ),
    _spec("mtp", "--mtp", "parallel.mtp", int, "Tokens drafted by multi-token prediction. [default: 0]", low=0),
    _spec("isl", "--isl", "workload.isl_tokens", int, "Prompt length of the workload. [default: 4000]"),
    _spec("osl", "--osl", "workload.osl_tokens", int, "Answer length of the workload. [default: 1000]"),
    _spec(
        "kv_fraction",
        "--kv-fraction",
        "kv_cache.fraction",
        float,
        "Part of the memory free after loading that the cache takes. [default: 0.9, lower where graphs need it]",
        low=0.01,
        high=1.0,
    ),
    _spec(
        "trtllm_version", "--trtllm-version", "target.trtllm_version", str, "TensorRT-LLM version. [default: by family]"
    ),
    _spec(
        "chunked_prefill",
        "--chunked-prefill",
        "limits.chunked_prefill",
        bool,
        "Cut prompts over several steps. [default: on where the kernels are there]",
    ),
    _spec("cuda_graphs", "--cuda-graphs", "limits.cuda_graphs", bool, "Capture CUDA graphs. [default: on]"),
    _spec(
        "indexer_dtype",
        "--indexer-dtype",
        "kv_cache.indexer_dtype",
        str,
        "Key format of the sparse-attention indexer. [default: fp8]",
        choices=("fp8", "fp4"),
    ),
    _spec(
        "capacity_policy",
        "--capacity-policy",
        "kv_cache.policy",
        str,
        "What happens when the cache is full. [default: GUARANTEED_NO_EVICT]",
        choices=("GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH"),
    ),
    _spec(
        "rank0_overhead_mib",
        "--rank0-overhead-mib",
        "memory.rank0_overhead_mib",
        int,
        "Charged to the first GPU of a host for each other rank there. [default: 500]",
        low=0,
    ),
    _spec(
        "host_cache_gib",
        "--host-cache",
        "kv_cache.host_cache_gib",
        float,
        "GiB of host memory for KV blocks that leave the GPU, all ranks together. [default: 0]",
        low=0,
    ),
    _spec(
        "kv_uvm",
        "--kv-uvm",
        "kv_cache.use_uvm",
        bool,
        "Let the cache exceed the GPU through unified memory. [default: off]",
    ),
)
ALL_FIELDS: tuple[FieldSpec, ...] = (*FIELDS, *TARGET_FIELDS)
_SHAPE = ("tp", "pp", "ep", "moe_tp")


def shape_disagreements(layers: Sequence[Inputs]) -> list[str]:
    """One sentence for each size of the parallel shape that two sources give differently."""
    problems = []
    for name in _SHAPE:
        given = [value for layer in layers if isinstance(value := getattr(layer, name), Given)]
        if len({value.value for value in given}) > 1:
            said = " and ".join(f"{value.value} ({value.source_text})" for value in given)
            problems.append(f"{name} is {said}: two sources must not disagree about the shape")
    return problems
