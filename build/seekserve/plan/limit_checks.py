"""Rules about the limits of one worked-out case: lengths, batch, block, chunk, field rules about headroom.

One function for each rule, returning a finding or nothing; the list of them is a plain tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from seekserve.output import bytes_text

from .case import Case
from .finding import Finding
from .overheads import overheads
from .step_size import step_for_chunk
from .support import block_choices, has_mla_kernels

__all__ = ["LIMIT_CHECKS", "Sources"]

Sources = Mapping[str, str]


def sequence_within_model(case: Case, sources: Sources) -> Finding | None:
    asked, most = case.wish.max_seq_len_tokens, case.model.config.max_position_tokens
    if most is None or asked <= most:
        return None
    said = sources.get("limits.max_seq_len_tokens", "default")
    message = f"max_seq_len {asked} ({said}) is above the model's max_position_embeddings {most}"
    return _error("sequence-within-model", message, f"at most --max-seq-len {most}", "limits.max_seq_len_tokens")


def sequence_was_chosen(case: Case, sources: Sources) -> Finding | None:
    source = sources.get("limits.max_seq_len_tokens", "default")
    most = case.model.config.max_position_tokens
    if source != "default" or most is None or case.wish.max_seq_len_tokens >= most:
        return None
    full = case.capacity.sequences(most)
    message = (
        f"max_seq_len was not given: {case.wish.max_seq_len_tokens} tokens taken, not the model's full {most:,}, of "
        f"which the cache would hold {full}"
    )
    return _warning("sequence-chosen", message, "--max-seq-len, or --isl and --osl of the workload")


def workload_within_sequence(case: Case, _sources: Sources) -> Finding | None:
    isl, osl, longest = case.wish.isl, case.wish.osl, case.wish.max_seq_len_tokens
    if isl + osl <= longest:
        return None
    message = f"isl {isl} + osl {osl} = {isl + osl} tokens, and max_seq_len is {longest}"
    return _error("workload-within-sequence", message, f"--max-seq-len {isl + osl} or more", "workload.isl_tokens")


def prompt_within_limit(case: Case, _sources: Sources) -> Finding | None:
    """The real limit of a prompt is max_num_tokens when it cannot be cut (reported as #2717, #6539, #9277)."""
    limit, longest = case.prompt_limit_tokens, case.wish.max_seq_len_tokens - 1
    if limit >= longest:
        return None
    message = (
        f"prompts end at {limit} tokens: without chunked prefill a prompt must fit into max_num_tokens "
        f"{case.max_num_tokens}, below max_seq_len {case.wish.max_seq_len_tokens}"
    )
    hint = f"--chunked-prefill, or --max-num-tokens {longest}"
    if case.wish.isl > limit:
        return _error("prompt-limit", f"{message}; the workload's prompts have {case.wish.isl}", hint)
    return _warning("prompt-limit", message, hint)


def batch_within_step(case: Case, _sources: Sources) -> Finding | None:
    if case.max_batch_size <= case.max_num_tokens:
        return None
    message = (
        f"max_batch_size {case.max_batch_size} requests need a token each, above max_num_tokens {case.max_num_tokens}"
    )
    return _error("batch-within-step", message, f"--max-num-tokens {case.max_batch_size}", "limits.max_batch_size")


def chunk_fits(case: Case, _sources: Sources) -> Finding | None:
    chunk, step, block = case.prefill_chunk_tokens, case.max_num_tokens, case.wish.block_tokens
    if chunk > step:
        message = f"prefill chunk {chunk} is above max_num_tokens {step}"
        return _error("chunk-within-step", message, f"--prefill-chunk {step}", "limits.prefill_chunk_tokens")
    if case.wish.chunked_prefill and chunk % block:
        message = f"prefill chunk {chunk} is no multiple of the block of {block} tokens, so chunks end inside blocks"
        return _warning("chunk-in-blocks", message, f"--prefill-chunk {max(chunk // block, 1) * block}")
    return None


def chunk_is_the_step_s(case: Case, sources: Sources) -> Finding | None:
    """A chunk that somebody gave, and that the engine cannot keep to."""
    wish, chunk, step = case.wish, case.prefill_chunk_tokens, case.max_num_tokens
    if wish.prefill_chunk_tokens is None or chunk >= step:
        return None
    said = f"prefill chunk {chunk} ({sources['limits.prefill_chunk_tokens']})"
    key = "limits.prefill_chunk_tokens"
    if not wish.chunked_prefill:
        message = f"{said}, and prompts are not cut ({sources['limits.chunked_prefill']})"
        return _error("chunk-uncut", message, "leave one of them out", key)
    most = step_for_chunk(chunk, max_batch_size=wish.max_batch_size, mtp=wish.mtp, block_tokens=wish.block_tokens)
    if step <= most:
        return None
    message = (
        f"{said} and max_num_tokens {step} ({sources['limits.max_num_tokens']}): TensorRT-LLM has no chunk size of its "
        f"own and cuts a prompt at max_num_tokens, so its pieces would have {step} tokens"
    )
    return _error("chunk-of-step", message, f"give one of them; --max-num-tokens {most} keeps to the chunk", key)


def block_is_allowed(case: Case, sources: Sources) -> Finding | None:
    _, allowed, why = block_choices(case.model.architecture, case.target.gpu, case.target.engine)
    block = case.wish.block_tokens
    if block in allowed:
        return None
    said = sources.get("kv_cache.block_tokens", "default")
    choices = " or ".join(str(n) for n in allowed)
    message = f"blocks of {block} tokens ({said}) on {case.target.gpu.name}: {why}"
    return _error("block-size", message, f"--block-tokens {choices}", "kv_cache.block_tokens")


def batch_within_cache(case: Case, _sources: Sources) -> Finding | None:
    """What may be admitted is not what can run to its end."""
    batch = case.max_batch_size * case.shape.kv_pools
    full, now = case.sequences, case.concurrency
    if batch <= now.completing:
        return None
    message = (
        f"max_batch_size {batch} where the cache holds {full} sequences of {case.wish.max_seq_len_tokens} tokens: at "
        f"ISL {case.wish.isl} / OSL {case.wish.osl} {now.admitted} may be admitted, {now.steady} run steadily, "
        f"{now.completing} can all run to their end"
    )
    return _warning("batch-within-cache", message, f"--max-batch-size {max(now.completing // case.shape.kv_pools, 1)}")


def keeps_cache_free(case: Case, _sources: Sources) -> Finding | None:
    """Field rule: a fifth of the cache stays free for contexts that grow."""
    keep = overheads().keep_kv_free
    batch = case.max_batch_size * case.shape.kv_pools
    used = min(batch, case.concurrency.admitted) * (case.wish.isl + case.wish.osl // 2)
    total = case.capacity.tokens
    if total == 0 or batch > case.concurrency.completing or used <= (1 - keep) * total:
        return None
    fitting = int((1 - keep) * total / (case.wish.isl + case.wish.osl // 2)) // case.shape.kv_pools
    message = (
        f"{batch} requests hold {used:,} of {total:,} cached tokens in the steady state, {used / total:.0%}; the "
        f"field rule keeps {keep:.0%} free for contexts that grow"
    )
    return _warning("cache-headroom", message, f"--max-batch-size {max(fitting, 1)} keeps to it")


def cache_share(case: Case, _sources: Sources) -> Finding | None:
    most = overheads().warn_kv_share_of_gpu
    rank = max(case.ranks, key=lambda r: r.kv_bytes)
    if rank.kv_bytes <= most * rank.total_bytes:
        return None
    message = (
        f"the cache takes {bytes_text(rank.kv_bytes)}, {rank.kv_bytes / rank.total_bytes:.0%} of the GPU; the field "
        f"rule is at most {most:.0%}"
    )
    return _warning(
        "cache-share", message, f"--kv-capacity-tokens {case.capacity.tokens * 3 // 4} or a smaller --kv-fraction"
    )


def fraction_takes_all(case: Case, _sources: Sources) -> Finding | None:
    """The default fraction gives a batch of one as much as a batch of hundreds."""
    batch = case.max_batch_size * case.shape.kv_pools
    needed = batch * case.wish.max_seq_len_tokens
    if case.capacity.binding_cap != "fraction" or case.capacity.tokens < 4 * needed:
        return None
    message = (
        f"the fraction gives the cache {case.capacity.tokens:,} tokens where {batch} full sequences need {needed:,}: a "
        f"second model on these GPUs would find nothing left"
    )
    return _warning("cache-takes-all", message, f"--kv-capacity-tokens {needed} if the GPU is shared")


def kernels_for_chunks(case: Case, _sources: Sources) -> Finding | None:
    is_latent = case.model.config.kv_lora_rank is not None or case.model.architecture.startswith("deepseek_v4")
    if not is_latent or not case.wish.chunked_prefill or has_mla_kernels("chunked_prefill", case.target.gpu.sm):
        return None
    message = (
        f"chunked prefill has no latent-attention kernel on SM{case.target.gpu.sm}: the engine turns it off silently"
    )
    return _error("chunk-kernels", message, "--no-chunked-prefill", "limits.chunked_prefill")


def draft_layers(case: Case, _sources: Sources) -> Finding | None:
    if not case.wish.mtp:
        return None
    support = case.target.support
    if support is not None and not support.has_mtp:
        message = f"multi-token prediction is not there for {case.model.name} on {case.target.engine}"
        return _error("mtp-support", message, "--mtp 0", "parallel.mtp")
    if case.model.mtp_layers == 0:
        return _error(
            "mtp-layers", f"--mtp {case.wish.mtp}, and the checkpoint has no MTP layer", "--mtp 0", "parallel.mtp"
        )
    return None


def tensor_parallel_in_domain(case: Case, _sources: Sources) -> Finding | None:
    tp, domain = case.shape.tp, case.target.domain_gpus
    if tp <= domain:
        return None
    message = f"tp {tp} crosses nodes of {domain} GPUs: two all-reduces of every layer go over the network"
    return _warning("tp-crosses-nodes", message, f"--tp {domain} --pp {max(tp // domain, 1)}")


LIMIT_CHECKS: tuple[Callable[[Case, Sources], Finding | None], ...] = (
    sequence_within_model,
    sequence_was_chosen,
    workload_within_sequence,
    prompt_within_limit,
    batch_within_step,
    chunk_fits,
    chunk_is_the_step_s,
    block_is_allowed,
    batch_within_cache,
    keeps_cache_free,
    cache_share,
    fraction_takes_all,
    kernels_for_chunks,
    draft_layers,
    tensor_parallel_in_domain,
)


def _error(rule: str, message: str, hint: str, *about: str) -> Finding:
    return Finding(rule=rule, about=about, message=message, hint=hint)


def _warning(rule: str, message: str, hint: str) -> Finding:
    return Finding(rule=rule, message=message, hint=hint, severity="warning")
