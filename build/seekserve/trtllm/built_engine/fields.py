"""Reading a JSON object that others wrote: each value with its type checked, all faults gathered in one list.

Unknown keys are passed over: an engine's config.json grows with every release. A value that is wanted and missing is a
fault with its dotted name, and a stand-in goes on so that the rest can be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Section"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    data: Mapping[str, object]
    where: str
    """Dotted name of this object with a dot at its end; empty for the document."""
    problems: list[str]
    """Shared by all sections of one document."""

    def has(self, name: str) -> bool:
        return self.data.get(name) is not None

    def section(self, name: str, *, needed: bool = True) -> Section:
        value = self.data.get(name)
        if value is None and needed:
            self.problems.append(f"{self.where}{name} is missing")
        elif value is not None and not isinstance(value, dict):
            self._wrong(name, value, "an object")
        found = value if isinstance(value, dict) else {}
        return Section(data=found, where=f"{self.where}{name}.", problems=self.problems)

    def opt_integer(self, name: str) -> int | None:
        value = self.data.get(name)
        if value is None:
            return None
        if type(value) is not int or value < 0:
            self._wrong(name, value, "a whole number")
            return None
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        if not self.has(name) and default is None:
            self.problems.append(f"{self.where}{name} is missing")
        value = self.opt_integer(name)
        return value if value is not None else default or 0

    def opt_text(self, name: str) -> str | None:
        value = self.data.get(name)
        if value is None or isinstance(value, str):
            return value
        self._wrong(name, value, "text")
        return None

    def text(self, name: str) -> str | None:
        if not self.has(name):
            self.problems.append(f"{self.where}{name} is missing")
        return self.opt_text(name)

    def opt_flag(self, name: str) -> bool | None:
        value = self.data.get(name)
        if value is None or isinstance(value, bool):
            return value
        self._wrong(name, value, "true or false")
        return None

    def flag(self, name: str, default: bool) -> bool:
        value = self.opt_flag(name)
        return default if value is None else value

    def _wrong(self, name: str, value: object, wanted: str) -> None:
        self.problems.append(f"{self.where}{name} is {value!r:.40} where {wanted} is due")
