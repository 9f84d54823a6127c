"""Reads the needs of a repository's models from the files that say how their engines were laid out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seekserve.server.models import ServedModel
from seekserve.server.plans.need import GPUS_PER_NODE, LEADER, SPAWNS, Need
from seekserve_backend.contract.bundle import BUNDLE_FILE, TRTLLM_KINDS, Bundle, TrtllmSpec
from seekserve_backend.contract.fields import ContractError

__all__ = ["ENGINE_DIR_PARAMETER", "read_needs"]

ENGINE_DIR_PARAMETER = "gpt_model_path"
_GPU_PARAMETER = "gpu_device_ids"
_LLMAPI_FILE = "model.yaml"
# Without a bundle nobody has sized the start: a slow disk's rate, on top of what any start takes.
_STOCK_START_S = 600.0
_STOCK_BYTES_PER_S = 200e6
_LLMAPI_START_S = 3600.0


def read_needs(models: Sequence[ServedModel]) -> tuple[tuple[Need, ...], list[str]]:
    """The needs in model order, and a sentence for everything that cannot be read or contradicts itself.

    A model of ours in front of a stock engine shares its bundle with it; the ranks are then the stock model's.
    """
    needs: list[Need] = []
    problems: list[str] = []
    engines = {path.resolve() for model in models if (path := _engine_dir(model)) is not None}
    for model in models:
        try:
            need = _read(model, engines)
        except ValueError as error:
            problems.append(f"model {model.name!r}: {error}")
            continue
        if need is not None:
            needs.append(need)
            problems += _gpu_problems(need)
    return tuple(needs), problems + _shared_gpus(needs)


def _read(model: ServedModel, engines: set[Path]) -> Need | None:
    if model.is_ours:
        return None if model.bundle_dir is None else _of_bundle(model, model.bundle_dir, engines)
    engine_dir = _engine_dir(model)
    if engine_dir is not None:
        return _of_engine(model, engine_dir)
    for file in sorted(model.folder.glob(f"[0-9]*/{_LLMAPI_FILE}")):
        return _of_llmapi(model, file)
    return None


def _engine_dir(model: ServedModel) -> Path | None:
    """Of a stock model; a placeholder that nobody filled in is no path."""
    value = model.parameters.get(ENGINE_DIR_PARAMETER, "")
    return None if model.is_ours or value in ("", "none") or "${" in value else model.folder / value


def _of_bundle(model: ServedModel, folder: Path, engines: set[Path]) -> Need | None:
    bundle = _load(folder)
    if bundle is None or bundle.engine not in TRTLLM_KINDS or bundle.trtllm is None:
        return None
    if (folder / bundle.trtllm.model_dir).resolve() in engines:
        return None
    return _from_bundle(model, bundle, folder / BUNDLE_FILE, SPAWNS)


def _from_bundle(model: ServedModel, bundle: Bundle, source: Path, starter: str) -> Need:
    assert bundle.trtllm is not None
    return Need(
        model=model.name,
        starter=starter,
        tp=bundle.parallel.tp,
        pp=bundle.parallel.pp,
        gpus_per_node=bundle.parallel.gpus_per_node,
        source=str(source),
        instances=_instances(model),
        gpu_ids=_gpu_ids(model),
        start_timeout_s=bundle.trtllm.start_timeout_s,
    )


def _load(folder: Path) -> Bundle | None:
    """None where preflight has said already that there is no bundle."""
    try:
        return Bundle.load(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ContractError, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the bundle {folder} cannot be read: {error}") from error


def _of_engine(model: ServedModel, engine_dir: Path) -> Need:
    bundle = _load(engine_dir.parent) if (engine_dir.parent / BUNDLE_FILE).is_file() else None
    if bundle is not None and bundle.trtllm is not None:
        return _from_bundle(model, bundle, engine_dir.parent / BUNDLE_FILE, LEADER)
    file = engine_dir / "config.json"
    try:
        config: Any = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"{ENGINE_DIR_PARAMETER} {engine_dir} holds no config.json, so it is no engine folder; name the folder "
            "that trtllm-build wrote"
        ) from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    tp, pp = _mapping(config, file)
    weights_bytes = sum(path.stat().st_size for path in engine_dir.glob("*.engine"))
    return Need(
        model=model.name,
        starter=LEADER,
        tp=tp,
        pp=pp,
        source=str(file),
        instances=_instances(model),
        gpu_ids=_gpu_ids(model),
        start_timeout_s=_STOCK_START_S + weights_bytes / _STOCK_BYTES_PER_S,
    )


def _mapping(config: Any, file: Path) -> tuple[int, int]:
    """Both shapes that trtllm-build has written: `pretrained_config.mapping`, and before it `builder_config`."""
    root = config if isinstance(config, dict) else {}
    for outer, inner, tp, pp in (
        ("pretrained_config", "mapping", "tp_size", "pp_size"),
        ("builder_config", None, "tensor_parallel", "pipeline_parallel"),
    ):
        table = root.get(outer)
        table = table.get(inner) if isinstance(table, dict) and inner is not None else table
        if isinstance(table, dict) and tp in table:
            return _positive(table, tp, file), _positive(table, pp, file)
    raise ValueError(
        f"{file} says neither pretrained_config.mapping nor builder_config.tensor_parallel: not an engine's"
    )


def _of_llmapi(model: ServedModel, file: Path) -> Need:
    import yaml

    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    table = data if isinstance(data, dict) else {}
    bundle = _bundle_around(table.get("model"))
    return Need(
        model=model.name,
        starter=SPAWNS,
        tp=_positive(table, "tensor_parallel_size", file),
        pp=_positive(table, "pipeline_parallel_size", file),
        gpus_per_node=_positive(table, "gpus_per_node", file, unsaid=GPUS_PER_NODE),
        source=str(file),
        instances=_instances(model),
        gpu_ids=_gpu_ids(model),
        start_timeout_s=_LLMAPI_START_S if bundle is None else bundle.start_timeout_s,
    )


def _bundle_around(weights: object) -> TrtllmSpec | None:
    """Of the weights that a rendered model.yaml names; a hub id or a folder of the user's own has none."""
    folder = Path(weights).parent if isinstance(weights, str) and weights.startswith("/") else None
    bundle = None if folder is None else _load(folder)
    return None if bundle is None else bundle.trtllm


