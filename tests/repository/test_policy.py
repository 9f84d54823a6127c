"""Policies: YAML in, the contract's JSON out, every fault of the file in one report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seekserve.errors import ConfigError
from seekserve.repository.policy import policy_from_data, read_policy
from seekserve_backend.contract.policy import ClassPolicy, Policy


def write(folder: Path, text: str) -> Path:
    path = folder / "policy.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_empty_file_is_the_default_policy(tmp_path: Path) -> None:
    assert read_policy(write(tmp_path, "")).to_json() == Policy().to_json()


def test_what_is_given_is_normalised_and_the_rest_filled_in(tmp_path: Path) -> None:
    text = "default_class: chat\nclasses:\n  chat: {max_queue_requests: 4, deadline_ms: 100}\ndefault_max_tokens: 32\n"
    data = json.loads(read_policy(write(tmp_path, text)).to_json())
    given = ClassPolicy(priority=0, max_queue_requests=4, deadline_ms=100)
    assert data["classes"] == {"chat": given.to_json()}
    assert (data["default_max_tokens"], data["schema_version"]) == (32, 2)
    assert Policy.from_data(data, "again").to_json() == json.dumps(data, indent=2) + "\n"


def test_all_faults_of_a_policy_are_reported_together(tmp_path: Path) -> None:
    text = "default_class: nobody\nmax_prompt_byte: 3\nretry_after_min_ms: 9\nretry_after_max_ms: 1\n"
    text += "classes: {a: {deadline_ms: 0}}\n"
    with pytest.raises(ConfigError) as caught:
        read_policy(write(tmp_path, text))
    for part in ("'nobody' is not one of", "did you mean max_prompt_bytes?", "9 is above", "classes.a.deadline_ms"):
        assert part in str(caught.value)


def test_a_policy_of_another_schema_is_refused() -> None:
    with pytest.raises(ConfigError, match="schema_version 3 where this version reads 2"):
        policy_from_data({"schema_version": 3}, where="p")


def test_a_policy_that_is_a_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected an object, got list"):
        read_policy(write(tmp_path, "[]"))
