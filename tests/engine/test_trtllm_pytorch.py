"""build-engine for TensorRT-LLM's PyTorch backend: goldens of the released models, and what a bundle of them holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.strict_reader import read_strictly

from seekserve.engine.build import BuildReport, BuildRequest, build
from seekserve.engine.trtllm_flags import TrtllmFlags
from seekserve.errors import (
    BundleError,
    CheckpointError,
    InputError,
    TargetExists,
)
from seekserve.output import files_in
from seekserve.plan.bundle import open_bundle
from seekserve.plan.inputs import flag_inputs
from seekserve.plan.target import ALL_FIELDS
from seekserve.settings import PathSettings, Settings

GOLDEN = Path(__file__).parent / "golden"
# SEEKSERVE_UPDATE_GOLDENS=1 writes them anew; the difference is then reviewed as a diff.
UPDATE = os.environ.get("SEEKSERVE_UPDATE_GOLDENS") == "1"
Release = Callable[[str], Path]
FLAGS = set(TrtllmFlags.__slots__)

# golden -> (checkpoint, line of TensorRT-LLM, flags)
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "v3-fp8-8xh200": ("deepseek-v3", "1.2", {"gpu": "h200"}),
    "v3-fp8-16xh100": ("deepseek-v3", "1.2", {"gpu": "h100-sxm-80gb", "gpus": 16}),
    "r1-nvfp4-8xb200": ("deepseek-r1-nvfp4", "1.2", {"gpu": "b200"}),
    "v3.2-fp8-8xh200": ("deepseek-v3.2", "1.2", {"gpu": "h200"}),
    "v3.2-fp8-8xb200-mtp": (
        "deepseek-v3.2",
        "1.4",
        {"gpu": "b200", "trtllm_version": "1.4", "mtp": 2, "indexer_dtype": "fp4"},
    ),
    "v4-flash-8xb200": ("deepseek-v4-flash", "1.4", {"gpu": "b200"}),
    "distill-llama-70b-2xh100": ("r1-distill-llama-70b", "1.2", {"gpu": "h100-sxm-80gb", "gpus": 2}),
    "distill-qwen-7b-1xa100": ("r1-distill-qwen-7b", "1.2", {"gpu": "a100-sxm-80gb", "gpus": 1}),
    "r1-fp8-8xh200-throughput": ("deepseek-r1", "1.2", {"gpu": "h200", "profile": "throughput"}),
    "r1-fp8-8xb200-throughput": ("deepseek-r1", "1.2", {"gpu": "b200", "profile": "throughput"}),
    "r1-nvfp4-8xb200-latency": ("deepseek-r1-nvfp4", "1.2", {"gpu": "b200", "profile": "latency"}),
    "v4-flash-8xb200-throughput": ("deepseek-v4-flash", "1.4", {"gpu": "b200", "profile": "throughput"}),
    "v4-pro-8xb200-latency": ("deepseek-v4-pro", "1.4", {"gpu": "b200", "profile": "latency"}),
}


def run(checkpoint: Path, out: Path | None, *, settings: Settings | None = None, **more: Any) -> BuildReport:
    """Names of TrtllmFlags, of BuildRequest and of the plan's inputs, as they come."""
    own = {name: more.pop(name) for name in ("force", "dry_run", "link_weights", "variant") if name in more}
    flags = {name: more.pop(name) for name in list(more) if name in FLAGS}
    request = BuildRequest(
        checkpoint=str(checkpoint), out=out, inputs=flag_inputs(more, ALL_FIELDS), trtllm=TrtllmFlags(**flags), **own
    )
    return build(request, settings or Settings(), {}, host_memory_bytes=None)


def args_of(report: BuildReport) -> str:
    return report.outcome.texts["llm_args.yaml"]


