"""A build from start to end on the double: what it leaves, what it refuses first, how it fails and goes on."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from tests.engine.trtllm_engine.machine import A100, DEVICES, DOUBLE, Case, Make, machine

from seekserve.engine.trtllm_engine.process import run_child
from seekserve.engine.trtllm_engine.tools import Package
from seekserve.errors import ConflictError, DoesNotFit, MissingDependency, TargetExists, ToolFailed
from seekserve.output import files_in
from seekserve.plan.bundle import open_bundle

FILES = [
    "build.json",
    "bundle.json",
    "engine/config.json",
    "engine/rank0.engine",
    "llm_args.yaml",
    "tokenizer/generation_config.json",
    "tokenizer/tokenizer.json",
    "tokenizer/tokenizer_config.json",
]


class Calls:
    """Runs the double and remembers what was started."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> int:
        self.names.append(log.stem)
        return run_child(argv, env=env, cwd=cwd, log=log)


@pytest.fixture
def calls() -> Calls:
    return Calls()


def work(case: Case) -> Path:
    return case.out.with_name("bundle.build")


def fail(script: str) -> dict[str, str]:
    return {"TRTLLM_DOUBLE_FAIL": script}


def test_a_bundle_holds_engine_tokenizer_and_arguments(v2_lite: Case) -> None:
    outcome = v2_lite.build()
    assert files_in(v2_lite.out) == FILES
    bundle = open_bundle(v2_lite.out, hashes=True)
    assert bundle == outcome.bundle
    assert sorted(bundle.files) == [name for name in FILES if name != "bundle.json"]
    assert bundle.trtllm is not None
    assert (bundle.engine_version, bundle.trtllm.version, bundle.trtllm.model_dir) == ("1.2.1", "1.2.1", "engine")
    assert not work(v2_lite).exists()


def test_start_up_is_given_time_by_the_bytes_of_the_engine(make: Make) -> None:
    small = make("r1-distill-qwen-7b", kv_dtype="bf16").build(dry_run=True).bundle.trtllm
    large = make("r1-distill-llama-70b", gpus=4, kv_dtype="bf16").build(dry_run=True).bundle.trtllm
    assert small is not None
    assert large is not None
    assert 600 < small.start_timeout_s < large.start_timeout_s


def test_a_dry_run_writes_nothing_and_needs_no_tools(v2_lite: Case) -> None:
    before = files_in(v2_lite.out.parent)
    nowhere = machine({"PATH": "/nowhere"}, package=lambda _python, _environ: None)
    outcome = v2_lite.build(dry_run=True, host=nowhere)
    assert outcome.status == "dry-run"
    assert files_in(v2_lite.out.parent) == before
    assert any("no trtllm-build on PATH: the build could not start here" in text for text in outcome.warnings)


def test_what_it_needs_is_said_first(make: Make) -> None:
    needs = "\n".join(make("deepseek-moe-16b", weights="fp8_tensor").build(dry_run=True).needs)
    for phrase in (
        "disk: 32.9 GiB",
        "host memory: about",
        "SM90",
        "time: roughly",
        "512 samples of cnn_dailymail",
        "trust:",
    ):
        assert phrase in needs


def test_too_little_disk_is_said_before_anything_starts(v2_lite: Case, calls: Calls) -> None:
    with pytest.raises(DoesNotFit, match=r"needs 61\.4 GiB of disk .* 1\.0 GiB free"):
        v2_lite.build(calls, host=machine(free_bytes=lambda _: 2**30))
    assert calls.names == []
    assert not work(v2_lite).exists()


def test_too_little_memory_is_a_warning(v2_lite: Case) -> None:
    outcome = v2_lite.build(host=machine(memory_bytes=lambda: 2**30))
    assert any("this machine has 1.0 GiB of memory" in text for text in outcome.warnings)


def test_a_gpu_of_another_architecture_may_not_build(v2_lite: Case, calls: Calls) -> None:
    with pytest.raises(ConflictError, match=r"A100-SXM4-80GB \(SM80\), the plan is for h100-sxm-80gb \(SM90\)"):
        v2_lite.build(calls, host=machine(devices=lambda: [DEVICES[A100]]))
    assert calls.names == []


