"""The checkpoint as a build sees it: verified as a whole, reduced to what a plan and a bundle need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seekserve.checkpoint import ModelConfig, ModelFacts, Severity, kv_cost, read_checkpoint
from seekserve.errors import CheckpointError
from seekserve.output import problems_text
from seekserve.plan.facts import PlanFacts
from seekserve.plan.names import default_name
from seekserve_backend.contract.bundle import KV_DTYPES

from .files import FileCopy, files_for_bundle, missing_files
from .text_files import text_problems

__all__ = ["Source", "read_source"]

_COMPUTE_BYTES = 4
"""The reference engine computes in float32, whatever the files hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    folder: Path
    """Absolute."""
    facts: PlanFacts
    checkpoint: ModelFacts
    """As read, for plans that look at single tensors."""
    copies: tuple[FileCopy, ...]
    """Every file that belongs in the bundle."""
    warnings: tuple[str, ...]


def read_source(path_or_id: str) -> Source:
    """Raises CheckpointError with everything that is wrong with the files, all in one report."""
    facts = read_checkpoint(path_or_id)
    problems = [f"[{finding.code}] {finding.file}: {finding.message}" for finding in facts.errors]
    named = {finding.file for finding in facts.errors}
    problems += [f"[file-missing] {name}: is not there" for name in missing_files(facts.folder) if name not in named]
    problems += text_problems(facts.folder, facts.tokenizer.chat_template)
    if problems or facts.config is None:
        more = f"`seekserve inspect {facts.folder}` shows the whole report; " if facts.errors else ""
        raise CheckpointError(problems_text(f"checkpoint {facts.folder}", problems), hint=f"{more}nothing was written")
    folder = facts.folder.absolute()
    return Source(
        folder=folder,
        facts=_plan_facts(facts, facts.config, folder),
        checkpoint=facts,
        copies=tuple(files_for_bundle(folder, facts.files)),
        warnings=tuple(
            f"[{finding.code}] {finding.file}: {finding.message}"
            for finding in facts.findings
            if finding.severity is Severity.WARNING
        ),
    )


def _plan_facts(facts: ModelFacts, config: ModelConfig, folder: Path) -> PlanFacts:
    return PlanFacts(
        default_name=default_name(folder),
        title=facts.identity.title,
        architecture=facts.architecture,
        family=facts.family,
        kv_bytes_per_token={dtype: kv_cost(config, facts.architecture, dtype).per_token_bytes for dtype in KV_DTYPES},
        max_position_tokens=config.max_position_tokens,
        weights_dtype=facts.precision,
        weights_bytes=facts.weights_bytes,
        run_bytes=facts.parameters.main * _COMPUTE_BYTES,
    )
