"""The service: takes requests, tokenises them off Triton's thread, and hands them to the core.

It joins core, text and engine and owns the threads: a small intake pool, the engine loop (`engine_loop`), the poller
(`departures`) and the outbox. Every accepted request gets exactly one terminal answer (`desk`).
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from .answers import Inbound, InvalidInput
from .contract.policy import Policy
from .contract.refusal import ErrorCode, ErrorLine
from .core.prefixes import PrefixIndex, block_hashes
from .core.scheduler import Scheduler
from .core.types import Refused, Request, Snapshot
from .departures import Departures
from .desk import Desk, refused_line
from .engine_loop import EngineLoop
from .engines.port import Engine, EngineInfo, EngineStats
from .exchange import Exchange, Variant
from .live import Live
from .logprobs import LogprobTrail
from .outbox import Outbox, Sink
from .text.detokenizer import Detokenizer
from .text.reasoning import chat_state
from .text.token_bytes import TokenBytes

__all__ = ["Service", "ServiceStats"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStats:
    """The one statistics port: everything that status and metrics show."""

    snapshot: Snapshot
    engine: EngineStats | None
    engine_kind: str
    outbox_depth: int
    engine_restarts: int
    engine_loop_age_s: float
    is_broken: bool
    is_rebuilding: bool
    """The engine failed and is being made anew, which may take as long as loading does."""

    @property
    def open_requests(self) -> int:
        """Requests that still wait for their last answer."""
        snap = self.snapshot
        return snap.intake + sum(snap.queued_by_class.values()) + snap.running + self.outbox_depth


class Service:
    """`start`, then `accept` from any thread, then `stop`."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        engine_factory: Callable[[], Engine],
        encode: Callable[[Inbound], tuple[int, ...]],
        vocabulary: TokenBytes,
        clock: Callable[[], float] = time.monotonic,
        outbox_workers: int = 4,
        intake_workers: int = 2,
    ) -> None:
        self._tokens = (encode, vocabulary)
        self._clock = clock
        self._ids = itertools.count(1)
        self._outbox = Outbox(workers=outbox_workers)
        self._desk = Desk(scheduler, self._outbox, clock)
        self._loop = EngineLoop(self._desk, engine_factory)
        self._prefixes = _prefix_index(self._loop.info)
        self._departures = Departures(self._desk, self._loop)
        self._intake = ThreadPoolExecutor(intake_workers, thread_name_prefix="seekserve-intake")

    @property
    def engine_info(self) -> EngineInfo:
        return self._loop.info

    def start(self) -> None:
        self._loop.start()
        self._departures.start()

    def accept(self, inbound: Inbound, sink: Sink) -> None:
        """Takes a request or refuses it; returns at once and never raises. Called on Triton's execute thread."""
        now = self._clock()
        number = next(self._ids)
        live = Live(f"r{number}", inbound, sink, arrival_s=now, lane=number)
        desk = self._desk
        with desk.cond:
            refused = desk.core.offer(
                live.id,
                prompt_bytes=inbound.prompt_bytes,
                request_class=inbound.request_class,
                now=now,
                is_probe=inbound.is_probe,
            )
            if refused is None:
                desk.live[live.id] = live
        if refused is not None:
            # Straight to the sink: nothing else was sent there, and a full outbox must not hold up Triton's thread.
            sink.error(refused_line(live, refused))
            return
        try:
            self._intake.submit(self._tokenise, live)
        except RuntimeError:  # the pool is shut down
            desk.fail(live, ErrorCode.NOT_SERVING, "the server is stopping")

    def exchange(self, variant: Variant, drain_timeout_s: float) -> Exchange:
        """Begins to serve `variant` in the place of what is served now; returns at once."""
        wish = Exchange(variant, deadline_s=self._clock() + drain_timeout_s, taken=self._take_tokens)
        self._loop.exchange(wish)
        return wish

    def _take_tokens(self, variant: Variant) -> None:
        self._tokens = (variant.encode, variant.vocabulary)
        self._prefixes = _prefix_index(self._loop.info)  # the new engine's cache is empty

    def replace_policy(self, policy: Policy) -> None:
        """Between two steps of the engine; nothing that was accepted is dropped."""
        with self._desk.cond:
            self._desk.core.replace_policy(policy)
            self._desk.cond.notify_all()

    def refuse_invalid(self, client_id: str, sink: Sink, error: InvalidInput) -> None:
        """A request whose tensors could not be read; it never reaches the core."""
        sink.error(ErrorLine(code=ErrorCode.INVALID, reason=str(error), field=error.field, request_id=client_id))

    def stats(self) -> ServiceStats:
        with self._desk.cond:
            snapshot = self._desk.core.snapshot()
        loop = self._loop
        is_rebuilding = loop.is_rebuilding  # before the age, which is long only while it lasts
        return ServiceStats(
            snapshot=snapshot,
            engine=loop.stats(),
            engine_kind=loop.info.kind,
            outbox_depth=self._outbox.depth,
            engine_restarts=loop.restarts,
            # A send that does not return is Triton's gRPC front end standing still: no client gets anything either.
            engine_loop_age_s=max(loop.age_s, self._outbox.send_age_s),
            is_broken=loop.is_broken,
            is_rebuilding=is_rebuilding,
        )

    def stop(self, timeout_s: float = 10.0) -> None:
        """Waits up to `timeout_s` for what is in flight, then fails the rest: none is left without an answer."""
        desk = self._desk
        desk.drain()
        deadline = self._clock() + timeout_s
        with desk.cond:
            while desk.live and self._clock() < deadline and not self._loop.is_broken:
                desk.cond.wait(0.05)
        self._intake.shutdown(wait=False, cancel_futures=True)
        self._departures.stop(timeout_s)
        self._loop.stop(timeout_s)
        with desk.cond:
            left = list(desk.live.values())
        for live in left:
            desk.fail(live, ErrorCode.NOT_SERVING, "the server stopped before this request was done")
        self._outbox.close(timeout_s)

    def check_integrity(self) -> None:
        with self._desk.cond:
            self._desk.core.check_integrity()

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
        desk, inbound = self._desk, live.inbound
        _check_engine_has(inbound, self._loop.info)
        encode, vocabulary = self._tokens
        live.prompt_ids = encode(inbound)
        if inbound.messages is not None:
            live.chat_state = chat_state(live.prompt_ids, vocabulary)
        hashes = block_hashes(live.prompt_ids) if self._prefixes is not None else ()
        live.detokenizer = Detokenizer(vocabulary, inbound.stop_words)
        if inbound.wants_logprobs:
            live.logprobs = LogprobTrail(vocabulary)
        if inbound.echo_prompt and inbound.text is not None:
            live.prompt_text = inbound.text.decode("utf-8", "replace")
        with desk.cond:
            if live.id not in desk.live:  # cancelled meanwhile
                return
            cached = self._prefixes.match_tokens(hashes) if self._prefixes is not None else 0
            outcome = desk.core.submit(_core_request(live, cached), self._clock())
            if self._prefixes is not None and not isinstance(outcome, Refused):
                self._prefixes.note(hashes)
            desk.cond.notify_all()
        if isinstance(outcome, Refused):
            desk.answer(live, refused_line(live, outcome))


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


def _core_request(live: Live, cached_tokens: int) -> Request:
    inbound = live.inbound
    return Request(
        id=live.id,
        prompt_tokens=len(live.prompt_ids),
        max_tokens=inbound.max_tokens,
        request_class=inbound.request_class,
        tenant=inbound.tenant,
        deadline_ms=inbound.deadline_ms,
        arrival_s=live.arrival_s,
        is_probe=inbound.is_probe,
        cached_tokens=cached_tokens,
    )