@pytest.mark.parametrize("found", [None, ["Some New GPU"]])
def test_a_gpu_that_cannot_be_told_is_a_warning(v2_lite: Case, found: list[str] | None) -> None:
    outcome = v2_lite.build(host=machine(devices=lambda: found))
    assert any("GPU" in text and "SM90" in text for text in outcome.warnings)


@pytest.mark.parametrize(
    ("environ", "package", "missing"),
    [
        ({"PATH": "/nowhere"}, Package(version="1.2.1", folder=None), "no trtllm-build on PATH"),
        ({}, None, "no tensorrt_llm for "),
    ],
)
def test_a_missing_tool_is_one_sentence(
    v2_lite: Case, calls: Calls, environ: dict[str, str], package: Package | None, missing: str
) -> None:
    with pytest.raises(MissingDependency, match=missing) as found:
        v2_lite.build(calls, host=machine(environ, package=lambda _python, _environ: package))
    assert "--dry-run" in str(found.value)
    assert calls.names == []


def test_another_version_would_build_an_engine_that_nobody_runs(v2_lite: Case, calls: Calls) -> None:
    other = machine(package=lambda _python, _environ: Package(version="1.1.0", folder=None))
    with pytest.raises(ConflictError, match=r"has TensorRT-LLM 1\.1\.0, the plan is for 1\.2\.1"):
        v2_lite.build(calls, host=other)
    assert calls.names == []


def test_the_interpreter_is_the_one_that_trtllm_build_names(v2_lite: Case, tmp_path: Path) -> None:
    script = tmp_path / "bin" / "trtllm-build"
    script.parent.mkdir()
    script.write_text("#!/opt/trtllm/bin/python3.12\n")
    script.chmod(0o755)

    def package(python: str, _environ: Mapping[str, str]) -> Package | None:
        return Package(version="1.2.1", folder=None) if python == "/opt/trtllm/bin/python3.12" else None

    outcome = v2_lite.build(dry_run=True, host=machine({"PATH": str(script.parent)}, package=package))
    assert outcome.steps[0].argv[0] == "/opt/trtllm/bin/python3.12"
    assert outcome.steps[1].argv[0] == str(script)


@pytest.mark.parametrize(("script", "step"), [("convert_checkpoint", "convert"), ("trtllm-build", "build")])
def test_a_failed_step_names_its_log_and_leaves_no_bundle(v2_lite: Case, script: str, step: str) -> None:
    with pytest.raises(ToolFailed) as found:
        v2_lite.build(host=machine(fail(script)))
    text = str(found.value)
    assert found.value.exit_code == 4
    assert "exit status 1" in text
    assert "CUDA out of memory" in text
    assert str(work(v2_lite) / f"{step}.log") in text
    assert "the same command goes on from there" in text
    assert not v2_lite.out.exists()
    assert "Traceback" in (work(v2_lite) / f"{step}.log").read_text()


def test_a_finished_step_is_not_done_again(v2_lite: Case, calls: Calls) -> None:
    with pytest.raises(ToolFailed):
        v2_lite.build(calls, host=machine(fail("trtllm-build")))
    outcome = v2_lite.build(calls)
    assert calls.names == ["convert", "build", "build"]
    assert [step.status for step in outcome.steps] == ["reused", "done"]
    assert not work(v2_lite).exists()


def test_a_dry_run_says_which_step_is_done_already(v2_lite: Case) -> None:
    with pytest.raises(ToolFailed):
        v2_lite.build(host=machine(fail("trtllm-build")))
    assert [step.status for step in v2_lite.build(dry_run=True).steps] == ["reused", "to do"]


def test_disk_that_a_finished_step_has_taken_is_not_asked_for_again(v2_lite: Case) -> None:
    with pytest.raises(ToolFailed):
        v2_lite.build(host=machine(fail("trtllm-build")))
    assert v2_lite.build(host=machine(free_bytes=lambda _: 40 * 2**30)).status == "built"


