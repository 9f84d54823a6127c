"""`seekserve check`: is this model repository fit to serve?"""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["command"]


@click.command("check")
@click.argument("repository", type=click.Path(path_type=Path))
@click.option("--model", "models", multiple=True, help="Look into this model only; may be given several times.")
@click.option("--trtllm-version", "version", help="TensorRT-LLM of the image that will run it.")
@click.option("--hashes", is_flag=True, help="Also compare the content of every bundle file with its hash.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def command(
    context: click.Context, repository: Path, models: tuple[str, ...], version: str | None, hashes: bool, as_json: bool
) -> None:
    """Check the Triton model REPOSITORY, made by seekserve or not: exit 0 fit to serve, 2 not.

    Looks at the folders, Triton's schema and what it does not cover, parameters of the stock TensorRT-LLM models,
    engines, ranks, tokenizers, bundles and policies, and names file and line of everything that is wrong.
    """
    from seekserve.repository.checking import check_repository
    from seekserve.trtllm import resolve_version

    if version is not None:
        resolve_version(version)
    report = check_repository(repository, only=models, version=version, hashes=hashes)
    click.echo(report.json_text() if as_json else report.text())
    context.exit(2 if report.errors else 0)
