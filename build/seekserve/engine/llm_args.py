"""Plan -> arguments of tensorrt_llm.LLM for one version, each with its source; and their text as llm_args.yaml.

Only what was decided is there: a default of TensorRT-LLM that nobody chose stays absent. Names and rules of a version
are `seekserve.trtllm`'s, the guides' settings `plan.curated`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from seekserve.plan.case import Case
from seekserve.plan.curated import CuratedArgs
from seekserve.plan.deployment import Deployment
from seekserve.plan.plan import Plan
from seekserve.trtllm import VersionFacts
from seekserve.trtllm.schema import llm_schema

__all__ = ["OWNED", "Args", "decided_args", "gpus_per_node", "leaves", "nested", "yaml_text"]

_NEEDED: Final = "the service needs it"
OWNED: Final[Mapping[str, str]] = {
    "tensor_parallel_size": "--tp",
    "pipeline_parallel_size": "--pp",
    "moe_expert_parallel_size": "--ep",
    "moe_tensor_parallel_size": "--moe-tp",
    "moe_cluster_parallel_size": "--ep",
    "context_parallel_size": "--tp and --pp",
    "gpus_per_node": "--gpus and --nodes",
    "enable_attention_dp": "--attention-dp",
    "max_batch_size": "--max-batch-size",
    "max_num_tokens": "--max-num-tokens",
    "max_seq_len": "--max-seq-len",
    "max_beam_width": "--max-beam-width",
    "kv_cache_config.dtype": "--kv-dtype",
    "kv_cache_config.tokens_per_block": "--block-tokens",
    "kv_cache_config.free_gpu_memory_fraction": "--kv-fraction",
    "kv_cache_config.max_tokens": "--kv-capacity-tokens",
    "kv_cache_config.max_gpu_total_bytes": "--kv-capacity-tokens",
    "kv_cache_config.host_cache_size": "--host-cache",
    "kv_cache_config.use_uvm": "--kv-uvm",
    "enable_chunked_prefill": "--chunked-prefill",
    "scheduler_config.capacity_scheduler_policy": "--capacity-policy",
    "sparse_attention_config.indexer_k_dtype": "--indexer-dtype",
    "skip_tokenizer_init": "",
    "enable_iter_perf_stats": "",
}
"""What the plan, the scheduler and the limits of clients read too -> the flag that changes it for all of them."""
_ORDER: Final = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "moe_expert_parallel_size",
    "moe_tensor_parallel_size",
    "gpus_per_node",
    "enable_attention_dp",
    "attention_dp_config",
    "enable_lm_head_tp_in_adp",
    "max_batch_size",
    "max_num_tokens",
    "max_seq_len",
    "max_beam_width",
    "kv_cache_config",
    "enable_chunked_prefill",
    "scheduler_config",
    "cuda_graph_config",
    "moe_config",
    "speculative_config",
    "sparse_attention_config",
    "stream_interval",
    "enable_iter_perf_stats",
    "skip_tokenizer_init",
    "custom_tokenizer",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Args:
    """By dotted path; a section that is null as a whole stands as such."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def put(self, path: str, value: Any, source: str) -> None:
        self.values[path] = value
        self.sources[path] = source

    def drop(self, path: str) -> None:
        self.values.pop(path, None)
        self.sources.pop(path, None)


def decided_args(plan: Plan, version: VersionFacts, curated: CuratedArgs, *, max_beam_width: int | None) -> Args:
    """The plan's own win over curated ones of the same path."""
    deployment = plan.deployment
    assert deployment is not None
    args = Args()
    _shape(args, plan, deployment.case)
    _limits(args, plan)
    if max_beam_width is not None:
        args.put("max_beam_width", max_beam_width, "flag --max-beam-width")
    _cache(args, plan, deployment)
    _steps(args, plan, deployment)
    _drafts(args, plan, deployment.case, version)
    for path, value in curated.values.items():
        if path.startswith("speculative_config.") and not deployment.case.wish.mtp:
            continue
        if path not in args.values or path == "kv_cache_config.enable_block_reuse":
            args.put(path, value, curated.sources[path])
    args.put("enable_iter_perf_stats", True, f"{_NEEDED}: the scheduler reads the state of the cache from them")
    args.put("skip_tokenizer_init", True, f"{_NEEDED}: it turns text into tokens itself and passes tokens")
    return args


def gpus_per_node(case: Case) -> int:
    """Of one replica: a rank must not count GPUs that belong to another."""
    return min(case.target.gpus_per_node, case.shape.gpus)


def _shape(args: Args, plan: Plan, case: Case) -> None:
    shape, sources = case.shape, plan.sources
    args.put("tensor_parallel_size", shape.tp, sources["parallel.tp"])
    args.put("pipeline_parallel_size", shape.pp, sources["parallel.pp"])
    if case.model.is_moe:
        args.put("moe_expert_parallel_size", shape.ep, sources["parallel.ep"])
        args.put("moe_tensor_parallel_size", shape.moe_tp, sources["parallel.moe_tp"])
    args.put("gpus_per_node", gpus_per_node(case), "derived: GPUs of one replica on each host")
    args.put("enable_attention_dp", shape.attention_dp, sources["parallel.attention_dp"])


