from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seekserve_backend.contract.bundle import (
    BUNDLE_FILE,
    Bundle,
    BundleFile,
    KvCache,
    Limits,
    Parallel,
    Retention,
    TrtllmSpec,
)
from seekserve_backend.contract.fields import ContractError
from seekserve_backend.contract.step_model import StepModel

BUNDLE = Bundle(
    name="tiny",
    family="deepseek_v3",
    engine="reference",
    toolkit_version="0.1.0",
    engine_version="5.24.0",
    gpu=None,
    parallel=Parallel(),
    weights_dtype="fp8_block",
    weights_bytes=123,
    limits=Limits(max_seq_len_tokens=512, max_batch_size=16, max_num_tokens=256, prefill_chunk_tokens=64),
    kv=KvCache(dtype="fp8_e4m3", block_tokens=32, capacity_blocks=256, bytes_per_token=160),
    step_model=StepModel(
        base_points=((1, 2.0), (64, 5.5)), kv_read_ms_per_token=0.001, attention_ms_per_token2=1e-6, source="measured"
    ),
    sources={"limits.max_batch_size": "flag"},
    files={"weights/config.json": BundleFile(size_bytes=3, sha256="ab")},
)


def changed(edit: Callable[[dict[str, Any]], object]) -> str:
    data = json.loads(BUNDLE.to_json())
    edit(data)
    return json.dumps(data)


@pytest.mark.parametrize("bundle", [BUNDLE, dataclasses.replace(BUNDLE, step_model=None, gpu="H100", files={})])
def test_a_bundle_survives_writing_and_reading(tmp_path: Path, bundle: Bundle) -> None:
    (tmp_path / BUNDLE_FILE).write_text(bundle.to_json(), encoding="utf-8")
    assert Bundle.load(tmp_path) == bundle


def test_another_schema_is_refused_with_the_command_that_helps() -> None:
    with pytest.raises(ContractError, match="schema_version 7 where this version reads 2; rebuild it with `seekserve"):
        Bundle.from_json(changed(lambda d: d.update(schema_version=7)), "b")


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda d: d.pop("name"), "name: missing"),
        (lambda d: d.update(engine="referance"), "engine: expected one of"),
        (lambda d: d["limits"].update(max_batch_size=0), "limits.max_batch_size: expected at least 1, got 0"),
        (lambda d: d["limits"].pop("max_num_tokens"), "limits.max_num_tokens: missing"),
        (lambda d: d["kv_cache"].update(dtype="int4"), "kv_cache.dtype: expected one of"),
        (lambda d: d["kv_cache"].update(blocks=1), "kv_cache.blocks: unknown key"),
        (lambda d: d["parallel"].update(tp="8"), "parallel.tp: expected an integer, got '8'"),
        (lambda d: d["files"].update({"../x": {"bytes": 1, "sha256": ""}}), "files: '../x' points outside the bundle"),
        (lambda d: d["files"].update({"/x": {"bytes": 1, "sha256": ""}}), "files: '/x' points outside the bundle"),
        (lambda d: d["files"].update({"x": {"bytes": -1, "sha256": ""}}), "files.x.bytes: expected at least 0, got -1"),
        (lambda d: d["step_model"].update(base_points=[[1, 2]]), "step_model.base_points: need two or more"),
    ],
)
def test_a_damaged_bundle_names_the_fault(edit: Callable[[dict[str, Any]], object], problem: str) -> None:
    with pytest.raises(ContractError) as caught:
        Bundle.from_json(changed(edit), "b")
    assert any(found.startswith(problem) for found in caught.value.problems), caught.value.problems


def test_several_faults_are_reported_together() -> None:
    def edit(data: dict[str, Any]) -> None:
        del data["name"], data["weights"]["bytes"]
        data["kv_cache"]["block_tokens"] = 0

    with pytest.raises(ContractError) as caught:
        Bundle.from_json(changed(edit), "b")
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (32, 1), (33, 2)])
def test_blocks_are_rounded_up(tokens: int, blocks: int) -> None:
    assert BUNDLE.kv.blocks_for(tokens) == blocks
    assert BUNDLE.kv.capacity_tokens == 8192


TRTLLM = dataclasses.replace(
    BUNDLE,
    engine="trtllm-pytorch",
    parallel=Parallel(tp=8, pp=2, ep=4, moe_tp=2, attention_dp=True, gpus_per_node=8),
    files={"weights/a.safetensors": BundleFile(size_bytes=3, sha256="ab", is_header_hash=True)},
    trtllm=TrtllmSpec(version="1.2.1", model_dir="weights", draft_tokens=1, retention=Retention(prompt_priority=60)),
)


def test_a_trtllm_bundle_survives_writing_and_reading() -> None:
    assert Bundle.from_json(TRTLLM.to_json(), "b") == TRTLLM
    assert (TRTLLM.parallel.world_size, TRTLLM.parallel.nodes) == (16, 2)


def test_schema_1_is_read_as_what_it_means_today() -> None:
    def age(data: dict[str, Any]) -> None:
        data.update(schema_version=1, parallel={"tp": 2, "pp": 1, "ep": 1})
        del data["trtllm"]

    old = Bundle.from_json(changed(age), "b")
    assert old == dataclasses.replace(BUNDLE, parallel=Parallel(tp=2, gpus_per_node=2))


@pytest.mark.parametrize(
    "bundle", [dataclasses.replace(TRTLLM, trtllm=None), dataclasses.replace(BUNDLE, trtllm=TRTLLM.trtllm)]
)
def test_the_trtllm_section_is_there_for_its_engines_only(bundle: Bundle) -> None:
    with pytest.raises(ContractError, match="only for them"):
        Bundle.from_json(bundle.to_json(), "b")
