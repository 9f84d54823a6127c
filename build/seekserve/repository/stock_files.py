"""model.py and helpers of the stock LLM-API model, taken from the user's own image: reads them, keeps no copy here.

They fit one version of TensorRT-LLM, so they come from where that version comes from. Only the Python files of the
version folder are taken, by plain names; the model's tensors are read from the config.pbtxt beside it, if there is one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seekserve.errors import InputError
from seekserve.output import problems_text

from .check import parse_config, tensors_of
from .model_config import CONFIG_FILE, VERSION_FOLDER, TensorConfig

__all__ = ["IMAGE_FOLDER", "NEEDED", "StockFiles", "read_stock_files"]

IMAGE_FOLDER = "/app/all_models/llmapi/tensorrt_llm"
"""Where NVIDIA's Triton images with TensorRT-LLM hold it."""
NEEDED = ("model.py", "helpers.py")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\.py\Z")
_MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StockFiles:
    folder: Path
    texts: Mapping[str, str]
    """File name in the version folder -> content."""
    inputs: tuple[TensorConfig, ...] = ()
    outputs: tuple[TensorConfig, ...] = ()
    """As the image's own config.pbtxt declares them; empty where there is none."""
    hashes: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_instances(self) -> bool:
        """The model that gives each instance GPUs of its own reads a parameter of that name (since February 2026)."""
        return "gpu_device_ids" in self.texts["model.py"]


def read_stock_files(folder: Path) -> StockFiles:
    """`folder` is the model's (with `1/` and config.pbtxt) or the version folder. Raises InputError with all faults."""
    if not folder.is_dir():
        raise InputError(f"--stock-model-dir {folder}: no such folder", hint=f"in NVIDIA's image it is {IMAGE_FOLDER}")
    version = folder / VERSION_FOLDER if (folder / VERSION_FOLDER).is_dir() else folder
    problems = [f"{version / name} is missing" for name in NEEDED if not (version / name).is_file()]
    texts: dict[str, str] = {}
    for path in sorted(version.glob("*.py")):
        try:
            texts[path.name] = _text(path)
        except InputError as error:
            problems.append(error.message)
    if "class TritonPythonModel" not in texts.get("model.py", "class TritonPythonModel"):
        problems.append(f"{version / 'model.py'} defines no TritonPythonModel, so it is no model of Triton")
    if problems:
        hint = f"copy the folder {IMAGE_FOLDER} out of the image that will serve, and give that"
        raise InputError(problems_text(f"--stock-model-dir {folder}", problems), hint=hint)
    inputs, outputs = _tensors(version.parent / CONFIG_FILE)
    hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    return StockFiles(folder=version, texts=texts, inputs=inputs, outputs=outputs, hashes=hashes)


def _text(path: Path) -> str:
    if not _NAME.match(path.name):
        raise InputError(f"{path.name!r} is no name of a Python module")
    if path.stat().st_size > _MAX_BYTES:
        raise InputError(f"{path} has {path.stat().st_size} bytes, more than the {_MAX_BYTES} of any such file")
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 (byte {error.start})") from None


def _tensors(config: Path) -> tuple[tuple[TensorConfig, ...], tuple[TensorConfig, ...]]:
    if not config.is_file():
        return (), ()
    try:
        message = parse_config(config.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise InputError(f"--stock-model-dir: {config}: {error}", hint="take it from the image as it is") from error
    return tensors_of(message.input), tensors_of(message.output)
