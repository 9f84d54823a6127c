"""Bundle -> the files of one repository, in memory. Pure: reads the templates, nothing else, and writes nothing.

    integrated     our backend with the engine in its own process
    stock-engine   our backend in front of the stock C++ `tensorrt_llm` model, for those who must keep that one
    llmapi         the stock LLM-API model alone, without our backend

Tensor names, types and ranks come from tables that the reader of the requests uses too, so the two cannot drift. The
first model of a rendering is the one that clients call.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seekserve.errors import ConflictError, InputError
from seekserve_backend.contract.bundle import Bundle
from seekserve_backend.contract.policy import POLICY_FILE, Policy
from seekserve_backend.contract.stock_model import STOCK_MODEL

from .model_config import CONFIG_FILE, KIND_CPU_NOTES, VERSION_FOLDER, ModelConfig, config_text
from .our_model import BACKEND_NAME, BATCH_NOTES, MAX_BATCH_SIZE, STREAMING_PARAMETER, our_model
from .placement import Placement
from .stock_files import StockFiles

__all__ = [
    "BACKEND_NAME",
    "CONFIG_FILE",
    "MAX_BATCH_SIZE",
    "REPOSITORY_SCHEMA",
    "STOCK_PARAMETER",
    "TOPOLOGIES",
    "VERSION_FOLDER",
    "RenderOptions",
    "Rendering",
    "bundle_header",
    "integrated",
    "render",
]

REPOSITORY_SCHEMA = 1
TOPOLOGIES = ("integrated", "stock-engine", "llmapi")
STOCK_PARAMETER = "stock_model"
"""Names the model that our backend calls instead of running an engine itself."""

_NEEDS = {"stock-engine": "trtllm-engine", "llmapi": "trtllm-pytorch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    model_name: str
    bundle_dir: Path
    """Absolute: the backend opens it from the server's working directory, whatever that is. All others follow."""
    policy: Policy = field(default_factory=Policy)
    topology: str = "integrated"
    placement: Placement = field(default_factory=Placement)
    is_streaming: bool = True
    """Feeds the decoupled flag of every model."""
    llm_args: Mapping[str, Any] = field(default_factory=dict)
    """The bundle's llm_args.yaml; read for the two stock topologies."""
    cancellation_check_ms: int | None = None
    stock_name: str = STOCK_MODEL
    stock_parameters: Mapping[str, str] = field(default_factory=dict)
    """The user's own parameters of the stock model, by their names in config.pbtxt."""
    has_paged_context: bool | None = None
    """Whether the engine was built with use_paged_context_fmha; None: its config.json does not say."""
    stock_files: StockFiles | None = None
    """model.py and its helpers from the user's image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    models: tuple[ModelConfig, ...]
    files: Mapping[str, str]
    """POSIX paths relative to the repository -> text."""
    warnings: tuple[str, ...] = ()


def render(bundle: Bundle, options: RenderOptions) -> Rendering:
    """Raises ConflictError when the bundle cannot be served that way."""
    needed = _NEEDS.get(options.topology)
    if needed is not None and bundle.engine != needed:
        raise ConflictError(
            f"--topology {options.topology} runs {needed} bundles, but {bundle.name} was built for {bundle.engine}",
            hint="use --topology integrated, or build it again with --engine " + needed,
        )
    if not options.bundle_dir.is_absolute():
        raise InputError(f"the bundle's path must be absolute in a repository, got {os.fspath(options.bundle_dir)!r}")
    if options.topology == "stock-engine":
        from .stock_engine import stock_engine

        return stock_engine(bundle, options)
    if options.topology == "llmapi":
        from .llmapi import llmapi

        return llmapi(bundle, options)
    return integrated(bundle, options)


def integrated(bundle: Bundle, options: RenderOptions, extra: Mapping[str, str] | None = None) -> Rendering:
    """Our own model; `extra` parameters come last."""
    parameters = {
        "bundle_dir": os.fspath(options.bundle_dir),
        "policy_file": POLICY_FILE,
        "schema_version": str(REPOSITORY_SCHEMA),
        **({} if options.is_streaming else {STREAMING_PARAMETER: "false"}),
        **options.placement.parameters,
        **(extra or {}),
    }
    name = options.model_name
    model = our_model(name, parameters, instances=options.placement.instances)
    notes = KIND_CPU_NOTES if bundle.trtllm is not None and not extra else ()
    text = config_text(model, header=bundle_header(bundle), batch_notes=BATCH_NOTES, instance_notes=notes)
    files = {
        f"{name}/{CONFIG_FILE}": text,
        f"{name}/{POLICY_FILE}": options.policy.to_json(),
        # Triton wants the version folder and nothing in it; a file keeps it alive in archives and version control.
        f"{name}/{VERSION_FOLDER}/.keep": "",
    }
    return Rendering(models=(model,), files=files)


def bundle_header(bundle: Bundle) -> tuple[str, ...]:
    limits = bundle.limits
    size = f"{limits.max_seq_len_tokens} tokens per request, {limits.max_batch_size} requests at once"
    version = "" if bundle.trtllm is None else f" for TensorRT-LLM {bundle.trtllm.version}"
    return (
        "Rendered by seekserve. Render again instead of editing: an edited folder is not replaced.",
        f"Bundle {bundle.name}: {bundle.family}, {bundle.engine} engine{version}, {size}.",
    )
