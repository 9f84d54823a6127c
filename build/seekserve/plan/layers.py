"""The layers of inputs below what a person gives: curated settings, and the step size that follows from the chunk.

TensorRT-LLM has no chunk size of its own: with chunked prefill a piece of a prompt is as large as the room that
max_num_tokens leaves. So the chunk decides max_num_tokens, or max_num_tokens the chunk; both at will cannot be had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from seekserve.errors import ConflictError, InputError
from seekserve.plan.curated import Profile, Situation, curated_inputs, find_profile, known_profiles
from seekserve.plan.gpus import Gpu
from seekserve.plan.inputs import Given, Inputs, merge, preset_inputs
from seekserve.plan.model import Model
from seekserve.plan.overheads import overheads
from seekserve.plan.plan import Source
from seekserve.plan.support import block_choices, has_mla_kernels

__all__ = ["Aim", "chunk_inputs", "profile_inputs", "rule_inputs", "wanted_profile"]

_SHAPE: Final = ("tp", "pp", "ep", "moe_tp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What is planned for, as far as it is known before the plan."""

    model: Model
    gpu: Gpu
    gpus: int
    engine: str
    version: str

    def situation(self) -> Situation:
        return Situation(
            family=self.model.family,
            architecture=self.model.architecture,
            weights=self.model.precision,
            sm=self.gpu.sm,
            layers=self.model.config.num_hidden_layers,
            engine=self.engine,
            version=self.version,
        )


def wanted_profile(name: str | None, aim: Aim) -> Profile | None:
    """Raises InputError when no guide has such settings for this model on this GPU."""
    if name is None:
        return None
    found = find_profile(name, aim.situation()) if aim.engine == "trtllm-pytorch" else None
    if found is None:
        raise InputError(
            f"--profile {name}: no guide has {name} settings for {aim.model.name} ({aim.model.precision}) on "
            f"{aim.gpu.name} with {aim.engine}; there are {', '.join(known_profiles())}",
            hint="leave --profile out, the plan then computes its own settings",
        )
    return found


def profile_inputs(profile: Profile | None, aim: Aim, given: Inputs) -> Inputs:
    """Without its shape where somebody gave a part of one or has other GPUs, without MTP where no layer is there."""
    if profile is None:
        return Inputs()
    values = dict(profile.inputs)
    if profile.gpus != aim.gpus or any(isinstance(getattr(given, name), Given) for name in _SHAPE):
        for name in _SHAPE:
            values.pop(name, None)
    if aim.model.mtp_layers == 0:
        values.pop("mtp", None)
    if isinstance(given.prefill_chunk_tokens, Given):
        values.pop("max_num_tokens", None)
    return preset_inputs(values, f"{profile.name} ({profile.source})")


def rule_inputs(case: Situation) -> Inputs:
    layers = [preset_inputs(values, f"curated ({source})") for values, source in curated_inputs(case)]
    return merge(*layers)


def chunk_inputs(inputs: Inputs, aim: Aim) -> Inputs:
    """max_num_tokens from the chunk, or the chunk from it. Raises ConflictError when both are given, far apart."""
    if not _value(inputs, "chunked_prefill", _can_chunk(aim)):
        return Inputs()
    chunk, tokens = inputs.prefill_chunk_tokens, inputs.max_num_tokens
    block = _value(inputs, "block_tokens", block_choices(aim.model.architecture, aim.gpu, aim.engine)[0])
    batch, drafts = _value(inputs, "max_batch_size", overheads().max_batch_size), _value(inputs, "mtp", 0)
    generated = max(batch, 1) * (1 + max(drafts, 0))
    wanted = _value(inputs, "prefill_chunk_tokens", overheads().prefill_chunk_tokens)
    step = -(-(wanted + generated) // max(block, 1)) * max(block, 1)
    if isinstance(tokens, Given) and isinstance(chunk, Given):
        if chunk.value < tokens.value and tokens.value > step:
            raise ConflictError(
                f"prefill chunk {chunk.value} ({chunk.source_text}) and max_num_tokens {tokens.value} "
                f"({tokens.source_text}): TensorRT-LLM has no chunk size of its own and cuts a prompt at "
                f"max_num_tokens, so its pieces would have {tokens.value} tokens",
                hint=f"give one of them; --max-num-tokens {step} keeps to the chunk",
            )
        return Inputs()
    if isinstance(tokens, Given):
        return _derived("prefill_chunk_tokens", tokens.value, "from max_num_tokens, where TensorRT-LLM cuts a prompt")
    why = f"from a prefill chunk of {wanted} and {generated} tokens of requests that generate"
    return _derived("max_num_tokens", step, why)


def _can_chunk(aim: Aim) -> bool:
    return aim.model.config.kv_lora_rank is None or has_mla_kernels("chunked_prefill", aim.gpu.sm)


def _derived(name: str, value: int, why: str) -> Inputs:
    values: Mapping[str, Any] = {name: Given(value, Source.DERIVED, why)}
    return Inputs(**values)


def _value(inputs: Inputs, name: str, default: Any) -> Any:
    """A value of a wrong type is the resolver's business; here it counts as not given."""
    given = getattr(inputs, name)
    return given.value if isinstance(given, Given) and isinstance(given.value, type(default)) else default
