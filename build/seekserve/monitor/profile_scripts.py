"""Ready-to-run scripts for NVIDIA's profilers and PyTorch's. Pure.

TensorRT-LLM turns profilers on and off by its own variables (its guide to performance analysis):
TLLM_PROFILE_START_STOP names the iterations, TLLM_TORCH_PROFILE_TRACE the file of the PyTorch profiler. The server has
to be started under nsys and ncu, and with these variables, so all but one of the scripts start one: on another port, or
in the place of yours.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

__all__ = ["profile_scripts"]

_HEAD = """\
#!/usr/bin/env bash
# {what}
# {how}
set -euo pipefail
out="${{OUT:-$PWD/{stem}}}"
iterations="${{ITERATIONS:-200-250}}"  # of the engine, counted from its start: let it warm up and have load first
"""

_NSYS_METRICS = """\
command -v nsys >/dev/null || {{ echo "nsys is not installed" >&2; exit 127; }}
# --gpu-metrics-device in releases before 2024.2. Needs CAP_SYS_ADMIN, or the driver's counters open to users.
exec nsys profile --gpu-metrics-devices=all --trace=none --sample=none --cpuctxsw=none \\
  --force-overwrite=true --output="$out" --duration="${{SECONDS_TO_WATCH:-20}}" sleep "${{SECONDS_TO_WATCH:-20}}"
"""

_NSYS = """\
command -v nsys >/dev/null || {{ echo "nsys is not installed" >&2; exit 127; }}
export TLLM_PROFILE_START_STOP="$iterations" TLLM_PROFILE_RECORD_GC=1 TLLM_LLMAPI_ENABLE_NVTX=1
exec nsys profile --trace=cuda,nvtx,osrt,python-gil --capture-range=cudaProfilerApi --capture-range-end=stop \\
  --cuda-graph-trace=node --trace-fork-before-exec=true --force-overwrite=true --output="$out" \\
  {command}
"""

_NCU = """\
command -v ncu >/dev/null || {{ echo "ncu is not installed" >&2; exit 127; }}
export TLLM_PROFILE_START_STOP="$iterations"
# Each kernel is run again for every set of counters, so nothing that waits for another GPU may be among them: on
# several GPUs this stands still. Name the kernels that nsys showed to be slow: KERNELS='regex:gemm|mla'.
exec ncu --target-processes all --profile-from-start off --replay-mode kernel --set "${{SECTIONS:-basic}}" \\
  --kernel-name "${{KERNELS:-regex:gemm|attention|mla|moe}}" --launch-count "${{LAUNCHES:-50}}" \\
  --force-overwrite --export "$out" \\
  {command}
"""

_TORCH = """\
export TLLM_PROFILE_START_STOP="$iterations" TLLM_TORCH_PROFILE_TRACE="$out.json"
echo "the trace of iterations $iterations goes to $TLLM_TORCH_PROFILE_TRACE; open it in https://ui.perfetto.dev"
exec {command}
"""

_SCRIPTS: Mapping[str, tuple[str, str, str]] = {
    "gpu-metrics.sh": (
        "What the GPUs of this machine do: SM, tensor cores, memory bandwidth, NVLink, for 20 s.",
        "Beside a running server, which it does not touch. Open the .nsys-rep in Nsight Systems.",
        _NSYS_METRICS,
    ),
    "nsys.sh": (
        "Where the time of a step goes: kernels, gaps between them, NVTX ranges, the interpreter's lock.",
        "Starts the server; send it load until the iterations are over. Open the .nsys-rep in Nsight Systems.",
        _NSYS,
    ),
    "ncu.sh": (
        "Why one kernel is slow: its share of peak compute and bandwidth.",
        "Starts the server, and makes it many times slower. One GPU only. Open the .ncu-rep in Nsight Compute.",
        _NCU,
    ),
    "torch-profiler.sh": (
        "Which operators of the PyTorch engine a step spends its time in (trtllm-pytorch bundles).",
        "Starts the server; send it load until the iterations are over.",
        _TORCH,
    ),
}


def profile_scripts(launch: Sequence[str] | None) -> dict[str, str]:
    """File name -> text. `launch`: the command line that starts the server; None: the scripts take it as arguments."""
    command = '"$@"' if launch is None else shlex.join(launch) + ' "$@"'
    need = (
        "" if launch is not None
        else '[ $# -gt 0 ] || { echo "usage: $0 seekserve launch REPOSITORY --backend-dir FOLDER" >&2; exit 2; }\n'
    )  # fmt: skip
    out = {}
    for name, (what, how, body) in _SCRIPTS.items():
        head = _HEAD.format(what=what, how=how, stem=name.removesuffix(".sh"))
        if "{command}" not in body:
            head = head.rsplit("iterations=", 1)[0]
        out[name] = head + (need if "{command}" in body else "") + body.format(command=command)
    return out
