"""The versions that can be aimed at, and which snapshots of the source speak for each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from seekserve.errors import ConfigError

from .data import facts
from .schema import Snapshot, snapshot

__all__ = ["ENGINE_KINDS", "VersionFacts", "check_engine_kind", "known_versions", "resolve_version", "version_key"]

ENGINE_KINDS: Final = ("trtllm-pytorch", "trtllm-engine")
VersionKey = tuple[int, int, int, int]
_VERSION: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:\.?rc(\d{1,4}))?(?:\.post\d{1,3})?\Z")
_RELEASE: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFacts:
    name: str
    """As the table calls it: `1.2`, `1.3.0rc20`, `1.4`."""
    version: str
    """What was asked for, or the newest of its line."""
    title: str
    between: tuple[Snapshot, ...]
    engine_kinds: tuple[str, ...]
    has_tools: bool
    """trtllm-build, convert_checkpoint.py and quantize.py."""
    has_stock_model: bool
    """The C++ `tensorrt_llm` Triton model."""
    tools_unverified: str
    """Why, if so."""
    removals: tuple[str, ...]
    unverified: tuple[str, ...]
    source: str
    confidence: str

    @property
    def has_engines(self) -> bool:
        return "trtllm-engine" in self.engine_kinds


def version_key(text: str) -> VersionKey:
    """Orders candidates before their release. Raises ConfigError for what is no version."""
    match = _VERSION.match(text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is no TensorRT-LLM version", hint=f"one of {', '.join(known_versions())}")
    major, minor, patch, candidate = match.groups()
    return int(major), int(minor), int(patch or 0), int(candidate) if candidate else _RELEASE


def known_versions() -> tuple[str, ...]:
    """The newest of each line, oldest first."""
    return tuple(entry["default"] for entry in facts("versions")["versions"].values())


def resolve_version(text: str | VersionFacts) -> VersionFacts:
    """`1.2`, `1.2.1`, `v1.3.0rc20`, `1.4`; another version is refused with the nearest known one."""
    if isinstance(text, VersionFacts):
        return text
    given = text.strip().removeprefix("v")
    key = version_key(given)
    for name, entry in facts("versions")["versions"].items():
        if given == name or version_key(entry["first"]) <= key <= version_key(entry["last"]):
            return _facts(name, entry["default"] if given == name else given)
    near = _nearest(key, known_versions())
    known = ", ".join(facts("versions")["versions"])
    raise ConfigError(f"TensorRT-LLM {given} is not known here; known are {known}", hint=f"the nearest is {near}")


def check_engine_kind(kind: str) -> str:
    if kind not in ENGINE_KINDS:
        raise ConfigError(f"{kind!r} is no engine kind of TensorRT-LLM", hint=f"one of {', '.join(ENGINE_KINDS)}")
    return kind


def _facts(name: str, version: str) -> VersionFacts:
    entry = facts("versions")["versions"][name]
    return VersionFacts(
        name=name,
        version=version,
        title=entry["title"],
        between=tuple(map(snapshot, entry["between"])),
        engine_kinds=tuple(entry["engine_kinds"]),
        has_tools=entry["tools"],
        has_stock_model=entry["stock_model"],
        tools_unverified=entry.get("tools_unverified", ""),
        removals=tuple(entry["removals"]),
        unverified=tuple(entry["unverified"]),
        source=entry["source"],
        confidence=entry["confidence"],
    )


def _nearest(key: VersionKey, versions: Iterable[str]) -> str:
    def distance(version: str) -> float:
        other = version_key(version)
        weights = (1e12, 1e8, 1e5, 1)
        return abs(sum(weight * (a - b) for weight, a, b in zip(weights, key, other, strict=True)))

    return min(versions, key=distance)