def _positive(table: dict[str, Any], key: str, file: Path, *, unsaid: int = 1) -> int:
    value = table.get(key)
    value = unsaid if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{file}: {key} is {value!r}, not a number of ranks from 1 on")
    return value


def _instances(model: ServedModel) -> int:
    return max(model.instances, len(_gpu_ids(model)), 1)


def _gpu_ids(model: ServedModel) -> tuple[tuple[int, ...], ...]:
    """`0,1;2,3`: the GPUs of each instance."""
    text = model.parameters.get(_GPU_PARAMETER, "").strip()
    if not text or "${" in text:
        return ()
    try:
        return tuple(tuple(int(one) for one in group.split(",")) for group in text.split(";"))
    except ValueError:
        raise ValueError(
            f"{_GPU_PARAMETER} is {text!r}; write it like '0,1;2,3', one group for each instance"
        ) from None


def _gpu_problems(need: Need) -> list[str]:
    who, problems = f"model {need.model!r}", []
    if need.gpu_ids and len(need.gpu_ids) != need.instances:
        problems.append(
            f"{who}: {_GPU_PARAMETER} names {len(need.gpu_ids)} groups for {need.instances} instances; one group each"
        )
    for group in need.gpu_ids:
        # A group lists the GPUs of one node; ranks on further nodes take the same numbers there.
        wanted = min(need.world_size, need.gpus_per_node)
        if len(group) != wanted:
            problems.append(
                f"{who}: {_GPU_PARAMETER} group {list(group)} has {len(group)} GPUs for {need.product} ranks"
            )
    return problems


def _shared_gpus(needs: Sequence[Need]) -> list[str]:
    owners: dict[int, list[str]] = {}
    for need in needs:
        for number, group in enumerate(need.gpu_ids):
            for gpu in group:
                owners.setdefault(gpu, []).append(f"instance {number} of {need.model!r}")
    return [
        f"{_GPU_PARAMETER}: GPU {gpu} is given to {' and to '.join(who)}; the groups must not share a GPU"
        for gpu, who in sorted(owners.items())
        if len(who) > 1
    ]
