"""From an accepted request to one that the core has queued: tokenised, then joined to an equal one, or submitted.

`take` and `stop` may be called from any thread and return at once; the work is done on the threads of a small pool. The
other methods are called with the desk's lock held. What a thread of the pool takes up is queued, joined, routed or
answered when it is done with it, unless its client has left meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor

from .answers import Chunk, Inbound, InvalidInput
from .contract.refusal import ErrorCode, ErrorLine
from .core.prefixes import PrefixIndex, block_hashes
from .core.types import Refused
from .desk import Desk, refused_line
from .engine_keeper import EngineKeeper
from .engine_loop import EngineLoop
from .engines.port import EngineInfo
from .handover import Handover
from .live import Live
from .record import Record
from .sharing import Sharing
from .streams import Streams
from .text.reasoning import chat_state
from .text.token_bytes import TokenBytes
from .work import Work

__all__ = ["Intake"]

_log = logging.getLogger(__name__)


class Intake:
    def __init__(
        self,
        desk: Desk,
        keeper: EngineKeeper,
        loop: EngineLoop,
        streams: Streams,
        handover: Handover,
        *,
        encode: Callable[[Inbound], tuple[int, ...]],
        vocabulary: TokenBytes,
        workers: int,
    ) -> None:
        self._desk = desk
        self._keeper = keeper
        self._loop = loop
        self._sharing = Sharing(desk)
        self._streams = streams
        self._handover = handover
        self._tokens = (encode, vocabulary)
        """Replaced as a whole: it is read without the lock."""
        self._prefixes = _prefix_index(keeper.info)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="seekserve-intake")

    @property
    def looks_up_prefixes(self) -> bool:
        return self._prefixes is not None

    def take(self, live: Live) -> None:
        """One that the core has accepted."""
        try:
            self._pool.submit(self._tokenise, live)
        except RuntimeError:  # the pool is shut down
            self._desk.fail(live, ErrorCode.NOT_SERVING, "the server is stopping")

    def replace(self, encode: Callable[[Inbound], tuple[int, ...]], vocabulary: TokenBytes) -> None:
        """The keeper has another engine, of another bundle."""
        self._tokens = (encode, vocabulary)
        self._prefixes = _prefix_index(self._keeper.info)  # the new engine's cache is empty
        self.share_anew()

    def share_anew(self) -> None:
        """Another bundle, or another policy: what was answered until now answers nothing more."""
        self._sharing.begin_anew()

    def stop(self) -> None:
        """What still waits for a thread is not taken in any more, and is the caller's to answer."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _tokenise(self, live: Live) -> None:
        """Whatever goes wrong here ends the request: nobody reads the pool's futures."""
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
            answer = self._share(live, work) or self.submit(live, self._variants_for(live))
            desk.cond.notify_all()
        if answer is not None:
            desk.answer(live, answer)

    def _variants_for(self, live: Live) -> Collection[str]:
        """Models that may answer it instead. A stream that is kept for its client is kept here."""
        inbound = live.inbound
        return () if inbound.is_routed or inbound.resumable else self._handover.open_models()

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

    def submit(self, live: Live, variants: Collection[str] = ()) -> ErrorLine | None:
        """A refusal is the caller's to answer, without it."""
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
            self._handover.start(live, outcome.route_to, outcome.max_tokens)
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
