"""`--estimate aiconfigurator`: a step-time model from NVIDIA's planner, run as a child in an environment of its own.

It needs numpy >= 2.1 and Python >= 3.11 where the embedded server needs numpy < 2, so it is never imported: on request
a virtual environment is made in the user's cache, and its printed report is parsed strictly.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from seekserve.errors import InputError, MissingDependency
from seekserve.output import new_folder
from seekserve_backend.contract.step_model import StepModel

from .case import Case
from .model import Model
from .plan import Plan

__all__ = ["VERSION", "ask", "fit", "fit_with_aiconfigurator", "parse_report", "tool_folder"]

VERSION: Final = "0.12.0"
_SYSTEMS: Final[Mapping[str, str]] = {
    "a100-sxm-80gb": "a100_sxm",
    "a100-pcie-80gb": "a100_pcie",
    "h100-sxm-80gb": "h100_sxm",
    "h100-pcie-80gb": "h100_pcie",
    "h200-sxm-141gb": "h200_sxm",
    "b200-sxm-180gb": "b200_sxm",
    "b300-sxm-288gb": "b300_sxm",
    "gb200-186gb": "gb200",
    "gb300-288gb": "gb300",
    "l40s-48gb": "l40s",
    "l4-24gb": "l4",
    "rtx-pro-6000-blackwell-server": "rtx_pro_6000_server",
}
_INTERPRETERS: Final = ("python3.13", "python3.12", "python3.11", "python3")
_NEEDS: Final = (3, 11)
_DECODE_BATCHES: Final = (1, 4, 16, 64, 256)
_SHORT_TOKENS: Final = 100
_LONG_TOKENS: Final = 8000
"""Resident tokens of each request at the two ends from which the cost of reading the cache follows."""
_PROMPTS: Final = (1000, 4000, 16000)
_INSTALL_TIMEOUT_S: Final = 1800
_POINT_TIMEOUT_S: Final = 300
_NUMBER: Final = r"([\d,]+\.?\d*)"
_FIELDS: Final[Mapping[str, str]] = {
    "static_gen": rf"^\s*TPOT:\s+{_NUMBER} ms\s*$",
    "static_ctx": rf"^\s*TTFT:\s+{_NUMBER} ms\s*$",
}
"""What each mode is asked for."""

Run = Callable[[Sequence[str], float], "subprocess.CompletedProcess[str]"]


def fit_with_aiconfigurator(plan: Plan, model: Model, environ: Mapping[str, str] | None = None) -> StepModel:
    """Makes the tool's environment when it is not there yet. Raises InputErrors when it cannot answer."""
    assert plan.deployment is not None
    case = plan.deployment.case
    system = _SYSTEMS.get(case.target.gpu.name)
    if system is None:
        known = ", ".join(_SYSTEMS)
        name = case.target.gpu.name
        raise InputError(f"--estimate aiconfigurator: it has no tables for {name}", hint=f"it has {known}")
    python = _environment(tool_folder(os.environ if environ is None else environ), _run)
    with tempfile.TemporaryDirectory(prefix="seekserve-estimate-") as folder:
        (Path(folder) / "config.json").write_text(json.dumps(dict(model.config.outer)), encoding="utf-8")

        def measure(mode: str, prompt_tokens: int, batch: int) -> float:
            return ask(case, python, folder, system, mode, prompt_tokens, batch, _run)

        return fit(measure, pools=case.shape.kv_pools, source=f"predicted: aiconfigurator {VERSION}, {system}")


def fit(measure: Callable[[str, int, int], float], *, pools: int, source: str) -> StepModel:
    """From static points; `measure(mode, prompt tokens, requests of one rank)` gives ms. All pools step together."""
    decode = {batch: measure("static_gen", _SHORT_TOKENS, batch) for batch in _DECODE_BATCHES}
    at = _DECODE_BATCHES[3]
    long_ms = measure("static_gen", _LONG_TOKENS, at)
    read_ms = max((long_ms - decode[at]) / (at * (_LONG_TOKENS - _SHORT_TOKENS)), 0.0)
    prompts = [(tokens, measure("static_ctx", tokens, 1)) for tokens in _PROMPTS]
    (n1, t1), (n2, t2), (n3, t3) = prompts
    # of a + b n + q n^2 the second difference leaves q alone
    attention_ms = max(((t3 - t2) / (n3 - n2) - (t2 - t1) / (n2 - n1)) / (n3 - n1), 0.0)
    points = [(batch, ms - read_ms * batch * _SHORT_TOKENS) for batch, ms in decode.items()]
    points += [(tokens, ms - attention_ms * tokens * tokens) for tokens, ms in prompts]
    base: list[tuple[int, float]] = []
    for tokens, ms in points:
        base.append((tokens * pools, round(max(ms, base[-1][1] if base else 0.0), 3)))
    return StepModel(
        base_points=tuple(base),
        kv_read_ms_per_token=read_ms / pools,
        attention_ms_per_token2=attention_ms / pools,
        source=source,
    )