def break_weights(folder: Path) -> None:
    shard = min(folder.glob("*.safetensors"))
    os.utime(shard, ns=(1, 1))


def break_config(folder: Path) -> None:
    config = folder / "config.json"
    config.write_text(config.read_text() + "\n")


@pytest.mark.parametrize("change", [break_weights, break_config])
def test_a_changed_checkpoint_starts_anew(
    change: Callable[[Path], None], make: Make, v2_lite: Case, calls: Calls, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(v2_lite.source.folder, folder, copy_function=os.link)
    for small in ("config.json", "tokenizer.json"):  # linked ones are everybody's
        text = (folder / small).read_bytes()
        (folder / small).unlink()
        (folder / small).write_bytes(text)
    case = make("deepseek-v2-lite", folder=folder)
    with pytest.raises(ToolFailed):
        case.build(calls, host=machine(fail("trtllm-build")))
    before = next(folder.glob("*.safetensors")).stat().st_mtime_ns
    change(folder)
    make("deepseek-v2-lite", folder=folder).build(calls)
    os.utime(next(folder.glob("*.safetensors")), ns=(before, before))
    assert calls.names == ["convert", "build", "convert", "build"]


def test_a_changed_limit_keeps_the_converted_checkpoint(make: Make, calls: Calls) -> None:
    with pytest.raises(ToolFailed):
        make("deepseek-v2-lite").build(calls, host=machine(fail("trtllm-build")))
    make("deepseek-v2-lite", max_batch_size=16).build(calls)
    assert calls.names == ["convert", "build", "build"]


def test_another_precision_removes_what_the_first_left(make: Make, calls: Calls) -> None:
    with pytest.raises(ToolFailed):
        make("r1-distill-qwen-7b", kv_dtype="bf16").build(calls, host=machine(fail("trtllm-build")))
    case = make("r1-distill-qwen-7b", weights="fp8_tensor")
    with pytest.raises(ToolFailed):
        case.build(calls, host=machine(fail("trtllm-build")))
    assert calls.names == ["convert", "build", "quantize", "build"]
    assert not (work(case) / "convert").exists()


@pytest.mark.parametrize("damage", ["journal", "file", "line"])
def test_a_step_that_cannot_be_proven_is_done_again(v2_lite: Case, calls: Calls, damage: str) -> None:
    with pytest.raises(ToolFailed):
        v2_lite.build(calls, host=machine(fail("trtllm-build")))
    journal = work(v2_lite) / "journal.json"
    if damage == "journal":
        journal.write_text(journal.read_text()[:40])
    elif damage == "line":
        journal.write_text(json.dumps({"version": 1, "steps": {}}))
    else:
        (work(v2_lite) / "convert" / "rank0.safetensors").write_bytes(b"")
    v2_lite.build(calls)
    assert calls.names == ["convert", "build", "convert", "build"]


@pytest.mark.parametrize(
    ("environ", "phrase"),
    [
        ({"TRTLLM_DOUBLE_MISSING": "0"}, "the step convert ended well but left no whole checkpoint: rank0.safetensors"),
        ({"TRTLLM_DOUBLE_EMPTY": "0"}, "rank0.engine is empty"),
        ({"TRTLLM_DOUBLE_SHAPE": "older"}, "states no TensorRT-LLM version"),
        ({"TRTLLM_DOUBLE_VERSION": "1.1.0"}, r"TensorRT-LLM 1\.1\.0 built the engine, and the bundle is for 1\.2\.1"),
    ],
)
def test_a_result_that_is_not_the_plan_s_never_becomes_a_bundle(
    v2_lite: Case, environ: dict[str, str], phrase: str
) -> None:
    with pytest.raises(ToolFailed, match=phrase):
        v2_lite.build(host=machine(environ))
    assert not v2_lite.out.exists()


def test_what_the_builder_switches_off_silently_is_found(make: Make) -> None:
    """The double builds for SM80 here, so it drops paged context from an engine with an FP8 cache."""
    case = make("deepseek-moe-16b", weights="fp8_tensor")
    with pytest.raises(ToolFailed, match="use_paged_context_fmha is off in the engine, and KV reuse"):
        case.build(host=machine(), run=_on_sm(80, "build"))


def _on_sm(sm: int, step: str) -> Callable[..., int]:
    def run(argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> int:
        more = {"TRTLLM_DOUBLE_SM": str(sm)} if log.stem == step else {}
        return run_child(argv, env={**env, **more}, cwd=cwd, log=log)

    return run


def test_the_same_build_again_is_reused(v2_lite: Case, calls: Calls) -> None:
    v2_lite.build(calls)
    outcome = v2_lite.build(calls)
    assert outcome.status == "reused"
    assert calls.names == ["convert", "build"]


def test_another_bundle_is_replaced_only_when_asked(make: Make, calls: Calls) -> None:
    make("deepseek-v2-lite").build(calls)
    other = make("deepseek-v2-lite", max_batch_size=16)
    with pytest.raises(TargetExists, match="limits is"):
        other.build(calls)
    assert other.build(calls, force=True).status == "replaced"
    assert open_bundle(other.out).limits.max_batch_size == 16


def test_a_failed_replacement_leaves_the_old_bundle(make: Make) -> None:
    case = make("deepseek-v2-lite")
    case.build()
    before = (case.out / "bundle.json").read_text()
    with pytest.raises(ToolFailed):
        make("deepseek-v2-lite", max_batch_size=16).build(force=True, host=machine(fail("trtllm-build")))
    assert (case.out / "bundle.json").read_text() == before
    open_bundle(case.out, hashes=True)


def test_a_bundle_that_could_not_be_put_in_place_costs_no_step(v2_lite: Case, calls: Calls, tmp_path: Path) -> None:
    def run(argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> int:
        v2_lite.out.mkdir(exist_ok=True)  # somebody else's, while the build runs
        return calls(argv, env=env, cwd=cwd, log=log)

    with pytest.raises(TargetExists, match="exists already"):
        v2_lite.build(run)
    v2_lite.out.rmdir()
    shutil.copytree(work(v2_lite), tmp_path / "kept")
    assert [step.status for step in v2_lite.build(calls).steps] == ["reused", "reused"]
    assert calls.names == ["convert", "build"]
    # A run that was killed before it could tidy up has left its work folder; the next one does it.
    shutil.copytree(tmp_path / "kept", work(v2_lite))
    assert v2_lite.build(calls).status == "reused"
    assert not work(v2_lite).exists()


def test_files_of_others_are_never_removed(v2_lite: Case) -> None:
    v2_lite.build()
    (v2_lite.out / "notes.txt").write_text("mine")
    with pytest.raises(TargetExists, match=r"notes\.txt"):
        v2_lite.build(force=True)
    stranger = v2_lite.out.with_name("other")
    stranger.mkdir()
    with pytest.raises(TargetExists, match="is no bundle"):
        v2_lite.build(target=stranger)


def test_a_foreign_work_folder_is_left_alone(v2_lite: Case, calls: Calls) -> None:
    work(v2_lite).mkdir()
    (work(v2_lite) / "letters.txt").write_text("mine")
    with pytest.raises(TargetExists, match="it holds something else"):
        v2_lite.build(calls)
    assert files_in(work(v2_lite)) == ["letters.txt"]
    assert calls.names == []


def test_two_builds_never_work_in_one_folder(v2_lite: Case, calls: Calls) -> None:
    work(v2_lite).mkdir()
    descriptor = os.open(work(v2_lite), os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(TargetExists, match="another build is working"):
            v2_lite.build(calls)
    finally:
        os.close(descriptor)
    assert calls.names == []


def test_the_double_s_package_is_never_imported() -> None:
    assert "raise ImportError" in (DOUBLE / "site" / "tensorrt_llm" / "__init__.py").read_text()
