"""The exact argument lists of the published recipes, and what goes into them by precision, shape and wish."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.engine.trtllm_engine.machine import A100, DEVICES, DOUBLE, H100, Case, Make, machine

from seekserve.engine.outcome import BuildOutcome

GOLDEN = Path(__file__).parent / "golden"
PLANS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "v2-lite-bf16-1xh100": ("deepseek-v2-lite", H100, {}),
    "moe-16b-bf16-1xh100": ("deepseek-moe-16b", H100, {"kv_dtype": "bf16"}),
    "moe-16b-fp8-1xh100": ("deepseek-moe-16b", H100, {"weights": "fp8_tensor"}),
    "r1-distill-llama-70b-fp8-2xh100": ("r1-distill-llama-70b", H100, {"weights": "fp8_tensor", "gpus": 2, "tp": 2}),
    "r1-distill-qwen-7b-bf16-1xa100": ("r1-distill-qwen-7b", A100, {}),
    "r1-distill-qwen-7b-awq-1xa100": ("r1-distill-qwen-7b", A100, {"weights": "awq"}),
}


def commands(case: Case, outcome: BuildOutcome) -> str:
    """One flag a line, without the places of this machine."""
    places = {
        str(case.out.parent): "OUT",
        str(case.source.folder): "CHECKPOINT",
        str(DOUBLE / "examples"): "EXAMPLES",
        str(DOUBLE / "bin"): "BIN",
    }
    lines = []
    for step in outcome.steps:
        python, *rest = step.argv
        words = ["PYTHON" if os.path.basename(python).startswith("python") else python, *rest]  # noqa: PTH119
        text = " ".join(words).replace(" --", " \\\n    --")
        for place, word in places.items():
            text = text.replace(place, word)
        lines.append(f"# {step.name}\n{text}\n")
    return "\n".join(lines)


@pytest.mark.parametrize("name", PLANS)
def test_the_commands_of_a_published_recipe(name: str, make: Make) -> None:
    checkpoint, gpu, more = PLANS[name]
    case = make(checkpoint, gpu, **more)
    outcome = case.build(dry_run=True)
    files = {"commands.txt": commands(case, outcome), **outcome.texts}
    for file, text in files.items():
        golden = GOLDEN / name / file
        if file == "build.json":
            continue
        if os.environ.get("SEEKSERVE_UPDATE_GOLDENS"):
            golden.parent.mkdir(parents=True, exist_ok=True)
            golden.write_text(text, encoding="utf-8")
        assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PLANS)
def test_the_double_builds_what_the_plan_says(name: str, make: Make) -> None:
    checkpoint, gpu, more = PLANS[name]
    case = make(checkpoint, gpu, **more)
    host = machine({"TRTLLM_DOUBLE_SM": "80" if gpu == A100 else "90"}, devices=lambda: [DEVICES[gpu]])
    outcome = case.build(host=host)
    assert outcome.status == "built"
    assert [step.status for step in outcome.steps] == ["done", "done"]
    config = json.loads((case.out / "engine" / "config.json").read_text())
    assert config["build_config"]["max_seq_len"] == outcome.bundle.limits.max_seq_len_tokens
    assert config["build_config"]["plugin_config"]["use_paged_context_fmha"] is (outcome.bundle.kv.dtype != "none")
