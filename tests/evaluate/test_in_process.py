"""A bundle as target: the shipped tiny model asked in this process."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from seekserve.cli import main
from seekserve.data import tiny_checkpoint_folder
from seekserve.errors import BundleError, InputError
from seekserve.evaluate.in_process import BundleTarget
from seekserve.evaluate.target import Answer, Asking
from seekserve.evaluate.tasks import Task, read_task_sets
from seekserve_backend.contract.bundle import BUNDLE_FILE, Bundle, TrtllmSpec

pytestmark = pytest.mark.needs_local


def build(folder: Path, *flags: str) -> Path:
    checkpoint = str(tiny_checkpoint_folder())
    with pytest.raises(SystemExit) as caught:
        main(["build-engine", checkpoint, "--engine", "reference", "--weights", "link", "--out", str(folder), *flags])
    assert not caught.value.code
    return folder


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("bundles") / "fp8")


def ask(folder: Path, tasks: list[Task], *, max_tokens: int = 32, concurrency: int = 4) -> list[Answer]:
    target = BundleTarget(str(folder))
    target.check(tasks)
    return target.answers(tasks, Asking(max_tokens=max_tokens, concurrency=concurrency), lambda _done, _total: None)


def additions(count: int) -> list[Task]:
    (read,) = read_task_sets(["additions"], match="exact", limit=count)
    return list(read.tasks)


def test_it_says_what_it_is(bundle: Path) -> None:
    target = BundleTarget(str(bundle))
    assert target.facts == {"engine": "reference", "weights": "fp8_block", "kv": "fp8_e4m3"}


def test_messages_and_their_rendered_prompt_get_the_same_answer_and_it_is_the_right_one(bundle: Path) -> None:
    tasks = additions(4)
    raw = [replace(task, messages=None) for task in tasks]
    chat, plain = ask(bundle, tasks), ask(bundle, raw, concurrency=1)
    assert [answer.text for answer in chat] == [answer.text for answer in plain]
    assert [answer.token_ids for answer in chat] == [answer.token_ids for answer in plain]
    assert sum(answer.text == task.expected for answer, task in zip(chat, tasks, strict=True)) >= 3
    assert not any(answer.is_cut or answer.failure for answer in chat)


def test_a_token_limit_cuts_and_says_so(bundle: Path) -> None:
    (answer,) = ask(bundle, additions(1), max_tokens=2)
    assert answer.is_cut
    assert len(answer.text) > 0


def test_everything_that_cannot_be_asked_is_reported_at_once(bundle: Path, tmp_path: Path) -> None:
    small = json.loads((bundle / BUNDLE_FILE).read_text())
    small["limits"]["max_seq_len_tokens"] = 30
    small["files"] = {}
    (tmp_path / BUNDLE_FILE).write_text(json.dumps(small))
    (tmp_path / "tokenizer").symlink_to(bundle / "tokenizer")
    common: dict[str, Any] = {"file": "f", "prompt": None, "expected": ""}
    tasks = [
        Task(line=1, messages=({"role": "wizard", "content": "x"},), **common),
        Task(line=2, messages=({"role": "user", "content": "What is 1 + 2? " * 20},), **common),
        *additions(1),
    ]
    with pytest.raises(InputError) as caught:
        BundleTarget(str(tmp_path)).check(tasks)
    assert "f:1: messages: message 0: role 'wizard'" in str(caught.value)
    assert "f:2: the prompt has" in str(caught.value)
    assert "tokens, the bundle takes 29" in str(caught.value)
    assert "additions" not in str(caught.value)


def test_an_engine_that_does_not_run_here_is_refused_with_the_way_to_measure_it(bundle: Path, tmp_path: Path) -> None:
    spec = TrtllmSpec(version="1.2.1", model_dir="weights")
    foreign = replace(Bundle.load(bundle), engine="trtllm-pytorch", trtllm=spec, files={})
    (tmp_path / BUNDLE_FILE).write_text(foreign.to_json())
    with pytest.raises(BundleError, match=r"trtllm-pytorch[\s\S]*gRPC address"):
        BundleTarget(str(tmp_path))