@pytest.mark.parametrize("case", CASES)
def test_the_arguments_of_a_release_are_those_of_its_golden(release: Release, tmp_path: Path, case: str) -> None:
    name, line, flags = CASES[case]
    report = run(release(name), tmp_path / "out", dry_run=True, **flags)
    golden = GOLDEN / f"{case}.yaml"
    if UPDATE:
        golden.write_text(args_of(report), encoding="utf-8")
    assert args_of(report).splitlines() == golden.read_text(encoding="utf-8").splitlines()
    assert report.outcome.bundle.engine_version.startswith(line)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("case", CASES)
def test_every_golden_passes_a_reader_that_knows_nothing_of_this_toolkit(case: str) -> None:
    read_strictly(GOLDEN / f"{case}.yaml", CASES[case][1])


DOUBLE = Path(__file__).parents[1] / "doubles"
ACCEPT = """
import sys
import yaml
from tensorrt_llm.llmapi import TorchLlmArgs
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        TorchLlmArgs(model="/nowhere", **yaml.safe_load(file))
"""


@pytest.mark.parametrize(("line", "profile"), [("1.2", "1.2.1"), ("1.4", "1.4.0rc4")])
def test_the_double_of_the_package_takes_every_golden_of_its_version(line: str, profile: str) -> None:
    """Its classes refuse what the documented surface of a release does not have."""
    paths = [str(GOLDEN / f"{case}.yaml") for case, (_, of_line, _) in CASES.items() if of_line == line]
    environ = {**os.environ, "PYTHONPATH": str(DOUBLE), "DOUBLE_TRTLLM_PROFILE": profile}
    done = subprocess.run(
        [sys.executable, "-c", ACCEPT, *paths], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_every_value_has_its_source_and_nothing_undecided_is_written(release: Release, tmp_path: Path) -> None:
    report = run(release("deepseek-v3"), tmp_path / "out", dry_run=True, gpu="h200", kv_fraction=0.7)
    sources = report.outcome.bundle.sources
    args = read_strictly_text(args_of(report), tmp_path)
    paths = {
        f"{key}.{name}" if isinstance(value, dict) else key
        for key, value in args.items()
        for name in (value if isinstance(value, dict) else [key])
    }
    assert paths == {key.removeprefix("llm_args.") for key in sources if key.startswith("llm_args.")}
    assert sources["llm_args.kv_cache_config.free_gpu_memory_fraction"] == "flag --kv-fraction"
    assert "speculative_config" not in args
    assert "stream_interval" not in args


def read_strictly_text(text: str, folder: Path) -> dict[str, Any]:
    path = folder / "llm_args.yaml"
    path.write_text(text, encoding="utf-8")
    return read_strictly(path, "1.2")


def test_a_bundle_links_the_weights_and_hashes_their_headers(release: Release, tmp_path: Path) -> None:
    checkpoint, out = release("deepseek-r1-nvfp4"), tmp_path / "out"
    report = run(checkpoint, out, gpu="b200")
    assert report.outcome.status == "built"
    bundle = open_bundle(out, hashes=True)
    shards = [name for name in bundle.files if name.endswith(".safetensors")]
    assert len(shards) == 80
    assert all((out / name).is_symlink() and bundle.files[name].is_header_hash for name in shards)
    assert not bundle.files["weights/hf_quant_config.json"].is_header_hash
    assert {"llm_args.yaml", "weights/hf_quant_config.json", "tokenizer/tokenizer.json"} <= set(files_in(out))
    assert sum((out / name).lstat().st_size for name in files_in(out)) < 30_000_000
    assert bundle.trtllm is not None
    assert (bundle.trtllm.version, bundle.trtllm.model_dir, bundle.trtllm.draft_tokens) == ("1.2.1", "weights", 0)
    assert bundle.engine_version == "1.2.1"
    assert (bundle.parallel.tp, bundle.parallel.ep, bundle.parallel.moe_tp, bundle.parallel.gpus_per_node) == (
        8,
        8,
        1,
        8,
    )


def test_a_start_may_take_as_long_as_slow_storage_needs(release: Release, tmp_path: Path) -> None:
    report = run(release("deepseek-v3"), tmp_path / "out", dry_run=True, gpu="h200")
    spec = report.outcome.bundle.trtllm
    assert spec is not None
    assert spec.start_timeout_s == pytest.approx(688.57e9 / 200e6 + 600, rel=1e-3)
    assert "at 200 MB/s" in report.outcome.bundle.sources["trtllm.start_timeout_s"]
    assert "on 1 host, at launch only" in " ".join(report.outcome.needs)


def test_two_hosts_are_in_the_bundle(release: Release, tmp_path: Path) -> None:
    report = run(release("deepseek-v3"), tmp_path / "out", dry_run=True, gpu="h100-sxm-80gb", gpus=16)
    shape = report.outcome.bundle.parallel
    assert (shape.tp, shape.pp, shape.nodes, shape.gpus_per_node) == (8, 2, 2, 8)


def test_a_changed_header_is_found_and_a_second_build_reuses_the_first(release: Release, tmp_path: Path) -> None:
    checkpoint, out = copied(release("r1-distill-qwen-7b"), tmp_path / "ck"), tmp_path / "out"
    flags = {"gpu": "a100-sxm-80gb", "gpus": 1}
    run(checkpoint, out, **flags)
    assert run(checkpoint, out, **flags).outcome.status == "reused"
    with pytest.raises(TargetExists, match=r"llm_args\.yaml differs"):
        run(checkpoint, out, sets=("stream_interval=4",), **flags)
    assert run(checkpoint, out, sets=("stream_interval=4",), force=True, **flags).outcome.status == "replaced"
    shard = next(checkpoint.glob("*.safetensors"))
    with shard.open("r+b") as file:
        file.seek(20)
        file.write(b"x")
    with pytest.raises(BundleError, match="has a header with sha256"):
        open_bundle(out, hashes=True)


def copied(checkpoint: Path, folder: Path) -> Path:
    """Sparse files stay sparse."""
    folder.mkdir()
    for path in checkpoint.iterdir():
        if path.suffix == ".safetensors":
            with path.open("rb") as source, (folder / path.name).open("wb") as target:
                target.write(source.read(2_000_000))
                target.truncate(path.stat().st_size)
        else:
            (folder / path.name).write_bytes(path.read_bytes())
    return folder


def test_a_variant_lives_beside_the_first(release: Release, tmp_path: Path) -> None:
    settings = Settings(paths=PathSettings(bundle=tmp_path / "chat"))
    flags = {"gpu": "a100-sxm-80gb", "gpus": 1, "settings": settings}
    first = run(release("r1-distill-qwen-7b"), None, name="chat", **flags)
    second = run(release("r1-distill-qwen-7b"), None, name="chat", variant="small", max_batch_size=8, **flags)
    assert (first.target, second.target) == (tmp_path / "chat", tmp_path / "chat-small")
    assert second.outcome.bundle.name == "chat-small"
    assert open_bundle(tmp_path / "chat").name == "chat"


def test_what_is_kept_of_prompts_and_how_many_beams_are_in_the_bundle(release: Release, tmp_path: Path) -> None:
    report = run(
        release("r1-distill-qwen-7b"),
        tmp_path / "out",
        dry_run=True,
        gpu="a100-sxm-80gb",
        gpus=1,
        retain_prompt_priority=90,
        retain_prompt_tokens=2000,
        retain_prompt_s=600.0,
        max_beam_width=4,
    )
    spec = report.outcome.bundle.trtllm
    assert spec is not None
    assert spec.retention is not None
    assert spec.retention.to_json() == {
        "prompt_priority": 90,
        "prompt_duration_s": 600.0,
        "prompt_tokens": 2000,
        "decode_priority": 35,
    }
    assert spec.max_beam_width == 4
    assert "max_beam_width: 4" in args_of(report)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"gpu": "h200", "build_flags": ("gemm_plugin=auto",)}, "--build-flag is for trtllm-engine"),
        ({"gpu": "h200", "workers": 4, "calibration_data": "cnn"}, "--workers is for trtllm-engine"),
        ({"tp": 8}, "flag --tp is for engines on GPUs"),
        ({"sets": ("stream_interval=2",), "profile": "latency"}, "--set is for trtllm-pytorch and trtllm-engine"),
        ({"engine": "reference", "gpu": "h200"}, "flag --gpu is for engines on GPUs"),
        ({"gpu": "h200", "variant": "a/b"}, "is no model name"),
        ({"gpu": "h200", "variant": ""}, "is no model name"),
    ],
)
def test_no_flag_is_passed_over(tmp_path: Path, flags: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError) as caught:
        run(small(tmp_path / "toy"), tmp_path / "out", **flags)
    assert text in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_that_asks_for_an_fp8_cache_gets_no_other(release: Release, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"asks for a FP8 cache .* the plan says bf16 \(flag --kv-dtype\)"):
        run(release("deepseek-r1-nvfp4"), tmp_path / "out", gpu="b200", kv_dtype="bf16")


