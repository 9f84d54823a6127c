"""`seekserve diagnose` as a user sees it: exit code and both streams."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.monitor.exposition import Exposition

from seekserve.cli.diagnose import command
from seekserve.errors import InputError
from seekserve.monitor.reading import parse_text, scrape_of


def dump(folder: Path, *, silence_s: float) -> Path:
    looks = []
    for n in range(2):
        made = Exposition().set("stream_silence_seconds", silence_s).set("flush_timestamp_seconds", 10.0 * n)
        looks.append(scrape_of(parse_text(made.text()), server="h:1", time_s=10.0 * n).to_json())
    path = folder / f"dump-{silence_s}.json"
    path.write_text(json.dumps({"scrapes": looks}))
    return path


def run(*args: object) -> Result:
    return CliRunner().invoke(command, [str(arg) for arg in args], standalone_mode=False)


def test_the_exit_code_says_whether_something_is_wrong(tmp_path: Path) -> None:
    well, ill = run("--dump", dump(tmp_path, silence_s=0.1)), run("--dump", dump(tmp_path, silence_s=20.0))
    assert (well.return_value, well.output) == (0, "Nothing is wrong: chat at h:1 over 10 s.\n")
    assert ill.return_value == 1
    assert ill.output.startswith("Streams stand still: the engine does not come round: chat at h:1 over 10 s.\n")
    assert "longest silence of a stream 20 s" in ill.output


def test_json_can_be_diagnosed_again(tmp_path: Path) -> None:
    first = run("--dump", dump(tmp_path, silence_s=20.0), "--json")
    again = tmp_path / "again.json"
    again.write_text(first.output)
    second = run("--dump", again, "--json")
    assert json.loads(first.output) == json.loads(second.output)
    assert json.loads(first.output)["findings"][0]["id"] == "stalled"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--dump", "x", "--url", "h:1"], "--url and --dump were given"),
        (["--url", "h:1", "--selector", "a=1"], "--selector goes with --prometheus"),
        (["--dump", "absent.json"], "cannot be read"),
    ],
)
def test_bad_questions(args: list[str], text: str) -> None:
    done = run(*args)
    assert isinstance(done.exception, InputError)
    assert text in str(done.exception)


def test_scripts_for_profilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    done = run("--profile", tmp_path / "p")
    assert done.return_value == 0
    names = sorted(path.name for path in (tmp_path / "p").iterdir())
    assert names == ["gpu-metrics.sh", "ncu.sh", "nsys.sh", "torch-profiler.sh"]
    assert all(path.stat().st_mode & 0o111 for path in (tmp_path / "p").iterdir())
    assert "exists already" in str(run("--profile", tmp_path / "p").exception)
