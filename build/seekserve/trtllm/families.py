"""Which model runs on which engine kind of which version; a refusal is one sentence with what works instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .data import facts
from .values import nearest
from .versions import ENGINE_KINDS, VersionFacts, check_engine_kind, known_versions, resolve_version, version_key

__all__ = ["Support", "families_for", "support"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    ok: bool
    sentence: str
    """Why, and what works instead."""
    limits: tuple[str, ...] = ()
    """What else must hold."""


def families_for(version: str | VersionFacts, engine_kind: str) -> tuple[str, ...]:
    """As `seekserve inspect` names them."""
    target = resolve_version(version)
    return tuple(
        family
        for architecture, entry in _table().items()
        if support(architecture, engine_kind, target).ok
        for family in entry["families"]
    )


def support(architecture: str, engine_kind: str, version: str | VersionFacts) -> Support:
    check_engine_kind(engine_kind)
    target = resolve_version(version)
    entry = _table().get(architecture)
    if entry is None:
        near = nearest(architecture, _table())
        hint = f"; did you mean {near}?" if near else f"; known are {', '.join(_table())}"
        return Support(ok=False, sentence=f"nothing is known about architecture {architecture or 'unknown'!r}{hint}")
    title = entry["title"]
    engine = entry["engines"].get(engine_kind)
    if engine is None:
        why = entry["why_not"].get(engine_kind)
        name = "TensorRT engine path" if engine_kind == "trtllm-engine" else "PyTorch path"
        because = f" ({why['text']})" if why else ""
        return Support(
            ok=False, sentence=f"{title} has no {name} in any release{because}; {_other(entry, engine_kind)}"
        )
    if _covers(engine, target.version) and engine_kind in target.engine_kinds:
        sentence = f"{title} runs on {engine_kind} of TensorRT-LLM {target.version}"
        return Support(ok=True, sentence=sentence, limits=tuple(engine["limits"]))
    has = f"runs on {engine_kind} with TensorRT-LLM {_span(engine)}, not {target.version}"
    works = [version for version in known_versions() if _covers(engine, version)]
    options = [f"use --trtllm-version {_closest(works, target.version)}"] if works else []
    other = _other_kind(entry, engine_kind, target.version)
    options += [other] if other else []
    return Support(ok=False, sentence=f"{title} {has}; {', or '.join(options) or 'no known version runs it'}")


def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = facts("families")["architectures"]
    return table


def _covers(engine: Mapping[str, Any], version: str) -> bool:
    until = engine.get("until")
    key = version_key(version)
    return version_key(engine["since"]) <= key and (until is None or key <= version_key(until))


def _span(engine: Mapping[str, Any]) -> str:
    return f"{engine['since']} to {engine['until']}" if "until" in engine else f"{engine['since']} and later"


def _other(entry: Mapping[str, Any], engine_kind: str) -> str:
    others = [kind for kind in ENGINE_KINDS if kind != engine_kind and kind in entry["engines"]]
    if not others:
        return "no engine kind of a release runs it yet"
    engine = entry["engines"][others[0]]
    span = f">= {engine['since'].removesuffix('.0')}" if "until" not in engine else _span(engine)
    return f"use --engine {others[0]} (TensorRT-LLM {span})"


def _other_kind(entry: Mapping[str, Any], engine_kind: str, version: str) -> str:
    """The other engine kind, when it runs in the version asked for."""
    others = (kind for kind in ENGINE_KINDS if kind != engine_kind and kind in entry["engines"])
    return next((f"--engine {kind}" for kind in others if _covers(entry["engines"][kind], version)), "")


def _closest(versions: list[str], version: str) -> str:
    """A release before a candidate; then the newest one below, else the oldest one above."""
    releases = [each for each in versions if "rc" not in each] or versions
    below = [each for each in releases if version_key(each) <= version_key(version)]
    return below[-1] if below else releases[0]
