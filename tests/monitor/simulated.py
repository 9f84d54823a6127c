"""Scrapes of a simulated server: the real scheduler on a simulated engine, its numbers written as the backend writes
them and read back as they are read from a server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.monitor.exposition import Exposition

from seekserve.monitor.reading import Scrape, parse_text, scrape_of
from seekserve.simulate.plant import Plant, PlantOptions, Step
from seekserve.simulate.policies import candidate_for
from seekserve.simulate.records import Arrival, Clients, Outcome
from seekserve.simulate.replica import Replica
from seekserve.simulate.run import run
from seekserve.simulate.slo import ClassSlo, SloFile
from seekserve_backend.contract.bundle import KvCache, Limits
from seekserve_backend.contract.metric_names import GATE_GAUGES, MILLISECONDS
from seekserve_backend.contract.step_model import StepModel
from seekserve_backend.core.types import Snapshot

MODEL = StepModel(
    base_points=((1, 10.0), (1001, 110.0)), kv_read_ms_per_token=0.0001, attention_ms_per_token2=1e-7, source="a test"
)
"""10 ms for one token and 0.1 ms for each more."""
SLO = SloFile(
    name="test",
    classes={
        "interactive": ClassSlo(share=0.8, ttft_ms=500.0, ttft_ms_per_token=1.0, tpot_ms=60.0),
        "offline": ClassSlo(share=0.2, e2e_ms=60_000.0),
    },
    chunk_tokens=256,
    max_tokens=200,
)
EPOCH_S = 1_800_000_000.0
_BLOCK = 16


@dataclass(frozen=True)
class Look:
    time_s: float
    snapshot: Snapshot
    steps_ms: tuple[float, ...]
    batches: int
    prompt_tokens: int
    output_tokens: int
    kv_tokens: float
    lookups: int
    hits: int


class WatchedPlant(Plant):
    """Notes what the engine's own metrics would count."""

    def __init__(self, model: StepModel, options: PlantOptions) -> None:
        super().__init__(model, options)
        self.steps_ms: list[float] = []
        self.batches = self.prompt_tokens = self.output_tokens = self.lookups = self.hits = 0

    def add(self, id: str, prompt_tokens: int, output_tokens: int, cached_tokens: int = 0, blocks: Any = ()) -> None:
        before = self.hit_tokens
        super().add(id, prompt_tokens, output_tokens, cached_tokens, blocks)
        self.lookups += 1
        self.hits += self.hit_tokens > before

    def step(self, now: float) -> Step:
        step = super().step(now)
        self.steps_ms.append(step.ms)
        self.batches += step.decoding + len(step.firsts)
        self.prompt_tokens += step.prefill_tokens
        self.output_tokens += step.decode_tokens + len(step.firsts)
        return step


class WatchedReplica(Replica):
    """Looked at whenever the simulation takes a sample."""

    def __init__(self, *args: Any, every_s: float) -> None:
        super().__init__(*args)
        self.looks: list[Look] = []
        self._every_s = every_s

    def gauges(self) -> Any:
        plant = self.plant
        assert isinstance(plant, WatchedPlant)
        self.looks.append(
            Look(
                time_s=len(self.looks) * self._every_s,
                snapshot=self.core.snapshot(),
                steps_ms=tuple(plant.steps_ms),
                batches=plant.batches,
                prompt_tokens=plant.prompt_tokens,
                output_tokens=plant.output_tokens,
                kv_tokens=plant.kv_tokens,
                lookups=plant.lookups,
                hits=plant.hits,
            )
        )
        return super().gauges()


def arrivals_at(
    rate: float,
    seconds: float,
    *,
    start_s: float = 0.0,
    prompt: int = 200,
    output: int = 30,
    max_tokens: int = 60,
    cached: int = 0,
    offline_every: int = 5,
) -> list[Arrival]:
    """Evenly spaced, of lengths that vary a little."""
    return [
        Arrival(
            time_s=start_s + n / rate,
            prompt_tokens=prompt + 20 * (n % 5),
            output_tokens=output + n % 7,
            request_class="offline" if offline_every and n % offline_every == 0 else "interactive",
            max_tokens=max_tokens,
            cached_tokens=cached,
        )
        for n in range(int(rate * seconds))
    ]


