"""`build/` is a source root; tools that skip a folder of that name by default must not skip this one."""

from __future__ import annotations

import configparser
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

MODULES = (
    "build/seekserve/errors.py",
    "build/seekserve/cli/__init__.py",
    "python_backend/seekserve_backend/service.py",
)


@pytest.mark.skipif(find_spec("ruff") is None, reason="ruff is not installed")
def test_the_linter_reads_both_source_roots(repository_root: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--show-files"],
        cwd=repository_root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    relative = {str(Path(line).relative_to(repository_root)) for line in shown if line.startswith(str(repository_root))}
    assert relative.issuperset(MODULES)


def test_git_ignores_no_source(repository_root: Path) -> None:
    if not (repository_root / ".git").exists():
        pytest.skip("not a git checkout")
    # Exit 1 means that none of the paths is ignored.
    outcome = subprocess.run(
        ["git", "check-ignore", "--verbose", "--no-index", *MODULES],
        cwd=repository_root,
        capture_output=True,
        text=True,
    )
    assert (outcome.returncode, outcome.stdout) == (1, "")


def test_pytest_may_enter_a_folder_named_build(pytestconfig: pytest.Config) -> None:
    assert "build" not in pytestconfig.getini("norecursedirs")


def test_the_type_checker_reads_both_source_roots(repository_root: Path) -> None:
    text = (repository_root / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("[tool.mypy]")[2].partition("\n[")[0]
    parser = configparser.ConfigParser()
    parser.read_string("[mypy]" + section)
    assert parser["mypy"]["mypy_path"] == '["build", "python_backend"]'
    assert parser["mypy"]["packages"] == '["seekserve", "seekserve_backend"]'


def test_both_packages_are_imported_from_this_checkout(repository_root: Path) -> None:
    for package, root in (("seekserve", "build"), ("seekserve_backend", "python_backend")):
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        assert Path(spec.origin).resolve() == repository_root / root / package / "__init__.py"
