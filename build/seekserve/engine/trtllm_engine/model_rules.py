"""What TensorRT-LLM's DeepSeek-V2 classes assert or assume of a config.json, asked before the weights are read for it.

Source: models/deepseek_v2/config.py @5573a380 and model.py @d2b9c97c. The conversion would stop, or go on with another
model than the checkpoint's, only after minutes of loading.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from seekserve.errors import ConflictError
from seekserve.output import problems_text

from .job import Job

__all__ = ["check_model", "model_warnings"]

_CHOICES = ("greedy", "group_limited_greedy")


def check_model(job: Job) -> None:
    """Raises ConflictError with every field that the engine path cannot do."""
    if job.architecture != "deepseek_v2":
        return
    config = json.loads((job.source.folder / "config.json").read_text(encoding="utf-8"))
    problems = list(_problems(config))
    if problems:
        raise ConflictError(
            problems_text(f"no engine of {job.source.facts.title}: config.json", problems),
            hint="is it a fine-tune with a changed config? the released models pass",
        )


def model_warnings(job: Job) -> list[str]:
    if job.architecture == "deepseek_v2" and job.sm != 90:
        known = "the README of deepseek_v2 names SM90 for its attention kernels, a maintainer SM80 and SM86 too"
        return [f"unverified on SM{job.sm}: {known} (pull request 1758)"]
    return []


def _problems(config: Mapping[str, Any]) -> Iterator[str]:
    scaling = config.get("rope_scaling")
    block = scaling if isinstance(scaling, dict) else {}
    kind = block.get("type") or block.get("rope_type")
    if kind != "yarn":
        yield f"rope_scaling is {kind or 'not there'}, and the model class needs YaRN's values"
    elif "type" not in block:
        yield "rope_scaling has rope_type, and the conversion reads type: write it under both names"
    method, factor = config.get("topk_method"), config.get("routed_scaling_factor", 1.0)
    if method not in _CHOICES:
        yield f"topk_method is {method}, and the conversion takes {' or '.join(_CHOICES)}"
    if not isinstance(factor, (int, float)) or factor <= 0:
        yield f"routed_scaling_factor is {factor}, and it must be above 0"
    elif method == "greedy" and factor != 1.0:
        yield f"routed_scaling_factor is {factor} with topk_method greedy, which needs 1.0"
    dense = config.get("first_k_dense_replace")
    if dense != 1:
        yield f"first_k_dense_replace is {dense}, and the model class makes exactly the first layer dense"
