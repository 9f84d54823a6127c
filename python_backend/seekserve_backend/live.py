"""One request while the service holds it: who asked, and how a piece of the answer becomes a response to that one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .answers import Chunk, Inbound
from .contract.refusal import ErrorLine
from .core.types import Request
from .outbox import Sink
from .record import Piece, Place, Record, joined
from .work import Work

__all__ = ["AWAY", "Live"]


class _Away:
    """The sink of a client that is not there, and may come back."""

    def send(self, chunk: Chunk) -> None:
        pass

    def error(self, line: ErrorLine) -> None:
        pass

    def is_cancelled(self) -> bool:
        return False

    def hold_s(self) -> float:
        return 0.0


AWAY = _Away()


class Live:
    """Owned by the service: fields change under its lock or on the engine thread only."""

    __slots__ = (
        "_held",
        "_is_first",
        "arrival_s",
        "begun_s",
        "chat_state",
        "first_token_s",
        "hang_up",
        "has_token",
        "id",
        "inbound",
        "is_closed",
        "is_joined",
        "lane",
        "last_token_s",
        "place",
        "prefix_hashes",
        "prompt_text",
        "public_id",
        "queue_ms",
        "request_class",
        "sink",
        "token",
        "work",
    )

    def __init__(self, id: str, inbound: Inbound, sink: Sink, *, arrival_s: float, lane: int) -> None:
        self.id = id
        """Of its entry in the core; changes places with another's when that one's work is handed over to it."""
        self.public_id = inbound.client_id or id
        """The client's own id where it gave one."""
        self.inbound = inbound
        self.sink = sink
        self.arrival_s = arrival_s
        self.begun_s = arrival_s
        """From when its work is measured: the arrival of the one that the work was begun for."""
        self.lane = lane
        self.work: Work | None = None
        """From when it was tokenised."""
        self.is_joined = False
        """Its entry in the core is JOINED: the work is another's."""
        self.place = Place()
        """Of the work's record, if it has one: what was sent."""
        self.token: str | None = None
        """With which its client may come back."""
        self.has_token = False
        """The client has been told."""
        self.prompt_text = ""
        self.chat_state: str | None = None
        """Of a chat: whether its answer begins inside the reasoning."""
        self.prefix_hashes: Sequence[int] = ()
        self.queue_ms = 0.0
        self.request_class = ""
        """That the core serves it as; empty before it is offered."""
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None
        self.is_closed = False
        """True once its terminal answer is on the way; everything later about it is ignored."""
        self.hang_up: Callable[[], None] | None = None
        """While another model answers it: tells that model that nobody listens any more."""
        self._held: list[Piece] = []
        self._is_first = True

    @property
    def is_away(self) -> bool:
        return self.sink is AWAY

    def core_request(self, cached_tokens: int) -> Request:
        assert self.work is not None, "tokenised before it is submitted"
        inbound = self.inbound
        return Request(
            id=self.id,
            prompt_tokens=len(self.work.prompt_ids),
            answer_tokens=len(self.work.prompt_ids) - self.work.first_prompt_tokens,
            max_tokens=self.work.inbound.max_tokens,
            request_class=None,  # chosen when it was offered
            tenant=inbound.tenant,
            deadline_ms=inbound.deadline_ms,
            arrival_s=self.arrival_s,
            is_probe=inbound.is_probe,
            cached_tokens=cached_tokens,
        )

    def chunk(self, piece: Piece) -> Chunk | None:
        """The response for a piece; None when there is nothing to send yet."""
        if self.inbound.stream:
            return self._chunk(piece) if piece.text or piece.finish_reason is not None else None
        self._held.append(piece)
        if piece.finish_reason is None:
            return None
        whole, self._held = joined(self._held), []
        return self._chunk(whole)

    def catch_up(self, record: Record) -> Chunk | None:
        """The response for everything that was said since the last one."""
        piece, self.place = record.since(self.place)
        return None if piece is None else self.chunk(piece)

    def heartbeat(self, now: float) -> Chunk:
        waited_ms = max(0.0, (now - self.arrival_s) * 1000.0)
        token = None if self.has_token else self.token
        self.has_token = token is not None or self.has_token
        return Chunk(text="", completion_tokens=0, queue_ms=waited_ms, resume_token=token, is_heartbeat=True)

    def error(self, line: ErrorLine) -> ErrorLine:
        self.is_closed = True
        self._held.clear()
        return line

    def _chunk(self, piece: Piece) -> Chunk:
        work, inbound = self.work, self.inbound
        assert work is not None, "tokenised before it was released"
        is_first, self._is_first = self._is_first, False
        is_last = piece.finish_reason is not None
        if not (is_first or is_last):
            return Chunk(
                text=piece.text,
                completion_tokens=piece.completion_tokens,
                logprobs=piece.logprobs or None,
                cumulative_logprob=piece.cumulative_logprob,
            )
        self.is_closed = self.is_closed or is_last
        self.has_token = self.token is not None
        prompt_tokens = work.first_prompt_tokens if is_last else None
        return Chunk(
            text=self.prompt_text + piece.text if is_first else piece.text,
            completion_tokens=piece.completion_tokens,
            finish_reason=piece.finish_reason,
            prompt_tokens=prompt_tokens,
            queue_ms=self.queue_ms,
            num_input_tokens=prompt_tokens if inbound.wants_num_input_tokens else None,
            num_output_tokens=piece.completion_tokens if is_last and inbound.wants_num_output_tokens else None,
            logprobs=piece.logprobs or None,
            cumulative_logprob=piece.cumulative_logprob,
            # Again, if a heartbeat had it: that one may be dropped as too late.
            resume_token=self.token if is_first else None,
            chat_state=self.chat_state if is_first else None,
        )
