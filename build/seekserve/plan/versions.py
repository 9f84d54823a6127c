"""TensorRT-LLM version numbers as `seekserve.trtllm` orders them, refused with the name of who gave them."""

from __future__ import annotations

from seekserve.errors import ConfigError
from seekserve.trtllm.versions import VersionKey, known_versions
from seekserve.trtllm.versions import version_key as parsed_key

__all__ = ["VersionKey", "version_key"]


def version_key(text: str, source: str = "--trtllm-version") -> VersionKey:
    """Raises ConfigError for what is no version."""
    try:
        return parsed_key(text)
    except ConfigError:
        raise ConfigError(
            f"{source}: {text!r} is no TensorRT-LLM version", hint=f"such as {' or '.join(known_versions())}"
        ) from None
