"""`seekserve convert` as a command: exit codes, both streams, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from seekserve.cli.convert import command
from seekserve.data import tiny_checkpoint_folder
from seekserve.errors import MissingDependency, TargetExists

pytest.importorskip("torch")
pytestmark = pytest.mark.needs_local
TINY_CHECKPOINT = tiny_checkpoint_folder()


def convert(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)


def test_the_tiny_checkpoint_goes_to_bf16_and_back(tmp_path: Path) -> None:
    there = convert(TINY_CHECKPOINT, tmp_path / "bf16", "--to", "bf16", "--verify")
    assert there.exit_code == 0, there.exception
    assert "fp8_block -> bf16" in there.stdout
    assert "Verified: every value is what the definition gives" in there.stdout
    back = convert(tmp_path / "bf16", tmp_path / "fp8", "--to", "fp8-block", "--json", "--workers", 2)
    report = json.loads(back.stdout)
    assert report["tensors"]["quantise"] > 100
    assert report["is_written"]
    assert report["kernel"]
    assert report["needs"]["disk_bytes"] > report["output_bytes"]


def test_needs_and_progress_are_on_stderr(tmp_path: Path) -> None:
    result = convert(TINY_CHECKPOINT, tmp_path / "bf16", "--to", "bf16", "--json")
    json.loads(result.stdout)
    assert result.stderr.startswith("needs: disk ")
    assert "converting" in result.stderr


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    result = convert(TINY_CHECKPOINT, tmp_path / "bf16", "--to", "bf16", "--dry-run")
    assert "would be written to" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_exists_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    result = convert(TINY_CHECKPOINT, tmp_path / "out", "--to", "bf16")
    assert isinstance(result.exception, TargetExists)
    assert result.stdout == ""


def test_without_torch_one_sentence_names_the_extra(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from seekserve.cli import main; main(['convert', sys.argv[1], sys.argv[2], '--to', 'bf16'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(TINY_CHECKPOINT), str(tmp_path / "out")], capture_output=True, text=True
    )
    assert done.returncode == MissingDependency.exit_code
    assert "pip install 'seekserve[local]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
