"""A checkpoint with its plan that can be built, and the double of TensorRT-LLM's tools as the machine to build on."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seekserve.engine.outcome import BuildOutcome, BuildWish, TrtllmWish
from seekserve.engine.source import Source
from seekserve.engine.trtllm_engine import Host, Run, build_trtllm_engine
from seekserve.plan.plan import Plan

DOUBLE = Path(__file__).parents[2] / "doubles" / "trtllm_tools"
PLENTY = 10**13
H100, A100, B200 = "h100-sxm-80gb", "a100-sxm-80gb", "b200-sxm-180gb"
DEVICES = {H100: "NVIDIA H100 80GB HBM3", A100: "NVIDIA A100-SXM4-80GB"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One checkpoint on some GPUs, and the folder that its bundles go to."""

    source: Source
    plan: Plan
    out: Path

    def build(self, run: Run | None = None, **more: Any) -> BuildOutcome:
        host = more.pop("host", None) or machine()
        wish = BuildWish(
            target=more.pop("target", self.out),
            link_weights=more.pop("link_weights", False),
            force=more.pop("force", False),
            dry_run=more.pop("dry_run", False),
            trtllm=TrtllmWish(examples_dir=DOUBLE / "examples", **more),
        )
        return build_trtllm_engine(wish, self.plan, self.source, progress=_no_progress, run=run, host=host)


Make = Callable[..., Case]


def _no_progress(_name: str, _done: int, _total: int) -> None:
    return


def machine(environ: Mapping[str, str] | None = None, **more: Any) -> Host:
    """The double's tools on PATH, and GPUs and disk as the test says."""
    paths = {
        "PATH": f"{DOUBLE / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.defpath}",
        "PYTHONPATH": str(DOUBLE / "site"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    values = {"devices": lambda: [DEVICES[H100]], "free_bytes": lambda _: PLENTY, "memory_bytes": lambda: PLENTY}
    return Host(environ={**paths, **(environ or {})}, **{**values, **more})


def flags_of(outcome: BuildOutcome, step: int = 1) -> dict[str, str]:
    words = outcome.steps[step].argv
    return {word: value for word, value in itertools.pairwise(words) if word.startswith("--")}


def dry(case: Case, **more: Any) -> BuildOutcome:
    return case.build(dry_run=True, **more)
