"""Runs all the rules over a repository and gathers what they find, in the order of the files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seekserve.errors import InputError

from .config_rules import config_findings
from .ensembles import call_findings
from .finding import RepositoryFinding, error
from .gpus import shared_gpus
from .model import ModelFolder, read_model_folder
from .ours import is_ours, our_findings
from .report import CheckReport
from .stock import stock_findings
from .structure import model_folders, structure_findings

__all__ = ["check_repository"]


def check_repository(
    repository: Path, *, only: Sequence[str] = (), version: str | None = None, hashes: bool = False
) -> CheckReport:
    """`only`: the models to look into, all when empty; `version`: the TensorRT-LLM that will run it.

    Raises InputError when `repository` is no folder; everything else is a finding.
    """
    if not repository.is_dir():
        what = "is not a folder" if repository.exists() else "does not exist"
        raise InputError(f"repository {repository} {what}", hint="make one with `seekserve render BUNDLE --out REPO`")
    findings = [*structure_findings(repository)]
    models: dict[str, ModelFolder] = {}
    for folder in model_folders(repository):
        model, problems = read_model_folder(folder)
        findings += problems
        if model is not None:
            models[model.name] = model
    findings += [
        error("no-model", ".", None, f"holds no model {name!r}; it holds {', '.join(sorted(models)) or 'none'}")
        for name in only
        if name not in {folder.name for folder in model_folders(repository)}
    ]
    for model in models.values():
        findings += config_findings(model)
        if is_ours(model):
            findings += our_findings(model, version=version, hashes=hashes)
        else:
            findings += stock_findings(model, version=version)
    findings += call_findings(models)
    findings += shared_gpus(models.values())
    if only:
        findings = [each for each in findings if each.file == "." or each.file.split("/")[0] in only]
    return CheckReport(repository=repository, models=tuple(sorted(models)), findings=tuple(_ordered(findings)))


def _ordered(findings: Sequence[RepositoryFinding]) -> list[RepositoryFinding]:
    return sorted(dict.fromkeys(findings), key=lambda each: (not each.is_error, each.file, each.line or 0))
