"""`seekserve render`: writes the Triton models of a bundle into a model repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

__all__ = ["command"]


@click.command("render")
@click.argument("bundle", type=click.Path(path_type=Path), required=False)
@click.option("--out", type=click.Path(path_type=Path), help="Model repository to write into; made if missing.")
@click.option("--name", help="Name of the Triton model. [default: the bundle's name]")
@click.option("--policy", type=click.Path(path_type=Path), help="Policy file (YAML). [default: paced]")
@click.option(
    "--topology",
    type=click.Choice(["integrated", "stock-engine", "llmapi"]),
    default="integrated",
    show_default=True,
    help="The engine inside our backend; our backend before the stock C++ model; the stock LLM-API model alone.",
)
@click.option("--instances", type=click.IntRange(min=1), metavar="N", help="Replicas of the engine. [default: 1]")
@click.option("--gpus", multiple=True, metavar="N,N,...", help="GPUs of one instance; once for each instance.")
@click.option(
    "--streaming/--no-streaming", "is_streaming", default=True, show_default=True, help="Of every model, alike."
)
@click.option("--stock-name", metavar="NAME", help="stock-engine: name of the stock model. [default: tensorrt_llm]")
@click.option(
    "--stock-parameter",
    "stock_parameters",
    multiple=True,
    metavar="KEY=VALUE",
    help="stock-engine: a parameter of the stock model that the bundle does not decide.",
)
@click.option(
    "--stock-model-dir",
    type=click.Path(path_type=Path),
    help="llmapi: the stock model from the image that will serve; its Python files are copied.",
)
@click.option(
    "--cancellation-check-ms",
    type=click.IntRange(min=1),
    metavar="MS",
    help="stock-engine, llmapi: how often the stock model looks for cancelled requests. [default: its own]",
)
@click.option(
    "--dockerfile",
    is_flag=False,
    flag_value="",
    metavar="[PATH]",
    help="Write a Dockerfile too and print the docker run line. [default PATH: REPO.docker/Dockerfile beside REPO]",
)
@click.option(
    "--base-image", metavar="IMAGE", help="For --dockerfile. [default: NVIDIA's for the TensorRT-LLM version]"
)
@click.option(
    "--monitoring",
    is_flag=False,
    flag_value="",
    metavar="[PATH]",
    help="Write Prometheus, Alertmanager and Grafana files too. [default PATH: REPO.monitoring beside REPO]",
)
@click.option("--config", type=click.Path(path_type=Path), help="File of choices. [default: ./seekserve.yaml]")
@click.option("--force", is_flag=True, help="Replace what render made even if it was edited since.")
@click.option("--dry-run", is_flag=True, help="Print the files that would be written, write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(config: Path | None, as_json: bool, **flags: Any) -> None:
    """Render the Triton model repository of BUNDLE.

    Only the models' own folders are touched. The result is read back through Triton's schema before anything is
    written.
    """
    from seekserve.monitor.files import monitoring_files
    from seekserve.repository.publish import RenderRequest, publish
    from seekserve.settings import announced_settings

    report = publish(RenderRequest(**flags), announced_settings(config), monitoring_files)
    click.echo(report.json_text() if as_json else report.text())
