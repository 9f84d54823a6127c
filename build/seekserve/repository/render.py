"""Bundle -> the files of one Triton model, in memory. Pure: reads the templates, nothing else, and writes nothing.

Tensor names, types and ranks come from the contract's tables, which the backend reads too, so the two cannot drift.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from seekserve.errors import InputError
from seekserve_backend.contract.bundle import Bundle
from seekserve_backend.contract.policy import POLICY_FILE, Policy
from seekserve_backend.contract.tensors import INPUTS, OUTPUTS, TensorSpec

from .environment import render_template

__all__ = [
    "BACKEND_NAME",
    "CONFIG_FILE",
    "MAX_BATCH_SIZE",
    "REPOSITORY_SCHEMA",
    "VERSION_FOLDER",
    "RenderOptions",
    "model_parameters",
    "render",
]

BACKEND_NAME = "seekserve"
CONFIG_FILE = "config.pbtxt"
REPOSITORY_SCHEMA = 1
VERSION_FOLDER = "1"
MAX_BATCH_SIZE = 8
"""Triton's batch dimension, not the engine's batch: with 8, a [1, 1] tensor passes and so does [2, 1], which the
backend then refuses by name. (0 would refuse the [1, 1] of stock clients; 1 would let Triton word the refusal.)"""

_TEMPLATE = "seekserve/config.pbtxt.j2"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    model_name: str
    bundle_dir: Path
    """Absolute: the backend opens it from the server's working directory, whatever that is."""
    policy: Policy


def render(bundle: Bundle, options: RenderOptions) -> dict[str, str]:
    """POSIX paths relative to the repository -> text."""
    model = options.model_name
    values = {
        "header": _header(bundle),
        "model_name": model,
        "backend": BACKEND_NAME,
        "max_batch_size": MAX_BATCH_SIZE,
        "decoupled": True,
        "inputs": [_tensor_view(spec) for spec in INPUTS],
        "outputs": [_tensor_view(spec) for spec in OUTPUTS],
        "instance_kind": "KIND_CPU",
        "instance_count": 1,
        "parameters": [{"key": key, "value": value} for key, value in model_parameters(options).items()],
    }
    return {
        f"{model}/{CONFIG_FILE}": render_template(_TEMPLATE, values),
        f"{model}/{POLICY_FILE}": options.policy.to_json(),
        # Triton wants the version folder and nothing in it; a file keeps it alive in archives and version control.
        f"{model}/{VERSION_FOLDER}/.keep": "",
    }


def model_parameters(options: RenderOptions) -> dict[str, str]:
    """What config.pbtxt hands to the backend."""
    folder = os.fspath(options.bundle_dir)
    if not options.bundle_dir.is_absolute():
        raise InputError(f"the bundle's path must be absolute in a repository, got {folder!r}")
    return {"bundle_dir": folder, "policy_file": POLICY_FILE, "schema_version": str(REPOSITORY_SCHEMA)}


def _header(bundle: Bundle) -> list[str]:
    limits = bundle.limits
    size = f"{limits.max_seq_len_tokens} tokens per request, {limits.max_batch_size} requests at once"
    return [
        "Rendered by seekserve. Render again instead of editing: an edited folder is not replaced.",
        f"Bundle {bundle.name}: {bundle.family}, {bundle.engine} engine, {size}.",
    ]


def _tensor_view(spec: TensorSpec) -> dict[str, object]:
    return {"name": spec.name, "data_type": f"TYPE_{spec.data_type}", "dims": list(spec.dims)}
