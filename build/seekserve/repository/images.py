"""Which image of NVIDIA's holds Triton together with a given TensorRT-LLM; those known are data (facts/images.yaml)."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from seekserve.errors import InputError

__all__ = ["BaseImage", "base_image", "check_image", "known_images"]

_FACTS: Final = Path(__file__).parent / "facts" / "images.yaml"
_PART: Final = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_IMAGE: Final = re.compile(
    rf"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::\d+)?/)?{_PART}(?:/{_PART})*(?::[\w][\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?\Z"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseImage:
    name: str
    source: str
    """How it was chosen, for people."""


@functools.cache
def known_images() -> tuple[tuple[str, str], ...]:
    """(TensorRT-LLM version, image), newest first."""
    import yaml

    data: Any = yaml.safe_load(_FACTS.read_text(encoding="utf-8"))
    return tuple(
        (str(each["trtllm"]), f"{data['repository']}:{each['triton']}{data['suffix']}") for each in data["images"]
    )


def base_image(given: str | None, trtllm_version: str | None) -> BaseImage:
    """Raises InputError when nobody named an image and none is known for the version."""
    if given is not None:
        return BaseImage(name=check_image(given), source="flag --base-image")
    wanted = (trtllm_version or "").removeprefix("v")
    for version, name in known_images():
        if version == wanted:
            return BaseImage(name=name, source=f"NVIDIA's newest known one with TensorRT-LLM {version}")
    newest: dict[str, str] = {}
    for version, name in known_images():
        newest.setdefault(version, name)
    known = "; ".join(f"{version} is in {name}" for version, name in newest.items())
    raise InputError(
        f"no Triton image of NVIDIA's is known with {f'TensorRT-LLM {wanted}' if wanted else 'this engine'} ({known})",
        hint="name one that holds tritonserver, its Python backend and that engine: --base-image IMAGE",
    )


def check_image(name: str) -> str:
    if not _IMAGE.match(name):
        raise InputError(
            f"--base-image {name!r} is no name of an image", hint="such as nvcr.io/nvidia/tritonserver:26.07-py3"
        )
    return name