def _limits(args: Args, plan: Plan) -> None:
    sources = plan.sources
    args.put("max_batch_size", plan.limits.max_batch_size, sources["limits.max_batch_size"])
    args.put("max_num_tokens", plan.limits.max_num_tokens, sources["limits.max_num_tokens"])
    args.put("max_seq_len", plan.limits.max_seq_len_tokens, sources["limits.max_seq_len_tokens"])


def _cache(args: Args, plan: Plan, deployment: Deployment) -> None:
    case, sources = deployment.case, plan.sources
    if plan.kv.dtype == "fp8_e4m3":
        args.put("kv_cache_config.dtype", "fp8", sources["kv_cache.dtype"])
    args.put("kv_cache_config.tokens_per_block", plan.kv.block_tokens, sources["kv_cache.block_tokens"])
    args.put("kv_cache_config.free_gpu_memory_fraction", case.fraction, sources["kv_cache.fraction"])
    if case.wish.max_tokens is not None:
        # Every attention-DP rank has a pool of its own, and counts its own tokens.
        per_pool = case.wish.max_tokens // case.shape.kv_pools // plan.kv.block_tokens * plan.kv.block_tokens
        args.put("kv_cache_config.max_tokens", per_pool, sources["kv_cache.capacity_blocks"])
    args.put("kv_cache_config.enable_block_reuse", deployment.block_reuse, "derived: from model and GPU generation")
    if deployment.host_cache_bytes:
        per_rank = deployment.host_cache_bytes // case.shape.gpus
        args.put("kv_cache_config.host_cache_size", per_rank, f"{sources['kv_cache.host_cache_gib']}, for each rank")
    if deployment.use_uvm:
        args.put("kv_cache_config.use_uvm", True, sources["kv_cache.use_uvm"])


def _steps(args: Args, plan: Plan, deployment: Deployment) -> None:
    sources, graphs = plan.sources, deployment.cuda_graph_batch_sizes
    args.put("enable_chunked_prefill", deployment.case.wish.chunked_prefill, sources["limits.chunked_prefill"])
    policy = "scheduler_config.capacity_scheduler_policy"
    args.put(policy, deployment.capacity_policy, sources["kv_cache.policy"])
    if not graphs:
        args.put("cuda_graph_config", None, sources["limits.cuda_graphs"])
        return
    args.put("cuda_graph_config.batch_sizes", list(graphs), "derived: the sizes whose memory the plan counts")
    args.put("cuda_graph_config.enable_padding", True, "derived: a batch between two sizes runs as the larger one")


def _drafts(args: Args, plan: Plan, case: Case, version: VersionFacts) -> None:
    wish, sources = case.wish, plan.sources
    if wish.mtp:
        args.put("speculative_config.decoding_type", "MTP", sources["parallel.mtp"])
        args.put(f"speculative_config.{draft_length_name(version)}", wish.mtp, sources["parallel.mtp"])
    indexer = sources["kv_cache.indexer_dtype"]
    if case.model.architecture == "deepseek_v32" and indexer != "default":
        args.put("sparse_attention_config.algorithm", "dsa", indexer)
        args.put("sparse_attention_config.indexer_k_dtype", wish.indexer_dtype, indexer)


def draft_length_name(version: VersionFacts) -> str:
    """The old name as long as one state around the version knows it without a word of warning."""
    old = llm_schema().configs["MTP"]["num_nextn_predict_layers"]
    is_old_gone = all(state.has(old.deprecated_in) for state in version.between)
    return old.renamed_to.rpartition(".")[2] if is_old_gone else old.name


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """In the order of the file: shape, limits, cache, steps, kernels, the rest."""
    out: dict[str, Any] = {}
    for path in sorted(values, key=_place):
        *sections, name = path.split(".")
        place = out
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = values[path]
    return out


def leaves(args: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted paths of what was given; an empty section counts as a value."""
    out: dict[str, Any] = {}
    for key, value in args.items():
        if isinstance(value, Mapping) and value:
            out.update(leaves(value, f"{prefix}{key}."))
        else:
            out[f"{prefix}{key}"] = value
    return out


def yaml_text(args: Mapping[str, Any], comments: Sequence[str]) -> str:
    """Sections in blocks, lists of numbers on one line."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    Dumper.add_representer(list, lambda d, items: d.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True))
    body = yaml.dump(args, Dumper=Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=120)
    return "".join(f"# {comment}\n" for comment in comments) + body


def _place(path: str) -> int:
    top = path.partition(".")[0]
    return _ORDER.index(top) if top in _ORDER else len(_ORDER)
