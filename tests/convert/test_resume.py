"""Killed at any point, a conversion continues; nothing unfinished looks finished; no other folder is touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.convert.conftest import fill, run, tensor_bytes, toy

pytest.importorskip("torch")

from seekserve.convert.journal import JOURNAL_FILE
from seekserve.convert.kernel import TorchQuantiser
from seekserve.convert.source import OPEN_FILES, SourceReader, file_prints, stored_tensors
from seekserve.errors import CheckpointError, ConflictError, InputError, SeekserveError, TargetExists

pytestmark = pytest.mark.needs_local
SHARDS = 6


@pytest.fixture
def source(tmp_path: Path) -> Path:
    model = toy(fp8=False)
    model.shards = SHARDS
    return fill(model.write(tmp_path / "source"))


@pytest.fixture
def whole(source: Path, tmp_path: Path) -> dict[str, Any]:
    run(source, tmp_path / "whole", "fp8-block")
    return tensor_bytes(tmp_path / "whole")


class Killed(BaseException):
    """Stands for whatever ends a run without letting it tidy up."""


def dying_kernel(after: int) -> Callable[[], Any]:
    """The kernel of a run that ends in the middle of its `after`-th tensor."""
    calls = []

    def make() -> Any:
        quantise = TorchQuantiser()

        def call(weight: Any, codes: Any, scales: Any) -> None:
            calls.append(1)
            if len(calls) > after:
                raise Killed
            quantise(weight, codes, scales)

        return call

    return make


def counting_kernel(calls: list[int]) -> Callable[[], Any]:
    def make() -> Any:
        quantise = TorchQuantiser()

        def call(weight: Any, codes: Any, scales: Any) -> None:
            calls.append(1)
            quantise(weight, codes, scales)

        return call

    return make


def interrupt(source: Path, out: Path, after: int = 16) -> Path:
    with pytest.raises(Killed):
        run(source, out, "fp8-block", kernel=dying_kernel(after))
    return out.with_name(f"{out.name}.partial")


def finished(partial: Path) -> list[str]:
    return [json.loads(line)["file"] for line in (partial / JOURNAL_FILE).read_text().splitlines()[1:]]


@pytest.mark.parametrize("after", [0, 1, 7, 16, 25])
def test_an_interrupted_run_continues_to_the_same_output(
    source: Path, whole: dict[str, Any], tmp_path: Path, after: int
) -> None:
    partial = interrupt(source, tmp_path / "out", after)
    assert not (tmp_path / "out").exists()
    assert not (partial / "config.json").exists()
    run(source, tmp_path / "out", "fp8-block", resume=True, verify=True)
    assert tensor_bytes(tmp_path / "out") == whole
    assert not partial.exists()
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]


def test_finished_shards_are_not_made_again(source: Path, tmp_path: Path) -> None:
    partial = interrupt(source, tmp_path / "out")
    kept = finished(partial)
    assert 0 < len(kept) < SHARDS
    before = {name: (partial / name).stat().st_ino for name in kept}
    calls: list[int] = []
    report = run(source, tmp_path / "out", "fp8-block", resume=True, kernel=counting_kernel(calls))
    assert report.kept_shards == len(kept)
    assert {name: (tmp_path / "out" / name).stat().st_ino for name in kept} == before
    every: list[int] = []
    run(source, tmp_path / "other", "fp8-block", kernel=counting_kernel(every))
    assert len(calls) < len(every)


def test_a_finished_shard_with_another_content_is_made_again(
    source: Path, whole: dict[str, Any], tmp_path: Path
) -> None:
    partial = interrupt(source, tmp_path / "out")
    shard = partial / finished(partial)[0]
    raw = bytearray(shard.read_bytes())
    raw[-1] ^= 1
    shard.write_bytes(raw)
    report = run(source, tmp_path / "out", "fp8-block", resume=True)
    assert report.kept_shards < len(finished(tmp_path / "out"))
    assert tensor_bytes(tmp_path / "out") == whole


def test_a_torn_line_of_the_record_counts_as_not_written(source: Path, whole: dict[str, Any], tmp_path: Path) -> None:
    partial = interrupt(source, tmp_path / "out")
    record = (partial / JOURNAL_FILE).read_bytes()
    (partial / JOURNAL_FILE).write_bytes(record[:-20])
    run(source, tmp_path / "out", "fp8-block", resume=True)
    assert tensor_bytes(tmp_path / "out") == whole
    assert len(set(finished(tmp_path / "out"))) == SHARDS


def test_a_partial_output_is_refused_without_resume(source: Path, tmp_path: Path) -> None:
    partial = interrupt(source, tmp_path / "out")
    before = sorted(path.name for path in partial.iterdir())
    with pytest.raises(TargetExists, match="--resume"):
        run(source, tmp_path / "out", "fp8-block")
    assert sorted(path.name for path in partial.iterdir()) == before


def test_resume_without_a_partial_output_begins_anew(source: Path, whole: dict[str, Any], tmp_path: Path) -> None:
    run(source, tmp_path / "out", "fp8-block", resume=True)
    assert tensor_bytes(tmp_path / "out") == whole


def test_a_source_that_has_changed_is_not_continued(source: Path, tmp_path: Path) -> None:
    partial = interrupt(source, tmp_path / "out")
    shard = min(source.glob("*.safetensors"))
    os.utime(shard, ns=(0, shard.stat().st_mtime_ns + 1))
    with pytest.raises(ConflictError, match=shard.name):
        run(source, tmp_path / "out", "fp8-block", resume=True)
    assert partial.is_dir()


def test_another_config_is_not_continued(source: Path, tmp_path: Path) -> None:
    interrupt(source, tmp_path / "out")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "routed_scaling_factor": 2.0}))
    with pytest.raises(ConflictError, match=r"config\.json"):
        run(source, tmp_path / "out", "fp8-block", resume=True)


def test_a_source_that_changes_during_the_run_is_noticed(source: Path, tmp_path: Path) -> None:
    shard = max(source.glob("*.safetensors"))

    def make() -> Any:
        quantise = TorchQuantiser()

        def call(weight: Any, codes: Any, scales: Any) -> None:
            os.utime(shard, ns=(0, 1))
            quantise(weight, codes, scales)

        return call

    with pytest.raises(CheckpointError, match="changed"):
        run(source, tmp_path / "out", "fp8-block", kernel=make)
    assert not (tmp_path / "out").exists()


def test_an_output_that_exists_is_never_touched(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for resume in (False, True):
        with pytest.raises(TargetExists):
            run(source, out, "fp8-block", resume=resume)
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("name", ["out", "out.partial"])
def test_nothing_is_written_through_a_link(source: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConflictError, match="link"):
        run(source, tmp_path / "out", "fp8-block", resume=True)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_link_in_the_place_of_a_shard_is_not_followed(source: Path, tmp_path: Path) -> None:
    partial = interrupt(source, tmp_path / "out")
    done, victim = finished(partial)[0], tmp_path / "victim"
    victim.write_bytes(b"precious")
    (partial / done).unlink()
    (partial / done).symlink_to(victim)
    pending = f".model-{SHARDS:05d}-of-{SHARDS:05d}.safetensors.unfinished"
    (partial / pending).unlink(missing_ok=True)
    (partial / pending).symlink_to(victim)
    with pytest.raises(SeekserveError):
        run(source, tmp_path / "out", "fp8-block", resume=True)
    (partial / done).unlink()
    run(source, tmp_path / "out", "fp8-block", resume=True)
    assert victim.read_bytes() == b"precious"


def test_a_partial_folder_that_is_no_conversion_is_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "notes.txt").write_text("mine")
    with pytest.raises(ConflictError, match="no unfinished conversion"):
        run(source, tmp_path / "out", "fp8-block", resume=True)
    assert (tmp_path / "out.partial" / "notes.txt").read_text() == "mine"


def test_foreign_files_keep_the_output_from_being_called_whole(source: Path, tmp_path: Path) -> None:
    partial = interrupt(source, tmp_path / "out")
    (partial / "notes.txt").write_text("mine")
    with pytest.raises(ConflictError, match=r"notes\.txt"):
        run(source, tmp_path / "out", "fp8-block", resume=True)
    (partial / "notes.txt").unlink()
    run(source, tmp_path / "out", "fp8-block", resume=True)


def test_an_output_inside_the_checkpoint_is_refused(source: Path) -> None:
    with pytest.raises(ConflictError, match="inside the checkpoint"):
        run(source, source / "out", "fp8-block")


def test_a_folder_that_cannot_be_written_is_a_sentence(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ConflictError, match="no folder"):
        run(source, tmp_path / "nowhere" / "out", "fp8-block")


def test_two_runs_never_write_the_same_output(source: Path, tmp_path: Path) -> None:
    def make() -> Any:
        def call(*_: Any) -> None:
            run(source, tmp_path / "out", "fp8-block", resume=True)

        return call

    with pytest.raises(ConflictError, match="another run"):
        run(source, tmp_path / "out", "fp8-block", kernel=make)


def test_a_full_disk_is_a_sentence_that_names_resume(source: Path, tmp_path: Path) -> None:
    def make() -> Any:
        def call(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        return call

    with pytest.raises(InputError, match="No space left") as caught:
        run(source, tmp_path / "out", "fp8-block", kernel=make)
    assert "--resume" in (caught.value.hint or "")


KILLED_RUN = """
import sys
from pathlib import Path
from seekserve.convert import ConvertRequest, convert
from seekserve.convert.kernel import TorchQuantiser
calls = []
def make():
    quantise = TorchQuantiser()
    def call(weight, codes, scales):
        calls.append(1)
        if len(calls) == 20:
            print("here", flush=True)
        if len(calls) >= 20:
            sys.stdin.read()
        quantise(weight, codes, scales)
    return call
request = ConvertRequest(checkpoint=sys.argv[1], out=Path(sys.argv[2]), target="fp8-block", workers=2)
convert(request, memory_free_bytes=2**40, kernel=make)
"""


def test_a_run_killed_by_the_kernel_s_own_signal_continues(source: Path, whole: dict[str, Any], tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_RUN, str(source), str(tmp_path / "out")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    report = run(source, tmp_path / "out", "fp8-block", resume=True)
    assert report.kept_shards > 0
    assert tensor_bytes(tmp_path / "out") == whole


def test_a_reader_keeps_few_files_open(tmp_path: Path) -> None:
    model = toy(fp8=False)
    model.shards = 30
    folder = fill(model.write(tmp_path / "many"))
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    reader = SourceReader(folder, file_prints(folder, files))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - no path, a table of the kernel
    for tensors in stored_tensors(folder, files, "deepseek_v3").values():
        for tensor in tensors:
            reader.read_into(tensor.entry.file, tensor.entry.begin_bytes, memoryview(bytearray(2)))
    assert len(os.listdir("/proc/self/fd")) - before <= OPEN_FILES  # noqa: PTH208
    reader.close()
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208
