"""`seekserve versions` as a command."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from seekserve.cli.versions import command
from seekserve.errors import ConfigError


def versions(*arguments: str) -> str:
    result = CliRunner().invoke(command, list(arguments), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_it_shows_every_version_with_what_it_has_and_what_is_doubted() -> None:
    out = versions()
    assert [line for line in out.splitlines() if line.startswith("TensorRT-LLM")] == [
        "TensorRT-LLM 1.2, the stable line (1.2.1 is its newest release)",
        "TensorRT-LLM 1.3.0rc20, the last one with TensorRT engines",
        "TensorRT-LLM 1.4, PyTorch backend only",
    ]
    for words in ("deepseek_v2_lite", "none; the last version with engines is 1.3.0rc20", "removed", "unverified"):
        assert words in out


def test_one_version_is_shown_in_full() -> None:
    out = versions("1.3.0rc20")
    assert out.count("TensorRT-LLM 1.") == 1
    assert "kv_cache_config.pool_ratio" in out
    assert "source" in out


def test_json_is_an_array_of_versions() -> None:
    everything = json.loads(versions("--json"))
    assert [each["version"] for each in everything] == ["1.2.1", "1.3.0rc20", "1.4.0rc4"]
    newest = everything[-1]
    assert newest["engine_kinds"] == ["trtllm-pytorch"]
    assert "deepseek_v4_pro" in newest["families"]["trtllm-pytorch"]
    assert newest["removals"]
    assert newest["unverified"]
    assert "onboard_blocks" in " ".join(everything[1]["unverified_arguments"])


def test_an_unknown_version_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="is not known here") as caught:
        versions("1.3.0rc21")
    assert "1.3.0rc20" in str(caught.value)


def test_the_options_are_pinned() -> None:
    assert [parameter.opts for parameter in command.params] == [["version"], ["--json"]]
