"""YAML that people write: repeated keys, unsafe tags and syntax errors name their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from seekserve.errors import ConfigError
from seekserve.plan.yaml_file import parse_yaml, read_yaml


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a: 1\nb: 2\na: 3\n", ["f.yaml, line 3", "'a' is given again (first on line 1)"]),
        ("x:\n  a: 1\n  a: 1\n", ["line 3", "first on line 2"]),
        ("- a: 1\n  a: 2\n", ["line 2"]),
        ("a: [1, 2\n", ["f.yaml, line 2", "not YAML"]),
        ("a: !!python/object/apply:os.system ['true']\n", ["line 1", "not YAML"]),
        ("{1: [2]}: 3\n", ["a key must be one word"]),
        ("a: \x01\n", ["not YAML"]),
        ("a: 2024-99-99\n", ["f.yaml"]),
        ("a: 1\n---\nb: 2\n", ["not YAML"]),
        ("a: *nowhere\n", ["line 1"]),
        ("[" * 1000, ["nested too deeply"]),
    ],
)
def test_what_is_not_clean_is_refused(text: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, where="f.yaml")
    for part in parts:
        assert part in str(caught.value)


def test_an_empty_file_is_an_empty_document() -> None:
    assert parse_yaml("# nothing yet\n", where="f.yaml") == {}


def test_the_same_key_in_two_places_is_fine() -> None:
    assert parse_yaml("a: {x: 1}\nb: {x: 2}\n", where="f") == {"a": {"x": 1}, "b": {"x": 2}}


def test_an_alias_that_holds_itself_ends() -> None:
    value = parse_yaml("a: &x [1, *x]\n", where="f")
    assert value["a"][0] == 1


def test_a_missing_file_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--policy: no such file"):
        read_yaml(tmp_path / "none.yaml", setting="--policy")


def test_a_file_in_another_encoding_says_so(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes("a: ü\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_yaml(path, setting="--config")


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_yaml(tmp_path, setting="--config")
