"""Request classes of a policy: their place in the queue, their promises, their limits, and what may be sampled.

A limit is of a class, whatever the kind of policy: how long its prompts and answers may be, how many of it run at once,
what part of the KV cache nobody else may fill, how long it may wait. A bound on a sampling parameter says itself
whether what lies outside is brought to the bound or refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .fields import Fields

__all__ = ["SAMPLING_RANGES", "ClassPolicy", "SamplingBound", "read_classes"]

_CLASS_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST = 2**31 - 1
SAMPLING_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_k": (0, _MOST),
    "top_p": (0.0, 1.0),
    "min_tokens": (0, _MOST),
    "repetition_penalty": (0.01, 100.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
}
"""What a request may ask for at all, by the input's name; a class can only be narrower."""
_WHOLE = ("top_k", "min_tokens")
_OUTSIDE = ("clamp", "refuse")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingBound:
    """Of one sampling parameter in one class."""

    min: float | None = None
    max: float | None = None
    outside: str = "clamp"
    """clamp: the nearest bound is taken instead; refuse: INVALID_ARG with the bound."""
    default: float | None = None
    """For requests that do not name the parameter; None: the engine's neutral value, whatever the bounds."""

    def holds(self, value: float) -> bool:
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)

    def nearest(self, value: float) -> float:
        low = value if self.min is None else max(value, self.min)
        return low if self.max is None else min(low, self.max)

    @property
    def text(self) -> str:
        if self.min is None:
            return f"at most {self.max:g}"
        return f"at least {self.min:g}" if self.max is None else f"{self.min:g} to {self.max:g}"

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def read(cls, fields: Fields, parameter: str) -> SamplingBound:
        low, high = SAMPLING_RANGES[parameter]

        def read(key: str) -> float | None:
            if parameter in _WHOLE:
                return fields.opt_integer(key, low=int(low), high=int(high))
            return fields.opt_number(key, low=low, high=high)

        out = cls(
            min=read("min"),
            max=read("max"),
            outside=fields.string("outside", "clamp", choices=_OUTSIDE),
            default=read("default"),
        )
        fields.done()
        if out.min is None and out.max is None:
            if out.default is None:
                fields.problem("min: neither min, max nor default is given, so it bounds nothing")
        elif out.min is not None and out.max is not None and out.min > out.max:
            fields.problem(f"min: {out.min:g} is above max {out.max:g}")
        elif out.default is not None and not out.holds(out.default):
            fields.problem(f"default: {out.default:g} is outside the bounds, {out.text}")
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPolicy:
    """One request class. Lower `priority` is served first."""

    priority: int
    max_queue_requests: int
    """Waiting requests of this class; the next one is refused with OVERLOADED."""
    deadline_ms: int
    """Default time from arrival to first token, after which a request expires; a client may ask for less or more."""

    deadline_ms_per_token: float = 0.0
    """Added to `deadline_ms` for each prompt token, when the client names no deadline."""
    tpot_slo_ms: float | None = None
    """Time per output token that this class is promised; None: no promise."""
    is_offline: bool = False
    """Fills what the others leave, with a floor; only `paced` makes the difference."""
    queue_timeout_ms: int | None = None
    """Longest time from arrival to the engine, whatever the deadline; then it expires. None: its deadline alone."""
    max_prompt_tokens: int | None = None
    """Longer prompts are refused as TOO_LARGE; None: what the engine takes."""
    max_output_tokens: int | None = None
    """More is lowered to this or refused, as `clamp_max_tokens` says."""
    max_running: int | None = None
    """Requests of this class in the engine at once; None: as many as there is room for."""
    kv_reserved_share: float = 0.0
    """Part of the KV cache that other classes leave free for this one, less what it uses already."""
    sampling: Mapping[str, SamplingBound] = field(default_factory=dict)
    """By parameter, of SAMPLING_RANGES."""

    def to_json(self) -> dict[str, object]:
        data = {name: getattr(self, name) for name in self.__slots__}
        return {**data, "sampling": {name: bound.to_json() for name, bound in self.sampling.items()}}


def read_classes(fields: Fields) -> dict[str, ClassPolicy]:
    reader = fields.child("classes")
    out: dict[str, ClassPolicy] = {}
    for name in fields.mapping("classes", {}):
        entry = reader.child(str(name))
        if not _CLASS_NAME.fullmatch(str(name)):
            reader.problem(f"{name!r}: a class name is 1 to 64 of A-Z, a-z, 0-9, dot, underscore and hyphen")
        out[str(name)] = ClassPolicy(
            priority=entry.integer("priority", 0, low=0, high=1000),
            max_queue_requests=entry.integer("max_queue_requests", low=1, high=_MOST),
            deadline_ms=entry.integer("deadline_ms", low=1, high=_MOST),
            deadline_ms_per_token=entry.number("deadline_ms_per_token", 0.0, low=0.0, high=1000.0),
            tpot_slo_ms=entry.opt_number("tpot_slo_ms", low=1.0),
            is_offline=entry.boolean("is_offline", False),
            queue_timeout_ms=entry.opt_integer("queue_timeout_ms", low=1, high=_MOST),
            max_prompt_tokens=entry.opt_integer("max_prompt_tokens", low=1, high=_MOST),
            max_output_tokens=entry.opt_integer("max_output_tokens", low=1, high=_MOST),
            max_running=entry.opt_integer("max_running", low=1, high=_MOST),
            kv_reserved_share=entry.number("kv_reserved_share", 0.0, low=0.0, high=0.95),
            sampling=_read_sampling(entry),
        )
        entry.done()
    reader.done()
    if not out:
        fields.problem("classes: at least one class is needed")
    reserved = sum(each.kv_reserved_share for each in out.values())
    if reserved > 1.0:
        fields.problem(f"classes: kv_reserved_share adds up to {reserved:g}, there is 1 to share")
    return out


def _read_sampling(entry: Fields) -> dict[str, SamplingBound]:
    given = entry.mapping("sampling", {})
    reader = entry.nested("sampling", given)
    # Read in the table's order, so that the parameters' names are known to the reader when it suggests a near one.
    names = [name for name in SAMPLING_RANGES if reader.has(name)]
    out = {name: SamplingBound.read(reader.child(name), name) for name in names}
    reader.done()
    return out