def small(folder: Path) -> Path:
    from toy import qwen_toy

    toy = qwen_toy()
    assert toy.tokenizer is not None
    toy.tokenizer["decoder"] = {"type": "ByteLevel"}
    toy.tokenizer_config = {"eos_token": "<eos>", "chat_template": "{{ messages }}<｜User｜>"}
    return toy.write(folder)


def test_a_config_that_disagrees_with_its_tensors_is_refused_on_this_path_too(release: Release, tmp_path: Path) -> None:
    """The config of the FP8 release beside bf16 tensors, and the reverse."""
    for name, changes, text in (
        ("r1-distill-qwen-7b", {"quantization_config": {"quant_method": "fp8"}}, "precision-not-found"),
        ("deepseek-v3", {"quantization_config": None}, "precision-undeclared"),
    ):
        checkpoint = tmp_path / name
        checkpoint.mkdir()
        for path in release(name).iterdir():
            (checkpoint / path.name).symlink_to(path)
        config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
        (checkpoint / "config.json").unlink()
        (checkpoint / "config.json").write_text(json.dumps({**config, **changes}), encoding="utf-8")
        with pytest.raises(CheckpointError, match=text):
            run(checkpoint, tmp_path / "out", gpu="h200")


def test_a_distill_is_told_by_its_config_whatever_its_folder_is_called(release: Release, tmp_path: Path) -> None:
    checkpoint = tmp_path / "DeepSeek-V3"
    checkpoint.symlink_to(release("r1-distill-qwen-7b"))
    report = run(checkpoint, tmp_path / "out", dry_run=True, gpu="a100-sxm-80gb", gpus=1)
    assert report.outcome.bundle.family == "r1_distill_qwen"
    assert "not DeepSeek-V3" in report.text()


