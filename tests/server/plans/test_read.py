"""Needs are read from bundles, engines and llmapi models; what contradicts itself is one sentence."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from seekserve.server.models import read_models
from seekserve.server.plans.need import LEADER, SPAWNS, Need
from seekserve.server.plans.read import read_needs
from seekserve_backend.contract.bundle import Bundle, KvCache, Limits, Parallel, TrtllmSpec

BUNDLE = Bundle(
    name="v3",
    family="deepseek_v3",
    engine="trtllm-pytorch",
    toolkit_version="0",
    engine_version="1.2.1",
    gpu="h200",
    parallel=Parallel(tp=8, pp=1, ep=8, gpus_per_node=8),
    weights_dtype="fp8_block",
    weights_bytes=1,
    limits=Limits(max_seq_len_tokens=64, max_batch_size=1, max_num_tokens=64, prefill_chunk_tokens=64),
    kv=KvCache(dtype="bf16", block_tokens=32, capacity_blocks=8, bytes_per_token=1),
    step_model=None,
    sources={},
    files={},
    trtllm=TrtllmSpec(version="1.2.1", model_dir="weights", start_timeout_s=1800.0),
)


class Repository:
    def __init__(self, root: Path) -> None:
        self.root = root

    def bundle(self, **changes: Any) -> Path:
        folder = self.root / "bundle"
        folder.mkdir(exist_ok=True)
        (folder / "bundle.json").write_text(dataclasses.replace(BUNDLE, **changes).to_json())
        return folder

    def model(self, name: str, backend: str, *, instances: int = 1, **parameters: object) -> Path:
        folder = self.root / "repo" / name
        (folder / "1").mkdir(parents=True)
        text = f'backend: "{backend}"\ninstance_group [{{ count: {instances} kind: KIND_CPU }}]\n'
        for key, value in parameters.items():
            text += f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
        (folder / "config.pbtxt").write_text(text)
        return folder

    def needs(self) -> tuple[Need, ...]:
        models, problems = read_models(self.root / "repo")
        assert problems == []
        needs, problems = read_needs(models)
        assert problems == []
        return needs

    def problems(self) -> list[str]:
        return read_needs(read_models(self.root / "repo")[0])[1]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def _engine(root: Path, config: object, name: str = "engine") -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_bundle_of_ours_says_its_shape_and_how_long_it_loads(repository: Repository) -> None:
    repository.model("v3", "seekserve", bundle_dir=repository.bundle())
    (need,) = repository.needs()
    assert (need.starter, need.tp, need.pp, need.nodes, need.start_timeout_s) == (SPAWNS, 8, 1, 1, 1800.0)
    assert need.source == str(repository.root / "bundle" / "bundle.json")


def test_a_bundle_that_runs_on_the_cpu_needs_no_rank(repository: Repository) -> None:
    repository.model("x", "seekserve", bundle_dir=repository.bundle(engine="synthetic", trtllm=None))
    assert repository.needs() == ()


def test_of_a_model_in_front_of_its_stock_engine_only_the_engine_has_ranks(repository: Repository) -> None:
    spec = TrtllmSpec(version="1.2.1", model_dir="engine", start_timeout_s=900.0)
    bundle = repository.bundle(engine="trtllm-engine", parallel=Parallel(tp=2, pp=2, ep=1), trtllm=spec)
    repository.model("front", "seekserve", bundle_dir=bundle)
    repository.model("tensorrt_llm", "tensorrtllm", gpt_model_path=bundle / "engine")
    (need,) = repository.needs()
    assert (need.model, need.starter, need.world_size, need.start_timeout_s) == ("tensorrt_llm", LEADER, 4, 900.0)


@pytest.mark.parametrize(
    "config",
    [
        {"pretrained_config": {"mapping": {"tp_size": 4, "pp_size": 2, "world_size": 8}}},
        {"builder_config": {"tensor_parallel": 4, "pipeline_parallel": 2}},
    ],
)
def test_both_shapes_of_an_engines_config_say_its_ranks(repository: Repository, config: object) -> None:
    repository.model("tensorrt_llm", "tensorrtllm", gpt_model_path=_engine(repository.root, config))
    (need,) = repository.needs()
    assert (need.tp, need.pp) == (4, 2)


def test_the_llmapi_model_says_its_ranks_in_model_yaml(repository: Repository) -> None:
    folder = repository.model("tensorrt_llm", "python")
    (folder / "1" / "model.py").touch()
    (folder / "1" / "model.yaml").write_text("model: x\ntensor_parallel_size: 16\n")
    (need,) = repository.needs()
    assert (need.starter, need.world_size, need.nodes) == (SPAWNS, 16, 2)


def test_a_rendered_llmapi_model_has_the_nodes_and_the_time_of_its_bundle(repository: Repository) -> None:
    weights = repository.bundle() / "weights"
    folder = repository.model("tensorrt_llm", "python")
    (folder / "1" / "model.py").touch()
    (folder / "1" / "model.yaml").write_text(f"model: {weights}\ntensor_parallel_size: 16\ngpus_per_node: 4\n")
    (need,) = repository.needs()
    assert (need.nodes, need.start_timeout_s) == (4, 1800.0)


@pytest.mark.parametrize("value", ["", "${engine_dir}"])
def test_a_path_that_nobody_filled_in_is_no_engine(repository: Repository, value: str) -> None:
    repository.model("tensorrt_llm", "tensorrtllm", gpt_model_path=value)
    assert repository.needs() == ()


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (None, "holds no config.json"),
        ({}, "not an engine's"),
        ([], "not an engine's"),
        ({"builder_config": {"tensor_parallel": 0}}, "tensor_parallel is 0"),
        ({"pretrained_config": {"mapping": {"tp_size": True}}}, "tp_size is True"),
    ],
)
def test_an_engine_folder_that_says_no_ranks_is_refused(repository: Repository, config: Any, sentence: str) -> None:
    folder = repository.root / "engine" if config is None else _engine(repository.root, config)
    repository.model("tensorrt_llm", "tensorrtllm", gpt_model_path=folder)
    (problem,) = repository.problems()
    assert sentence in problem
    assert "'tensorrt_llm'" in problem


def test_a_bundle_that_cannot_be_read_is_refused(repository: Repository) -> None:
    repository.model("v3", "seekserve", bundle_dir=repository.bundle())
    (repository.root / "bundle" / "bundle.json").write_text('{"schema_version": 99}')
    (problem,) = repository.problems()
    assert "model 'v3': the bundle" in problem


@pytest.mark.parametrize(
    ("instances", "ids", "sentence"),
    [
        (2, "0,1,2,3;4,5,6", "group [4, 5, 6] has 3 GPUs for tp 4 x pp 1 = 4 ranks"),
        (2, "0,1,2,3;3,4,5,6", "GPU 3 is given to instance 0 of 'm' and to instance 1 of 'm'"),
        (2, "0,1,1,2;4,5,6,7", "GPU 1 is given to instance 0 of 'm' and to instance 0 of 'm'"),
        (3, "0,1,2,3;4,5,6,7", "names 2 groups for 3 instances"),
        (2, "0-3;4-7", "write it like '0,1;2,3'"),
    ],
)
def test_gpus_of_instances_are_whole_groups_that_share_none(
    repository: Repository, instances: int, ids: str, sentence: str
) -> None:
    config = {"pretrained_config": {"mapping": {"tp_size": 4, "pp_size": 1}}}
    engine = _engine(repository.root, config)
    repository.model("m", "tensorrtllm", instances=instances, gpt_model_path=engine, gpu_device_ids=ids)
    assert any(sentence in problem for problem in repository.problems()), repository.problems()


def test_two_models_must_not_share_a_gpu(repository: Repository) -> None:
    for name, ids in (("a", "0,1"), ("b", "1,2")):
        config = {"pretrained_config": {"mapping": {"tp_size": 2, "pp_size": 1}}}
        engine = _engine(repository.root, config, name=f"engine-{name}")
        repository.model(name, "tensorrtllm", gpt_model_path=engine, gpu_device_ids=ids)
    assert repository.problems() == [
        "gpu_device_ids: GPU 1 is given to instance 0 of 'a' and to instance 0 of 'b'; the groups must not share a GPU"
    ]


def test_instances_on_chosen_gpus_are_read_as_groups(repository: Repository) -> None:
    engine = _engine(repository.root, {"builder_config": {"tensor_parallel": 4}})
    repository.model("m", "tensorrtllm", instances=2, gpt_model_path=engine, gpu_device_ids="0,1,2,3;4,5,6,7")
    (need,) = repository.needs()
    assert (need.instances, need.gpu_ids) == (2, ((0, 1, 2, 3), (4, 5, 6, 7)))
