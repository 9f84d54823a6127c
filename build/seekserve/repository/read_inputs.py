"""What rendering reads beside bundle.json: LLM arguments, the engine's facts, stock files, parameters from flags."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seekserve.errors import BundleError, ConfigError, ConflictError, InputError
from seekserve.output import problems_text
from seekserve.plan.yaml_file import read_yaml
from seekserve_backend.contract.bundle import BUNDLE_FILE, TRTLLM_ARGS_FILE, Bundle

from .model_config import VERSION_FOLDER
from .stock_files import NEEDED, StockFiles, read_stock_files

__all__ = ["find_stock_files", "has_paged_context", "parse_parameters", "read_llm_args"]

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def read_llm_args(bundle: Bundle, bundle_dir: Path) -> Mapping[str, Any]:
    """Raises ConflictError where they contradict what bundle.json promises to everybody else."""
    path = bundle_dir / TRTLLM_ARGS_FILE
    if not path.is_file():
        return {}
    data = read_yaml(path, setting="bundle")
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: holds {type(data).__name__} where a mapping of arguments is due")
    problems = [
        f"{name} is {data[name]} in {TRTLLM_ARGS_FILE} and {wanted} in {BUNDLE_FILE}"
        for name, wanted in _promises(bundle).items()
        if data.get(name) not in (None, wanted)
    ]
    if problems:
        hint = "build the bundle again instead of editing it"
        raise ConflictError(problems_text(f"bundle {bundle_dir}", problems), hint=hint)
    return data


def _promises(bundle: Bundle) -> dict[str, int]:
    promises = {
        "max_seq_len": bundle.limits.max_seq_len_tokens,
        "max_batch_size": bundle.limits.max_batch_size,
        "max_num_tokens": bundle.limits.max_num_tokens,
        "tensor_parallel_size": bundle.parallel.tp,
        "pipeline_parallel_size": bundle.parallel.pp,
    }
    if bundle.trtllm is not None:
        promises["max_beam_width"] = bundle.trtllm.max_beam_width
    return promises


def has_paged_context(bundle: Bundle, bundle_dir: Path) -> bool | None:
    """use_paged_context_fmha of the built engine, as its config.json says; None where it does not."""
    if bundle.trtllm is None or bundle.engine != "trtllm-engine":
        return None
    path = bundle_dir / bundle.trtllm.model_dir / "config.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        value = document["build_config"]["plugin_config"].get("use_paged_context_fmha")
    except FileNotFoundError:
        raise BundleError(
            f"engine folder {path.parent}: it has no config.json, so it holds no engine",
            hint="build it again with `seekserve build-engine CHECKPOINT --out BUNDLE --force`",
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return value if isinstance(value, bool) else None


def find_stock_files(given: Path | None, *, model_folder: Path, repository: Path) -> StockFiles | None:
    """The folder that the flag names; else what was copied into the rendered model since, which then stays."""
    if given is None:
        version = model_folder / VERSION_FOLDER
        return read_stock_files(model_folder) if all((version / name).is_file() for name in NEEDED) else None
    folder = given.expanduser().absolute()
    if repository.resolve() in folder.resolve().parents:
        raise InputError(
            f"--stock-model-dir {given} lies inside the repository {repository}, whose folders Triton takes for models",
            hint="keep it elsewhere: its files are copied",
        )
    return read_stock_files(folder)


def parse_parameters(texts: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE`; only the first `=` divides, so commas, colons and quotes belong to the value."""
    found: dict[str, str] = {}
    problems = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not _KEY.match(key):
            problems.append(f"{text!r} is not of the form KEY=VALUE")
        elif any(ord(letter) < 32 for letter in value):
            problems.append(f"{key}: the value holds a line break or control character")
        elif key in found:
            problems.append(f"{key} is given twice, as {found[key]!r} and as {value!r}")
        else:
            found[key] = value
    if problems:
        raise InputError(problems_text("--stock-parameter", problems))
    return found
