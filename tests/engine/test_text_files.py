"""What would stop tokenizer or chat template at launch is said before the build, with file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seekserve.data import tiny_checkpoint_folder
from seekserve.engine.text_files import text_problems

GOOD: dict[str, Any] = {
    "model": {"vocab": {"a": 0}},
    "decoder": {"type": "ByteLevel"},
    "added_tokens": [{"id": 1, "content": "<eos>", "special": True}],
}


def _problems(folder: Path, tokenizer: object = GOOD, template: str | None = None) -> list[str]:
    text = tokenizer if isinstance(tokenizer, str) else json.dumps(tokenizer)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    return text_problems(folder, template)


def test_the_shipped_tokenizer_and_template_are_good() -> None:
    folder = tiny_checkpoint_folder()
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert text_problems(folder, config["chat_template"]) == []


@pytest.mark.parametrize(
    ("tokenizer", "sentence"),
    [
        ({}, "tokenizer.json, line 1: has no `model`"),
        ([], "tokenizer.json, line 1: has no `model`"),
        ('{\n"model": {},\n}', "tokenizer.json, line 3: is not JSON"),
        ({**GOOD, "decoder": {"type": "WordPiece"}}, "tokenizer.json: decoder and pre_tokenizer types are WordPiece"),
        ({**GOOD, "decoder": None}, "types are none; supported are ByteLevel"),
        ({**GOOD, "added_tokens": [{"content": "x"}]}, "added_tokens are not in the expected form (KeyError('id'))"),
        ({**GOOD, "model": {"vocab": {"a": None}}}, "not in the expected form"),
    ],
)
def test_a_tokenizer_that_the_backend_could_not_read_is_one_sentence(
    tmp_path: Path, tokenizer: object, sentence: str
) -> None:
    problems = _problems(tmp_path, tokenizer)
    assert len(problems) == 1
    assert sentence in problems[0]


def test_a_tokenizer_that_is_not_there_is_left_to_the_caller(tmp_path: Path) -> None:
    assert text_problems(tmp_path, None) == []


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{% for m in messages %}\n{{ m.content }}\n", "line 2: Unexpected end of template"),
        ("a\n{{ bos_token\n", "line 2: unexpected end of template"),
        ("a\n{% nonsense %}", "line 2: Encountered unknown tag 'nonsense'"),
        ("a\nb\n{{ x | nonsense }}", "line 3: No filter named 'nonsense'"),
    ],
)
def test_a_chat_template_with_a_syntax_error_is_named_with_its_line(
    tmp_path: Path, template: str, sentence: str
) -> None:
    (in_config,) = _problems(tmp_path, template=template)
    assert in_config.startswith(f"[chat-template] tokenizer_config.json, chat_template, {sentence}")
    (tmp_path / "chat_template.jinja").write_text(template, encoding="utf-8")
    (in_file,) = _problems(tmp_path, template=template)
    assert in_file.startswith(f"[chat-template] chat_template.jinja, {sentence}")


def test_a_template_is_not_run(tmp_path: Path) -> None:
    assert _problems(tmp_path, template="{{ 1 // 0 }}{{ raise_exception('no') }}") == []
