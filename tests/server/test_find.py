from __future__ import annotations

import sys
from pathlib import Path

import pytest

from seekserve.errors import InputError, MissingDependency
from seekserve.server.find import describe, find_tritonserver, stub_python_minor, wheel_root


def _binary(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    return {name: _binary(tmp_path / name / "bin" / "tritonserver") for name in ("flag", "env", "path")}


@pytest.mark.parametrize(
    ("flag", "env", "path", "found_by"),
    [
        (True, True, True, "--tritonserver"),
        (False, True, True, "SEEKSERVE_TRITONSERVER"),
        (False, False, True, "PATH"),
    ],
)
def test_the_first_place_that_has_one_wins(
    places: dict[str, Path], flag: bool, env: bool, path: bool, found_by: str
) -> None:
    variables = {"PATH": str(places["path"].parent) if path else ""}
    if env:
        variables["SEEKSERVE_TRITONSERVER"] = str(places["env"])
    server = find_tritonserver(places["flag"] if flag else None, variables)
    assert server.found_by == found_by
    assert (
        server.binary == places[{"--tritonserver": "flag", "SEEKSERVE_TRITONSERVER": "env", "PATH": "path"}[found_by]]
    )


@pytest.mark.parametrize("by", ["--tritonserver", "SEEKSERVE_TRITONSERVER"])
def test_a_named_binary_that_is_not_there_is_an_error_and_not_a_reason_to_search(
    places: dict[str, Path], tmp_path: Path, by: str
) -> None:
    missing = tmp_path / "missing"
    flag = missing if by == "--tritonserver" else None
    variables = {"PATH": str(places["path"].parent), "SEEKSERVE_TRITONSERVER": str(missing)}
    with pytest.raises(InputError, match=f"{by} names {missing}"):
        find_tritonserver(flag, variables)


@pytest.mark.skipif(wheel_root() is not None, reason="nvidia-pytriton is installed here")
def test_when_there_is_none_every_place_is_named() -> None:
    with pytest.raises(MissingDependency, match=r"SEEKSERVE_TRITONSERVER.*PATH.*/opt/tritonserver.*nvidia-pytriton"):
        find_tritonserver(None, {"PATH": ""})


def test_the_wheel_is_located_without_importing_it() -> None:
    wheel_root()
    assert "pytriton" not in sys.modules


def test_a_container_layout_brings_its_own_stub_and_libraries(tmp_path: Path) -> None:
    binary = _binary(tmp_path / "opt" / "bin" / "tritonserver")
    backend = tmp_path / "opt" / "backends" / "python"
    backend.mkdir(parents=True)
    (backend / "libtriton_python.so").touch()
    (backend / "triton_python_backend_stub").touch()
    server = describe(binary, "PATH")
    assert server.python_backend_dir == backend
    assert server.stub == backend / "triton_python_backend_stub"
    assert server.library_dirs == ()


def test_the_wheel_layout_gives_the_stub_of_the_running_python_and_its_library_folder(tmp_path: Path) -> None:
    root = tmp_path / "site-packages" / "pytriton" / "tritonserver"
    binary = _binary(root / "bin" / "tritonserver")
    (root / "backends" / "python").mkdir(parents=True)
    (root / "backends" / "python" / "libtriton_python.so").touch()
    for minor in ("3.9", f"{sys.version_info.major}.{sys.version_info.minor}"):
        (root / "python_backend_stubs" / minor).mkdir(parents=True)
        (root / "python_backend_stubs" / minor / "triton_python_backend_stub").touch()
    libraries = tmp_path / "site-packages" / "nvidia_pytriton.libs"
    libraries.mkdir()
    server = describe(binary, "nvidia-pytriton")
    assert server.stub is not None
    assert server.stub.parent.name == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert server.library_dirs[0] == libraries


def test_an_installation_without_python_backend_says_so(tmp_path: Path) -> None:
    server = describe(_binary(tmp_path / "x" / "bin" / "tritonserver"), "PATH")
    assert server.python_backend_dir is None
    assert server.stub is None


@pytest.mark.parametrize(
    ("content", "minor"), [(b"\0libpython3.12.so.1.0\0", "3.12"), (b"libpython3.9.so", "3.9"), (b"nothing", None)]
)
def test_the_python_of_a_stub_is_read_from_its_bytes(tmp_path: Path, content: bytes, minor: str | None) -> None:
    stub = tmp_path / "stub"
    stub.write_bytes(content)
    assert stub_python_minor(stub) == minor
