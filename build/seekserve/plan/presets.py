"""Ready-made inputs from facts/presets.yaml: below flags, environment and file, above the defaults."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from .gpus import FACTS_FOLDER
from .inputs import Inputs, preset_inputs
from .yaml_file import read_yaml

__all__ = ["preset_names", "preset_notes", "preset_reasons", "preset_values"]


def preset_names() -> tuple[str, ...]:
    return tuple(_presets())


def preset_values(name: str) -> Inputs:
    """Each value's source reads `preset NAME`."""
    return preset_inputs({key: entry["value"] for key, entry in _presets()[name]["values"].items()}, name)


def preset_reasons(name: str) -> Mapping[str, str]:
    """Field of Inputs -> why the preset sets it."""
    return {key: str(entry["why"]) for key, entry in _presets()[name]["values"].items()}


def preset_notes(name: str) -> tuple[str, ...]:
    return tuple(_presets()[name].get("notes", ()))


@functools.cache
def _presets() -> Mapping[str, Any]:
    presets: Mapping[str, Any] = read_yaml(FACTS_FOLDER / "presets.yaml", setting="presets")["presets"]
    return presets
