"""The YAML that people write -> the contract's validated Policy, whose `to_json` is what the backend reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from seekserve.errors import ConfigError
from seekserve.output import problems_text
from seekserve.plan.yaml_file import read_yaml
from seekserve_backend.contract.fields import ContractError
from seekserve_backend.contract.policy import Policy

__all__ = ["policy_from_data", "read_policy"]


def read_policy(path: Path, *, setting: str = "--policy") -> Policy:
    """Raises ConfigError with every fault of the file."""
    return policy_from_data(read_yaml(path, setting=setting), where=str(path))


def policy_from_data(data: Mapping[str, object], *, where: str) -> Policy:
    try:
        return Policy.from_data(data, where)
    except ContractError as error:
        raise ConfigError(problems_text(error.where, error.problems)) from error
