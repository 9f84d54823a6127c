"""`seekserve render`: writes the Triton model of a bundle into a model repository."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["command"]


@click.command("render")
@click.argument("bundle", type=click.Path(path_type=Path), required=False)
@click.option("--out", "out", type=click.Path(path_type=Path), help="Model repository to write into; made if missing.")
@click.option("--name", help="Name of the Triton model. [default: the bundle's name]")
@click.option("--policy", "policy_path", type=click.Path(path_type=Path), help="Policy file (YAML). [default: fifo]")
@click.option("--config", type=click.Path(path_type=Path), help="File of choices. [default: ./seekserve.yaml]")
@click.option("--force", is_flag=True, help="Replace a model folder that render made even if it was edited since.")
@click.option("--dry-run", is_flag=True, help="Print the files that would be written, write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    bundle: Path | None,
    out: Path | None,
    name: str | None,
    policy_path: Path | None,
    config: Path | None,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Render the Triton model repository of BUNDLE.

    Only the model's own folder is touched. The result is read back through Triton's schema before anything is written.
    """
    from seekserve.repository.publish import RenderRequest, publish
    from seekserve.settings import announced_settings

    request = RenderRequest(bundle=bundle, out=out, name=name, policy=policy_path, force=force, dry_run=dry_run)
    report = publish(request, announced_settings(config))
    click.echo(report.json_text() if as_json else report.text())
