"""TensorRT-LLM version numbers: parsed strictly, ordered with release candidates before their release."""

from __future__ import annotations

import re
from typing import Final

from seekserve.errors import ConfigError

__all__ = ["VersionKey", "version_key"]

VersionKey = tuple[int, int, int, int]
_VERSION: Final = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:\.?rc(\d{1,4}))?(?:\.post\d{1,3})?\Z")
_RELEASE: Final = 10_000


def version_key(text: str, source: str = "--trtllm-version") -> VersionKey:
    """Raises ConfigError for what is no version."""
    match = _VERSION.match(text.strip().removeprefix("v"))
    if match is None:
        raise ConfigError(f"{source}: {text!r} is no TensorRT-LLM version", hint="such as 1.2.1 or 1.3.0rc20")
    major, minor, patch, candidate = match.groups()
    return int(major), int(minor), int(patch or 0), int(candidate) if candidate else _RELEASE
