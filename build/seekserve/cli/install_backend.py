"""`seekserve install-backend`: puts the Triton backend into a backend directory, checks it, or removes it."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["command"]


@click.command("install-backend")
@click.argument("backends_dir", type=click.Path(path_type=Path), required=False)
@click.option(
    "--site-packages",
    metavar="PATH|none",
    help="Packages that the backend's Python shall see. [default: those of the running virtual environment, else none]",
)
@click.option("--check", is_flag=True, help="Only check: exit 0 current, 2 absent or damaged, 3 another version.")
@click.option("--uninstall", is_flag=True, help="Remove what was installed, and nothing else.")
@click.option("--config", type=click.Path(path_type=Path), help="File of choices. [default: ./seekserve.yaml]")
@click.option("--dry-run", is_flag=True, help="Print what would be written or removed, change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    backends_dir: Path | None,
    site_packages: str | None,
    check: bool,
    uninstall: bool,
    config: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Install the seekserve backend into BACKENDS_DIR/seekserve.

    Triton finds it there by name: start the server with --backend-directory BACKENDS_DIR.
    """
    from seekserve.repository.installing import InstallRequest, run_install
    from seekserve.settings import announced_settings

    if check and uninstall:
        raise click.UsageError("--check and --uninstall exclude each other")
    action = "check" if check else "uninstall" if uninstall else "install"
    request = InstallRequest(backends_dir=backends_dir, site_packages=site_packages, action=action, dry_run=dry_run)
    report = run_install(request, announced_settings(config))
    click.echo(report.json_text() if as_json else report.text())
