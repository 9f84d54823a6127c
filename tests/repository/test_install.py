"""The backend's folder: installed whole, checked by hash, and only our own files are ever removed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from seekserve.errors import ConflictError, InputError, TargetExists
from seekserve.output import files_in
from seekserve.repository.install import (
    backend_files,
    check_installed,
    default_site_packages,
    install,
    read_installed,
    uninstall,
)
from seekserve.repository.installing import InstallRequest, run_install
from seekserve.settings import PathSettings, Settings

SITE = "/opt/venv/lib/python3.11/site-packages"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "backends" / "seekserve"


def edit_version(folder: Path, **changes: object) -> None:
    path = folder / "version.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}), encoding="utf-8")


def test_what_triton_needs_is_installed(folder: Path) -> None:
    assert install(folder, SITE) == "installed"
    names = files_in(folder)
    assert {"model.py", "version.json", "seekserve_backend/__init__.py", "seekserve_backend/contract/bundle.py"} <= set(
        names
    )
    assert all(name.endswith(".py") or name == "version.json" for name in names)
    data = json.loads((folder / "version.json").read_text())
    assert data["name"] == "seekserve"
    assert data["site_packages"] == SITE
    assert data["python_version"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert set(data["schemas"]) == {"bundle", "policy", "repository"}
    assert set(data["files"]) == {name for name in names if name != "version.json"}


def test_the_entry_point_is_the_packages_own(folder: Path) -> None:
    install(folder, None)
    assert (folder / "model.py").read_bytes() == (folder / "seekserve_backend/triton/model.py").read_bytes()


def test_identical_content_is_left_alone(folder: Path) -> None:
    install(folder, SITE)
    assert install(folder, SITE) == "already installed"


def test_other_packages_mean_another_installation(folder: Path) -> None:
    install(folder, SITE)
    assert install(folder, None) == "replaced"
    installed = read_installed(folder)
    assert installed is not None
    assert installed.site_packages is None


def test_a_damaged_installation_is_repaired(folder: Path) -> None:
    install(folder, SITE)
    (folder / "model.py").write_text("broken", encoding="utf-8")
    assert install(folder, SITE) == "replaced"
    check_installed(folder, SITE)


def test_a_dry_run_changes_nothing(folder: Path) -> None:
    assert install(folder, SITE, dry_run=True) == "installed"
    assert not folder.parent.exists()
    install(folder, SITE)
    before = files_in(folder)
    assert uninstall(folder, dry_run=True) == before
    assert files_in(folder) == before


def test_a_backend_of_somebody_else_is_left_alone(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "libtriton_seekserve.so").write_bytes(b"")
    for action in (install, check_installed):
        with pytest.raises(TargetExists, match="was not made by"):
            action(folder, SITE)
    with pytest.raises(TargetExists):
        uninstall(folder)
    assert files_in(folder) == ["libtriton_seekserve.so"]


def test_files_of_somebody_else_stop_replacing_and_removing(folder: Path) -> None:
    install(folder, SITE)
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(TargetExists, match=r"notes\.txt"):
        install(folder, None)
    with pytest.raises(TargetExists, match=r"notes\.txt"):
        uninstall(folder)
    assert (folder / "notes.txt").read_text() == "mine"
    check_installed(folder, SITE)


def test_byte_code_that_python_left_is_ours_too(folder: Path) -> None:
    install(folder, SITE)
    cache = folder / "seekserve_backend" / "contract" / "__pycache__"
    cache.mkdir()
    (cache / "bundle.cpython-311.pyc").write_bytes(b"x")
    assert "seekserve_backend/contract/__pycache__/bundle.cpython-311.pyc" in uninstall(folder)
    assert not folder.exists()


def test_byte_code_of_unknown_origin_is_not(folder: Path) -> None:
    install(folder, SITE)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "other.cpython-311.pyc").write_bytes(b"x")
    with pytest.raises(TargetExists, match="other"):
        uninstall(folder)


def test_removing_leaves_the_other_backends(folder: Path) -> None:
    install(folder, SITE)
    (folder.parent / "python").mkdir()
    uninstall(folder)
    assert [path.name for path in folder.parent.iterdir()] == ["python"]


def test_removing_what_is_not_there_is_no_error(folder: Path) -> None:
    assert uninstall(folder) == []


def test_checking_tells_absent_damaged_and_outdated_apart(folder: Path) -> None:
    with pytest.raises(InputError, match="no backend at"):
        check_installed(folder, SITE)
    install(folder, SITE)
    assert check_installed(folder, SITE).site_packages == SITE
    with pytest.raises(ConflictError, match=f"come from {SITE}, this toolkit would use None"):
        check_installed(folder, None)
    edit_version(folder, toolkit_version="0.0.1")
    with pytest.raises(ConflictError, match=r"it is of version 0\.0\.1"):
        check_installed(folder, SITE)
    (folder / "model.py").unlink()
    (folder / "seekserve_backend/__init__.py").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="2 problems") as caught:
        check_installed(folder, SITE)
    assert "model.py is missing" in str(caught.value)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", ""])
def test_a_record_that_points_outside_is_not_ours(folder: Path, name: str) -> None:
    install(folder, SITE)
    edit_version(folder, files={name: "0"})
    assert read_installed(folder) is None


def test_everything_that_is_installed_comes_from_the_package() -> None:
    sources = backend_files()
    assert all(path.is_file() for path in sources.values())
    assert "seekserve_backend/engines/port.py" in sources


def test_the_default_packages_are_those_of_a_virtual_environment() -> None:
    site = default_site_packages()
    assert (site is None) == (sys.prefix == sys.base_prefix)
    assert site is None or Path(site).is_relative_to(sys.prefix)


def test_the_backend_directory_can_come_from_the_file_of_choices(tmp_path: Path) -> None:
    settings = Settings(paths=PathSettings(backends=tmp_path / "be"))
    report = run_install(InstallRequest(site_packages="none"), settings)
    assert (report.folder, report.site_packages, report.status) == (tmp_path / "be" / "seekserve", None, "installed")
    with pytest.raises(InputError, match="which backend directory"):
        run_install(InstallRequest(), Settings())


def test_packages_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        run_install(InstallRequest(backends_dir=tmp_path, site_packages=str(tmp_path / "none")), Settings())
