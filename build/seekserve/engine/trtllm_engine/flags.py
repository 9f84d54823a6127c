"""The flags of trtllm-build: every limit from the plan, plugins and attention by precision, the user's own on top.

Nothing is left to the builder's defaults that the plan knows, and nothing that it would switch off without a word is
asked for. A flag that contradicts the plan is refused with the option of this toolkit that changes the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from seekserve.errors import ConfigError, ConflictError
from seekserve.output import problems_text
from seekserve.trtllm import ArgFinding, validate_build_flags
from seekserve.trtllm.tables import Entry, table

from .job import FP8_TYPE_WEIGHTS, Job

__all__ = ["BUILD_TOOL", "argv_of", "build_flags", "checked", "max_beam_width", "refuse_heads"]

BUILD_TOOL: Final = "trtllm-build"
_FROM_PLAN: Final = {
    "max_batch_size": "--max-batch-size",
    "max_seq_len": "--max-seq-len",
    "max_num_tokens": "--max-num-tokens",
    "tokens_per_block": "--block-tokens",
    "max_beam_width": "--max-beam-width",
    "workers": "--workers",
}
"""Flag of the builder -> option that changes the plan's value."""
_OURS: Final = {
    "checkpoint_dir": "the converted checkpoint is the only thing that is built",
    "model_config": "the converted checkpoint is the only thing that is built",
    "build_config": "it would replace every flag that the plan sets",
    "model_cls_file": "the bundle's family would no longer be true",
    "model_cls_name": "the bundle's family would no longer be true",
    "output_dir": "the engine goes into the bundle",
    "output_timing_cache": "it goes into the work folder",
    "dry_run": "it leaves no engines; `build-engine --dry-run` shows the whole command",
    "visualize_network": "it is for debugging a network; run trtllm-build by hand",
}
_NEEDED: Final = {
    "kv_cache_type": "only a paged cache can be served",
    "paged_kv_cache": "only a paged cache can be served; leave it out",
    "remove_input_padding": "in-flight batching needs packed input, which it switches off",
}
_HINTS: Final = {
    "paged-context": "--kv-dtype bf16, or weights in FP8 too; without KV reuse and chunks: "
    "--set kv_cache_config.enable_block_reuse=false and --no-chunked-prefill",
}
"""Rule -> what to do about it in this toolkit's own words."""
_WITH_HEADS: Final = ("medusa", "eagle", "explicit_draft_tokens")
_TRUE: Final = ("", "true", "enable", "yes", "1")
_FALSE: Final = ("false", "disable", "no", "0")


def build_flags(job: Job, checkpoint: str, output: str, timing_cache: str) -> dict[str, object]:
    """Raises ConfigError or ConflictError for a user's flag that is wrong, set by the build, or against the plan."""
    planned = _planned(job, checkpoint, output)
    given = _typed(job.wish.trtllm.build_flags)
    problems = [f"--build-flag {name}: is set by the build: {_OURS[name]}" for name in given if name in _OURS]
    for name, value in given.items():
        if name in _NEEDED and value != planned.get(name):
            problems.append(f"--build-flag {name}={value}: {_NEEDED[name]}")
        elif name in _FROM_PLAN and value != planned[name]:
            problems.append(
                f"--build-flag {name}={value}: the plan says {planned[name]}; change it with {_FROM_PLAN[name]}"
            )
        elif name == "use_paged_context_fmha" and value == "disable" and job.wants_paged_context:
            problems.append(_needs_paged(job))
    if problems:
        raise ConflictError(problems_text("no engine", problems))
    return {**planned, **given, "output_timing_cache": timing_cache}


def checked(job: Job, tool: str, flags: Mapping[str, object], environ: Mapping[str, str]) -> list[str]:
    """The warnings. Raises ConflictError with every error and the rule that it breaks."""
    findings = validate_build_flags(flags, job.version, tool=tool, case=job.case, environment=environ)
    errors = [finding for finding in findings if finding.is_error]
    if errors:
        raise _refusal(tool, errors)
    return [f"{tool} {finding.text} [{finding.rule}]" for finding in findings]


def refuse_heads(flags: Mapping[str, object]) -> None:
    """Raises ConflictError for a mode whose draft heads the builder asserts to be in the checkpoint."""
    mode = flags.get("speculative_decoding_mode")
    if mode in _WITH_HEADS:
        raise ConflictError(
            f"--build-flag speculative_decoding_mode={mode}: needs draft heads in the checkpoint, which none of the "
            "conversions here makes",
            hint="draft_tokens_external and lookahead_decoding need none",
        )


