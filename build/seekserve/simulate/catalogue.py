"""Engines to simulate: step models of the plan's catalogue by name, or the one in a bundle."""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path
from typing import Any

from seekserve.errors import InputError
from seekserve.plan.bundle import open_bundle
from seekserve.plan.gpus import FACTS_FOLDER
from seekserve.plan.yaml_file import read_yaml
from seekserve_backend.contract.bundle import KvCache
from seekserve_backend.contract.step_model import StepModel

from .sweep import Engine

__all__ = ["engine_for", "step_models"]

_BLOCK_TOKENS = 64


def step_models() -> dict[str, StepModel]:
    """Name -> model, as the plan's catalogue has them."""
    models: list[dict[str, Any]] = read_yaml(FACTS_FOLDER / "step_models.yaml", setting="catalogue")["models"]
    return {
        f"{entry['model']}, {entry['title']}": StepModel(
            base_points=tuple((int(n), float(ms)) for n, ms in entry["base_points"]),
            kv_read_ms_per_token=float(entry["kv_read_ms_per_token"]),
            attention_ms_per_token2=float(entry["attention_ms_per_token2"]),
            source=str(entry["source"]),
        )
        for entry in models
    }


def engine_for(
    name: str,
    *,
    controller: str | None = None,
    knows_model: bool = True,
    kv_tokens: int,
    max_batch_size: int,
    may_pause: bool | None = None,
    **plant: Any,
) -> Engine:
    """`name` of the catalogue, or a bundle's folder, whose own cache and limits count then.

    `may_pause`: what it does when its cache is full, whatever was built. `controller` names the model that the
    scheduler is given, when it is not the plant's own. `plant`: the rest of `Engine`.
    """
    engine = _find(name, "--engine", kv_tokens, max_batch_size)
    known = engine if controller is None else _find(controller, "--controller", kv_tokens, max_batch_size)
    kv = engine.kv if may_pause is None else replace(engine.kv, may_pause=may_pause)
    return replace(engine, controller=known.plant if knows_model else None, kv=kv, **plant)


def _find(name: str, setting: str, kv_tokens: int, max_batch_size: int) -> Engine:
    known = step_models()
    if name in known:
        blocks = max(kv_tokens // _BLOCK_TOKENS, 1)
        kv = KvCache(dtype="fp8_e4m3", block_tokens=_BLOCK_TOKENS, capacity_blocks=blocks, bytes_per_token=1)
        return Engine(plant=known[name], controller=None, kv=kv, max_batch_size=max_batch_size)
    if not Path(name).is_dir():
        near = difflib.get_close_matches(name, known, 1)
        raise InputError(
            f"{setting} {name!r} is neither in the catalogue nor the folder of a bundle",
            hint=f"did you mean {near[0]!r}?" if near else f"the catalogue has {'; '.join(known)}",
        )
    bundle = open_bundle(Path(name))
    if bundle.step_model is None:
        raise InputError(f"{setting}: bundle {name} has no step model", hint="the catalogue has " + "; ".join(known))
    return Engine(
        plant=bundle.step_model,
        controller=None,
        kv=bundle.kv,
        max_batch_size=bundle.limits.max_batch_size,
        max_seq_len_tokens=bundle.limits.max_seq_len_tokens,
    )
