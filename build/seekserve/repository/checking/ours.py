"""Our own models: the contract's tensors, the bundle behind them, the policy, the GPUs of their instances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from seekserve.errors import BundleError, ConfigError
from seekserve.plan.bundle import open_bundle
from seekserve.plan.yaml_file import read_yaml
from seekserve.trtllm.built_engine import engine_faults, read_engine_config
from seekserve_backend.contract.bundle import TRTLLM_ARGS_FILE, Bundle
from seekserve_backend.contract.fields import ContractError
from seekserve_backend.contract.policy import Policy

from ..check import config_problems
from ..model_config import CONFIG_FILE
from ..render import BACKEND_NAME
from .finding import RepositoryFinding, error
from .gpus import gpu_findings
from .model import ModelFolder

__all__ = ["is_ours", "our_findings"]

_RENDER = "render the repository again with `seekserve render`"


def is_ours(model: ModelFolder) -> bool:
    return bool(model.config.backend == BACKEND_NAME)


def our_findings(model: ModelFolder, *, version: str | None, hashes: bool) -> Iterator[RepositoryFinding]:
    for problem in config_problems(model.text, model_name=model.name, parameters=model.parameters):
        # Named with their line by the rules for every model.
        if "placeholder" not in problem and "in the folder" not in problem:
            yield error("contract", model.config_file, None, problem, _RENDER)
    yield from _policy(model)
    place = model.parameters.get("bundle_dir", "")
    line = model.parameter_line("bundle_dir")
    if not place:
        yield error("bundle", model.config_file, line, "has no parameter bundle_dir", _RENDER)
        return
    if not Path(place).is_absolute():
        message = f"bundle_dir {place} is relative, and the server's working directory decides where that is"
        yield error("bundle", model.config_file, line, message, _RENDER)
        return
    try:
        bundle = open_bundle(Path(place), hashes=hashes)
    except BundleError as reason:
        yield error("bundle", model.config_file, line, reason.message, reason.hint or "")
        return
    if Path(place).resolve().parent == model.path.parent.resolve():
        message = f"bundle_dir {place} stands in the repository, where Triton takes it for a model"
        yield error("bundle-inside", model.config_file, line, message, "move it elsewhere, then render again")
    yield from gpu_findings(model, bundle)
    if bundle.engine == "trtllm-engine":
        for problem in _engine_problems(Path(place), bundle):
            yield error("engine", model.config_file, line, problem, "build the bundle again")
    if version is not None and bundle.trtllm is not None and bundle.trtllm.version != version:
        message = f"the bundle was checked for TensorRT-LLM {bundle.trtllm.version}, not {version}"
        yield error("version", model.config_file, line, message, "build it again with --trtllm-version")


def _engine_problems(folder: Path, bundle: Bundle) -> list[str]:
    """The engine against its bundle, and against what llm_args.yaml switches on."""
    try:
        facts = read_engine_config(folder / "engine")
        args = read_yaml(folder / TRTLLM_ARGS_FILE, setting=TRTLLM_ARGS_FILE)
    except (BundleError, ConfigError) as reason:
        return [reason.message]
    cache = args.get("kv_cache_config")
    reuses = isinstance(cache, Mapping) and cache.get("enable_block_reuse") is True
    return engine_faults(facts, bundle, needs_paged_context=reuses or args.get("enable_chunked_prefill") is True)


def _policy(model: ModelFolder) -> Iterator[RepositoryFinding]:
    name = model.parameters.get("policy_file", "")
    line = model.parameter_line("policy_file")
    if not name:
        yield error("policy", model.config_file, line, "has no parameter policy_file", _RENDER)
        return
    try:
        policy = Policy.load(model.path / name)
    except OSError:
        yield error("policy", model.config_file, line, f"policy_file {name} is not there", _RENDER)
    except ContractError as reason:
        for problem in reason.problems:
            yield error("policy", f"{model.name}/{name}", None, problem)
    else:
        beside = {config.parent.name for config in model.path.parent.glob(f"*/{CONFIG_FILE}")} - {model.name}
        for variant in sorted(policy.variants - beside):
            message = f"routes to the model {variant!r} under pressure, which is not in this repository"
            hint = (
                f"render it there too, or name one of {', '.join(sorted(beside))}" if beside else "render it there too"
            )
            yield error("policy", f"{model.name}/{name}", None, message, hint)