def argv_of(flags: Mapping[str, object]) -> tuple[str, ...]:
    out: list[str] = []
    for name, value in flags.items():
        if value is False or value is None:
            continue
        out.append(f"--{name}")
        if isinstance(value, list):
            out += map(str, value)
        elif value is not True:
            out.append(str(value))
    return tuple(out)


def max_beam_width(job: Job) -> int:
    return job.wish.trtllm.max_beam_width or 1


def _planned(job: Job, checkpoint: str, output: str) -> dict[str, object]:
    limits = job.limits
    dtype = job.compute_dtype
    is_paged = job.wants_paged_context
    flags: dict[str, object] = {
        "checkpoint_dir": checkpoint,
        "output_dir": output,
        "max_batch_size": limits.max_batch_size,
        "max_seq_len": limits.max_seq_len_tokens,
        "max_num_tokens": limits.max_num_tokens,
        "max_beam_width": max_beam_width(job),
        "kv_cache_type": "paged",
        "tokens_per_block": job.kv.block_tokens,
        "remove_input_padding": "enable",
        "context_fmha": "enable",
        "use_paged_context_fmha": "enable" if is_paged else "disable",
        "use_fp8_context_fmha": "enable" if _computes_attention_in_fp8(job) else "disable",
        "gpt_attention_plugin": dtype,
        # Advised on for fp16 and bf16, off for FP8, whose own kernels it would replace.
        "gemm_plugin": "disable" if job.wanted == "fp8_tensor" else dtype,
    }
    if job.is_moe:
        flags["moe_plugin"] = dtype
    flags["workers"] = job.wish.trtllm.workers or min(job.world_size, job.parallel.gpus_per_node)
    return flags


def _computes_attention_in_fp8(job: Job) -> bool:
    """The builder keeps it with FP8-type weights on SM89 and later, with paged context for an FP8 cache only."""
    return job.wanted in FP8_TYPE_WEIGHTS and job.sm >= 89 and job.kv.dtype == "fp8_e4m3"


def _needs_paged(job: Job) -> str:
    wants = [word for word, is_on in (("KV reuse", job.wants_reuse), ("chunked prefill", job.wants_chunks)) if is_on]
    return (
        f"--build-flag use_paged_context_fmha=disable: the plan wants {' and '.join(wants)}, which need it; switch "
        "them off first with --set kv_cache_config.enable_block_reuse=false and --no-chunked-prefill"
    )


def _typed(given: Mapping[str, str]) -> dict[str, object]:
    """Raises ConfigError for an unknown name or a text of another type."""
    entries = table("tools", BUILD_TOOL)
    out: dict[str, object] = {}
    problems = []
    for spelling, text in given.items():
        name = _plain(spelling)
        entry = entries.get(name)
        if entry is not None and entry.is_alias and entry.field.renamed_to != "kv_cache_type":
            name = entry.field.renamed_to
        try:
            out[name] = text if entry is None else _value(entry, text)
        except ValueError as error:
            problems.append(f"--build-flag {name}={text}: {error}")
    if problems:
        raise ConfigError(problems_text("no engine", problems))
    return out


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _value(entry: Entry, text: str) -> object:
    kind = entry.field.kind.name
    stripped = text.strip()
    if kind == "int":
        try:
            return int(stripped)
        except ValueError:
            raise ValueError("a whole number is due") from None
    if kind == "flag":
        if stripped.lower() not in (*_TRUE, *_FALSE):
            raise ValueError("it takes no value: true switches it on")
        return stripped.lower() in _TRUE
    if kind == "list":
        return [part.strip() for part in text.split(",") if part.strip()]
    return stripped.lower() if entry.field.name == "kv_cache_type" else stripped


def _refusal(tool: str, errors: Sequence[ArgFinding]) -> ConflictError:
    texts = [f"[{finding.rule}] {finding.path}: {finding.message}" for finding in errors]
    hints = dict.fromkeys(_HINTS.get(finding.rule, finding.hint) for finding in errors if finding.hint)
    return ConflictError(problems_text(f"no engine: {tool}", texts), hint="; ".join(hints) or None)
