"""The service: takes requests, tokenises them off Triton's thread, and hands them to the core.

It joins core, text and engine and owns the threads: a small intake pool, the engine loop (`engine_loop`), the poller
(`departures`) and the outbox. Every accepted request gets exactly one terminal answer (`desk`).
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from .answers import Chunk, Inbound, InvalidInput
from .contract.policy import Policy
from .contract.refusal import ErrorCode, ErrorLine
from .contract.routes import Origin
from .core.prefixes import PrefixIndex, block_hashes
from .core.scheduler import Scheduler
from .core.types import Refused, Snapshot
from .departures import Departures
from .desk import Desk, refused_line
from .engine_keeper import EngineKeeper
from .engine_loop import EngineLoop
from .engines.port import Engine, EngineInfo, EngineStats
from .exchange import Exchange, Variant
from .handover import Handover, VariantPort
from .heartbeats import Heartbeats
from .live import Live
from .measures import Observation, Totals
from .outbox import Outbox, Sink
from .record import Record
from .sharing import Sharing
from .step_log import StepLog
from .streams import Streams
from .text.reasoning import chat_state
from .text.token_bytes import TokenBytes
from .work import Work

__all__ = ["Service", "ServiceStats"]

_log = logging.getLogger(__name__)


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
        self._tokens = (encode, vocabulary)
        self._clock = clock
        self._ids = itertools.count(1)
        self._outbox = Outbox(workers=outbox_workers)
        self._desk = Desk(scheduler, self._outbox, clock, policy or Policy())
        self._keeper = EngineKeeper(self._desk, engine_factory)
        self._loop = EngineLoop(self._desk, self._keeper, step_log)
        self._prefixes = _prefix_index(self._keeper.info)
        self._sharing = Sharing(self._desk)
        self._streams = Streams(self._desk, self._loop)
        self._heartbeats = Heartbeats(self._desk)
        self.departures = Departures(self._desk, self._streams, lambda: list(self._loop.in_engine.values()))
        self.handover = Handover(self._desk, variants, self._submit)
        self._intake = ThreadPoolExecutor(intake_workers, thread_name_prefix="seekserve-intake")

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
        try:
            self._intake.submit(self._tokenise, live)
        except RuntimeError:  # the pool is shut down
            desk.fail(live, ErrorCode.NOT_SERVING, "the server is stopping")

    def _watch(self, live: Live) -> None:
        if live.inbound.heartbeat_ms is not None:
            self._heartbeats.watch(live)

    def exchange(self, variant: Variant, drain_timeout_s: float) -> Exchange:
        """Begins to serve `variant` in the place of what is served now; returns at once."""
        wish = Exchange(variant, deadline_s=self._clock() + drain_timeout_s, taken=self._take_tokens)
        self._loop.exchange(wish)
        return wish

    def _take_tokens(self, variant: Variant) -> None:
        self._tokens = (variant.encode, variant.vocabulary)
        self._prefixes = _prefix_index(self._keeper.info)  # the new engine's cache is empty
        self._sharing.begin_anew()
        self._streams.forget_paused()

    def replace_policy(self, policy: Policy) -> None:
        """Between two steps of the engine; nothing that was accepted is dropped."""
        with self._desk.cond:
            self._desk.core.replace_policy(policy)
            self._desk.repeats.replace(policy.repeat_cache)
            self._sharing.begin_anew()
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
            looks_up_prefixes=self._prefixes is not None,
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
        self._intake.shutdown(wait=False, cancel_futures=True)
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

    def _tokenise(self, live: Live) -> None:
        """On an intake thread. Whatever goes wrong here ends the request: nobody reads the pool's futures."""
        try:
            self._take_in(live)
        except InvalidInput as error:
            self._desk.fail(live, ErrorCode.INVALID, str(error), field=error.field)
        except Exception:
            _log.exception("taking in request %s failed", live.id)
            reason = "the prompt could not be tokenised; the server's log has the details"
            self._desk.fail(live, ErrorCode.FAILED, reason)

    def _take_in(self, live: Live) -> None:
        desk, inbound, info = self._desk, live.inbound, self._keeper.info
        _check_engine_has(inbound, info)
        if inbound.resumable and not desk.kept.options.enabled:
            raise InvalidInput("resumable", "this server's policy keeps no streams; leave it out or send false")
        encode, vocabulary = self._tokens
        work = Work(live.id, inbound, encode(inbound), vocabulary)
        if inbound.messages is not None:
            live.chat_state = chat_state(work.prompt_ids, vocabulary)
        live.prefix_hashes = block_hashes(work.prompt_ids) if self._prefixes is not None else ()
        work.key = self._sharing.key(inbound, work.prompt_ids, info, live.request_class)
        if inbound.echo_prompt and inbound.text is not None:
            live.prompt_text = inbound.text.decode("utf-8", "replace")
        with desk.cond:
            if live.id not in desk.live:  # cancelled meanwhile
                return
            if inbound.resumable:
                self._streams.grant(live)
            answer = self._share(live, work) or self._submit(live, self._variants_for(live))
            desk.cond.notify_all()
        if answer is not None:
            desk.answer(live, answer)

    def _variants_for(self, live: Live) -> Collection[str]:
        """Models that may answer it instead. A stream that is kept for its client is kept here."""
        inbound = live.inbound
        return () if inbound.is_routed or inbound.resumable else self.handover.open_models()

    def _share(self, live: Live, work: Work) -> Chunk | None:
        """Joins equal work, or returns an answer that is kept."""
        sharing, desk = self._sharing, self._desk
        known = sharing.kept_answer(work)
        other = sharing.in_flight(work) if known is None else None
        live.work = work
        if known is None and other is None:
            return None
        live.queue_ms = max(0.0, (desk.clock() - live.arrival_s) * 1000.0)
        desk.core.asides.join(live.id, desk.clock())
        live.is_joined = True
        if other is not None:
            sharing.join(live, other)
            self._loop.do(lambda: self._loop.telling.catch_up(live))
            return None
        assert known is not None
        work.record, work.is_over = Record(), True
        work.record.add(known)
        work.completion_tokens = known.completion_tokens
        return live.catch_up(work.record)

    def _submit(self, live: Live, variants: Collection[str] = ()) -> ErrorLine | None:
        """Under the desk's lock; a refusal is the caller's to answer, without it."""
        if live.is_joined:
            return None
        desk, prefixes, work = self._desk, self._prefixes, live.work
        assert work is not None, "tokenised"
        cached = prefixes.match_tokens(live.prefix_hashes) if prefixes is not None else None
        outcome = desk.core.submit(live.core_request(cached or 0), desk.clock(), variants=variants)
        desk.cond.notify_all()
        if isinstance(outcome, Refused):
            return refused_line(live, outcome)
        work.granted_tokens = outcome.max_tokens
        live.request_class = outcome.request_class
        if outcome.route_to is not None:
            work.key = None  # nothing that this engine says, so nothing that others could join
            desk.share(work, (live,))
            self.handover.start(live, outcome.route_to, outcome.max_tokens)
            return None
        desk.measures.admitted(live, cached)
        if prefixes is not None:
            prefixes.note(live.prefix_hashes)
        if work.key is not None or live.token is not None:
            work.record = Record()
        if live.token is not None and not desk.kept.options.work_while_away:
            work.produced_ids = []
        desk.share(work, (live,))
        return None


