"""Reading back: each broken rule is caught by name, and Triton's schema is the real one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from toy_bundle import toy_bundle

from seekserve.errors import RenderError
from seekserve.repository.check import check_files, config_problems, parse_config, repository_problems
from seekserve.repository.render import RenderOptions, model_parameters, render
from seekserve_backend.contract.policy import Policy

OPTIONS = RenderOptions(model_name="chat", bundle_dir=Path("/srv/bundle"), policy=Policy())
TEXT = render(toy_bundle(), OPTIONS)["chat/config.pbtxt"]


def problems(text: str) -> list[str]:
    return config_problems(text, model_name="chat", parameters=model_parameters(OPTIONS))


def test_what_is_rendered_breaks_no_rule() -> None:
    assert problems(TEXT) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('name: "chat"', 'name: "chatty"', "name is 'chatty' in the folder 'chat'"),
        ('backend: "seekserve"', 'backend: "python"', "backend is 'python'"),
        ("decoupled: true", "decoupled: false", "decoupled is false"),
        ("max_batch_size: 8", "max_batch_size: 0", "max_batch_size is 0"),
        ("max_batch_size: 8", "max_batch_size: 8 dynamic_batching {}", "dynamic_batching is set"),
        ("max_batch_size: 8", "max_batch_size: 8 sequence_batching {}", "sequence_batching is set"),
        ("kind: KIND_CPU", "kind: KIND_GPU", "instance_group is [('KIND_GPU', 1)]"),
        ("count: 1", "count: 2", "instance_group is [('KIND_CPU', 2)]"),
        ('name: "max_tokens"', 'name: "maxtokens"', "max_tokens is absent where the contract says TYPE_INT32 [1]"),
        ('name: "max_tokens"', 'name: "maxtokens"', "maxtokens is TYPE_INT32 [1] where the contract says absent"),
        ("data_type: TYPE_BOOL", "data_type: TYPE_INT8", "input stream is TYPE_INT8 [1]"),
        ("TYPE_FP32\n  dims: 1\n}", "TYPE_FP32\n  dims: 2\n}", "queue_ms is TYPE_FP32 [2]"),
        ("dims: 1\n  optional: true", "dims: 1\n  optional: false", "input text_input is not optional"),
        ('"/srv/bundle"', '"${bundle}"', "the placeholder ${ is left in it"),
        ('"/srv/bundle"', '"${bundle}"', "parameter bundle_dir is '${bundle}' where '/srv/bundle' was meant"),
        ('key: "policy_file"', 'key: "policy"', "parameter policy_file is None where 'policy.json' was meant"),
    ],
)
def test_each_broken_rule_is_named(old: str, new: str, problem: str) -> None:
    assert old in TEXT
    assert any(problem in found for found in problems(TEXT.replace(old, new, 1)))


def test_a_tensor_that_stands_twice_is_named() -> None:
    block = re.search(r"output \{.*?\n\}", TEXT, re.DOTALL)
    assert block
    assert any("output stands in it twice" in found for found in problems(f"{TEXT}\n{block.group()}\n"))


@pytest.mark.parametrize(
    "text", ["nonsense", "name: 3", "unknown_field: 1", "instance_group { kind: KIND_TPU }", 'name: "a']
)
def test_what_triton_cannot_parse_is_one_problem_with_its_place(text: str) -> None:
    (problem,) = problems(text)
    assert "not a Triton model configuration: 1:" in problem


def test_all_broken_rules_are_reported_together() -> None:
    text = TEXT.replace("decoupled: true", "decoupled: false").replace("max_batch_size: 8", "max_batch_size: 0")
    with pytest.raises(RenderError, match="2 problems"):
        check_files({"chat/config.pbtxt": text}, model_name="chat", parameters=model_parameters(OPTIONS))


def test_the_schema_accepts_what_triton_itself_documents() -> None:
    assert parse_config('name: "x" backend: "python" max_batch_size: 4').max_batch_size == 4


def test_folders_that_are_no_models_are_named(tmp_path: Path) -> None:
    for folder in ("good/1", "tokenizer", "half", ".git"):
        (tmp_path / folder).mkdir(parents=True)
    for model in ("good", "half"):
        (tmp_path / model / "config.pbtxt").write_text("", encoding="utf-8")
    (tmp_path / "README").write_text("", encoding="utf-8")
    found = repository_problems(tmp_path)
    assert [text.partition("/")[0] for text in found] == ["half", "tokenizer"]
