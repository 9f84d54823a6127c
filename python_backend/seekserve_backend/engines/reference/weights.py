"""An HF-layout checkpoint folder -> a transformers DeepSeek model with plain (dequantised) weights.

Chooses the class by config.json and fits the files' tensors to it. No remote code. A tensor that is missing, left over
or of another shape is an error, and so is a config that the class would not follow: what this returns computes exactly
what the files say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from .shards import SCALE_SUFFIX, ShardReader, WeightsError, read_json

__all__ = ["LoadedModel", "load_model"]

_NAMES_IN_A_MESSAGE = 4
_FUSED = re.compile(r"^(?P<prefix>.*\.mlp\.experts)\.(?P<fused>gate_up_proj|down_proj)$")
_LAYER = re.compile(r"^model\.layers\.(\d+)\.")
# Fields that describe the file or the original remote code, never the model's arithmetic.
_CONFIG_FIELDS_DROPPED = ("quantization_config", "auto_map", "transformers_version", "architectures")
# transformers' classes ignore these fields and compute the variant named here: another value would be answered wrongly.
_FIXED_BY_CLASS: Mapping[str, Mapping[str, tuple[object, ...]]] = {
    "deepseek_v2": {
        "scoring_func": ("softmax",),
        "topk_method": ("greedy", "group_limited_greedy"),
        "norm_topk_prob": (False,),
        "moe_layer_freq": (1,),
    },
    "deepseek_v3": {"scoring_func": ("sigmoid",), "topk_method": ("noaux_tc",), "moe_layer_freq": (1,)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    model: Any
    """The transformers model, in eval mode, without gradients."""
    eos_ids: tuple[int, ...]
    """From generation_config.json, else config.json; may be empty."""


def load_model(
    folder: Path, *, compute_dtype: str = "float32", attention: str = "eager", experts: str = "grouped_mm"
) -> LoadedModel:
    """Raises WeightsError. `compute_dtype` names a torch dtype, `attention` and `experts` are names of transformers."""
    config_json = read_json(folder / "config.json", folder)
    cls, config = _model_class(config_json, folder)
    config._attn_implementation = attention
    config._experts_implementation = experts
    with torch.device("meta"):
        model = cls(config)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    reader = ShardReader(folder, config_json)
    dtype: torch.dtype = getattr(torch, compute_dtype)
    keep_fp32 = tuple(getattr(cls, "_keep_in_fp32_modules_strict", None) or ())
    dtypes = {name: torch.float32 if name.endswith(keep_fp32) else dtype for name in expected}
    model.load_state_dict(_state_dict(reader, expected, dtypes, config, folder), strict=True, assign=True)
    # The rotary tables are not part of a checkpoint, so they are still on the meta device.
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    model.eval().requires_grad_(False)
    return LoadedModel(model=model, eos_ids=_eos_ids(folder, config_json))


def _model_class(config_json: Mapping[str, Any], folder: Path) -> tuple[Any, Any]:
    model_type = str(config_json.get("model_type"))
    if model_type not in _FIXED_BY_CLASS:
        raise WeightsError(
            folder,
            [f"config.json says model_type {model_type!r}; the reference engine runs {' and '.join(_FIXED_BY_CLASS)}"],
        )
    problems = [
        f"config.json says {field} {config_json[field]!r}, transformers' {model_type} class computes "
        f"{' or '.join(map(repr, allowed))} whatever is said: this checkpoint cannot run on the reference engine"
        for field, allowed in _FIXED_BY_CLASS[model_type].items()
        if config_json.get(field) is not None and config_json[field] not in allowed
    ]
    if problems:
        raise WeightsError(folder, problems)
    stem = "DeepseekV2" if model_type == "deepseek_v2" else "DeepseekV3"
    fields = {name: value for name, value in config_json.items() if name not in _CONFIG_FIELDS_DROPPED}
    return getattr(transformers, f"{stem}ForCausalLM"), getattr(transformers, f"{stem}Config")(**fields)


def _state_dict(
    reader: ShardReader,
    expected: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, torch.dtype],
    config: Any,
    folder: Path,
) -> dict[str, torch.Tensor]:
    """By the model's own names: transformers stacks a layer's experts into two tensors, files have them one by one."""
    parts = {name: _parts(name, shape) for name, shape in expected.items()}
    if config.tie_word_embeddings and "lm_head.weight" not in reader.shard_of:
        parts["lm_head.weight"] = ["model.embed_tokens.weight"]
    _check_names(reader, [part for names in parts.values() for part in names], config, folder)
    state: dict[str, torch.Tensor] = {}
    problems: list[str] = []
    for name, names in parts.items():
        tensors = [reader.tensor(part).to(dtypes[name]) for part in names]
        fused = _FUSED.match(name)
        try:
            if fused is None:
                tensor = tensors[0]
            elif fused["fused"] == "down_proj":
                tensor = torch.stack(tensors)
            else:
                tensor = torch.stack([torch.cat(pair) for pair in zip(tensors[::2], tensors[1::2], strict=True)])
        except RuntimeError as error:
            problems.append(f"{name}: the experts' tensors differ in shape ({error})")
            continue
        if tuple(tensor.shape) != expected[name]:
            problems.append(f"{name} has shape {list(tensor.shape)}, config.json implies {list(expected[name])}")
        state[name] = tensor
    if problems:
        raise WeightsError(folder, problems[:_NAMES_IN_A_MESSAGE])
    return state


def _parts(name: str, shape: tuple[int, ...]) -> list[str]:
    fused = _FUSED.match(name)
    if fused is None:
        return [name]
    projections = ("gate_proj", "up_proj") if fused["fused"] == "gate_up_proj" else ("down_proj",)
    return [f"{fused['prefix']}.{expert}.{proj}.weight" for expert in range(shape[0]) for proj in projections]


def _check_names(reader: ShardReader, needed: list[str], config: Any, folder: Path) -> None:
    def is_extra(name: str) -> bool:
        if name in wanted or (name.endswith(SCALE_SUFFIX) and name[: -len(SCALE_SUFFIX)] in wanted):
            return False
        # Multi-token-prediction layers come after the last ordinary layer; plain decoding does not use them.
        layer = _LAYER.match(name)
        return layer is None or int(layer[1]) < config.num_hidden_layers

    wanted = set(needed)
    missing = [name for name in needed if name not in reader.shard_of]
    extra = [name for name in reader.shard_of if is_extra(name)]
    problems = [
        f"{len(names)} tensors {what}: {', '.join(names[:_NAMES_IN_A_MESSAGE])}"
        + (", ..." if len(names) > _NAMES_IN_A_MESSAGE else "")
        for what, names in (("that config.json implies are missing", missing), ("are not part of the model", extra))
        if names
    ]
    if problems:
        raise WeightsError(folder, problems)


def _eos_ids(folder: Path, config_json: Mapping[str, Any]) -> tuple[int, ...]:
    generation = folder / "generation_config.json"
    value = read_json(generation, folder).get("eos_token_id") if generation.is_file() else None
    if value is None:
        value = config_json.get("eos_token_id")
    if value is None:
        return ()
    return tuple(int(item) for item in value) if isinstance(value, list) else (int(value),)
