"""The picture of `seekserve top`: the verdict, then cards that fill 80 columns or as many as there are.

Nothing is said by colour alone: each level has a word and a sign of its own, and the colours are blue, orange and
vermilion, which the colour-blind tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .glance import ENDS, TIMES, Glance, Percentiles
from .history import Seen
from .verdict import Level, Verdict
from .words import count, percent, rate, ratio, seconds

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

__all__ = ["screen"]

_STYLES = {
    Level.OK: "bold #56b4e9",
    Level.BUSY: "bold #e69f00",
    Level.SHEDDING: "bold #d55e00",
    Level.FAULT: "bold white on #d55e00",
}
_SIGNS = {Level.OK: "✔", Level.BUSY: "▲", Level.SHEDDING: "▼", Level.FAULT: "✖"}
_PLAIN_SIGNS = {Level.OK: "ok", Level.BUSY: "!", Level.SHEDDING: "!!", Level.FAULT: "!!!"}
_WIDE = 120
_BAR = 16
_MOST_REFUSALS = 6


@dataclass(frozen=True, slots=True)
class Card:
    title: str
    rows: Sequence[tuple[str, str, RenderableType]]
    """(label, value, a bar or a word)"""


class _Drawing:
    def __init__(self, width: int, *, is_ascii: bool) -> None:
        self.width = width
        self.is_ascii = is_ascii

    def verdict(self, verdict: Verdict, whom: str) -> Text:
        from rich.text import Text

        sign = (_PLAIN_SIGNS if self.is_ascii else _SIGNS)[verdict.level]
        text = Text.assemble(
            (f" {sign} {whom}: ", _STYLES[verdict.level]), (verdict.text + " ", _STYLES[verdict.level])
        )
        text.overflow = "fold"
        return text

    def bar(self, share: float | None, *, bound: float = 1.0) -> Text:
        """Full at 1; from `bound` on in the colour of trouble."""
        from rich.text import Text

        if share is None:
            return Text("")
        filled = round(_BAR * min(max(share, 0.0), 1.0))
        full, empty = ("#", ".") if self.is_ascii else ("█", "░")
        style = _STYLES[Level.SHEDDING] if share >= bound else "#56b4e9"
        return Text.assemble((full * filled, style), (empty * (_BAR - filled), "dim"))

    def card(self, card: Card, *, lines: int = 0) -> RenderableType:
        """`lines`: at least so many rows, so that neighbours end together."""
        from rich import box
        from rich.panel import Panel
        from rich.table import Table

        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(justify="right", no_wrap=True)
        grid.add_column(no_wrap=True, ratio=1)
        for label, value, more in card.rows:
            grid.add_row(label, value, more)
        for _ in range(lines - len(card.rows)):
            grid.add_row("", "", "")
        shape = box.ASCII if self.is_ascii else box.ROUNDED
        return Panel(grid, title=card.title, title_align="left", box=shape, border_style="dim", padding=(0, 1))

    def cards(self, *cards: Card) -> Table:
        lines = max(len(card.rows) for card in cards)
        return self.beside(*(self.card(card, lines=lines) for card in cards))

    def beside(self, *cards: RenderableType) -> Table:
        from rich.table import Table

        row = Table.grid(expand=True)
        for _ in cards:
            row.add_column(ratio=1)
        row.add_row(*cards)
        return row


def screen(seen: Sequence[Seen], problems: Sequence[str], *, width: int, clock: str, is_ascii: bool) -> RenderableType:
    """`problems`: servers that do not answer. The worst model is drawn; of others there is a line each."""
    from rich.console import Group
    from rich.text import Text

    draw = _Drawing(width, is_ascii=is_ascii)
    parts: list[RenderableType] = [
        draw.verdict(Verdict(level=Level.FAULT, state=text), "no answer") for text in problems
    ]
    parts += [draw.verdict(each.verdict, f"{each.glance.model} at {each.glance.server}") for each in seen]
    if not seen:
        parts.append(Text("no model of the seekserve backend publishes numbers here", style="dim"))
    else:
        if len(seen) > 1:
            parts.append(_overview(seen))
        parts += _cards(draw, seen[0])
    looked = "" if not seen else f"  rates over {seconds(seen[0].glance.recent_s)}"
    parts.append(Text(f"{clock}{looked}", style="dim", justify="right"))
    return Group(*parts)


def _overview(seen: Sequence[Seen]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, expand=True, header_style="dim", padding=(0, 1))
    for name in ("model", "server", "waiting", "running", "KV", "pressure", "tokens/s", "TTFT P90"):
        table.add_column(name, justify="left" if name in ("model", "server") else "right", no_wrap=True)
    for each in seen:
        g = each.glance
        ttft = g.times.get("TTFT") or g.times_since_start.get("TTFT") or {}
        table.add_row(
            g.model,
            g.server,
            count(sum(g.queue.values())),
            count(g.running),
            percent(_part(g.kv_used, g.kv_blocks)),
            ratio(g.pressure),
            rate(g.output_tokens_per_s),
            seconds(max((found.p90 for found in ttft.values()), default=None)),
        )
    return table


def _cards(draw: _Drawing, seen: Seen) -> list[RenderableType]:
    g = seen.glance
    cards = [_waiting(draw, g), _engine(draw, g), _requests(g), _cache(draw, g)]
    gpus = [draw.card(_gpus(g))] if g.gpus else []
    refused = _refused(seen)
    if draw.width >= _WIDE:
        times = _times(draw, g)
        return [draw.cards(*cards), draw.beside(times, draw.card(refused)), *gpus]
    # What matters most first: a low terminal cuts off the end.
    return [draw.cards(*cards[:2]), _times(draw, g), draw.cards(*cards[2:]), draw.card(refused), *gpus]


def _waiting(draw: _Drawing, g: Glance) -> Card:
    most = max([*g.queue.values(), *g.buckets.values(), 1.0])
    rows: list[tuple[str, str, RenderableType]] = [
        (name, count(n), draw.bar(n / most, bound=2.0) if n else "") for name, n in g.queue.items()
    ]
    filled = {name: n for name, n in g.buckets.items() if n}
    rows += [(f"  {name}", count(n), draw.bar(n / most, bound=2.0)) for name, n in filled.items()]
    rows.append(("in intake", count(g.intake), ""))
    beside = (("joined", g.joined), ("at other model", g.routed), ("kept streams", g.kept_streams))
    rows += [(name, count(n), "") for name, n in beside if n]
    return Card("Waiting by class, by prompt length", rows)


def _requests(g: Glance) -> Card:
    ends = g.ended_per_s
    names = [*(name for name in ENDS if name in ends), *sorted(set(ends) - set(ENDS))]
    rows: list[tuple[str, str, RenderableType]] = [
        ("arrive", rate(g.arrived_per_s), ""),
        ("admitted", rate(g.admitted_per_s), ""),
        *((name, rate(ends[name]), "") for name in names),
        ("tokens in", rate(g.prompt_tokens_per_s), ""),
        ("tokens out", rate(g.output_tokens_per_s), ""),
    ]  # fmt: skip
    return Card("A second", rows)


def _engine(draw: _Drawing, g: Glance) -> Card:
    places = _part(g.running, g.max_running)
    of = "" if g.max_running is None else f" of {count(g.max_running)}"
    target = "" if g.target_step_s is None else f"target {seconds(g.target_step_s)}"
    rows: list[tuple[str, str, RenderableType]] = [
        ("running", count(g.running) + of, draw.bar(places, bound=1.0)),
        ("pressure", ratio(g.pressure), draw.bar(g.pressure, bound=1.0)),
        ("rung", count(g.rung), "normal" if g.rung == 0.0 else ""),
        ("step", seconds(g.step_s), target),
        ("bias", ratio(g.bias), "" if g.bias is None else "measured / model"),
        ("breaker", "-" if g.breaker is None else {0.0: "closed", 1.0: "OPEN"}.get(g.breaker, "half open"), ""),
    ]  # fmt: skip
    return Card(f"Engine{'' if g.engine is None else ' ' + g.engine}", rows)


def _cache(draw: _Drawing, g: Glance) -> Card:
    used, reserved = _part(g.kv_used, g.kv_blocks), _part(g.kv_reserved, g.kv_blocks)
    rows: list[tuple[str, str, RenderableType]] = [
        ("used", percent(used), draw.bar(used, bound=0.9)),
        ("reserved", percent(reserved), draw.bar(reserved, bound=0.9)),
        ("blocks", count(g.kv_blocks), ""),
        ("pressure", ratio(g.memory_pressure), draw.bar(g.memory_pressure, bound=1.0)),
        ("reused/s", rate(g.kv_reused_per_s), "blocks" if g.kv_reused_per_s is not None else ""),
        ("prefix hits", percent(g.hit_ratio), ""),
    ]
    return Card("KV cache", rows)


def _times(draw: _Drawing, g: Glance) -> RenderableType:
    from rich import box
    from rich.panel import Panel
    from rich.table import Table

    is_recent = bool(g.times)
    table = Table(box=None, expand=True, header_style="dim", padding=(0, 1))
    for name in ("", "class", "P50", "P90", "P99", "requests"):
        table.add_column(name, justify="left" if name in ("", "class") else "right", no_wrap=True)
    shown = g.times or g.times_since_start
    for name in TIMES.values():
        for n, (each, found) in enumerate(shown.get(name, {}).items()):
            table.add_row(name if n == 0 else "", each, *_three(found), count(found.count))
    if not shown:
        table.add_row("none yet", "", "", "", "", "")
    title = f"Times, last {seconds(g.window_s)}" if is_recent else "Times since the start"
    shape = box.ASCII if draw.is_ascii else box.ROUNDED
    return Panel(table, title=title, title_align="left", box=shape, border_style="dim", padding=(0, 1))


def _three(found: Percentiles) -> tuple[str, str, str]:
    return seconds(found.p50), seconds(found.p90), seconds(found.p99)


def _refused(seen: Seen) -> Card:
    """Each kind once, the latest first."""
    kinds: dict[str, tuple[float, float]] = {}
    for each in seen.refusals:
        last_s, total = kinds.get(each.what, (each.time_s, 0.0))
        kinds[each.what] = (last_s, total + each.count)
    rows: list[tuple[str, str, RenderableType]] = []
    for what, (last_s, total) in list(kinds.items())[:_MOST_REFUSALS]:
        name, code, reason = what.split(" ", 2)
        age_s = round(seen.glance.now_s - last_s)
        ago = "now" if age_s < 1 else f"{seconds(float(age_s))} ago"
        rows.append((ago, f"{count(total)} x", f"{name}: {_words(reason)} ({_words(code)})"))
    return Card("Refused in the last 5 min: last time, how often, what", rows or [("none", "", "")])


def _gpus(g: Glance) -> Card:
    rows: list[tuple[str, str, RenderableType]] = []
    for gpu, values in g.gpus.items():
        parts = [
            f"{values[name]:.0f} {unit}" for name, unit in (("temperature_c", "C"), ("power_w", "W")) if name in values
        ]
        rows.append((gpu[:12], percent(values.get("busy_ratio")), ", ".join(parts)))
    return Card("GPUs", rows)


def _words(label: str) -> str:
    return label.replace("_", " ")


def _part(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