def test_a_dry_run_prints_the_whole_file_and_json_has_it_too(release: Release, tmp_path: Path) -> None:
    report = run(release("deepseek-v3"), tmp_path / "out", dry_run=True, gpu="h200")
    text, data = report.text(), json.loads(report.json_text())
    for line in args_of(report).splitlines():
        assert f"    {line}" in text
    assert data["texts"]["llm_args.yaml"] == args_of(report)
    assert data["parallel"]["tp"] == 8
    assert data["trtllm"]["version"] == "1.2.1"
    assert data["weights"]["linked"] is True
    assert "needs:" in text


def test_weights_can_be_copied(tmp_path: Path) -> None:
    flags = {"gpu": "h100-sxm-80gb", "gpus": 1, "max_seq_len_tokens": 256}
    checkpoint = small(tmp_path / "toy")
    run(checkpoint, tmp_path / "out", **flags)
    with pytest.raises(TargetExists, match="the weights are links there, copies were asked for"):
        run(checkpoint, tmp_path / "out", link_weights=False, **flags)
    run(checkpoint, tmp_path / "out", link_weights=False, force=True, **flags)
    bundle = open_bundle(tmp_path / "out", hashes=True)
    assert not any((tmp_path / "out" / name).is_symlink() or file.is_header_hash for name, file in bundle.files.items())
