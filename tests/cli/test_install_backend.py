"""`seekserve install-backend` from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seekserve.cli import main

Streams = pytest.CaptureFixture[str]


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["install-backend", *args])
    return int(caught.value.code or 0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_installing_checking_and_removing(here: Path, capsys: Streams) -> None:
    assert run("be") == 0
    assert capsys.readouterr().out.startswith("installed: backend seekserve")
    assert run("be") == 0
    assert capsys.readouterr().out.startswith("already installed: ")
    assert run("be", "--check") == 0
    assert run("be", "--uninstall") == 0
    assert list((here / "be").iterdir()) == []
    capsys.readouterr()
    assert run("be", "--uninstall") == 0
    assert "nothing to remove" in capsys.readouterr().out


def test_a_check_tells_absent_damaged_and_other_apart(here: Path, capsys: Streams) -> None:
    assert run("be", "--check") == 2
    assert "no backend at" in capsys.readouterr().err
    assert run("be", "--site-packages", "none") == 0
    assert run("be", "--site-packages", str(here), "--check") == 3
    (here / "be/seekserve/model.py").write_text("", encoding="utf-8")
    assert run("be", "--site-packages", "none", "--check") == 2
    assert "model.py was changed" in capsys.readouterr().err


def test_json_is_the_whole_of_stdout(here: Path, capsys: Streams) -> None:
    assert run("be", "--json", "--site-packages", "none") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["status"], data["folder"], data["site_packages"]) == ("installed", str(here / "be/seekserve"), None)


def test_a_dry_run_lists_the_files_and_writes_none(here: Path, capsys: Streams) -> None:
    assert run("be", "--dry-run") == 0
    out = capsys.readouterr().out
    assert "model.py" in out
    assert "version.json" in out
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((), "which backend directory?"),
        (("be", "--check", "--uninstall"), "exclude each other"),
        (("be", "--site-packages", "nowhere"), "no such folder"),
    ],
)
def test_what_is_wrong_is_said_on_stderr(here: Path, capsys: Streams, args: tuple[str, ...], text: str) -> None:
    assert run(*args) == 2
    assert text in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_a_containers_stub_is_checked_against_the_packages(here: Path, capsys: Streams) -> None:
    (here / "be" / "python").mkdir(parents=True)
    (here / "be" / "python" / "triton_python_backend_stub").write_bytes(b"\0libpython3.99.so.1.0\0")
    assert run("be", "--site-packages", str(here)) == 3
    assert "runs Python 3.99" in capsys.readouterr().err
    assert run("be", "--site-packages", "none") == 0
    assert "Python 3.99" in capsys.readouterr().out
    assert run("be", "--site-packages", "none", "--check") == 0
