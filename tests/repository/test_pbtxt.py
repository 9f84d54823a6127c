"""Escaping: what goes in comes out, nothing else does, and a wrong type is an error."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seekserve.errors import RenderError
from seekserve.repository.check import parse_config
from seekserve.repository.pbtxt import FILTERS

STRING, INT, BOOL = FILTERS["pbtxt_string"], FILTERS["pbtxt_int"], FILTERS["pbtxt_bool"]


def read_back(text: str) -> str:
    value: str = (
        parse_config(f"parameters {{ key: 'k' value {{ string_value: {text} }} }}").parameters["k"].string_value
    )
    return value


@pytest.mark.parametrize(
    "value",
    [
        "",
        "/models/a b/x=1",
        "gpu_device_ids:0,1",
        "s3://bucket/x:y",
        'a "quoted" path',
        "it's",
        "back\\slash\\n",
        "line\nbreak\r\ttab",
        "\x00\x1f\x7f",
        "\x011",
        "\N{FULLWIDTH VERTICAL LINE}User\N{FULLWIDTH VERTICAL LINE} 你好 🎉",
        "\u2028\u202e",
        "${engine_dir}",
        "{{ name }} {% if %} {{{",
        "# comment",
    ],
)
def test_a_string_reads_back_as_itself(value: str) -> None:
    assert read_back(STRING(value)) == value


@given(st.text())
def test_any_string_reads_back_as_itself_without_placeholders(value: str) -> None:
    text = STRING(value)
    assert read_back(text) == value
    assert "\n" not in text
    assert not any(mark in text for mark in ("${", "{{", "{%"))


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=("Cs",))))
def test_a_shell_argument_is_one_word(value: str) -> None:
    assert shlex.split(FILTERS["sh_arg"](value)) == [value]


@pytest.mark.parametrize(
    ("name", "value", "text"), [("pbtxt_int", -1, "-1"), ("pbtxt_bool", True, "true"), ("pbtxt_bool", False, "false")]
)
def test_numbers_and_booleans_have_one_spelling(name: str, value: object, text: str) -> None:
    assert FILTERS[name](value) == text


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\0\n", exclude_categories=("Cs",))), min_size=1))
def test_words_in_json_form_are_the_same_words_on_one_line(words: list[str]) -> None:
    text = FILTERS["json_words"](words)
    assert json.loads(text) == words
    assert "\n" not in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pbtxt_string", 1),
        ("pbtxt_string", None),
        ("pbtxt_string", "\udce9"),
        ("pbtxt_int", "1"),
        ("pbtxt_int", True),
        ("pbtxt_int", 1.0),
        ("pbtxt_bool", "true"),
        ("pbtxt_bool", 1),
        ("pbtxt_enum", "KIND_CPU }"),
        ("pbtxt_enum", "kind_cpu"),
        ("pbtxt_enum", "KIND_CPU\n"),
        ("pbtxt_comment", "a\nname: 'x'"),
        ("sh_arg", "a\0b"),
        ("sh_arg", 3),
        ("hash_comment", "syntax=docker/dockerfile:1"),
        ("hash_comment", "a\nRUN x"),
        ("docker_image", "$IMAGE"),
        ("docker_image", "a b"),
        ("json_words", "a"),
        ("json_words", []),
        ("json_words", ["a\nb"]),
        ("json_words", [1]),
    ],
)
def test_a_value_of_the_wrong_kind_is_an_error(name: str, value: Any) -> None:
    with pytest.raises(RenderError):
        FILTERS[name](value)
