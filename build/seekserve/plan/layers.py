"""The layers of inputs below what a person gives: a preset, a profile of NVIDIA's guides, and their rules.

Each says which values it has for one case; who wins over whom is `ask_gpu.py`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from seekserve.errors import InputError

from .curated import Profile, Situation, curated_inputs, find_profile, known_profiles
from .gpus import Gpu
from .inputs import Given, Inputs, merge, preset_inputs
from .model import Model
from .plan import UNSET
from .presets import preset_values

__all__ = ["Aim", "preset_layer", "profile_layer", "rules_layer", "wanted_profile"]

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


def preset_layer(name: str | None, given: Inputs) -> Inputs:
    """Without its step where somebody gave a chunk, from which the step follows."""
    if name is None:
        return Inputs()
    found = preset_values(name)
    if isinstance(given.prefill_chunk_tokens, Given):
        found = replace(found, max_num_tokens=UNSET)
    return found


def profile_layer(profile: Profile | None, aim: Aim, given: Inputs) -> Inputs:
    """Without its shape where somebody gave a part of one or has other GPUs, without MTP where no layer is there."""
    if profile is None:
        return Inputs()
    values: dict[str, Any] = dict(profile.inputs)
    if profile.gpus != aim.gpus or any(isinstance(getattr(given, name), Given) for name in _SHAPE):
        for name in _SHAPE:
            values.pop(name, None)
    if aim.model.mtp_layers == 0:
        values.pop("mtp", None)
    if isinstance(given.prefill_chunk_tokens, Given):
        values.pop("max_num_tokens", None)
    return preset_inputs(values, f"{profile.name} ({profile.source})")


def rules_layer(case: Situation) -> Inputs:
    """What the guides say for every such case, profile or not."""
    return merge(*(preset_inputs(values, f"curated ({source})") for values, source in curated_inputs(case)))
