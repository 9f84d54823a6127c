"""What is asked of the engine, from the values that were given and the defaults of the figures' file.

None where the outcome may decide; `case.py` settles that.
"""

from __future__ import annotations

from .case import Target, Wish
from .model import Model
from .overheads import overheads
from .plan import Source
from .step_size import step_and_chunk
from .support import block_choices, has_mla_kernels
from .values import Values

__all__ = ["wish_of"]


def wish_of(values: Values, model: Model, target: Target) -> Wish:
    figures = overheads()
    isl, osl, longest = _lengths(values, model)
    default_block, _, why = block_choices(model.architecture, target.gpu, target.engine)
    chunked = values.take("chunked_prefill", _can_chunk(model, target))
    block = values.take("block_tokens", default_block, f"default: {why}")
    batch, mtp = values.take("max_batch_size", None), values.take("mtp", 0)
    step, chunk = step_and_chunk(values, chunked_prefill=chunked, max_batch_size=batch, mtp=mtp, block_tokens=block)
    kv_dtype, kv_source = _default_kv_dtype(target)
    return Wish(
        max_seq_len_tokens=longest,
        max_batch_size=batch,
        max_num_tokens=step,
        prefill_chunk_tokens=chunk,
        kv_dtype=values.take("kv_dtype", kv_dtype, kv_source),
        block_tokens=block,
        fraction=values.take("kv_fraction", None),
        max_tokens=values.take("kv_capacity_tokens", None),
        isl=isl,
        osl=osl,
        chunked_prefill=chunked,
        cuda_graphs=values.take("cuda_graphs", True),
        mtp=mtp,
        indexer_dtype=values.take("indexer_dtype", "fp8"),
        rank0_overhead_mib=values.take(
            "rank0_overhead_mib", None, f"default: {figures.rank0_extra_mib_per_rank} MiB for each other rank (#3058)"
        ),
    )


def _lengths(values: Values, model: Model) -> tuple[int, int, int]:
    """(isl, osl, max_seq_len): the limit follows the workload, or the workload the limit; never the full context."""
    figures = overheads()
    most = model.config.max_position_tokens or figures.max_seq_len_tokens
    knows_workload = values.is_given("isl") or values.is_given("osl")
    isl, osl = values.take("isl", figures.isl_tokens), values.take("osl", figures.osl_tokens)
    if values.is_given("max_seq_len_tokens"):
        longest = values.take("max_seq_len_tokens", figures.max_seq_len_tokens)
    elif knows_workload:
        longest = values.take("max_seq_len_tokens", isl + osl, f"{Source.DERIVED.value}: isl + osl")
    else:
        longest = values.take("max_seq_len_tokens", min(figures.max_seq_len_tokens, most))
    if not knows_workload and isl + osl > longest:
        isl = max(longest * 4 // 5, 1)
        osl = max(longest - isl, 1)
        values.sources["workload.isl_tokens"] = values.sources["workload.osl_tokens"] = (
            "derived: four fifths of max_seq_len"
        )
    elif not values.is_given("osl") and isl + osl > longest > isl:
        osl = longest - isl
        values.sources["workload.osl_tokens"] = "derived: max_seq_len - isl"
    return isl, osl, longest


def _default_kv_dtype(target: Target) -> tuple[str, str]:
    support = target.support
    if support is not None and "fp8_e4m3" in support.kv and target.gpu.sm >= 89:
        return "fp8_e4m3", "default: FP8 kernels are there"
    return "bf16", f"default: no FP8 cache for this model on {target.engine} and SM{target.gpu.sm}"


def _can_chunk(model: Model, target: Target) -> bool:
    return model.config.kv_lora_rank is None or has_mla_kernels("chunked_prefill", target.gpu.sm)
