"""Which versions can be aimed at."""

from __future__ import annotations

import pytest

from seekserve.errors import ConfigError
from seekserve.trtllm import known_versions, resolve_version


@pytest.mark.parametrize(
    ("asked", "line", "version"),
    [
        ("1.2", "1.2", "1.2.1"),
        ("1.2.0", "1.2", "1.2.0"),
        ("v1.2.1", "1.2", "1.2.1"),
        ("1.2.1.post1", "1.2", "1.2.1.post1"),
        ("1.3.0rc20", "1.3.0rc20", "1.3.0rc20"),
        ("1.4", "1.4", "1.4.0rc4"),
        ("1.4.0rc2", "1.4", "1.4.0rc2"),
        ("1.4.0", "1.4", "1.4.0"),
    ],
)
def test_a_version_belongs_to_a_line(asked: str, line: str, version: str) -> None:
    found = resolve_version(asked)
    assert (found.name, found.version) == (line, version)
    assert resolve_version(found) is found


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [("1.1.0", "1.2.1"), ("1.3.0rc21", "1.3.0rc20"), ("1.3.0", "1.3.0rc20"), ("0.17.0", "1.2.1"), ("2.0", "1.4.0rc4")],
)
def test_another_version_is_refused_with_the_nearest(asked: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match="is not known here") as caught:
        resolve_version(asked)
    assert caught.value.hint == f"the nearest is {nearest}"


@pytest.mark.parametrize("text", ["", "latest", "1", "1.2.x", "1.2.1-dev"])
def test_what_is_no_version_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ConfigError, match="is no TensorRT-LLM version"):
        resolve_version(text)


def test_known_versions_resolve_to_themselves_and_are_in_order() -> None:
    assert known_versions() == ("1.2.1", "1.3.0rc20", "1.4.0rc4")
    assert [resolve_version(each).version for each in known_versions()] == list(known_versions())


def test_engines_end_with_the_candidate_that_is_said_to_be_the_last() -> None:
    assert [resolve_version(each).has_engines for each in known_versions()] == [True, True, False]
    assert [resolve_version(each).has_tools for each in known_versions()] == [True, True, False]
