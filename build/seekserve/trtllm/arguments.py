"""Arguments of tensorrt_llm.LLM against a version.

A version lies between two states of the source. What both refuse is an error; what one refuses and the other takes is a
warning that says "unverified". So no state is taken for the version itself, and no doubt is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

from .case import ModelCase
from .check import ABSENCE_RULES, Target, check_arguments
from .draft_rules import DRAFT_RULES
from .finding import ArgFinding, error
from .model_rules import MODEL_RULES
from .rules import RULES
from .versions import VersionFacts, check_engine_kind, resolve_version
from .view import View, by_path

__all__ = ["check_names", "validate_llm_args"]

_OWNERS: Final = {"trtllm-pytorch": "torch", "trtllm-engine": "trt"}


def validate_llm_args(
    args: Mapping[str, object],
    version: str | VersionFacts,
    *,
    engine_kind: str = "trtllm-pytorch",
    case: ModelCase | None = None,
) -> list[ArgFinding]:
    """All findings, errors first. `case` switches on the rules that need the model or the GPU."""
    target = resolve_version(version)
    if check_engine_kind(engine_kind) not in target.engine_kinds:
        message = f"TensorRT-LLM {target.version} has no TensorRT engines; the last version with them is 1.3.0rc20"
        return [error("engine-kind", "engine", message, "use --engine trtllm-pytorch")]
    owner = _OWNERS[engine_kind]
    values, found = by_path(args), []
    for at in target.between:
        view = View(values=values, at=at, owner=owner, case=case or ModelCase())
        single = check_arguments(args, Target(at=at, owner=owner, is_partial=False))
        found.append([*single, *chain.from_iterable(rule(view) for rule in (*RULES, *DRAFT_RULES, *MODEL_RULES))])
    return _together(found, target)


def check_names(args: Mapping[str, object], version: str | VersionFacts, engine_kind: str) -> list[ArgFinding]:
    """Names, types, bounds and words only: for arguments that will be laid over others."""
    target, owner = resolve_version(version), _OWNERS[check_engine_kind(engine_kind)]
    found = [check_arguments(args, Target(at=at, owner=owner, is_partial=True)) for at in target.between]
    return _together(found, target)


def _together(found: Sequence[Sequence[ArgFinding]], target: VersionFacts) -> list[ArgFinding]:
    errors: dict[tuple[str, str], ArgFinding] = {}
    warnings: dict[tuple[str, str], ArgFinding] = {}
    refused = [[finding for finding in each if finding.is_error] for each in found]
    for each in found:
        for finding in each:
            key = (finding.path, finding.rule)
            if not finding.is_error:
                warnings.setdefault(key, finding)
            elif all(_refuses(others, finding.path) for others in refused):
                errors.setdefault(key, finding)
            else:
                doubt = f"unverified for this version ({target.version}): {finding.message}"
                warnings.setdefault(key, finding.doubted(doubt))
    kept = _without_absences(errors)
    return [*kept, *(finding for finding in warnings.values() if finding.path not in {e.path for e in kept})]


def _refuses(errors: Sequence[ArgFinding], path: str) -> bool:
    """A state that lacks the whole section says nothing of its members, and refuses them all the same."""
    return any(path == each.path or path.startswith(f"{each.path}.") for each in errors)


def _without_absences(errors: Mapping[tuple[str, str], ArgFinding]) -> list[ArgFinding]:
    """Where one state lacks the argument and the other refuses its value, the value is what to mend."""
    present = {path for path, rule in errors if rule not in ABSENCE_RULES}
    return [finding for (path, rule), finding in errors.items() if rule not in ABSENCE_RULES or path not in present]
