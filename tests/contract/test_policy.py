from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seekserve_backend.contract.fields import ContractError
from seekserve_backend.contract.policy import POLICY_FILE, ClassPolicy, Policy
from seekserve_backend.contract.stream_options import RepeatCacheOptions, ResumeOptions


def test_the_default_policy_survives_writing_and_reading(tmp_path: Path) -> None:
    path = tmp_path / POLICY_FILE
    path.write_text(Policy().to_json(), encoding="utf-8")
    assert Policy.load(path) == Policy()


def test_a_policy_with_every_field_changed_survives_too() -> None:
    policy = Policy(
        name="night",
        default_class="batch",
        classes={"batch": ClassPolicy(priority=7, max_queue_requests=3, deadline_ms=9)},
        bucket_edges_tokens=(5, 50),
        max_prompt_bytes=10,
        max_intake_requests=2,
        default_max_tokens=4,
        clamp_max_tokens=False,
        retry_after_min_ms=5,
        retry_after_max_ms=6,
        repeat_cache=RepeatCacheOptions(enabled=True, across_tenants=True, keep_latest_share=0.05, max_bytes=7),
        resume=ResumeOptions(enabled=False, resume_ttl_s=2.5, max_streams=3),
    )
    assert Policy.from_data(json.loads(policy.to_json()), "night") == policy


def test_the_generation_is_the_servers_own_and_not_in_the_file() -> None:
    assert "generation" not in json.loads(Policy(generation=4).to_json())
    with pytest.raises(ContractError, match="generation: unknown key"):
        Policy.from_data({"generation": 4}, "p")


def test_an_empty_document_is_the_default_policy() -> None:
    assert Policy.from_data({}, "p") == Policy()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"max_prompt_byte": 3}, "max_prompt_byte: unknown key (did you mean max_prompt_bytes?)"),
        ({"kind": "fifa"}, "kind: expected one of fcfs, static, seed, paced, got 'fifa'"),
        ({"default_class": "x"}, "default_class: 'x' is not one of the classes interactive, offline"),
        ({"classes": {}}, "classes: at least one class is needed"),
        ({"classes": []}, "classes: expected an object, got []"),
        (
            {"default_class": "a", "classes": {"a": {"max_queue_requests": 0, "deadline_ms": 1}}},
            "classes.a.max_queue_requests: expected at least 1, got 0",
        ),
        ({"default_class": "a", "classes": {"a": {"max_queue_requests": 1}}}, "classes.a.deadline_ms: missing"),
        ({"bucket_edges_tokens": [2, 2]}, "bucket_edges_tokens: must be positive and strictly increasing, got [2, 2]"),
        ({"bucket_edges_tokens": [0]}, "bucket_edges_tokens: must be positive and strictly increasing, got [0]"),
        (
            {"retry_after_min_ms": 9, "retry_after_max_ms": 8},
            "retry_after_min_ms: 9 is above retry_after_max_ms 8",
        ),
        ({"repeat_cache": {"keep_latest_share": 5}}, "repeat_cache.keep_latest_share: at most 1, got 5.0"),
        ({"resume": {"ttl_s": 5}}, "resume.ttl_s: unknown key"),
        ({"schema_version": 3}, "schema_version 3 where this version reads 2"),
        (3, "document: expected an object, got int"),
    ],
)
def test_a_bad_policy_names_the_fault(data: Any, problem: str) -> None:
    with pytest.raises(ContractError) as caught:
        Policy.from_data(data, "p.yaml")
    assert problem in caught.value.problems


def test_yaml_names_that_are_not_text_are_a_fault_and_no_crash() -> None:
    with pytest.raises(ContractError):
        Policy.from_data({"classes": {1: {"max_queue_requests": 1, "deadline_ms": 1}}}, "p")


@pytest.mark.parametrize("text", ["", "{", "nope"])
def test_a_file_that_is_not_json_says_where(tmp_path: Path, text: str) -> None:
    path = tmp_path / POLICY_FILE
    path.write_text(text)
    with pytest.raises(ContractError, match="not JSON \\(line 1"):
        Policy.load(path)


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Policy.load(tmp_path / POLICY_FILE)
