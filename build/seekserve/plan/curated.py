"""Settings of NVIDIA's public guides by model and GPU generation: facts/curated.yaml, matched against one case.

They are the lowest layer: an input that somebody gave always wins. What a guide gives and this toolkit does not take is
in the data too, with the reason.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from .case import Case
from .gpus import FACTS_FOLDER
from .versions import version_key
from .yaml_file import read_yaml

__all__ = [
    "PROFILES",
    "CuratedArgs",
    "Profile",
    "Situation",
    "conditions",
    "curated_args",
    "curated_inputs",
    "curated_notes",
    "find_profile",
    "known_profiles",
    "moe_backend",
    "situation_of",
]

PROFILES: Final = ("throughput", "latency")
_LISTS: Final = {
    "families": "family",
    "architectures": "architecture",
    "weights": "weights",
    "sms": "sm",
    "engines": "engine",
}
_EXACT: Final = ("layers", "attention_dp", "mtp", "moe_backend")


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What conditions are held against; None where it is not known yet, and no condition on it holds."""

    family: str
    architecture: str
    weights: str
    sm: int
    layers: int
    engine: str
    version: str
    ep: int | None = None
    attention_dp: bool | None = None
    mtp: bool | None = None
    moe_backend: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    name: str
    gpus: int | None
    """GPUs that its shape is for; None: it has none."""
    inputs: Mapping[str, Any]
    args: Mapping[str, Any]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CuratedArgs:
    """Arguments of tensorrt_llm.LLM by dotted path, each with its source."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def add(self, args: Mapping[str, Any], source: str) -> None:
        for path, value in _leaves(args, ""):
            self.values[path] = value
            self.sources[path] = source


def situation_of(case: Case) -> Situation:
    """Of a worked-out case, everything known."""
    model, shape, target = case.model, case.shape, case.target
    known = Situation(
        family=model.family,
        architecture=model.architecture,
        weights=model.precision,
        sm=target.gpu.sm,
        layers=model.config.num_hidden_layers,
        engine=target.engine,
        version=target.version,
        ep=shape.ep,
        attention_dp=shape.attention_dp,
        mtp=case.wish.mtp > 0,
    )
    backend = moe_backend(known) if model.is_moe else None
    return replace(known, moe_backend=None if backend is None else backend[0])


def find_profile(profile: str, case: Situation) -> Profile | None:
    """The guides' settings for this model on this GPU generation, when they have some."""
    for name, entry in _table()["profiles"].items():
        if entry["profile"] == profile and _holds(entry["when"], case):
            return Profile(
                name=name,
                gpus=entry.get("gpus"),
                inputs=entry["inputs"],
                args=entry["args"],
                source=entry["source"],
            )
    return None


def known_profiles() -> list[str]:
    """`throughput: deepseek-r1-throughput-hopper (...)`, for refusals."""
    return [f"{entry['profile']}: {name}" for name, entry in _table()["profiles"].items()]


def moe_backend(case: Situation) -> tuple[str, str] | None:
    """(backend, source) of the guides' matrix."""
    for entry in _table()["moe_backends"]:
        if _holds(entry["when"], case):
            return entry["backend"], entry["source"]
    return None


def curated_inputs(case: Situation) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Inputs of the plan that hold without a profile, with their source."""
    for entry in _table()["inputs"]:
        if _holds(entry["when"], case):
            yield entry["values"], entry["source"]


def curated_args(case: Situation, profile: Profile | None, *, is_moe: bool) -> CuratedArgs:
    found = CuratedArgs()
    backend = moe_backend(case) if is_moe else None
    if backend is not None:
        found.add({"moe_config": {"backend": backend[0]}}, backend[1])
    for entry in _table()["args"]:
        if _holds(entry["when"], case):
            found.add(entry["args"], entry["source"])
    if profile is not None:
        found.add(profile.args, profile.source)
    return found


def curated_notes(case: Situation) -> list[str]:
    return [f"{entry['text']} ({entry['source']})" for entry in _table()["notes"] if _holds(entry["when"], case)]


def _holds(when: Mapping[str, Any], case: Situation) -> bool:
    for key, wanted in when.items():
        if key in _LISTS:
            if getattr(case, _LISTS[key]) not in wanted:
                return False
        elif key in _EXACT:
            if getattr(case, key) != wanted:
                return False
        elif key == "below":
            if version_key(case.version) >= version_key(wanted):
                return False
        elif case.ep is None or (case.ep > wanted if key == "max_ep" else case.ep < wanted):
            return False
    return True


def _leaves(args: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in args.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def conditions() -> Sequence[Mapping[str, Any]]:
    """Every `when` of the table, for the check that each names only known conditions."""
    table = _table()
    lists = [*table["profiles"].values(), *table["moe_backends"], *table["inputs"], *table["args"], *table["notes"]]
    return [entry["when"] for entry in lists]


@functools.cache
def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = read_yaml(FACTS_FOLDER / "curated.yaml", setting="curated settings")
    return table
