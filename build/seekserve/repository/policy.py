"""The YAML that people write -> the contract's validated Policy, whose `to_json` is what the backend reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from seekserve.errors import ConfigError
from seekserve.output import problems_text
from seekserve.plan.yaml_file import read_yaml
from seekserve_backend.contract.fields import ContractError
from seekserve_backend.contract.policy import Policy

__all__ = ["policy_from_data", "read_policy", "ready_policies"]

_READY_DIR = Path(__file__).parent / "policies"


def read_policy(path: Path, *, setting: str = "--policy") -> Policy:
    """A file, or a ready-made policy by its bare name. Raises ConfigError with every fault of the file."""
    if str(path) in ready_policies() and not path.exists():
        path = _READY_DIR / f"{path}.yaml"
    return policy_from_data(read_yaml(path, setting=setting), where=str(path))


def ready_policies() -> tuple[str, ...]:
    """Names of the policies that come with the toolkit."""
    return tuple(sorted(file.stem for file in _READY_DIR.glob("*.yaml")))


def policy_from_data(data: Mapping[str, object], *, where: str) -> Policy:
    try:
        return Policy.from_data(data, where)
    except ContractError as error:
        raise ConfigError(problems_text(error.where, error.problems)) from error
