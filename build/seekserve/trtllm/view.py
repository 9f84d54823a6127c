"""What a rule across arguments looks at: the arguments by dotted path, and the state of the source they must meet."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from .case import ModelCase
from .check import every_path
from .schema import Field, Snapshot

__all__ = ["View", "by_path"]

_LEVELS: Final = 3
"""Rules look no deeper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    values: Mapping[str, object]
    """By dotted path, sections and their members: see `by_path`."""
    at: Snapshot
    owner: str
    """`torch` or `trt`."""
    case: ModelCase

    @property
    def is_torch(self) -> bool:
        return self.owner == "torch"

    def given(self, path: str) -> object:
        """None when it is absent or null."""
        return self.values.get(path)

    def section(self, path: str) -> Mapping[str, object] | None:
        value = self.given(path)
        return value if isinstance(value, Mapping) else None

    def effective(self, path: str) -> object:
        """What is given, else TensorRT-LLM's default."""
        value = self.given(path)
        field = _fields().get(path)
        return field.default_in(self.at) if value is None and field is not None else value

    # A value of another type has its own finding already; rules pass it over.

    def number(self, path: str) -> int | None:
        value = self.effective(path)
        return value if type(value) is int else None

    def is_on(self, path: str) -> bool:
        return self.effective(path) is True

    def text(self, path: str) -> str | None:
        value = self.effective(path)
        return value if isinstance(value, str) else None

    def numbers(self, path: str) -> Iterator[int]:
        value = self.given(path)
        return (item for item in value if type(item) is int) if isinstance(value, list) else iter(())


def by_path(args: Mapping[str, object], prefix: str = "", levels: int = _LEVELS) -> dict[str, object]:
    """A key that has a dot itself is no path, and refused elsewhere."""
    out: dict[str, object] = {}
    for key, value in args.items():
        if isinstance(key, str) and "." not in key:
            out[f"{prefix}{key}"] = value
            if levels > 1 and isinstance(value, Mapping):
                out |= by_path(value, f"{prefix}{key}.", levels - 1)
    return out


@functools.cache
def _fields() -> Mapping[str, Field]:
    return dict(every_path())
