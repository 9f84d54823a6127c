"""The policy file: how requests are classed, queued, bounded and refused.

People write YAML, the toolkit validates it and writes this normalised JSON, the backend reads only the JSON. Every
number has its unit in its name and a default that is written once, here. Kinds: `paced` (by price in engine time, the
default), `fcfs` (bounded queues by class, first come first served), `static` (the same with a cap on what runs, the way
Triton is tuned by hand) and `seed` (rules of thumb).
Schema 1, which called `fcfs` by the name `fifo`, is read as what it means today.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from .classes import ClassPolicy, read_classes
from .fields import ContractError, Fields
from .routes import CLIENT_CLASS, Route, read_routes, read_tenant_classes
from .rungs import DEFAULT_RUNGS, Rung, read_rungs
from .stream_options import RepeatCacheOptions, ResumeOptions

__all__ = ["POLICY_FILE", "POLICY_SCHEMA", "ClassPolicy", "Policy"]

POLICY_FILE = "policy.json"
POLICY_SCHEMA = 2
POLICY_KINDS = ("fcfs", "static", "seed", "paced")
_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerOptions:
    """When the breaker opens; only faults of the engine count, never load."""

    faults_in_a_row: int = 3
    fault_share: float = 0.05
    """Of the ends within `window_s`, once there are `least_ends`."""
    least_ends: int = 20
    window_s: float = 30.0
    pause_s: float = 10.0
    most_pause_s: float = 120.0
    probes: int = 3
    """Requests that must end well in half open before it closes."""

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedOptions:
    """The rules of thumb of the policy kind `seed`, as they are given to operators of DeepSeek services."""

    caps: bool = True
    """False: only the forming of batches, with as many running as the engine takes."""
    form_requests: int = 8
    form_wait_ms: float = 50.0
    """A batch starts when so many wait, or the oldest has waited so long."""
    cold_batch: int = 4
    review_s: float = 10.0
    spread_ratio: float = 0.7
    """Above this standard deviation over mean of prompt lengths the batch is `batch_mixed`, else `batch_alike`."""
    batch_mixed: int = 8
    batch_alike: int = 32
    warm_add: int = 4
    warm_every_s: float = 60.0
    warm_for_s: float = 300.0
    short_tokens: int = 1024
    long_tokens: int = 4096
    batch_short: int = 32
    batch_long: int = 8
    level1_p99_ms: float = 200.0
    """First-token latency above which the batch is halved at each review."""
    efficiency_share: float = 0.7
    """Batch efficiency (mean length of what runs over the longest) below which the batch is halved; 0: never."""
    calm_s: float = 300.0
    """Without trouble, until one halving is taken back."""
    memory_share: float = 0.8
    memory_s: float = 10.0
    """Cache use above this part for this long halves the batch."""
    level2_p99_ms: float = 500.0
    level2_s: float = 60.0
    """Above this for this long, low priority is refused."""
    level2_route_to: str = ""
    """Then urgent requests go to this model of the same server; empty: they stay."""
    cache_s: float = 30.0
    """Cache use above `memory_share` for this long brings what follows."""
    cache_beam_width: int = 0
    """Beams are lowered to this (the rule says 2), by engines that can; 0: left alone."""
    cache_no_speculation: bool = False
    """Speculative decoding is switched off, by engines that can."""

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedOptions:
    """Constants of the policy kind `paced`; each is a number that can be argued about."""

    slo_margin: float = 0.92
    """Steps are aimed at this part of the TPOT target."""
    default_tpot_slo_ms: float = 100.0
    """Where no class promises one; longer on an engine whose step with a single request takes more than half of it."""
    credit_cap_ms: float = 300.0
    """Unused prefill time that may be saved up; two chunks always may."""
    prefill_ahead_chunks: float = 1.0
    """Prompts in the engine beyond what it reads in this many steps would wait there, out of our order."""
    min_prefill_share: float = 0.05
    """Prompts keep this part of the engine however long decode steps have become."""
    dear_cushion: float = 3.0
    """How many times what a prompt costs above the mean must be free before it is let in: one dear prompt keeps many
    cheap ones waiting. 0: all alike."""
    wait_margin: float = 2.0
    """Standard deviations by which a wait for slots or cache is taken to last longer than the mean: who ends when is a
    matter of luck."""
    kv_share: float = 0.95
    """Part of the cache that expected lengths may fill."""
    long_prompt_tokens: int = 8192
    """Of prompts above this, one at a time is read."""
    most_passes: int = 16
    """Smaller requests that may start while the first in line waits for room in the cache; then all wait with it."""
    bias_gain: float = 0.02
    bias_min: float = 0.3
    bias_max: float = 5.0
    reference_batch: int = 64
    """Requests decoding beside the prompt when the price of a prompt token is taken."""
    demand_memory_s: float = 20.0
    """Over which the work that urgent requests ask for is averaged."""
    offline_headroom: float = 1.3
    """Offline work starts only while the engine has this many times the room that urgent prompts ask for."""
    offline_floor: float = 0.05
    """Part of the engine's time that waiting offline work gets whatever the pressure."""
    offline_patience: float = 0.5
    """Offline requests are taken while they need wait no longer than this part of their deadline."""
    offline_harm: float = 0.003
    """Part of the urgent requests that may be refused because a long offline prompt was being read, as foreseen; it has
    come to twice as many."""
    offline_harm_cap_requests: float = 32.0
    """Of these, as many may be saved up."""
    offline_floor_cap_ms: float = 10_000.0
    """Floor time that may be saved up."""
    start_output_tokens: float = 256.0
    """Expected answer length before any was seen."""
    length_gain: float = 0.02
    length_margin: float = 1.2
    """Room for answers longer than expected."""
    rung_up_s: float = 5.0
    rung_down_s: float = 30.0
    ramp_start_requests: int = 4
    """Requests that a new engine runs at first."""
    ramp_doubling_s: float = 10.0
    """Time in which that doubles while steps keep their target; 0: no ramp."""

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A validated policy. Constructed with defaults only, it is the default policy."""

    name: str = "paced"
    kind: str = "paced"
    default_class: str = "interactive"
    classes: Mapping[str, ClassPolicy] = field(
        default_factory=lambda: {
            "interactive": ClassPolicy(priority=0, max_queue_requests=256, deadline_ms=30_000),
            "offline": ClassPolicy(priority=1, max_queue_requests=1024, deadline_ms=600_000, is_offline=True),
        }
    )
    routes: tuple[Route, ...] = ()
    """The first that matches gives a request its class; the default class where none does."""
    client_class: str = "wins"
    """What a class named by the client is worth. wins: it is taken. bounded: unless it is more important (a lower
    priority number) than the routed one, which is taken then. ignored: the routes alone decide."""
    tenant_classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Classes by tenant (`*`: all that are not named): naming another is refused, a route to another gives the first of
    them. A tenant without an entry may use all."""
    bucket_edges_tokens: tuple[int, ...] = (1024, 2048, 4096, 8192, 32768)
    """Upper edges (exclusive) of the length buckets used for bookkeeping; the last bucket is open."""
    max_prompt_bytes: int = 1_048_576
    """Checked before tokenising: longer prompts are refused as TOO_LARGE without being looked at."""
    max_intake_requests: int = 256
    """Requests being tokenised or waiting for it."""
    default_max_tokens: int = 256
    clamp_max_tokens: bool = True
    """True: an asked max_tokens above what the sequence limit leaves is lowered to it; False: it is refused."""
    retry_after_min_ms: int = 500
    retry_after_max_ms: int = 60_000
    tenant_weights: Mapping[str, float] = field(default_factory=dict)
    """Share of the engine by tenant under contention; 1 for those that are not named."""
    max_running: int | None = None
    """Requests in the engine at once, below the engine's own limit; None: as many as it takes."""
    seed: SeedOptions = SeedOptions()
    paced: PacedOptions = PacedOptions()
    rungs: tuple[Rung, ...] = DEFAULT_RUNGS
    """Of `paced`."""
    breaker: BreakerOptions = BreakerOptions()
    repeat_cache: RepeatCacheOptions = field(default_factory=RepeatCacheOptions)
    resume: ResumeOptions = field(default_factory=ResumeOptions)
    generation: int = 0
    """Counts accepted reloads; 0 is the policy read at start."""

    @property
    def has_no_routes(self) -> bool:
        """What a client names is what it gets."""
        return not (self.routes or self.tenant_classes) and self.client_class == "wins"

    def ladder(self) -> tuple[tuple[str, Rung], ...]:
        """Everything that pressure can bring about under this kind: what it is called, and what it does."""
        if self.kind == "paced":
            return tuple((f"rung {n} (at {rung.at:g})", rung) for n, rung in enumerate(self.rungs, start=1))
        if self.kind != "seed":
            return ()
        seed, top = self.seed, min(rules.priority for rules in self.classes.values())
        urgent = tuple(name for name, rules in self.classes.items() if rules.priority == top)
        cache = Rung(at=0.0, max_beam_width=seed.cache_beam_width or None, no_speculation=seed.cache_no_speculation)
        route_to = seed.level2_route_to or None
        return (
            ("a full cache", cache),
            ("level 2", Rung(at=0.0, route_to=route_to, route_classes=urgent if route_to else ())),
        )

    @property
    def variants(self) -> frozenset[str]:
        """Models that requests may be handed on to."""
        return frozenset(rung.route_to for _, rung in self.ladder() if rung.route_to is not None)

    def to_json(self) -> str:
        data: dict[str, object] = {"schema_version": POLICY_SCHEMA}
        for name in self.__slots__:
            if name == "generation":
                continue
            value = getattr(self, name)
            if name == "classes":
                value = {key: cls.to_json() for key, cls in value.items()}
            elif name in ("seed", "paced", "breaker", "repeat_cache", "resume"):
                value = value.to_json()
            elif name in ("rungs", "routes"):
                value = [each.to_json() for each in value]
            elif name == "tenant_classes":
                value = {tenant: list(names) for tenant, names in value.items()}
            elif name == "tenant_weights":
                value = dict(value)
            data[name] = list(value) if isinstance(value, tuple) else value
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_data(cls, data: object, where: str) -> Policy:
        """Reads a decoded YAML or JSON document. Raises ContractError with every fault."""
        base = cls()
        fields = Fields(data, where)
        schema = fields.integer("schema_version", POLICY_SCHEMA)
        if schema not in (1, POLICY_SCHEMA):
            raise ContractError(where, [f"schema_version {schema} where this version reads {POLICY_SCHEMA}"])
        classes = read_classes(fields) if fields.has("classes") else dict(base.classes)
        kind = fields.string(
            "kind",
            base.kind if schema > 1 else "fifo",
            choices=(*POLICY_KINDS, "fifo") if schema == 1 else POLICY_KINDS,
        )
        kind = "fcfs" if kind == "fifo" else kind
        out = cls(
            name=fields.string("name", kind),
            kind=kind,
            default_class=fields.string("default_class", base.default_class),
            classes=classes,
            routes=read_routes(fields, classes) if fields.has("routes") else base.routes,
            client_class=fields.string("client_class", base.client_class, choices=CLIENT_CLASS),
            tenant_classes=read_tenant_classes(fields, classes)
            if fields.has("tenant_classes")
            else base.tenant_classes,
            bucket_edges_tokens=fields.integers("bucket_edges_tokens", base.bucket_edges_tokens),
            max_prompt_bytes=fields.integer("max_prompt_bytes", base.max_prompt_bytes, low=1, high=_MOST),
            max_intake_requests=fields.integer("max_intake_requests", base.max_intake_requests, low=1, high=_MOST),
            default_max_tokens=fields.integer("default_max_tokens", base.default_max_tokens, low=1, high=_MOST),
            clamp_max_tokens=fields.boolean("clamp_max_tokens", base.clamp_max_tokens),
            retry_after_min_ms=fields.integer("retry_after_min_ms", base.retry_after_min_ms, low=1, high=_MOST),
            retry_after_max_ms=fields.integer("retry_after_max_ms", base.retry_after_max_ms, low=1, high=_MOST),
            max_running=fields.opt_integer("max_running", low=1, high=_MOST),
            tenant_weights=_read_weights(fields) if fields.has("tenant_weights") else base.tenant_weights,
            seed=_read_options(fields, "seed", SeedOptions) if fields.has("seed") else base.seed,
            paced=_read_options(fields, "paced", PacedOptions) if fields.has("paced") else base.paced,
            rungs=read_rungs(fields, "rungs", classes) if fields.has("rungs") else base.rungs,
            breaker=_read_options(fields, "breaker", BreakerOptions) if fields.has("breaker") else base.breaker,
            repeat_cache=_read_options(fields, "repeat_cache", RepeatCacheOptions)
            if fields.has("repeat_cache")
            else base.repeat_cache,
            resume=_read_options(fields, "resume", ResumeOptions) if fields.has("resume") else base.resume,
        )
        if out.kind == "static" and out.max_running is None:
            fields.problem("max_running: the kind `static` is a cap on what runs, so it needs one")
        if out.kind != "paced" and any(rung.route_to is not None for rung in out.rungs):
            fields.problem(f"rungs: route_to needs the kind `paced`; `{out.kind}` has no ladder and would never route")
        if out.default_class not in classes:
            fields.problem(f"default_class: {out.default_class!r} is not one of the classes {', '.join(classes)}")
        if out.repeat_cache.keep_latest_share > 1.0:
            fields.problem(f"repeat_cache.keep_latest_share: at most 1, got {out.repeat_cache.keep_latest_share}")
        edges = out.bucket_edges_tokens
        if any(e < 1 for e in edges) or any(b <= a for a, b in itertools.pairwise(edges)):
            fields.problem(f"bucket_edges_tokens: must be positive and strictly increasing, got {list(edges)}")
        if out.retry_after_min_ms > out.retry_after_max_ms:
            fields.problem(
                f"retry_after_min_ms: {out.retry_after_min_ms} is above retry_after_max_ms {out.retry_after_max_ms}"
            )
        fields.done()
        return out

    @classmethod
    def load(cls, path: Path) -> Policy:
        """Raises FileNotFoundError, or ContractError when the file is not a policy of this schema."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ContractError(str(path), [f"not JSON (line {error.lineno}: {error.msg})"]) from None
        return cls.from_data(data, str(path))


_Options = TypeVar("_Options", SeedOptions, PacedOptions, BreakerOptions, RepeatCacheOptions, ResumeOptions)


def _read_options(fields: Fields, key: str, kind: type[_Options]) -> _Options:
    """Every constant by its name; whole numbers stay whole."""
    reader, base = fields.child(key), kind()
    values: dict[str, Any] = {}
    for name in base.__slots__:
        default = getattr(base, name)
        if isinstance(default, str):
            values[name] = reader.string(name, default)
        elif isinstance(default, bool):
            values[name] = reader.boolean(name, default)
        else:
            read = reader.integer if isinstance(default, int) else reader.number
            values[name] = read(name, default, low=0, high=_MOST)
    reader.done()
    return kind(**values)


def _read_weights(fields: Fields) -> dict[str, float]:
    reader = fields.child("tenant_weights")
    weights = {str(name): reader.number(str(name), low=0.001, high=1000.0) for name in fields.mapping("tenant_weights")}
    reader.done()
    return weights
