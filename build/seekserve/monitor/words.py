"""Numbers as people read them: three digits, the unit that fits, `-` for what is not known. Pure."""

from __future__ import annotations

import math

__all__ = ["count", "percent", "rate", "ratio", "seconds"]


def seconds(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    if value == math.inf:
        return "never"
    if abs(value) < 1e-6:
        return "0 s"
    if abs(value) < 0.9995:
        ms = 1000.0 * value
        return f"{ms:.2g} ms" if abs(ms) < 1.0 else f"{ms:.3g} ms"
    if abs(value) < 120.0:
        return f"{value:.3g} s"
    return f"{value / 60.0:.0f} min" if abs(value) < 7200.0 else f"{value / 3600.0:.1f} h"


def count(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    for bound, divisor, sign in ((10_000.0, 1.0, ""), (10_000_000.0, 1e3, "k"), (1e10, 1e6, "M")):
        if abs(value) < bound:
            return f"{value / divisor:,.0f}{sign}"
    return f"{value / 1e9:,.0f}G"


def rate(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    if value == 0.0:
        return "0"
    return f"{value:.2f}" if abs(value) < 10.0 else f"{value:.1f}" if abs(value) < 100.0 else count(value)


def ratio(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.2f}"


def percent(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{100.0 * value:.1f} %" if 0.0 < abs(value) < 0.0995 else f"{100.0 * value:.0f} %"
