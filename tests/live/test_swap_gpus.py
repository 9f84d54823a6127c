"""`seekserve swap` of a model with two instances on GPUs, TensorRT-LLM being its strict double."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.conftest import Deployment
from tests.live.test_trtllm import PAIR, PROMPT, Served, trtllm_bundle


@pytest.fixture(scope="module")
def served(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(deployment, tmp_path_factory.mktemp("swap-gpus"))
    trtllm_bundle(made.folder / "three", PAIR)
    try:
        yield made
    finally:
        code = made.server.stop()
    assert code == 0, made.server.report()


def seekserve(served: Served, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "seekserve", *arguments, "--pid-file", str(served.server.record), "--json"]
    return dict(json.loads(subprocess.run(command, stdout=subprocess.PIPE, timeout=120).stdout))


def bundles(served: Served) -> list[str]:
    models = {model["name"]: model for model in seekserve(served, "status")["models"]}
    return [Path(each).name for each in models[PAIR]["bundles"]]


def test_on_the_same_gpus_every_instance_drains_and_on_others_both_run(served: Served) -> None:
    assert bundles(served) == ["two"]
    drained = seekserve(served, "swap", "--to", str(served.folder / "three"), "--model", PAIR)
    assert (drained["state"], drained["how"]) == ("done", "drain"), drained
    assert bundles(served) == ["three"]
    assert served.generate(PAIR).text == PROMPT
    beside = seekserve(served, "swap", "--to", "two", "--model", PAIR, "--gpus", "2", "--gpus", "3")
    assert (beside["state"], beside["how"]) == ("done", "side-by-side"), beside
    assert bundles(served) == ["two"]
    assert served.generate(PAIR).text == PROMPT
