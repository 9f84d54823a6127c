"""One line that says how a model is: the answer that comes before all numbers. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .glance import Glance
from .words import rate, ratio, seconds

__all__ = ["Level", "Since", "Verdict", "verdict_of"]

_DEAD_S, _STALLED_S = 10.0, 5.0
_BUSY = 0.8


class Level(enum.IntEnum):
    OK = 0
    BUSY = 1
    SHEDDING = 2
    FAULT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    level: Level
    state: str
    """What goes on; the same words as long as it does."""
    detail: str = ""
    since_s: float | None = None
    """How long it has been so, where it was seen to begin."""

    @property
    def text(self) -> str:
        since = "" if self.since_s is None else f" since {seconds(float(round(self.since_s)))}"
        return f"{self.state}{since}{': ' if self.level >= Level.SHEDDING else ', '}{self.detail}".rstrip(":, ")


def verdict_of(glance: Glance) -> Verdict:
    """The worst that holds."""
    silence = max(glance.loop_age_s or 0.0, glance.silence_s or 0.0)
    if glance.age_s is not None and glance.age_s > _DEAD_S:
        detail = f"its process has written no numbers for {seconds(glance.age_s)}"
        return Verdict(level=Level.FAULT, state="NOT SERVING", detail=detail)
    if glance.breaker:
        detail = "the engine failed requests" + ("; new work is refused" if glance.breaker >= 1.0 else "; probing it")
        return Verdict(level=Level.FAULT, state="breaker open" if glance.breaker >= 1.0 else "breaker half open",
                       detail=detail)  # fmt: skip
    if silence > _STALLED_S:
        return Verdict(level=Level.FAULT, state="STALLED", detail=f"no step or token for {seconds(silence)}")
    refused = {tuple(key.split(" ")): per_s for key, per_s in glance.refused_per_s.items()}
    closed = sum(per_s for (_, code, _), per_s in refused.items() if code == "not_serving")
    if closed:
        why = ", ".join(sorted({reason for (_, code, reason) in refused if code == "not_serving"}))
        return Verdict(level=Level.FAULT, state="taking no requests", detail=f"{why}, {rate(closed)} refused/s")
    failed = glance.ended_per_s.get("failed", 0.0)
    if failed:
        return Verdict(level=Level.FAULT, state="requests fail", detail=f"{rate(failed)}/s in the engine")
    load = {name for (name, code, _) in refused if code == "overloaded"}
    if load:
        return _shedding(glance, sorted(load), refused)
    return _serving(glance)


def _shedding(glance: Glance, classes: list[str], refused: dict[tuple[str, ...], float]) -> Verdict:
    per_s = sum(value for key, value in refused.items() if key[1] == "overloaded")
    reasons = sorted({key[2] for key in refused if key[1] == "overloaded"})
    parts = [f"{rate(per_s)} refused/s ({', '.join(reasons).replace('_', ' ')})"]
    if glance.pressure is not None:
        parts.insert(0, f"pressure {ratio(glance.pressure)}, rung {glance.rung or 0.0:.0f}")
    return Verdict(level=Level.SHEDDING, state=f"shedding {' and '.join(classes)}", detail=", ".join(parts))


def _serving(glance: Glance) -> Verdict:
    waiting = sum(glance.queue.values())
    is_idle = not waiting and not glance.running and not glance.arrived_per_s
    parts = [] if glance.pressure is None else [f"pressure {ratio(glance.pressure)}"]
    expired = glance.ended_per_s.get("expired", 0.0)
    parts.append(f"{rate(expired)}/s expire" if expired else "nothing shed")
    is_busy = (glance.pressure or 0.0) >= _BUSY or bool(glance.rung) or expired > 0.0
    if glance.rung:
        parts.insert(1, f"rung {glance.rung:.0f}")
    state = "idle" if is_idle else "busy" if is_busy else "serving"
    return Verdict(level=Level.BUSY if is_busy else Level.OK, state=state, detail=", ".join(parts))


class Since:
    """Remembers when each model got into the state that it is in."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[str, float, bool]] = {}

    def noted(self, glance: Glance, verdict: Verdict) -> Verdict:
        """The verdict with its age; None for the state that it was first seen in, which may be older."""
        key = (glance.server, glance.model)
        known, kind = self._seen.get(key), verdict.state.split()[0]  # whose turn it is to be shed may change
        if known is None or known[0] != kind:
            known = (kind, glance.now_s, known is not None)
            self._seen[key] = known
        _, from_s, is_seen_beginning = known
        if not is_seen_beginning:
            return verdict
        return Verdict(
            level=verdict.level, state=verdict.state, detail=verdict.detail, since_s=glance.now_s - from_s
        )  # fmt: skip
