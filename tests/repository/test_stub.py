"""A container's stub: its Python is read from the file and held against the packages that it shall see."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from seekserve.errors import ConflictError
from seekserve.repository.installing import InstallRequest, run_install
from seekserve.repository.stub import check_stub, stub_python
from seekserve.settings import Settings

RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"


def container(folder: Path, python: str) -> Path:
    (folder / "python").mkdir(parents=True)
    (folder / "python" / "triton_python_backend_stub").write_bytes(
        b"\x7fELF\0libpython" + python.encode() + b".so.1.0\0"
    )
    return folder


def test_a_folder_without_a_stub_asks_nothing(tmp_path: Path) -> None:
    assert stub_python(tmp_path) is None
    assert check_stub(tmp_path, "/opt/venv/lib/python3.11/site-packages") is None


def test_the_servers_own_packages_fit_whatever_python_this_is(tmp_path: Path) -> None:
    assert check_stub(container(tmp_path, "3.12"), None) == "3.12"


@pytest.mark.parametrize(
    ("site", "named"), [("/opt/venv/lib/python3.9/site-packages", "3.9"), ("/opt/packages", RUNNING)]
)
def test_packages_of_another_python_are_refused_with_both(tmp_path: Path, site: str, named: str) -> None:
    with pytest.raises(ConflictError, match=f"runs Python 3\\.99, {site} holds packages of {named}") as caught:
        check_stub(container(tmp_path, "3.99"), site)
    assert "--site-packages none" in str(caught.value)


def test_a_python_too_old_for_the_backend_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConflictError, match=r"runs Python 3\.8; the backend needs 3\.10"):
        check_stub(container(tmp_path, "3.8"), None)


def test_installing_into_a_container_reports_the_stub_and_writes_nothing_on_a_conflict(tmp_path: Path) -> None:
    backends = container(tmp_path / "backends", "3.12")
    report = run_install(InstallRequest(backends_dir=backends, site_packages="none"), Settings())
    assert report.stub_python == "3.12"
    assert "Python 3.12" in report.text()
    assert run_install(InstallRequest(backends_dir=backends, site_packages="none", action="check"), Settings())
    other = container(tmp_path / "other", "3.99")
    with pytest.raises(ConflictError):
        run_install(InstallRequest(backends_dir=other, site_packages=str(tmp_path)), Settings())
    assert [path.name for path in other.iterdir()] == ["python"]


def test_removing_needs_no_stub_that_fits(tmp_path: Path) -> None:
    backends = container(tmp_path, "3.8")
    report = run_install(InstallRequest(backends_dir=backends, action="uninstall"), Settings())
    assert report.status == "not installed"
