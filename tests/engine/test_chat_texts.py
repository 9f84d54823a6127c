"""The encoder that a release ships is read as data for its sentences, and never run."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from seekserve.engine.chat_texts import read_chat_texts
from seekserve_backend.text.chat.formats import built_in_format

ENCODER = '''
import os
os.abort()  # nobody runs this
TOOLS_TEMPLATE = """## Tools <{dsml_token}tool_calls> {tool_schemas}"""
response_format_template: str = "FORMAT " "{schema}"
REASONING_EFFORT_MAX = ("MAX" "IMUM")
other = "x"
'''


def write(folder: Path, text: str, name: str = "encoding_dsv4.py") -> None:
    (folder / "encoding").mkdir(exist_ok=True)
    (folder / "encoding" / name).write_text(textwrap.dedent(text), encoding="utf-8")


def test_the_sentences_are_found_by_their_names(tmp_path: Path) -> None:
    write(tmp_path, "x = 1", "a.py")
    write(tmp_path, ENCODER)
    found = read_chat_texts(tmp_path, "deepseek_v4_flash", None)
    assert (found.file, found.warnings) == ("tokenizer/chat_texts.json", ())
    data = json.loads(found.content or "")
    assert data["source"] == "encoding/encoding_dsv4.py"
    assert data["texts"] == {
        "tools": "## Tools <{dsml_token}tool_calls> {tool_schemas}",
        "schema": "FORMAT {schema}",
        "effort_max": "MAXIMUM",
    }
    chat_format = built_in_format("deepseek_v4_flash")
    assert chat_format is not None
    assert chat_format.with_texts(data["texts"]).wording.effort_max == "MAXIMUM"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "it is not there"),
        ("x = 1", "none of 1 files in it has them"),
        ("def", "none of 1 files in it has them"),
        ("TOOLS_TEMPLATE = 'a' + b", "none of 1 files in it has them"),
        ("TOOLS_TEMPLATE = '{tools.__class__}'", "encoding_dsv4.py: tools: unknown field"),
    ],
)
def test_without_them_the_build_warns(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        write(tmp_path, text)
    found = read_chat_texts(tmp_path, "deepseek_v3_2", None)
    assert found.content is None
    assert len(found.warnings) == 1
    assert words in found.warnings[0]
    assert "words of seekserve's own" in found.warnings[0]


def test_a_template_or_another_family_needs_none(tmp_path: Path) -> None:
    write(tmp_path, ENCODER)
    assert read_chat_texts(tmp_path, "deepseek_v3_2", "{{ template }}").content is None
    assert read_chat_texts(tmp_path, "deepseek_v3", None).content is None
