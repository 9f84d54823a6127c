"""Which parallel shapes are legal for a model, what is wrong with one that is not, and all that are worth trying.

Every product is checked before anything is rendered; a refusal prints the product with names and numbers and the
nearest legal values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from seekserve.checkpoint.layout import LATENT

from .case import Target
from .finding import Finding
from .model import Model
from .shape import Shape

__all__ = ["candidate_shapes", "nearest", "shape_findings"]

_BLOCK: Final = 128
_MAX_STAGES: Final = 16


def shape_findings(model: Model, target: Target, shape: Shape, moe_tp: int | None = None) -> list[Finding]:
    """`moe_tp` is what was asked for, when it was."""
    found: list[Finding] = []
    if shape.gpus > target.gpus or target.gpus % shape.gpus:
        near = nearest(lambda n: target.gpus % (n * shape.pp) == 0, shape.tp, target.gpus)
        message = f"tp {shape.tp} x pp {shape.pp} = {shape.gpus} GPUs, and {target.gpus} are there"
        found.append(
            _error("gpus-divide", message, f"--gpus {shape.gpus}, or --tp {near} with pp {shape.pp}", "tp", "pp")
        )
    if model.is_moe:
        found += _expert_findings(model, shape, moe_tp)
    elif shape.ep > 1:
        found.append(_error("no-experts", f"ep {shape.ep}, and {model.name} has no experts", "--ep 1", "ep"))
    found += _head_findings(model, shape)
    found += _block_findings(model, shape)
    layers = model.config.num_hidden_layers
    if shape.pp > layers:
        found.append(_error("stages", f"pp {shape.pp} stages for {layers} layers", f"--pp {layers} or less", "pp"))
    if shape.attention_dp and (target.support is None or not target.support.has_attention_dp):
        what = f"attention DP is not there for {model.name} on {target.engine}"
        found.append(_error("attention-dp", what, "leave --attention-dp out and run replicas instead", "attention_dp"))
    if shape.attention_dp and shape.tp == 1:
        found.append(_error("attention-dp", "attention DP over tp 1 divides nothing", "--tp 2 or more", "attention_dp"))
    return found


def _expert_findings(model: Model, shape: Shape, asked_moe_tp: int | None) -> list[Finding]:
    found = []
    experts = model.config.n_routed_experts
    moe_tp = shape.moe_tp if asked_moe_tp is None else asked_moe_tp
    if moe_tp * shape.ep != shape.tp:
        near = nearest(lambda n: shape.tp % n == 0, shape.ep, shape.tp)
        message = (
            f"moe_tp {moe_tp} x ep {shape.ep} = {moe_tp * shape.ep}, and tp is {shape.tp}: the products must agree"
        )
        found.append(_error("expert-product", message, f"--ep {near} (moe_tp follows as tp / ep)", "ep", "moe_tp"))
    if experts % shape.ep:
        near = nearest(lambda n: experts % n == 0, shape.ep, experts)
        message = f"{experts} experts on ep {shape.ep} leave {experts % shape.ep} over"
        found.append(_error("experts-divide", message, f"--ep {near}", "ep"))
    width = model.config.integer("moe_intermediate_size")
    # A whole expert may end inside a block, as the checkpoint does; a piece of one may not.
    unit = _BLOCK if "fp8_block" in model.precision and moe_tp > 1 else 1
    if width % moe_tp or (width // moe_tp) % unit:
        near = nearest(lambda n: width % (n * unit) == 0, moe_tp, width)
        needed = f", which is no multiple of the {_BLOCK}-element scale block" if unit > 1 else ""
        message = f"moe_intermediate_size {width} / moe_tp {moe_tp} = {width / moe_tp:g}{needed}"
        hint = f"moe_tp {near}, by --ep {max(shape.tp // max(_first(near), 1), 1)} or another --tp"
        found.append(_error("expert-block", message, hint, "tp", "ep"))
    return found


def _head_findings(model: Model, shape: Shape) -> list[Finding]:
    found = []
    config, tp = model.config, shape.attention_tp
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    if heads % tp:
        near = nearest(lambda n: heads % n == 0, tp, heads)
        found.append(_error("heads-divide", f"{heads} attention heads on tp {tp}", f"--tp {near}", "tp"))
    is_latent = model.architecture in LATENT or model.architecture.startswith("deepseek_v4")
    if not is_latent and kv_heads % tp and tp % kv_heads:
        near = nearest(lambda n: heads % n == 0 and (kv_heads % n == 0 or n % kv_heads == 0), tp, heads)
        found.append(_error("kv-heads-divide", f"{kv_heads} KV heads on tp {tp}", f"--tp {near}", "tp"))
    groups = config.integer("o_groups", 0)
    if groups and tp > 1 and groups % tp:
        near = nearest(lambda n: groups % n == 0, tp, groups)
        found.append(_error("output-groups", f"{groups} output groups (o_groups) on tp {tp}", f"--tp {near}", "tp"))
    return found


def _block_findings(model: Model, shape: Shape) -> list[Finding]:
    """Pieces of an FP8 block weight must be whole blocks, or two ranks would need half a scale."""
    if "fp8_block" not in model.precision or model.architecture not in LATENT:
        return []
    config, tp = model.config, shape.attention_tp
    if config.num_attention_heads % tp:
        return []
    query = config.integer("qk_nope_head_dim") + config.integer("qk_rope_head_dim")
    rows = config.num_attention_heads // tp * query
    if tp == 1 or rows % _BLOCK == 0 or config.num_attention_heads * query < _BLOCK:
        return []
    near = nearest(
        lambda n: config.num_attention_heads % n == 0 and config.num_attention_heads // n * query % _BLOCK == 0,
        tp,
        config.num_attention_heads,
    )
    message = (
        f"q_b_proj has {config.num_attention_heads} heads x {query} rows / tp {tp} = {rows}, "
        f"which is no multiple of the {_BLOCK}-element scale block"
    )
    return [_error("query-block", message, f"--tp {near}", "tp")]


def candidate_shapes(model: Model, target: Target, fixed: dict[str, int | bool]) -> Iterator[Shape]:
    """Legal shapes on these GPUs that keep to the sizes in `fixed` (tp, pp, ep, attention_dp)."""
    sizes = [n for n in range(1, target.gpus + 1) if target.gpus % n == 0]
    can_divide_requests = target.support is not None and target.support.has_attention_dp
    for tp in [int(fixed["tp"])] if "tp" in fixed else sizes:
        for pp in [int(fixed["pp"])] if "pp" in fixed else [n for n in sizes if n <= _MAX_STAGES]:
            if tp * pp > target.gpus:
                continue
            for ep in _expert_sizes(model, tp, fixed):
                for divided in [bool(fixed["attention_dp"])] if "attention_dp" in fixed else [False, True]:
                    if divided and "attention_dp" not in fixed and (tp == 1 or not can_divide_requests):
                        continue
                    shape = Shape(tp=tp, pp=pp, ep=ep, attention_dp=divided)
                    if not shape_findings(model, target, shape):
                        yield shape


def _expert_sizes(model: Model, tp: int, fixed: dict[str, int | bool]) -> list[int]:
    if "ep" in fixed:
        return [int(fixed["ep"])]
    if not model.is_moe:
        return [1]
    return [ep for ep in range(tp, 0, -1) if tp % ep == 0 and model.config.n_routed_experts % ep == 0]


def nearest(is_legal: Callable[[int], bool], wanted: int, most: int) -> str:
    """The legal values on both sides of `wanted`, as `16 or 32`."""
    below = next((n for n in range(min(wanted, most), 0, -1) if is_legal(n)), None)
    above = next((n for n in range(wanted + 1, most + 1) if is_legal(n)), None)
    return " or ".join(str(n) for n in (below, above) if n is not None) or "1"


def _first(text: str) -> int:
    return int(text.split()[0])


def _error(rule: str, message: str, hint: str, *about: str) -> Finding:
    return Finding(rule=rule, about=tuple(f"parallel.{name}" for name in about), message=message, hint=hint)
