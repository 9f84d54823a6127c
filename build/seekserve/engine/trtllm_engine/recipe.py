"""How a checkpoint becomes one that trtllm-build reads: which script of TensorRT-LLM's examples, with which flags.

A table by architecture and precision. What no script can make is refused with the precision that one can; FP8 scales of
the KV cache come from quantize.py alone, so an FP8 cache always means calibration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from seekserve.errors import ConflictError, InputError
from seekserve.plan.quantised import PLAIN_WEIGHTS

from .job import Job

__all__ = ["Recipe", "choose_recipe"]

CALIBRATION_SET: Final = "cnn_dailymail"
"""What quantize.py reads when nothing is said; other names of the hub it does not know."""
_QUANTIZE: Final = "quantization/quantize.py"
_FORMATS: Final = {"bf16": "full_prec", "fp16": "full_prec", "fp8_tensor": "fp8"}
_DISTILL_FORMATS: Final = {**_FORMATS, "awq": "int4_awq", "w4a8_awq": "w4a8_awq"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Path:
    tool: str
    """As the table of flags calls it."""
    script: str
    """POSIX path below the examples folder."""
    formats: Mapping[str, str]
    """Wanted precision -> --qformat, of what quantize.py makes of plain weights."""
    converts: tuple[str, ...]
    """Stored precisions that the conversion script reads."""
    weight_only: tuple[str, ...] = ()
    """Precisions that the conversion script makes itself."""


_PATHS: Final = {
    "deepseek_moe": _Path(
        tool="convert-deepseek-v1",
        script="models/contrib/deepseek_v1/convert_checkpoint.py",
        formats=_FORMATS,
        converts=PLAIN_WEIGHTS,
    ),
    "deepseek_v2": _Path(
        tool="convert-deepseek-v2",
        script="models/contrib/deepseek_v2/convert_checkpoint.py",
        formats={},
        converts=("bf16",),
    ),
    "qwen2": _Path(
        tool="convert-qwen",
        script="models/core/qwen/convert_checkpoint.py",
        formats=_DISTILL_FORMATS,
        converts=(*PLAIN_WEIGHTS, "awq", "gptq"),
        weight_only=("int8",),
    ),
    "llama": _Path(
        tool="convert-llama",
        script="models/core/llama/convert_checkpoint.py",
        formats=_DISTILL_FORMATS,
        converts=(*PLAIN_WEIGHTS, "awq", "gptq"),
        weight_only=("int8",),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    name: str
    """Of the step."""
    tool: str
    script: str
    flags: Mapping[str, object]
    """Without the folders of input and output."""
    calibrates: bool = False
    dataset: str = ""


def choose_recipe(job: Job) -> Recipe:
    """Raises ConflictError when no script makes what the plan wants of what the checkpoint holds."""
    path = _PATHS[job.architecture]
    if job.quantises:
        return _quantisation(job, path)
    if job.wish.trtllm.calibration_data is not None:
        raise ConflictError(
            f"--calibration-data: nothing is calibrated when {job.stored} weights become {job.wanted} with a "
            f"{job.kv.dtype} cache",
            hint="leave it out",
        )
    return _conversion(job, path)


def _conversion(job: Job, path: _Path) -> Recipe:
    if job.stored not in path.converts:
        raise ConflictError(
            f"{path.script} reads weights in {', '.join(path.converts)}, the checkpoint holds {job.stored}",
            hint="take the original release: quantize.py makes the other precisions from it",
        )
    _refuse_reordered_gptq(job)
    flags: dict[str, object] = {"dtype": job.compute_dtype, "tp_size": job.parallel.tp, "pp_size": job.parallel.pp}
    if job.is_moe:
        flags |= {"moe_tp_size": job.parallel.moe_tp, "moe_ep_size": job.parallel.ep}
    if job.wanted not in (job.stored, *PLAIN_WEIGHTS):
        if job.wanted not in path.weight_only:
            raise _unmade(job, path)
        flags |= {"use_weight_only": True, "weight_only_precision": job.wanted}
    # One rank after the other unless asked for: each worker holds its rank's weights in host memory.
    flags["workers"] = job.wish.trtllm.workers or 1
    return Recipe(name="convert", tool=path.tool, script=path.script, flags=flags)


def _quantisation(job: Job, path: _Path) -> Recipe:
    kind = path.formats.get(job.wanted)
    if kind is None:
        raise _unmade(job, path)
    if job.stored not in PLAIN_WEIGHTS:
        raise ConflictError(
            f"quantize.py calibrates plain weights ({', '.join(PLAIN_WEIGHTS)}), the checkpoint holds {job.stored}",
            hint="--kv-dtype bf16" if job.wanted == job.stored else "take the bf16 release of the model",
        )
    if job.parallel.ep > 1:
        raise ConflictError(
            f"quantize.py has no option for expert parallelism, the plan has EP {job.parallel.ep}",
            hint="--ep 1: the experts are then divided by TP",
        )
    dataset = _dataset(job.wish.trtllm.calibration_data)
    flags: dict[str, object] = {"dtype": job.compute_dtype, "qformat": kind}
    if job.kv.dtype == "fp8_e4m3":
        flags["kv_cache_dtype"] = "fp8"
    if "awq" in kind:
        flags["awq_block_size"] = 128
    flags |= {"tp_size": job.parallel.tp, "pp_size": job.parallel.pp, "calib_dataset": dataset, "calib_size": 512}
    return Recipe(name="quantize", tool="quantize", script=_QUANTIZE, flags=flags, calibrates=True, dataset=dataset)


def _unmade(job: Job, path: _Path) -> ConflictError:
    title = job.source.facts.title
    if job.kv.dtype == "fp8_e4m3" and job.wanted == job.stored:
        message = f"no script makes {title} with {job.wanted} weights and FP8 KV"
        return ConflictError(message, hint="--kv-dtype bf16")
    kinds = dict.fromkeys([*(k for k in path.converts if k == job.stored), *path.formats, *path.weight_only])
    return ConflictError(
        f"no script of TensorRT-LLM makes a {title} engine in {job.wanted} of {job.stored} weights",
        hint=f"it can be {', '.join(kinds)}",
    )


def _dataset(given: str | None) -> str:
    """quantize.py looks for the name in the path, takes any other folder that exists, and fails on the rest."""
    if given is None:
        return CALIBRATION_SET
    folder = Path(given).expanduser()
    if folder.is_dir():
        return str(folder.absolute())
    if CALIBRATION_SET in given and not folder.is_absolute():
        return given
    raise InputError(
        f"--calibration-data {given}: is no folder here, and of the hub quantize.py knows {CALIBRATION_SET} only",
        hint=f"a local copy in a folder with {CALIBRATION_SET} in its name, or one with a train split of a text column",
    )


def _refuse_reordered_gptq(job: Job) -> None:
    """The scripts stop at desc_act after the weights are loaded; here it costs nothing."""
    if job.stored != "gptq":
        return
    config = json.loads((job.source.folder / "config.json").read_text(encoding="utf-8"))
    if (config.get("quantization_config") or {}).get("desc_act") is True:
        raise ConflictError(
            "the GPTQ weights were quantised with desc_act true, which convert_checkpoint.py refuses",
            hint="take a checkpoint with desc_act false, or let quantize.py make int4_awq of the bf16 release",
        )
