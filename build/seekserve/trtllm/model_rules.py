"""Rules that need the model and the GPU beside the arguments. MODEL_RULES is the list.

Sources: the READMEs of examples/models/core/deepseek_v3 and deepseek_v4, py_executor_creator.py, and the reports named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .finding import ArgFinding, error, warning
from .rules import Rule
from .view import View

__all__ = ["MODEL_RULES"]

_BLOCK: Final = "kv_cache_config.tokens_per_block"
_V4_BLOCKS: Final = (128, 256)
_REUSE_SMS: Final = (90, 100, 103, 120, 121)
_CHUNKED_SMS: Final = (90, 100, 103, 120)


def mla_chunks_are_blocks(view: View) -> Iterator[ArgFinding]:
    tokens, block = view.number("max_num_tokens"), _block_tokens(view)
    if not (view.case.is_mla and view.is_on("enable_chunked_prefill") and tokens and block):
        return
    if tokens % block:
        message = f"is {tokens}, but chunked prefill of MLA needs a multiple of the block of {block} tokens"
        near = max(block, tokens // block * block)
        yield error("mla-chunk", "max_num_tokens", message, f"such as {near}")


def mla_block_on_hopper(view: View) -> Iterator[ArgFinding]:
    given = view.given(_BLOCK)
    if view.case.architecture == "deepseek_v3" and view.case.sm == 90 and type(given) is int and given != 64:
        yield error(
            "mla-block", _BLOCK, f"is {given}, but FlashMLA on Hopper always uses 64", "write 64 or leave it out"
        )


def indexer_block(view: View) -> Iterator[ArgFinding]:
    # pull request 9141
    if view.case.architecture == "deepseek_v32" and view.number(_BLOCK) not in (64, None):
        message = f"is {view.number(_BLOCK)}, but the indexer of V3.2 works in blocks of 64"
        yield warning("indexer-block", _BLOCK, message, "write 64")


def v4_cache(view: View) -> Iterator[ArgFinding]:
    if not view.case.is_v4:
        return
    given, beams = view.given(_BLOCK), view.number("max_beam_width")
    if type(given) is int and given not in _V4_BLOCKS:
        yield error(
            "v4-block", _BLOCK, f"is {given}, but the cache manager of V4 takes 128 or 256", "128 is its default"
        )
    if beams is not None and beams > 1:
        yield error("v4-beams", "max_beam_width", f"is {beams}, but the cache manager of V4 takes 1")
    dtype = view.text("kv_cache_config.dtype")
    if view.case.sm == 90 and dtype != "fp8_ds_mla":
        message = f"is {dtype}, but the path of V4 on Hopper needs fp8_ds_mla"
        yield error("v4-hopper", "kv_cache_config.dtype", message)
    if dtype == "fp8_ds_mla" and view.case.sm not in (0, 90) and given != 256:
        yield error("v4-block", _BLOCK, "must be 256 with dtype fp8_ds_mla outside Hopper", "write 256")
    if view.given("kv_cache_config.enable_partial_reuse") is True:
        yield warning(
            "v4-reuse", "kv_cache_config.enable_partial_reuse", "is unsound with V4 and ignored by newer versions"
        )


def mla_features_by_gpu(view: View) -> Iterator[ArgFinding]:
    sm = view.case.sm
    if not view.case.is_mla or not sm or not view.is_torch:
        return
    if view.given("kv_cache_config.enable_block_reuse") is True and sm not in _REUSE_SMS:
        message = f"is switched off without a word on SM{sm}: MLA reuses blocks on SM90 and SM100 to SM121 only"
        yield warning("mla-reuse", "kv_cache_config.enable_block_reuse", message, "set it to false")
    if view.is_on("enable_chunked_prefill") and sm not in _CHUNKED_SMS:
        message = f"is switched off on SM{sm}: prompts above max_num_tokens are then refused"
        yield error("mla-chunked", "enable_chunked_prefill", message, "raise max_num_tokens to the longest prompt")


def fp8_cache_with_w4a8(view: View) -> Iterator[ArgFinding]:
    # NVIDIA/TensorRT-LLM issue 8125: illegal memory access
    if view.text("kv_cache_config.dtype") == "fp8" and view.case.weights == "w4afp8":
        message = f"is fp8, which with {view.case.weights} weights ends in illegal memory accesses"
        yield error(
            "w4a8-kv", "kv_cache_config.dtype", message, "use auto, with a checkpoint that does not ask for FP8 KV"
        )


def relaxed_acceptance(view: View) -> Iterator[ArgFinding]:
    path = "speculative_config.use_relaxed_acceptance_for_thinking"
    if view.given(path) is not True:
        return
    if view.case.architecture not in ("", "deepseek_v3"):
        yield error("relaxed-acceptance", path, f"is for R1 only, and the model is {view.case.architecture}")
    if view.is_on("enable_attention_dp"):
        yield warning("relaxed-acceptance", path, "unverified with enable_attention_dp: earlier READMEs exclude it")


def expert_backend_by_gpu(view: View) -> Iterator[ArgFinding]:
    # deployment guide @7c22bbf9 and the hardware table of quantization.md
    backend, sm, weights = view.text("moe_config.backend"), view.case.sm, view.case.weights
    path = "moe_config.backend"
    if backend == "DEEPGEMM" and sm in (80, 86, 89):
        yield error("moe-backend", path, f"DEEPGEMM needs SM90 or later, the GPU is SM{sm}", "use CUTLASS")
    if backend == "TRTLLM" and sm and sm < 100:
        yield error("moe-backend", path, f"TRTLLM has kernels for SM100 and later, the GPU is SM{sm}", "use CUTLASS")
    if backend == "DEEPGEMM" and weights == "nvfp4":
        yield error("moe-backend", path, "DEEPGEMM computes in FP8, the experts are NVFP4", "use CUTLASS or TRTLLM")
    # documented for NVFP4; NVIDIA's own V4 configurations set it beside MXFP4 experts
    is_fp4 = weights in ("", "nvfp4") or (view.case.is_v4 and "mxfp4" in weights)
    if view.given("moe_config.use_low_precision_moe_combine") is True and not is_fp4:
        path = "moe_config.use_low_precision_moe_combine"
        yield warning("moe-combine", path, f"is for FP4 experts only, the weights are {weights}")


def indexer_precision(view: View) -> Iterator[ArgFinding]:
    path = "sparse_attention_config.indexer_k_dtype"
    if view.given(path) == "fp4" and view.case.sm and view.case.sm < 100:
        yield error("indexer-precision", path, f"fp4 needs SM100 or later, the GPU is SM{view.case.sm}", "use fp8")


def _block_tokens(view: View) -> int | None:
    """FlashMLA on Hopper overrides what is set."""
    if view.case.architecture == "deepseek_v3" and view.case.sm == 90:
        return 64
    return view.number(_BLOCK)


MODEL_RULES: Final[tuple[Rule, ...]] = (
    mla_chunks_are_blocks,
    mla_block_on_hopper,
    indexer_block,
    v4_cache,
    mla_features_by_gpu,
    fp8_cache_with_w4a8,
    relaxed_acceptance,
    expert_backend_by_gpu,
    indexer_precision,
)
