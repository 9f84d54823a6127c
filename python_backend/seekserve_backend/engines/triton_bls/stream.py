"""One request and what the stock model still holds for it.

The two end at different times: a cancelled request is over for the service at once, while its slot and KV blocks in the
stock model are free only when its stream has really ended. Fields change on the engine loop's thread alone, except
`handle`, which the stream's own thread sets once.
"""

from __future__ import annotations

import enum

from ..port import EndReason, EngineRequest, TokenEvent
from .outputs import read_piece
from .port import StockCall, StockResponse, StockStream

__all__ = ["Phase", "Stream", "StreamError"]


class StreamError(Exception):
    """The stock model answered, but not as it should; of this request alone."""


class Phase(enum.Enum):
    WAITING = "waiting"  # not handed over yet
    OPENING = "opening"  # handed over, no response yet
    RUNNING = "running"
    DRAINING = "draining"  # over for the service, not for the stock model
    LOST = "lost"  # draining for so long that its place is no longer counted


class Stream:
    __slots__ = (
        "_has_output",
        "_is_answered",
        "_max_seq_len_tokens",
        "blocks",
        "call",
        "drains_since_s",
        "handle",
        "heard_s",
        "is_stop_queued",
        "phase",
        "produced_tokens",
        "request",
        "sent_s",
        "stop_again_s",
        "stop_ids",
    )

    def __init__(
        self,
        request: EngineRequest,
        call: StockCall,
        *,
        blocks: int,
        stop_ids: tuple[int, ...],
        max_seq_len_tokens: int,
        now: float,
    ) -> None:
        self.request = request
        self.call = call
        self.blocks = blocks
        self.stop_ids = frozenset(stop_ids)
        self.phase = Phase.WAITING
        self.produced_tokens = 0
        self.heard_s = self.sent_s = now
        self.drains_since_s = self.stop_again_s = 0.0
        self.is_stop_queued = False
        self.handle: StockStream | None = None
        self._max_seq_len_tokens = max_seq_len_tokens
        self._has_output = self._is_answered = False

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def is_over(self) -> bool:
        """For the service: what still comes is dropped."""
        return self.phase in (Phase.DRAINING, Phase.LOST)

    @property
    def is_unanswered(self) -> bool:
        """Handed over and without a response, even when it was cancelled since."""
        return self.phase is Phase.OPENING or (self.is_over and not self._is_answered)

    def answered(self) -> bool:
        """To be called with each response or end; True for the first."""
        is_first, self._is_answered = not self._is_answered, True
        return is_first

    def take(self, response: StockResponse) -> tuple[TokenEvent | None, EndReason | None]:
        """Tokens of one response, and the end where it can be told already. Raises StreamError."""
        try:
            piece = read_piece(response.values, self.stop_ids)
        except (IndexError, TypeError) as error:
            raise StreamError(f"a response of another shape than the stock model's: {error!r}") from error
        if piece is None:
            return None, None
        self._has_output = True
        count = len(piece.token_ids)
        self.produced_tokens += count
        if self.produced_tokens > self.request.max_tokens:
            raise StreamError(
                f"{self.produced_tokens} tokens where {self.request.max_tokens} were asked for; "
                "does something between repeat earlier tokens?"
            )
        if self.request.wants_logprobs and len(piece.logprobs) != count:
            raise StreamError(f"{len(piece.logprobs)} log probabilities for {count} tokens; they were asked for")
        event = TokenEvent(id=self.id, token_ids=piece.token_ids, logprobs=piece.logprobs) if count else None
        if piece.is_stopped:
            return event, EndReason.STOP
        return event, EndReason.LENGTH if self._is_at_a_limit else None

    def finish(self) -> EndReason:
        """Why the stream ended by itself. Raises StreamError for one that brought nothing at all."""
        if not self._has_output:
            raise StreamError("its stream ended without any output")
        # The executor does not say why, and may keep the end id to itself.
        return EndReason.LENGTH if self._is_at_a_limit else EndReason.STOP

    @property
    def _is_at_a_limit(self) -> bool:
        total = len(self.request.prompt_ids) + self.produced_tokens
        return self.produced_tokens == self.request.max_tokens or total >= self._max_seq_len_tokens
