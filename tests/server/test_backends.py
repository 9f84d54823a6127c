from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import seekserve
from seekserve.server.backends import check_backends, compose_backend_dir
from seekserve.server.find import Tritonserver

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"


def _server(root: Path, *, backend: bool = True, stub: bool = True) -> Tritonserver:
    folder = root / "server"
    folder.mkdir(exist_ok=True)
    for name in ("libtriton_python.so", "triton_python_backend_utils.py", "stub"):
        (folder / name).write_text(name)
    return Tritonserver(
        binary=root / "tritonserver",
        found_by="PATH",
        python_backend_dir=folder if backend else None,
        stub=folder / "stub" if stub else None,
        library_dirs=(),
    )


def _install(backends: Path, **changes: object) -> None:
    folder = backends / "seekserve"
    folder.mkdir(parents=True)
    (folder / "model.py").touch()
    record = {"toolkit_version": seekserve.__version__, "python_version": MINOR, "site_packages": None, **changes}
    (folder / "version.json").write_text(json.dumps(record))


def _add_runtime(backends: Path) -> None:
    (backends / "python").mkdir(parents=True)
    (backends / "python" / "libtriton_python.so").touch()
    (backends / "python" / "triton_python_backend_stub").touch()


def test_an_installed_backend_of_this_version_is_fine(tmp_path: Path) -> None:
    _install(tmp_path / "b")
    assert check_backends(tmp_path / "b", _server(tmp_path), needs_ours=True) == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"toolkit_version": "0.0.9"}, f"is version 0.0.9, this toolkit is {seekserve.__version__}"),
        ({"python_version": "3.7", "site_packages": "/x"}, f"of Python 3.7, this command runs on {MINOR}"),
        ({"python_version": "3.7"}, None),
    ],
)
def test_another_version_or_another_pythons_packages_are_said(
    tmp_path: Path, changes: dict[str, object], sentence: str | None
) -> None:
    _install(tmp_path / "b", **changes)
    problems = check_backends(tmp_path / "b", _server(tmp_path), needs_ours=True)
    assert len(problems) == (0 if sentence is None else 1)
    assert sentence is None or sentence in problems[0]


def test_a_backend_that_is_not_installed_names_the_command(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    [problem] = check_backends(tmp_path / "b", _server(tmp_path), needs_ours=True)
    assert f"seekserve install-backend {tmp_path / 'b'}" in problem
    assert check_backends(tmp_path / "b", _server(tmp_path), needs_ours=False) == []


def test_a_damaged_version_file_is_said(tmp_path: Path) -> None:
    _install(tmp_path / "b")
    (tmp_path / "b" / "seekserve" / "version.json").write_text("[]")
    [problem] = check_backends(tmp_path / "b", _server(tmp_path), needs_ours=True)
    assert "cannot be read" in problem


@pytest.mark.parametrize(
    ("backend", "stub", "sentence"), [(False, True, "libtriton_python.so"), (True, False, f"for Python {MINOR}")]
)
def test_a_server_without_runtime_or_stub_is_said(tmp_path: Path, backend: bool, stub: bool, sentence: str) -> None:
    (tmp_path / "b").mkdir()
    [problem] = check_backends(tmp_path / "b", _server(tmp_path, backend=backend, stub=stub), needs_ours=False)
    assert sentence in problem


def test_a_directory_that_has_the_runtime_is_used_as_it_is(tmp_path: Path) -> None:
    _install(tmp_path / "b")
    _add_runtime(tmp_path / "b")
    assert compose_backend_dir(tmp_path / "b", _server(tmp_path), tmp_path / "new") == tmp_path / "b"
    assert not (tmp_path / "new").exists()


def test_otherwise_both_are_joined_in_a_new_directory_and_the_users_is_left_alone(tmp_path: Path) -> None:
    _install(tmp_path / "b")
    before = sorted(path.name for path in (tmp_path / "b").rglob("*"))
    new = compose_backend_dir(tmp_path / "b", _server(tmp_path), tmp_path / "new")
    assert (new / "seekserve" / "model.py").is_file()
    for name in ("libtriton_python.so", "triton_python_backend_stub", "triton_python_backend_utils.py"):
        # Triton refuses a library whose real path lies elsewhere.
        assert (new / "python" / name).is_file()
        assert not (new / "python" / name).is_symlink()
    assert sorted(path.name for path in (tmp_path / "b").rglob("*")) == before
