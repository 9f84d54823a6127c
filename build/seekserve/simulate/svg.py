"""Line charts as SVG text: axes with units, a legend, marks. No script, no network, colours for the colour-blind.

Every series also has its own dash, so that a print in grey can be read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Series", "chart", "ticks"]

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f")
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 4", "1 4", "6 2 1 2 1 2")
_WIDTH, _HEIGHT = 760, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 190, 30, 46


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    points: Sequence[tuple[float, float]]
    """In the order of x; a value that is no number breaks the line."""
    mark_x: float | None = None
    """Marked by an upright line in its colour."""
    has_dots: bool = False
    style: int | None = None
    """The same number looks the same on every chart; None: by its place."""


def chart(
    title: str,
    x_label: str,
    y_label: str,
    series: Sequence[Series],
    *,
    y_high: float | None = None,
    level: float | None = None,
) -> str:
    """`level`: a horizontal line to compare with. Charts start at zero."""
    xs = [x for each in series for x, y in each.points if math.isfinite(y)]
    ys = [y for each in series for _, y in each.points if math.isfinite(y)]
    x_ticks = ticks(0.0, max(xs, default=1.0))
    y_ticks = ticks(0.0, y_high if y_high is not None else max([*ys, level or 0.0], default=1.0))
    plot = _Plot(max(x_ticks[-1], max(xs, default=1.0)) or 1.0, y_ticks[-1] or 1.0)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">',
        f'<text x="{_LEFT}" y="18" class="title">{escape(title)}</text>',
        *_axes(plot, x_ticks, y_ticks, x_label, y_label),
    ]
    if level is not None:
        parts.append(f'<line class="level" x1="{_LEFT}" x2="{plot.right}" y1="{plot.y(level)}" y2="{plot.y(level)}"/>')
    for n, each in enumerate(series):
        parts += _line(plot, each, n)
    return "\n".join([*parts, "</svg>"])


def ticks(low: float, high: float, *, most: int = 6) -> list[float]:
    """Round numbers from `low` to at least `high`."""
    span = high - low
    if not span > 0.0 or not math.isfinite(span):
        return [low, low + 1.0]
    step = 10.0 ** math.floor(math.log10(span / most))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= most)
    return [low + n * step for n in range(math.ceil(span / step - 1e-9) + 1)]


class _Plot:
    def __init__(self, x_high: float, y_high: float) -> None:
        self.right, self.bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        self._x_high, self._y_high = x_high, y_high

    def x(self, value: float) -> float:
        return round(_LEFT + (self.right - _LEFT) * value / self._x_high, 1)

    def y(self, value: float) -> float:
        """Values above the chart stay at its upper edge."""
        return round(self.bottom - (self.bottom - _TOP) * min(value / self._y_high, 1.0), 1)


def _axes(plot: _Plot, x_ticks: list[float], y_ticks: list[float], x_label: str, y_label: str) -> list[str]:
    out = []
    for value in y_ticks:
        y = plot.y(value)
        out.append(f'<line class="grid" x1="{_LEFT}" x2="{plot.right}" y1="{y}" y2="{y}"/>')
        out.append(f'<text class="tick" text-anchor="end" x="{_LEFT - 6}" y="{y + 4}">{value:g}</text>')
    for value in x_ticks:
        x = plot.x(value)
        if x <= plot.right:
            out.append(f'<text class="tick" text-anchor="middle" x="{x}" y="{plot.bottom + 16}">{value:g}</text>')
    middle_x, middle_y = (_LEFT + plot.right) / 2, (_TOP + plot.bottom) / 2
    out.append(f'<text class="label" text-anchor="middle" x="{middle_x}" y="{_HEIGHT - 8}">{escape(x_label)}</text>')
    turned = f'text-anchor="middle" transform="translate(14 {middle_y}) rotate(-90)"'
    out.append(f'<text class="label" {turned}>{escape(y_label)}</text>')
    return out


def _line(plot: _Plot, series: Series, n: int) -> list[str]:
    look = n if series.style is None else series.style
    colour, dash = _COLOURS[look % len(_COLOURS)], _DASHES[look % len(_DASHES)]
    style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
    out = [f'<path d="{_path(plot, series.points)}" {style}/>']
    if series.has_dots:
        good = [(plot.x(x), plot.y(y)) for x, y in series.points if math.isfinite(y)]
        out += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in good]
    if series.mark_x is not None and math.isfinite(series.mark_x):
        x = plot.x(series.mark_x)
        out.append(f'<line x1="{x}" x2="{x}" y1="{_TOP}" y2="{plot.bottom}" stroke="{colour}" stroke-dasharray="3 3"/>')
    y = _TOP + 12 + 18 * n
    out.append(f'<line x1="{plot.right + 12}" x2="{plot.right + 36}" y1="{y}" y2="{y}" {style}/>')
    out.append(f'<text class="tick" x="{plot.right + 42}" y="{y + 4}">{escape(series.name)}</text>')
    return out


def _path(plot: _Plot, points: Sequence[tuple[float, float]]) -> str:
    out, is_open = [], False
    for x, y in points:
        if math.isfinite(y):
            out.append(f"{'L' if is_open else 'M'}{plot.x(x)} {plot.y(y)}")
        is_open = math.isfinite(y)
    return "".join(out)
