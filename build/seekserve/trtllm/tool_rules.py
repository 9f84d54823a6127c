"""Flags that are each fine and together are not: rules of build() in builder.py @008b2b8d2 and of the scripts.

One function per rule; TOOL_RULES is the list. What the builder would switch off silently is an error when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from .case import ModelCase
from .finding import ArgFinding, error, warning

__all__ = ["TOOL_RULES", "Flags"]

_FP8_WEIGHTS: Final = ("fp8_tensor", "w4a8_awq", "nvfp4")
"""QuantAlgo FP8, W4A8_AWQ and NVFP4: those with which the builder keeps FP8 context attention. Row-wise FP8 is none."""
_INT8_OR_INT4: Final = ("int8", "int4", "awq", "gptq", "w4a8_awq")
_FORCED_PROFILES: Final = "BUILDER_FORCE_NUM_PROFILES"
_FP8_PLUGINS: Final = ("gemm_swiglu_plugin", "low_latency_gemm_plugin", "low_latency_gemm_swiglu_plugin")
_ENABLE: Final = "enable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    tool: str
    given: Mapping[str, object]
    case: ModelCase
    environment: Mapping[str, str] = field(default_factory=dict)
    """What the child process will get."""

    @property
    def builds(self) -> bool:
        return self.tool == "trtllm-build"

    @property
    def converts(self) -> bool:
        return self.tool.startswith("convert-")

    def number(self, name: str, default: int) -> int:
        value = self.given.get(name, default)
        return value if type(value) is int else default

    def asks(self, name: str) -> bool:
        return self.given.get(name) == _ENABLE

    def is_off(self, name: str) -> bool:
        return self.given.get(name) == "disable"


def sources(flags: Flags) -> Iterator[ArgFinding]:
    named = [name for name in ("checkpoint_dir", "model_config", "build_config") if name in flags.given]
    if flags.builds and not named:
        yield error("build-source", "--checkpoint_dir", "is missing, but trtllm-build needs something to build")
    if flags.builds and "build_config" in flags.given and (others := set(flags.given) & _REPLACED):
        message = f"replaces {', '.join(sorted(others))}, which are given too"
        yield error("build-source", "--build_config", message, "put everything into the file, or use flags only")
    if flags.builds and ("model_cls_file" in flags.given) != ("model_cls_name" in flags.given):
        yield error("build-source", "--model_cls_file", "needs --model_cls_name, and the other way round")


def sequence_length_is_given(flags: Flags) -> Iterator[ArgFinding]:
    if flags.builds and not {"max_seq_len", "build_config"} & set(flags.given):
        message = "is not given: the builder then takes max_position_embeddings times the rope factor"
        if flags.case.architecture == "deepseek_v2":
            yield error(
                "seq-len", "--max_seq_len", f"{message}, about 6.5 million tokens here", "give the plan's value"
            )
        else:
            yield warning("seq-len", "--max_seq_len", message, "give the plan's value")


def token_limits(flags: Flags) -> Iterator[ArgFinding]:
    if not flags.builds:
        return
    tokens, block = flags.number("max_num_tokens", 8192), flags.number("tokens_per_block", 32)
    batch, length = flags.number("max_batch_size", 2048), flags.number("max_seq_len", 0)
    path = "--max_num_tokens"
    if tokens < block:
        yield error("token-limit", path, f"is {tokens}, less than a block of {block} tokens; it would be raised to it")
    if "max_num_tokens" in flags.given and length and tokens > length * batch:
        message = f"is {tokens}, but {batch} requests of {length} tokens are {length * batch}; it would be cut to that"
        yield warning("token-limit", path, message)
    if tokens > 16384:
        yield warning("token-limit", path, f"is {tokens}; above 16384 the builder warns of slow kernels")
    if "max_input_len" in flags.given and length and flags.number("max_input_len", 0) > length:
        message = f"is {flags.number('max_input_len', 0)}, above max_seq_len {length}; it would be cut to it"
        yield error("token-limit", "--max_input_len", message)


def profiles(flags: Flags) -> Iterator[ArgFinding]:
    if not flags.builds:
        return
    if "opt_num_tokens" in flags.given and flags.asks("multiple_profiles"):
        yield error("profiles", "--opt_num_tokens", "cannot be used with --multiple_profiles enable", "leave it out")
    forced = flags.environment.get(_FORCED_PROFILES)
    if forced is not None:
        message = f"is {forced} in the environment and overrides the number of profiles, whatever the flags say"
        yield error("profiles", _FORCED_PROFILES, message, "unset it; --multiple_profiles enable is the way to more")


def context_attention(flags: Flags) -> Iterator[ArgFinding]:
    if not flags.builds:
        return
    for name in ("use_paged_context_fmha", "use_fp8_context_fmha"):
        if flags.asks(name) and flags.is_off("context_fmha"):
            yield error("context-fmha", f"--{name}", "is switched off by --context_fmha disable", "enable context_fmha")
    case = flags.case
    has_fp8_weights, has_fp8_cache = case.weights in _FP8_WEIGHTS, case.kv_dtype == "fp8_e4m3"
    if case.weights and has_fp8_cache and not has_fp8_weights:
        yield from _loses_paged_context(flags, f"FP8 KV with {case.weights} weights")
    elif case.sm and case.sm < 89 and has_fp8_cache:
        yield from _loses_paged_context(flags, f"FP8 KV on SM{case.sm}")
    elif case.kv_dtype == "int8":
        # NVIDIA/TensorRT-LLM issue 2166
        yield from _loses_paged_context(flags, "INT8 KV")
    if not flags.asks("use_fp8_context_fmha"):
        return
    if case.sm and case.sm < 89:
        yield error("fp8-context-fmha", "--use_fp8_context_fmha", f"needs SM89 or later, the GPU is SM{case.sm}")
    elif case.weights and not has_fp8_weights:
        message = f"needs FP8, W4A8 or NVFP4 weights, these are {case.weights}"
        yield error("fp8-context-fmha", "--use_fp8_context_fmha", message, "leave it out")
    elif has_fp8_weights and case.kv_dtype and not has_fp8_cache and not flags.is_off("use_paged_context_fmha"):
        message = f"is switched off with paged context and {case.kv_dtype} KV"
        yield error("fp8-context-fmha", "--use_fp8_context_fmha", message, "use FP8 KV, or leave it out")


def _loses_paged_context(flags: Flags, why: str) -> Iterator[ArgFinding]:
    message = f"{why} switches paged context off: no KV reuse and no chunked context"
    hint = "use another KV type, or --use_paged_context_fmha disable if neither is wanted"
    if flags.is_off("use_paged_context_fmha"):
        return
    make = error if flags.asks("use_paged_context_fmha") else warning
    yield make("paged-context", "--use_paged_context_fmha", message, hint)


def plugins(flags: Flags) -> Iterator[ArgFinding]:
    if not flags.builds:
        return
    if flags.asks("streamingllm"):
        yield error("plugin", "--streamingllm", "ends in an assertion", "streaming needs no flag; leave it out")
    if flags.asks("user_buffer") and not flags.asks("reduce_fusion"):
        yield error("plugin", "--user_buffer", "needs --reduce_fusion enable")
    if flags.asks("reduce_fusion") and flags.case.architecture not in ("", "llama"):
        yield warning("plugin", "--reduce_fusion", f"is switched off for {flags.case.architecture}: Llama only")
    if flags.asks("reduce_fusion") and flags.case.world_size == 1:
        yield warning("plugin", "--reduce_fusion", "is switched off on one GPU")
    if flags.asks("pp_reduce_scatter"):
        yield error("plugin", "--pp_reduce_scatter", "is for Mixtral only", "leave it out")
    if flags.given.get("gemm_swiglu_plugin") == "fp8" and flags.is_off("use_fused_mlp"):
        yield error("plugin", "--gemm_swiglu_plugin", "needs --use_fused_mlp enable")
    if flags.asks("norm_quant_fusion") and not _fuses_norms(flags):
        message = "is switched off unless it is Llama with NVFP4 weights and without reduce_fusion"
        yield warning("plugin", "--norm_quant_fusion", message, "leave it out")
    for name in _FP8_PLUGINS:
        if flags.given.get(name) not in (None, "disable") and flags.case.weights not in ("", "fp8_tensor"):
            message = f"is for FP8 weights only, these are {flags.case.weights}"
            yield error("plugin", f"--{name}", message, "leave it out")
    gemm = flags.given.get("gemm_plugin")
    if gemm in ("fp8", "nvfp4") and flags.case.weights and not flags.case.weights.startswith(gemm):
        yield error("plugin", "--gemm_plugin", f"is {gemm}, the weights are {flags.case.weights}", "use auto")
    if gemm not in (None, "disable", "fp8", "nvfp4") and flags.case.weights.startswith("fp8"):
        yield warning("plugin", "--gemm_plugin", f"is {gemm}; with FP8 weights it is advised off", "leave it out")
    if 100 <= flags.case.sm < 120:
        for name in (*_FP8_PLUGINS, "fp8_rowwise_gemm_plugin"):
            if flags.given.get(name) not in (None, "disable"):
                yield error("plugin", f"--{name}", f"is refused on SM{flags.case.sm}", "leave it out")


def _fuses_norms(flags: Flags) -> bool:
    return (
        flags.case.architecture in ("", "llama")
        and flags.case.weights in ("", "nvfp4")
        and not flags.asks("reduce_fusion")
    )


def speculation(flags: Flags) -> Iterator[ArgFinding]:
    if not flags.builds:
        return
    length, mode = flags.number("max_draft_len", 0), flags.given.get("speculative_decoding_mode")
    logits = next(
        (name for name in ("gather_context_logits", "gather_all_token_logits") if flags.given.get(name)), None
    )
    if logits and length:
        yield error("speculation", f"--{logits}", f"cannot be used with --max_draft_len {length}")
    if mode and not length:
        yield error("speculation", "--max_draft_len", f"is 0, but {mode} needs 1 or more")
    if mode == "eagle":
        if flags.is_off("use_paged_context_fmha"):
            message = "is disable, but EAGLE switches paged context on"
            yield error("speculation", "--use_paged_context_fmha", message, "enable it")
        batch = flags.number("max_batch_size", 2048)
        if batch > 512:
            yield error("speculation", "--max_batch_size", f"is {batch}, but EAGLE takes 512 at most")
        if length > 256:
            yield error("speculation", "--max_draft_len", f"is {length}, but EAGLE takes 256 at most")


def quantised_weights(flags: Flags) -> Iterator[ArgFinding]:
    case = flags.case
    if not flags.builds:
        return
    if 100 <= case.sm < 120:
        # has_per_channel_scaling and has_per_token_dynamic_scaling hold for row-wise FP8 too.
        refused = {
            f"{case.weights} weights": case.weights in _INT8_OR_INT4,
            "per-channel FP8 weights": case.weights == "fp8_channel",
            "int8 KV": case.kv_dtype == "int8",
        }
        for what in (what for what, is_there in refused.items() if is_there):
            yield error("precision", "--checkpoint_dir", f"{what} are refused on SM{case.sm}", "use FP8 or bf16")
    if case.architecture == "deepseek_v2" and (case.kv_dtype == "fp8_e4m3" or case.weights[:3] == "fp8"):
        message = "the engine path of DeepSeek-V2 knows BF16 only: no FP8 weights and no FP8 KV"
        yield error("precision", "--checkpoint_dir", message, "convert to bf16")
    if flags.given.get("fast_build") is True and case.weights in _INT8_OR_INT4:
        message = f"cannot be used with {case.weights} weights"
        yield error("fast-build", "--fast_build", message, "leave it out")
    if flags.asks("use_fused_mlp") and case.weights not in ("", "bf16", "fp16", "fp32", "fp8_tensor"):
        yield warning("plugin", "--use_fused_mlp", f"is switched off with {case.weights} weights", "leave it out")


def parallel_shape(flags: Flags) -> Iterator[ArgFinding]:
    if not flags.converts:
        return
    tp, moe_tp, moe_ep = flags.number("tp_size", 1), flags.number("moe_tp_size", -1), flags.number("moe_ep_size", -1)
    for name, size in (("moe_tp_size", moe_tp), ("moe_ep_size", moe_ep)):
        if size == 0:
            yield error("expert-shape", f"--{name}", "is 0; -1 lets the script choose")
        elif size > 0 and tp % size:
            yield error("expert-shape", f"--{name}", f"is {size}, which does not divide tp_size {tp}")
    if moe_tp > 0 and moe_ep > 0 and moe_tp * moe_ep != tp:
        message = f"{moe_tp} times moe_ep_size {moe_ep} is {moe_tp * moe_ep}, not tp_size {tp}"
        yield error("expert-shape", "--moe_tp_size", message)


def conversion_precision(flags: Flags) -> Iterator[ArgFinding]:
    dtype = flags.given.get("dtype")
    if flags.tool == "convert-deepseek-v2" and dtype != "bfloat16":
        found = "is not given and means float16" if dtype is None else f"is {dtype}"
        yield error("convert-dtype", "--dtype", f"{found}, in which DeepSeek-V2 overflows", "give bfloat16")
    if dtype == "bfloat16" and 0 < flags.case.sm < 80:
        yield error("convert-dtype", "--dtype", f"is bfloat16, which SM{flags.case.sm} lacks", "use float16")


def one_source(flags: Flags) -> Iterator[ArgFinding]:
    names = {"quantize": ("model_dir", "nemo_ckpt_path"), "convert-llama": ("model_dir", "meta_ckpt_dir")}.get(
        flags.tool
    )
    if names and sum(name in flags.given for name in names) != 1:
        yield error("source", f"--{names[0]}", f"exactly one of --{names[0]} and --{names[1]} is needed")


def quantisation(flags: Flags) -> Iterator[ArgFinding]:
    if flags.tool != "quantize":
        return
    kind, sm = flags.given.get("qformat", "full_prec"), flags.case.sm
    if kind in ("fp8", "fp8_pc_pt", "w4a8_awq") and 0 < sm < 89:
        yield error("quantise", "--qformat", f"{kind} needs SM89 or later, the GPU is SM{sm}", "use int4_awq")
    if kind == "nvfp4" and 0 < sm < 100:
        yield error("quantise", "--qformat", f"nvfp4 needs SM100 or later, the GPU is SM{sm}", "use fp8")
    if flags.case.architecture.startswith("deepseek_v"):
        message = "does not know the classes of V2 and later: it exports nothing"
        yield error("quantise", "--model_dir", message, "DeepSeek-V2 is built in bf16, V3 and later use trtllm-pytorch")


TOOL_RULES: Final[tuple[Callable[[Flags], Iterator[ArgFinding]], ...]] = (
    sources,
    sequence_length_is_given,
    token_limits,
    profiles,
    context_attention,
    plugins,
    speculation,
    quantised_weights,
    parallel_shape,
    conversion_precision,
    one_source,
    quantisation,
)
_REPLACED: Final = frozenset(
    (
        "max_batch_size",
        "max_input_len",
        "max_seq_len",
        "max_beam_width",
        "max_num_tokens",
        "opt_num_tokens",
        "kv_cache_type",
    )
)
