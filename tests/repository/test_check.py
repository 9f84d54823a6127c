"""Reading back: each broken rule is caught by name, and Triton's schema is the real one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from toy_bundle import toy_bundle

from seekserve.errors import RenderError
from seekserve.repository.check import check_files, config_problems, differences, parse_config, repository_problems
from seekserve.repository.render import RenderOptions, render

RENDERED = render(toy_bundle(), RenderOptions(model_name="chat", bundle_dir=Path("/srv/bundle")))
[MODEL] = RENDERED.models
TEXT = RENDERED.files["chat/config.pbtxt"]


def problems(text: str) -> list[str]:
    return differences(text, MODEL)


def test_what_is_rendered_breaks_no_rule() -> None:
    assert problems(TEXT) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('name: "chat"', 'name: "chatty"', "name is 'chatty' in the folder 'chat'"),
        ('backend: "seekserve"', 'backend: "python"', "backend is 'python'"),
        ("decoupled: true", "decoupled: false", "decoupled is false where true was meant; streaming needs true"),
        ("max_batch_size: 8", "max_batch_size: 0", "max_batch_size is 0"),
        ("max_batch_size: 8", "max_batch_size: 8 dynamic_batching {}", "dynamic_batching is set"),
        ("max_batch_size: 8", "max_batch_size: 8 sequence_batching {}", "sequence_batching is set"),
        ("kind: KIND_CPU", "kind: KIND_GPU", "instance_group is [('KIND_GPU', 1)]"),
        ("count: 1", "count: 2", "instance_group is [('KIND_CPU', 2)] where [('KIND_CPU', 1)]"),
        ('name: "max_tokens"', 'name: "maxtokens"', "max_tokens is absent where TYPE_INT32 [1], optional was meant"),
        ('name: "max_tokens"', 'name: "maxtokens"', "maxtokens is TYPE_INT32 [1], optional where absent was meant"),
        ("data_type: TYPE_BOOL", "data_type: TYPE_INT8", "input stream is TYPE_INT8 [1]"),
        ("TYPE_FP32\n  dims: 1\n}", "TYPE_FP32\n  dims: 2\n}", "queue_ms is TYPE_FP32 [2]"),
        (
            "dims: 1\n  optional: true",
            "dims: 1\n  optional: false",
            "text_input is TYPE_STRING [1] where TYPE_STRING [1], optional was meant",
        ),
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
        check_files({"chat/config.pbtxt": text}, [MODEL])


def test_a_model_of_ours_is_judged_by_its_own_parameters() -> None:
    parameters = dict(MODEL.parameters)
    assert config_problems(TEXT, model_name="chat", parameters=parameters) == []
    several = TEXT.replace("count: 1", "count: 3")
    assert config_problems(several, model_name="chat", parameters=parameters) == []
    edited = TEXT.replace("decoupled: true", "decoupled: false")
    [problem] = config_problems(edited, model_name="chat", parameters=parameters)
    assert "streaming needs true" in problem
    assert config_problems("nonsense", model_name="chat", parameters=parameters)


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
