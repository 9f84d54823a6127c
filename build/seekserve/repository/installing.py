"""The `install-backend` job: picks folder and packages, runs install, check or uninstall, and reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import seekserve
from seekserve.errors import InputError
from seekserve.output import json_text, table
from seekserve.plan.plan import Unset
from seekserve.settings import Settings

from .install import VERSION_FILE, backend_files, check_installed, default_site_packages, install, uninstall
from .render import BACKEND_NAME
from .stub import check_stub

__all__ = ["InstallReport", "InstallRequest", "run_install"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallRequest:
    backends_dir: Path | None = None
    """None: paths.backends of the settings."""
    site_packages: str | None = None
    """A path, the word `none`, or None for the default."""
    action: str = "install"
    """install, check or uninstall."""
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallReport:
    folder: Path
    status: str
    """installed, replaced, already installed, ok, removed or not installed."""
    site_packages: str | None
    files: tuple[str, ...]
    """POSIX paths in the folder."""
    dry_run: bool
    stub_python: str | None = None
    """Of the stub that stands in the backend directory; None where there is none."""

    def json_text(self) -> str:
        return json_text(
            {
                "status": "dry-run" if self.dry_run else self.status,
                "result": self.status,
                "folder": str(self.folder),
                "toolkit_version": seekserve.__version__,
                "site_packages": self.site_packages,
                "stub_python": self.stub_python,
                "files": list(self.files),
            }
        )

    def text(self) -> str:
        if self.status == "not installed":
            return f"no backend at {self.folder}; nothing to remove"
        prefix = "dry run, nothing was changed; would be: " if self.dry_run else ""
        lines = [f"{prefix}{self.status}: backend {BACKEND_NAME} {seekserve.__version__} at {self.folder}"]
        rows = [("files", str(len(self.files)))]
        if self.status != "removed":
            rows.append(("packages", self.site_packages or "those of the server's own Python"))
        if self.stub_python is not None:
            rows.append(("stub", f"Python {self.stub_python}"))
        lines += table(rows)
        if self.dry_run:
            lines += [f"    {name}" for name in self.files]
        elif self.status != "removed":
            lines.append(f"next: seekserve launch REPO --backend-dir {self.folder.parent}")
        return "\n".join(lines)


def run_install(request: InstallRequest, settings: Settings) -> InstallReport:
    folder = _backends_dir(request, settings) / BACKEND_NAME
    site = _site_packages(request.site_packages)
    stub = None if request.action == "uninstall" else check_stub(folder.parent, site)
    files: list[str]
    if request.action == "uninstall":
        files = uninstall(folder, dry_run=request.dry_run)
        status = "removed" if files else "not installed"
    elif request.action == "check":
        files = sorted(check_installed(folder, site).files)
        status = "ok"
    else:
        status = install(folder, site, dry_run=request.dry_run)
        files = sorted([*backend_files(), VERSION_FILE])
    return InstallReport(
        folder=folder,
        status=status,
        site_packages=site,
        files=tuple(files),
        dry_run=request.dry_run,
        stub_python=stub,
    )


def _backends_dir(request: InstallRequest, settings: Settings) -> Path:
    if request.backends_dir is not None:
        return request.backends_dir.expanduser().absolute()
    if isinstance(settings.paths.backends, Unset):
        raise InputError("which backend directory?", hint="give BACKENDS_DIR, or paths.backends in seekserve.yaml")
    return settings.paths.backends


def _site_packages(text: str | None) -> str | None:
    if text is None:
        return default_site_packages()
    if text == "none":
        return None
    path = Path(text).expanduser().absolute()
    if not path.is_dir():
        raise InputError(f"--site-packages {text}: no such folder", hint="give the site-packages folder, or `none`")
    return str(path)
