"""Full-size checkpoints, made once, and plans for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.full_size import make_checkpoint
from tests.engine.trtllm_engine.machine import H100, Case, Make

from seekserve.engine.source import read_source
from seekserve.plan.gpu_resolve import require_fit, resolve_gpu
from seekserve.plan.inputs import flag_inputs
from seekserve.plan.model import read_model
from seekserve.plan.quantised import model_in
from seekserve.plan.target import ALL_FIELDS


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("checkpoints")

    def get(name: str) -> Path:
        place = folder / name
        return place if place.exists() else make_checkpoint(place, name)

    return get


@pytest.fixture
def make(checkpoints: Callable[[str], Path], tmp_path: Path) -> Make:
    """`weights`: what the engine shall hold; the rest are inputs of the plan."""

    def case(
        name: str, gpu: str = H100, *, weights: str | None = None, folder: Path | None = None, **inputs: Any
    ) -> Case:
        place = folder or checkpoints(name)
        model = read_model(str(place))
        given = flag_inputs({"engine": "trtllm-engine", "gpu": gpu, "gpus": 1, **inputs}, ALL_FIELDS)
        plan = resolve_gpu(given, model if weights is None else model_in(model, weights))
        require_fit(plan)
        return Case(source=read_source(str(place)), plan=plan, out=tmp_path / "bundle")

    return case


@pytest.fixture
def v2_lite(make: Make) -> Case:
    return make("deepseek-v2-lite")
