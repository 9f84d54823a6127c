"""KvCacheRetentionConfig, as the C++ binding has it: positional or keyword, checked, and read-only afterwards."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

__all__ = ["KvCacheRetentionConfig", "KvCacheTransferMode"]


class KvCacheTransferMode(enum.Enum):
    DRAM = 0
    GDS = 1
    POSIX_DEBUG_FALLBACK = 2


class _ReadOnly:
    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} is read-only")

    def _fill(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


class _TokenRangeRetentionConfig(_ReadOnly):
    token_start: int
    token_end: int | None
    priority: int
    duration_ms: timedelta | None

    def __init__(
        self, token_start: int, token_end: int | None, priority: int, duration_ms: timedelta | None = None
    ) -> None:
        _check_int("token_start", token_start)
        if token_end is not None:
            _check_int("token_end", token_end)
        _check_priority(priority)
        _check_duration(duration_ms)
        if token_start < 0 or (token_end is not None and token_end <= token_start):
            raise ValueError(f"token range {token_start} to {token_end} is empty")
        self._fill(token_start=token_start, token_end=token_end, priority=priority, duration_ms=duration_ms)


class KvCacheRetentionConfig(_ReadOnly):
    TokenRangeRetentionConfig = _TokenRangeRetentionConfig

    token_range_retention_configs: list[Any]
    decode_retention_priority: int
    decode_duration_ms: timedelta | None

    def __init__(
        self,
        token_range_retention_configs: Sequence[Any],
        decode_retention_priority: int = 35,
        decode_duration_ms: timedelta | None = None,
        transfer_mode: KvCacheTransferMode = KvCacheTransferMode.DRAM,
        directory: str | None = None,
    ) -> None:
        ranges = list(token_range_retention_configs)
        if not all(isinstance(part, _TokenRangeRetentionConfig) for part in ranges):
            raise TypeError("token_range_retention_configs must be a list of TokenRangeRetentionConfig")
        if not isinstance(transfer_mode, KvCacheTransferMode):
            raise TypeError("transfer_mode must be a KvCacheTransferMode")
        _check_priority(decode_retention_priority)
        _check_duration(decode_duration_ms)
        self._fill(
            token_range_retention_configs=ranges,
            decode_retention_priority=decode_retention_priority,
            decode_duration_ms=decode_duration_ms,
            transfer_mode=transfer_mode,
            directory=directory,
        )


def _check_int(name: str, value: Any) -> None:
    if type(value) is not int:
        raise TypeError(f"{name} must be int, not {type(value).__name__}")


def _check_priority(value: Any) -> None:
    _check_int("priority", value)
    if not 0 <= value <= 100:
        raise ValueError(f"priority {value} is not from 0 to 100")


def _check_duration(value: Any) -> None:
    if value is not None and not isinstance(value, timedelta):
        raise TypeError(f"a duration must be datetime.timedelta, not {type(value).__name__}")
