"""Predicted step-time models that ship with the toolkit, and which of them, if any, belongs to a worked-out case.

They price requests until measured ones replace them, and are marked as predicted wherever they are shown. A shape that
no table was made for gets none: nothing is scaled from another.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from seekserve_backend.contract.step_model import StepModel

from .case import Case
from .gpus import FACTS_FOLDER
from .yaml_file import read_yaml

__all__ = ["known_step_models", "step_model_for"]


def step_model_for(case: Case) -> StepModel | None:
    for entry in _entries():
        if _applies(entry, case):
            return StepModel(
                base_points=tuple((int(tokens), float(ms)) for tokens, ms in entry["base_points"]),
                kv_read_ms_per_token=float(entry["kv_read_ms_per_token"]),
                attention_ms_per_token2=float(entry["attention_ms_per_token2"]),
                source=f"predicted: {entry['source']}",
            )
    return None


def known_step_models() -> tuple[str, ...]:
    return tuple(f"{entry['model']} on {entry['title']}" for entry in _entries())


def _applies(entry: Mapping[str, Any], case: Case) -> bool:
    shape, config = case.shape, case.model.config
    return (
        case.model.family in entry["families"]
        and (config.num_hidden_layers, config.hidden_size) == tuple(entry["layers_hidden"])
        and case.model.precision == entry["weights"]
        and case.wish.kv_dtype == entry["kv"]
        and case.target.gpu.name == entry["gpu"]
        and {"tp": shape.tp, "pp": shape.pp, "ep": shape.ep} == entry["shape"]
        and shape.attention_dp is entry["attention_dp"]
        and case.wish.mtp == 0
    )


@functools.cache
def _entries() -> tuple[Mapping[str, Any], ...]:
    return tuple(read_yaml(FACTS_FOLDER / "step_models.yaml", setting="step models")["models"])
