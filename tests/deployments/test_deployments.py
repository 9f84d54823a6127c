"""Each promised deployment through build, render, check and the launch plan, held against one golden each."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.deployments.builds import DEPLOYMENTS, Built
from tests.server.planning import COMMAND, MACHINE, RUN_DIR

from seekserve.cli import cli
from seekserve.repository.checking import check_repository
from seekserve.server.models import read_models
from seekserve.server.plans import LaunchPlan, PlanWish, choose, make_plan
from seekserve.server.plans.hosts import parse_hosts
from seekserve.server.plans.read import read_needs
from seekserve_backend.contract.bundle import Bundle

GOLDEN = Path(__file__).parent / "golden"
UPDATE = os.environ.get("SEEKSERVE_UPDATE_GOLDENS") == "1"


def render(bundle: Path, repository: Path) -> None:
    result = CliRunner().invoke(cli, ["render", str(bundle), "--out", str(repository), "--name", "model"])
    assert result.exit_code == 0, result.output


def launch_plan(repository: Path, bundle: Bundle) -> LaunchPlan:
    models, problems = read_models(repository)
    needs, more = read_needs(models)
    assert problems + more == []
    hosts = "a:8,b:8" if bundle.parallel.nodes > 1 else None
    wish = PlanWish(hosts=() if hosts is None else parse_hosts(hosts), shared_dir=RUN_DIR if hosts else None)
    choice, refusals = choose(needs, wish, {}, is_openai_frontend=False)
    assert refusals == []
    return make_plan(choice, COMMAND, {"SEEKSERVE_RUN_DIR": str(RUN_DIR)}, wish=wish, facts=MACHINE, run_dir=RUN_DIR)


def summary(bundle: Bundle, folder: Path, repository: Path, plan: LaunchPlan) -> str:
    """What an operator would compare: no paths, no versions of ours."""
    config = (repository / "model" / "config.pbtxt").read_text(encoding="utf-8")
    described = {
        "engine": bundle.engine,
        "family": bundle.family,
        "engine_version": bundle.engine_version,
        "gpu": bundle.gpu,
        "weights": f"{bundle.weights_dtype}, {bundle.weights_bytes} B",
        "parallel": bundle.parallel.to_json(),
        "limits": bundle.limits.to_json(),
        "kv_cache": bundle.kv.to_json(),
        "trtllm": None if bundle.trtllm is None else bundle.trtllm.to_json(),
        "files": sorted(name for name in bundle.files if not name.endswith(".safetensors")),
        "launch": {
            "plan": f"{plan.kind} by {plan.launcher or 'tritonserver'}, {plan.world_size} ranks",
            "why": list(plan.why),
            "servers": len(plan.servers),
        },
        "parameters": [line.strip() for line in config.splitlines() if "key:" in line and str(folder) not in line],
        "llm_args.yaml": (folder / "llm_args.yaml").read_text(encoding="utf-8").splitlines(),
    }
    return json.dumps(described, indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_goes_through_build_render_check_and_launch_plan(built: Built, tmp_path: Path, name: str) -> None:
    folder, repository = built(name), tmp_path / "repository"
    bundle = Bundle.load(folder)
    assert bundle.engine == DEPLOYMENTS[name].engine
    assert bundle.trtllm is not None
    render(folder, repository)
    report = check_repository(repository, version=bundle.trtllm.version, hashes=True)
    assert not report.errors, report.text()
    text = summary(bundle, folder, repository, launch_plan(repository, bundle))
    golden = GOLDEN / f"{name}.json"
    if UPDATE:
        golden.write_text(text, encoding="utf-8")
    assert text.splitlines() == golden.read_text(encoding="utf-8").splitlines()