def tool_folder(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "seekserve" / f"aiconfigurator-{VERSION}"


def ask(
    case: Case, python: Path, model_folder: str, system: str, mode: str, prompt_tokens: int, batch: int, run: Run
) -> float:
    """One step in ms. The tool counts requests of one attention-DP rank, as engines do."""
    shape = case.shape
    arguments = [
        str(python), "-m", "aiconfigurator.main", "cli", "estimate", "--no-color", "--backend", "trtllm",
        "--estimate-mode", mode, "--model-path", model_folder, "--system", system,
        "--isl", str(prompt_tokens), "--osl", "2", "--batch-size", str(batch),
        "--tp-size", str(shape.attention_tp), "--pp-size", str(shape.pp), "--attention-dp-size", str(shape.kv_pools),
        "--kvcache-quant-mode", "fp8" if case.wish.kv_dtype == "fp8_e4m3" else "bfloat16",
    ]  # fmt: skip
    if case.model.is_moe:
        arguments += ["--moe-tp-size", str(shape.moe_tp), "--moe-ep-size", str(shape.ep)]
    done = run(arguments, _POINT_TIMEOUT_S)
    if done.returncode != 0:
        raise InputError(
            f"aiconfigurator cannot estimate this case ({mode}, batch {batch}, exit {done.returncode}): {_tail(done)}",
            hint="--estimate shipped uses the tables of this toolkit, where it has one",
        )
    return parse_report(done.stdout, mode)


def parse_report(text: str, mode: str) -> float:
    """Raises InputError when the figure is not there exactly once: a changed report must not become a wrong number."""
    hits = re.findall(_FIELDS[mode], text, re.MULTILINE)
    if len(hits) != 1:
        raise InputError(
            f"aiconfigurator's report has {len(hits)} figures for {mode} where one is expected",
            hint=f"this toolkit reads the report of version {VERSION}",
        )
    return float(hits[0].replace(",", ""))


def _environment(folder: Path, run: Run) -> Path:
    """The tool's Python; the folder appears only when everything is installed."""
    python = folder / "bin" / "python"
    if python.exists():
        return python
    base = _interpreter(run)
    with new_folder(folder) as made:
        _require(run([base, "-m", "venv", str(made)], _INSTALL_TIMEOUT_S), "making its environment")
        pip = [str(made / "bin" / "python"), "-m", "pip", "install", "--quiet", f"aiconfigurator=={VERSION}"]
        _require(run(pip, _INSTALL_TIMEOUT_S), "installing it")
    return python


def _interpreter(run: Run) -> str:
    """This Python when it is new enough, else the first of the usual names that is."""
    if sys.version_info >= _NEEDS:
        return sys.executable
    code = f"import sys; sys.exit(sys.version_info < {_NEEDS!r})"
    for name in _INTERPRETERS:
        path = shutil.which(name)
        if path is not None and run([path, "-c", code], _POINT_TIMEOUT_S).returncode == 0:
            return path
    raise MissingDependency(
        f"aiconfigurator needs Python {_NEEDS[0]}.{_NEEDS[1]} or newer; this is {sys.version_info[0]}."
        f"{sys.version_info[1]} and none of {', '.join(_INTERPRETERS)} is newer",
        hint="install one, or use --estimate shipped",
    )


def _require(done: subprocess.CompletedProcess[str], what: str) -> None:
    if done.returncode != 0:
        raise MissingDependency(
            f"aiconfigurator: {what} failed (exit {done.returncode}): {_tail(done)}",
            hint="--estimate shipped needs nothing",
        )


def _tail(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in (done.stderr or done.stdout or "").splitlines() if line.strip()]
    return " | ".join(lines[-3:])[-600:] or "no output"


def _run(arguments: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(list(arguments), capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(list(arguments), 124, "", f"no answer within {timeout_s:g} s")
    except OSError as error:
        return subprocess.CompletedProcess(list(arguments), 127, "", str(error))