def _check_engine_has(inbound: Inbound, info: EngineInfo) -> None:
    """Raises InvalidInput for a wish that this engine cannot fulfil: nothing asked for is left out in silence."""
    if inbound.beam_width > info.max_beam_width:
        beams = f"at most {info.max_beam_width} beams" if info.max_beam_width > 1 else "no beams"
        raise InvalidInput("beam_width", f"{inbound.beam_width} asked for, this {info.kind} engine has {beams}")
    if inbound.beam_width > 1 and inbound.sampling.temperature > 0:
        raise InvalidInput("beam_width", "beams are searched, not sampled; send 1, or no temperature")
    if inbound.sampling.guide is not None and not info.has_guides:
        reason = f"this {info.kind} engine has no guided decoding; leave it out or send ''"
        raise InvalidInput("guided_decoding_guide_type", reason)
    if inbound.wants_logprobs and not info.has_logprobs:
        raise InvalidInput("return_log_probs", f"this {info.kind} engine has none; leave it out or send False")
    if inbound.wants_logprobs and inbound.beam_width > 1:
        raise InvalidInput("return_log_probs", f"not together with beam_width {inbound.beam_width}; send one of them")


def _prefix_index(info: EngineInfo) -> PrefixIndex | None:
    """Touched under the desk's lock only."""
    if not info.reuses_prefixes:
        return None
    return PrefixIndex(info.kv_total_blocks * info.block_tokens)
