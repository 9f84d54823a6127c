"""Which GPUs the models of a repository load onto: each enough for its replica, and two on one told.

`gpu_device_ids` is `0,1;2,3`: one group for each instance. Without it a replica takes the first GPUs that are visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from seekserve.errors import BundleError
from seekserve.plan.bundle import open_bundle
from seekserve_backend.contract.bundle import Bundle

from ..render import BACKEND_NAME
from .finding import RepositoryFinding, error, warning
from .model import ModelFolder

__all__ = ["gpu_findings", "shared_gpus"]

_RENDER = "render the repository again with `seekserve render`"


def shared_gpus(models: Iterable[ModelFolder]) -> Iterator[RepositoryFinding]:
    """Of models that load their weights in our backend or in the stock one."""
    taken: dict[int, str] = {}
    for model in models:
        gpus = _gpus_of(model)
        shared = sorted(gpus & taken.keys())
        if shared:
            numbers = ", ".join(map(str, shared))
            message = f"loads onto GPU {numbers}, as {taken[shared[0]]} does: a plan counts on the whole of each"
            hint = "give each its own with `render --gpus`; or plan one `--beside` the other and let this be"
            line = model.parameter_line("gpu_device_ids")
            yield warning("gpus-shared", model.config_file, line, message, hint)
        taken |= dict.fromkeys(gpus - taken.keys(), model.name)


def _gpus_of(model: ModelFolder) -> set[int]:
    parameters = model.parameters
    text = parameters.get("gpu_device_ids", "")
    if text:
        try:
            return {int(number) for part in text.split(";") for number in part.split(",")}
        except ValueError:  # has its own finding
            return set()
    if model.config.backend != BACKEND_NAME or "stock_model" in parameters:
        return set()
    try:
        bundle = open_bundle(Path(parameters.get("bundle_dir", "")), hashes=False)
    except BundleError:  # this too
        return set()
    is_elsewhere = bundle.trtllm is None or bundle.parallel.nodes > 1
    return set() if is_elsewhere else set(range(bundle.parallel.world_size))


def gpu_findings(model: ModelFolder, bundle: Bundle) -> Iterator[RepositoryFinding]:
    """`0,1;2,3`: one group for each instance, each as large as the replica, no GPU in two."""
    text = model.parameters.get("gpu_device_ids", "")
    count = sum(group.count or 1 for group in model.config.instance_group) or 1
    line = model.parameter_line("gpu_device_ids")
    if not text:
        if count > 1 and bundle.trtllm is not None:
            message = f"{count} instances and no gpu_device_ids: all of them would load onto the same GPUs"
            yield error("gpus", model.config_file, model.line("count"), message, _RENDER)
        return
    try:
        groups = [[int(number) for number in part.split(",")] for part in text.split(";")]
    except ValueError:
        yield error("gpus", model.config_file, line, f"gpu_device_ids {text!r} is not of the form 0,1;2,3")
        return
    world = bundle.parallel.world_size
    if len(groups) != count:
        yield error("gpus", model.config_file, line, f"gpu_device_ids has {len(groups)} groups for {count} instances")
    for group in groups:
        if len(group) != world:
            message = f"gpu_device_ids {','.join(map(str, group))}: {len(group)} GPUs for a replica of {world} ranks"
            yield error("gpus", model.config_file, line, message)
    flat = [number for group in groups for number in group]
    twice = sorted({number for number in flat if flat.count(number) > 1})
    if twice:
        yield error("gpus", model.config_file, line, f"gpu_device_ids names GPU {twice[0]} twice")
    if bundle.parallel.nodes > 1:
        message = f"the bundle spans {bundle.parallel.nodes} nodes, where gpu_device_ids chooses on one only"
        yield warning("gpus", model.config_file, line, message)
