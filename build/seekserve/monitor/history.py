"""Looks kept for a while, so that there are rates and percentiles; and what was refused lately, with its time. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from .glance import Glance, glance_of
from .reading import Scrape
from .verdict import Since, Verdict, verdict_of
from .window import windows_of

__all__ = ["History", "Refusals", "Seen"]

RECENT_S, WIDE_S, REFUSALS_S = 10.0, 60.0, 300.0


@dataclass(frozen=True, slots=True)
class Refusals:
    """What was refused between two looks."""

    time_s: float
    what: str
    """`class code reason`"""
    count: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    glance: Glance
    verdict: Verdict
    refusals: tuple[Refusals, ...]
    """The latest first."""


class History:
    def __init__(self) -> None:
        self._scrapes: deque[Scrape] = deque()
        self._refusals: dict[tuple[str, str], deque[Refusals]] = {}
        self._since = Since()

    @property
    def scrapes(self) -> list[Scrape]:
        return list(self._scrapes)

    def add(self, scrapes: list[Scrape]) -> list[Seen]:
        """The newest looks, one of each server; every model with the worst first."""
        before = {each.server: each for each in self._scrapes}
        self._scrapes += scrapes
        now_s = max((each.time_s for each in scrapes), default=0.0)
        while self._scrapes and self._scrapes[0].time_s < now_s - WIDE_S:
            self._scrapes.popleft()
        for scrape in scrapes:
            if scrape.server in before:
                self._note_refusals(before[scrape.server], scrape)
        servers = {each.server for each in scrapes}
        wide = [window for window in windows_of(self.scrapes) if window.server in servers]
        recent = {(w.server, w.model): w for w in windows_of(self._recent(now_s))}
        seen = []
        for window in wide:
            near = recent.get((window.server, window.model), window)
            glance = glance_of(near, window)
            verdict = verdict_of(glance)
            if len(near.times_s) > 1:  # one look knows of no rates, so its state is not known either
                verdict = self._since.noted(glance, verdict)
            lately = tuple(reversed(self._refusals.get((window.server, window.model), ())))
            seen.append(Seen(glance=glance, verdict=verdict, refusals=lately))
        return sorted(seen, key=lambda each: (-each.verdict.level, each.glance.server, each.glance.model))

    def _recent(self, now_s: float) -> list[Scrape]:
        """At least two of each server, where there are."""
        kept: dict[str, list[Scrape]] = {}
        for scrape in reversed(self._scrapes):
            mine = kept.setdefault(scrape.server, [])
            if len(mine) < 2 or scrape.time_s >= now_s - RECENT_S:
                mine.append(scrape)
        return [each for mine in kept.values() for each in mine]

    def _note_refusals(self, before: Scrape, after: Scrape) -> None:
        for window in windows_of([before, after]):
            if len(window.times_s) < 2:
                continue
            kept = self._refusals.setdefault((window.server, window.model), deque())
            for name, code, reason in sorted(window.numbers[-1].values.get("requests_refused_total", {})):
                labels = {"class": name, "code": code, "reason": reason}
                grown = window.increase("requests_refused_total", **labels)
                if grown:
                    kept.append(Refusals(after.time_s, f"{name} {code} {reason}", grown))
            while kept and kept[0].time_s < after.time_s - REFUSALS_S:
                kept.popleft()
