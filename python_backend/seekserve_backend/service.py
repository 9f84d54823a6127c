"""The service: takes requests or refuses them at once, and passes on what it takes to be tokenised (`intake`).

It joins core, text and engine and owns the threads: a small pool (`intake`), the loop (`engine_loop`), the poller
(`departures`) and the outbox. Every accepted request gets exactly one terminal answer (`desk`).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .answers import Inbound, InvalidInput
from .contract.policy import Policy
from .contract.refusal import ErrorCode, ErrorLine
from .contract.routes import Origin
from .core.scheduler import Scheduler
from .core.types import Snapshot
from .departures import Departures
from .desk import Desk, refused_line
from .engine_keeper import EngineKeeper
from .engine_loop import EngineLoop
from .engines.port import Engine, EngineInfo, EngineStats
from .exchange import Exchange, Variant
from .handover import Handover, VariantPort
from .heartbeats import Heartbeats
from .intake import Intake
from .live import Live
from .measures import Observation, Totals
from .outbox import Outbox, Sink
from .step_log import StepLog
from .streams import Streams
from .text.token_bytes import TokenBytes

__all__ = ["Service", "ServiceStats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStats:
    """The one statistics port: everything that status and metrics show."""

    snapshot: Snapshot
    engine: EngineStats | None
    engine_kind: str
    totals: Totals
    looks_up_prefixes: bool
    outbox_depth: int
    send_age_s: float
    stream_silence_s: float | None
    """The longest that a running request has been without another token; None while none has begun."""
    engine_restarts: int
    engine_loop_age_s: float
    is_broken: bool
    is_rebuilding: bool
    """The engine failed and is being made anew, which may take as long as loading does."""
    sharing: Mapping[str, float] = field(default_factory=dict)
    """What the repeat cache and the kept streams came to; empty for what the policy switches off."""

    @property
    def open_requests(self) -> int:
        """Requests that still wait for their last answer."""
        snap = self.snapshot
        return (
            snap.intake
            + sum(snap.queued_by_class.values())
            + snap.running
            + snap.joined
            + snap.routed
            + self.outbox_depth
        )


class Service:
    """`start`, then `accept` from any thread, then `stop`."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        policy: Policy | None = None,
        engine_factory: Callable[[], Engine],
        encode: Callable[[Inbound], tuple[int, ...]],
        vocabulary: TokenBytes,
        clock: Callable[[], float] = time.monotonic,
        outbox_workers: int = 4,
        intake_workers: int = 2,
        step_log: StepLog | None = None,
        variants: VariantPort | None = None,
    ) -> None:
        """`policy`: the scheduler's; None: what concerns streams and repeats is as in the default policy."""
        self._clock = clock
        self._ids = itertools.count(1)
        self._outbox = Outbox(workers=outbox_workers)
        self._desk = Desk(scheduler, self._outbox, clock, policy or Policy())
        self._keeper = EngineKeeper(self._desk, engine_factory)
        self._loop = EngineLoop(self._desk, self._keeper, step_log)
        self._streams = Streams(self._desk, self._loop)
        self._heartbeats = Heartbeats(self._desk)
        self.departures = Departures(self._desk, self._streams, lambda: list(self._loop.in_engine.values()))
        self.handover = Handover(self._desk, variants, lambda live: self._intake.submit(live))
        self._intake = Intake(
            self._desk,
            self._keeper,
            self._loop,
            self._streams,
            self.handover,
            encode=encode,
            vocabulary=vocabulary,
            workers=intake_workers,
        )

    @property
    def engine_info(self) -> EngineInfo:
        return self._keeper.info

    def start(self) -> None:
        self._loop.start()
        self.departures.start()
        self._heartbeats.start()

    def accept(self, inbound: Inbound, sink: Sink) -> None:
        """Takes a request or refuses it; returns at once and never raises. Called on Triton's execute thread."""
        now = self._clock()
        number = next(self._ids)
        live = Live(f"r{number}", inbound, sink, arrival_s=now, lane=number)
        desk = self._desk
        if inbound.resume_token is not None:
            self._streams.come_back(live)
            self._watch(live)
            return
        with desk.cond:
            refused = desk.core.offer(
                live.id,
                prompt_bytes=inbound.prompt_bytes,
                request_class=inbound.request_class,
                now=now,
                is_probe=inbound.is_probe,
                origin=Origin(endpoint=inbound.endpoint, tenant=inbound.tenant, headers=inbound.headers),
                sampling={name: getattr(inbound.sampling, name) for name in inbound.sampling_given},
            )
            changed: Mapping[str, Any] = {} if refused is not None else desk.core.sampling_of(live.id)
            if changed:
                live.inbound = replace(inbound, sampling=replace(inbound.sampling, **changed))
            if refused is None:
                live.request_class = desk.core.class_of(live.id)
                desk.live[live.id] = live
        if refused is not None:
            # Straight to the sink: nothing else was sent there, and a full outbox must not hold up Triton's thread.
            sink.error(refused_line(live, refused))
            return
        self._watch(live)
        self._intake.take(live)

    def _watch(self, live: Live) -> None:
        if live.inbound.heartbeat_ms is not None:
            self._heartbeats.watch(live)

    def exchange(self, variant: Variant, drain_timeout_s: float) -> Exchange:
        """Begins to serve `variant` in the place of what is served now; returns at once."""
        wish = Exchange(variant, deadline_s=self._clock() + drain_timeout_s, taken=self._taken)
        self._loop.exchange(wish)
        return wish

    def _taken(self, variant: Variant) -> None:
        """The engine is there; the lock is held."""
        self._intake.replace(variant.encode, variant.vocabulary)
        self._streams.forget_paused()

    def replace_policy(self, policy: Policy) -> None:
        """Between two steps of the engine; nothing that was accepted is dropped."""
        with self._desk.cond:
            self._desk.core.replace_policy(policy)
            self._desk.repeats.replace(policy.repeat_cache)
            self._intake.share_anew()
            self._desk.cond.notify_all()
        self._streams.replace_policy(policy)

    def refuse_invalid(self, client_id: str, sink: Sink, error: InvalidInput) -> None:
        """A request whose tensors could not be read: the core only counts it."""
        with self._desk.cond:
            self._desk.core.count_unreadable()
        sink.error(ErrorLine(code=ErrorCode.INVALID, reason=str(error), field=error.field, request_id=client_id))

    def stats(self) -> ServiceStats:
        with self._desk.cond:
            snapshot = self._desk.core.snapshot()
            sharing = self._desk.sharing_figures()
            now = self._clock()
            silent_s = [now - each.last_token_s for each in self._desk.live.values() if each.last_token_s is not None]
        keeper = self._keeper
        is_rebuilding = keeper.is_rebuilding  # before the age, which is long only while it lasts
        return ServiceStats(
            snapshot=snapshot,
            engine=keeper.stats(),
            engine_kind=keeper.info.kind,
            totals=self._desk.measures.totals,
            looks_up_prefixes=self._intake.looks_up_prefixes,
            outbox_depth=self._outbox.depth,
            send_age_s=self._outbox.send_age_s,
            stream_silence_s=max(silent_s, default=None),
            engine_restarts=keeper.restarts,
            # A send that does not return is Triton's gRPC front end standing still: no client gets anything either.
            engine_loop_age_s=max(self._loop.age_s, self._outbox.send_age_s),
            is_broken=keeper.is_broken,
            is_rebuilding=is_rebuilding,
            sharing=sharing,
        )

    def observations(self, most: int) -> list[Observation]:
        """What was measured of requests and steps and not taken yet, the oldest first."""
        return self._desk.measures.take(most)

    def breaker_openings(self) -> list[dict[str, object]]:
        """Those that were not taken yet, each with what the engine was working on; see `openings.told`."""
        with self._desk.cond:
            found, now_s = list(self._desk.openings), self._clock()
            self._desk.openings.clear()
        return [{**opening, "age_s": round(now_s - at_s, 3)} for at_s, opening in found]

    def stop(self, timeout_s: float = 10.0) -> None:
        """Waits up to `timeout_s` for what is in flight, then fails the rest: none is left without an answer."""
        desk = self._desk
        desk.drain()
        self._streams.forget()
        deadline = self._clock() + timeout_s
        with desk.cond:
            while desk.live and self._clock() < deadline and not self._keeper.is_broken:
                desk.cond.wait(0.05)
        self._intake.stop()
        self.departures.stop(timeout_s)
        self._heartbeats.stop(timeout_s)
        self.handover.stop()
        self._loop.stop(timeout_s)
        with desk.cond:
            left = list(desk.live.values())
        for live in left:
            desk.fail(live, ErrorCode.NOT_SERVING, "the server stopped before this request was done")
        self._outbox.close(timeout_s)

    def check_integrity(self) -> None:
        with self._desk.cond:
            self._desk.core.check_integrity()
            self._desk.repeats.check_integrity()
            self._desk.kept.check_integrity()
