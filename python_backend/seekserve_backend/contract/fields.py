"""A small strict reader for JSON objects: every unknown, missing or mistyped key is gathered, then reported once."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["ContractError", "Fields", "is_finite_number"]

_MISSING = object()


class ContractError(ValueError):
    """A bundle, policy or refusal is not in the agreed form; `problems` holds one sentence for each fault."""

    def __init__(self, where: str, problems: Sequence[str]) -> None:
        self.where = where
        self.problems = tuple(problems)
        super().__init__(f"{where}: " + "; ".join(self.problems))


def is_finite_number(value: Any) -> bool:
    """An int or a float with a finite value; JSON also yields NaN, infinities and ints that no float can hold."""
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


class Fields:
    """Reads one JSON object key by key; `done()` raises if anything was wrong or left unread.

    `child()` returns a reader of a nested object that reports into the same list with a dotted path.
    """

    def __init__(self, data: Any, where: str, *, _problems: list[str] | None = None, _path: str = "") -> None:
        self._where = where
        self._path = _path
        self._problems: list[str] = [] if _problems is None else _problems
        self._is_root = _problems is None
        self._seen: list[str] = []
        if isinstance(data, Mapping):
            self._data: Mapping[str, Any] = data
        else:
            self._data = {}
            self._problems.append(f"{_path.rstrip('.') or 'document'}: expected an object, got {type(data).__name__}")

    def _get(self, key: str, default: Any) -> Any:
        self._seen.append(key)
        value = self._data.get(key, default)
        if value is _MISSING:
            self._problems.append(f"{self._path}{key}: missing")
        return value

    def _bad(self, key: str, wanted: str, value: Any) -> None:
        self._problems.append(f"{self._path}{key}: expected {wanted}, got {value!r}")

    def string(self, key: str, default: Any = _MISSING, *, choices: Sequence[str] | None = None) -> str:
        value = self._get(key, default)
        if value is _MISSING:
            return ""
        if not isinstance(value, str):
            self._bad(key, "a string", value)
            return ""
        if choices is not None and value not in choices:
            near = difflib.get_close_matches(value, choices, 1)
            self._bad(key, f"one of {', '.join(choices)}" + (f" (did you mean {near[0]}?)" if near else ""), value)
        return value

    def opt_string(self, key: str) -> str | None:
        return None if self._data.get(key) is None and self._mark(key) else self.string(key)

    def integer(self, key: str, default: Any = _MISSING, *, low: int | None = None, high: int | None = None) -> int:
        value = self._get(key, default)
        if value is _MISSING:
            return 0
        if isinstance(value, bool) or not isinstance(value, int):
            self._bad(key, "an integer", value)
            return 0
        self._check_range(key, value, low, high)
        return value

    def opt_integer(self, key: str, *, low: int | None = None, high: int | None = None) -> int | None:
        return None if self._data.get(key) is None and self._mark(key) else self.integer(key, low=low, high=high)

    def number(
        self, key: str, default: Any = _MISSING, *, low: float | None = None, high: float | None = None
    ) -> float:
        value = self._get(key, default)
        if value is _MISSING:
            return 0.0
        if not is_finite_number(value):
            self._bad(key, "a finite number", value)
            return 0.0
        self._check_range(key, value, low, high)
        return float(value)

    def opt_number(self, key: str, *, low: float | None = None, high: float | None = None) -> float | None:
        return None if self._data.get(key) is None and self._mark(key) else self.number(key, low=low, high=high)

    def boolean(self, key: str, default: Any = _MISSING) -> bool:
        value = self._get(key, default)
        if value is _MISSING:
            return False
        if not isinstance(value, bool):
            self._bad(key, "true or false", value)
            return False
        return value

    def integers(self, key: str, default: Any = _MISSING) -> tuple[int, ...]:
        value = self._get(key, default)
        if value is _MISSING:
            return ()
        if not isinstance(value, (list, tuple)) or any(isinstance(v, bool) or not isinstance(v, int) for v in value):
            self._bad(key, "a list of integers", value)
            return ()
        return tuple(value)

    def mapping(self, key: str, default: Any = _MISSING) -> Mapping[str, Any]:
        value = self._get(key, default)
        if value is _MISSING:
            return {}
        if not isinstance(value, Mapping):
            self._bad(key, "an object", value)
            return {}
        return value

    def raw(self, key: str) -> Any:
        """The value as it stands (None when absent), for shapes this reader has no word for; the caller checks it."""
        value = self._get(key, _MISSING)
        return None if value is _MISSING else value

    def child(self, key: str) -> Fields:
        value = self._get(key, _MISSING)
        return self.nested(key, {} if value is _MISSING else value)

    def nested(self, key: str, value: Any) -> Fields:
        """A reader of `value` that reports under `key`, for objects whose keys are names rather than fields."""
        return Fields(value, self._where, _problems=self._problems, _path=f"{self._path}{key}.")

    def has(self, key: str) -> bool:
        return self._mark(key) and self._data.get(key) is not None

    def problem(self, text: str) -> None:
        self._problems.append(f"{self._path}{text}")

    def done(self) -> None:
        """Reports unknown keys; on the root reader, raises ContractError when anything was wrong."""
        for key in self._data:
            if key not in self._seen:
                near = difflib.get_close_matches(str(key), self._seen, 1)
                self._problems.append(
                    f"{self._path}{key}: unknown key" + (f" (did you mean {near[0]}?)" if near else "")
                )
        if self._is_root and self._problems:
            raise ContractError(self._where, self._problems)

    def _mark(self, key: str) -> bool:
        self._seen.append(key)
        return True

    def _check_range(self, key: str, value: float, low: float | None, high: float | None) -> None:
        if low is not None and value < low:
            self._bad(key, f"at least {low}", value)
        elif high is not None and value > high:
            self._bad(key, f"at most {high}", value)