def scrapes(
    arrivals: Sequence[Arrival],
    plant: PlantOptions | None = None,
    *,
    until_s: float,
    every_s: float = 5.0,
    policy: str = "paced",
    kv_blocks: int = 4000,
    max_batch_size: int = 64,
    clients: Clients | None = None,
    change: Callable[[Exposition, float], None] = lambda exposition, time_s: None,
) -> list[Scrape]:
    """`change`: whatever a server would say besides, at each look."""
    options = replace(plant or PlantOptions(), chunk_tokens=SLO.chunk_tokens)
    kv = KvCache(dtype="bf16", block_tokens=_BLOCK, capacity_blocks=kv_blocks, bytes_per_token=1)
    limits = Limits(
        max_seq_len_tokens=20_000, max_batch_size=max_batch_size, max_num_tokens=8192,
        prefill_chunk_tokens=SLO.chunk_tokens,
    )  # fmt: skip
    replica = WatchedReplica(
        candidate_for(policy, SLO).policy, limits, kv, MODEL, WatchedPlant(MODEL, options), every_s=every_s
    )
    done = run(sorted(arrivals, key=lambda a: a.time_s), [replica], clients=clients, sample_every_s=every_s)
    out = []
    for look in replica.looks:
        if look.time_s > until_s:
            break
        exposition = _exposition(look, done.outcomes, kv_blocks)
        change(exposition, look.time_s)
        out.append(scrape_of(parse_text(exposition.text()), server="h:8002", time_s=EPOCH_S + look.time_s))
    return out


def _exposition(look: Look, outcomes: Sequence[Outcome], kv_blocks: int) -> Exposition:
    made, snap = Exposition(), look.snapshot
    made.set("requests_offered_total", snap.offered)
    for (name, terminal), n in snap.ended_by_class.items():
        made.set("requests_ended_total", n, name, terminal)
    for name, n in snap.admitted_by_class.items():
        made.set("requests_admitted_total", n, name)
    for name, n in snap.queued_by_class.items():
        made.set("queue_requests", n, name)
    for bucket, n in snap.queued_by_bucket.items():
        made.set("queue_bucket_requests", n, bucket)
    for labels, n in snap.refused_by_why.items():
        made.set("requests_refused_total", n, *labels)
    made.set("running_requests", snap.running).set("intake_requests", snap.intake)
    for name, value in snap.gauges.items():
        made.set(GATE_GAUGES[name], value / 1000.0 if name in MILLISECONDS else value)
    made.set("kv_blocks", kv_blocks).set("kv_reserved_blocks", snap.reserved_blocks)
    made.set("kv_used_blocks", min(look.kv_tokens / _BLOCK, kv_blocks))
    made.set("prompt_tokens_total", look.prompt_tokens).set("output_tokens_total", look.output_tokens)
    made.set("engine_step_requests_total", look.batches)
    made.observe("engine_step_seconds", [ms / 1000.0 for ms in look.steps_ms])
    made.set("prefix_lookups_total", look.lookups).set("prefix_hits_total", look.hits)
    made.set("flush_timestamp_seconds", EPOCH_S + look.time_s).set("engine_loop_age_seconds", 0.01)
    for name in SLO.classes:
        _times(made, name, [o for o in outcomes if o.arrival.request_class == name], look.time_s)
    return made


def _times(made: Exposition, name: str, outcomes: Sequence[Outcome], now_s: float) -> None:
    firsts = [o for o in outcomes if o.first_s is not None and o.first_s <= now_s]
    ends = [o for o in outcomes if o.state == "finished" and o.end_s is not None and o.end_s <= now_s]
    let_in = [o for o in outcomes if o.arrival.time_s <= now_s and o.state != "refused"]
    made.observe("time_to_first_token_seconds", [(o.first_s or 0.0) - o.asked_s for o in firsts], name)
    made.observe("queue_time_seconds", [(o.released_s or 0.0) - o.asked_s for o in firsts], name)
    made.observe("request_duration_seconds", [(o.end_s or 0.0) - o.asked_s for o in ends], name)
    made.observe(
        "time_per_output_token_seconds",
        [((o.end_s or 0.0) - (o.first_s or 0.0)) / (o.tokens - 1) for o in ends if o.tokens > 1],
        name,
    )
    made.observe("request_prompt_tokens", [float(o.arrival.prompt_tokens) for o in let_in], name)
    made.observe("request_output_tokens", [float(o.tokens) for o in ends], name)
