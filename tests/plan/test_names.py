"""Model names and how one is found for a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seekserve.errors import InputError
from seekserve.plan.names import MODEL_NAME, check_model_name, default_name


@pytest.mark.parametrize("name", ["a", "deepseek-v2.5_lite", "7B", "x" * 64])
def test_good_names_pass(name: str) -> None:
    assert check_model_name(name, "flag --name") == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "-x", "_x", "x" * 65, "a b", "a\n", "ä", "{{x}}", "${x}", "a\0"]
)
def test_bad_names_are_refused_with_their_source(name: str) -> None:
    with pytest.raises(InputError, match="flag --name: "):
        check_model_name(name, "flag --name")


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("/data/DeepSeek-V2-Lite", "DeepSeek-V2-Lite"),
        ("/hub/models--deepseek-ai--DeepSeek-V2-Lite/snapshots/0a1b2c", "DeepSeek-V2-Lite"),
        ("/data/my model (1)", "my-model-1-"),
        ("/data/..hidden", "hidden"),
        ("/", "model"),
    ],
)
def test_the_default_name_is_the_folders_or_the_repositorys(folder: str, name: str) -> None:
    assert default_name(Path(folder)) == name


@given(st.text(min_size=1).filter(lambda text: "/" not in text and "\0" not in text))
def test_a_default_name_is_always_a_good_name(text: str) -> None:
    assert MODEL_NAME.match(default_name(Path("/data") / text))
