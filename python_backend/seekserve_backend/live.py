"""One request while the service holds it: its answers so far, and how the next piece becomes a chunk."""

from __future__ import annotations

from .answers import Chunk, Inbound
from .contract.refusal import ErrorLine
from .core.types import Release
from .engines.port import EngineRequest
from .logprobs import LogprobTrail
from .outbox import Sink
from .text.detokenizer import Detokenizer

__all__ = ["Live"]


class Live:
    """Owned by the service: fields change under its lock or on the engine thread only."""

    __slots__ = (
        "_held",
        "_is_first",
        "arrival_s",
        "chat_state",
        "completion_tokens",
        "detokenizer",
        "id",
        "inbound",
        "is_closed",
        "lane",
        "logprobs",
        "prompt_ids",
        "prompt_text",
        "queue_ms",
        "sink",
    )

    def __init__(self, id: str, inbound: Inbound, sink: Sink, *, arrival_s: float, lane: int) -> None:
        self.id = id
        self.inbound = inbound
        self.sink = sink
        self.arrival_s = arrival_s
        self.lane = lane
        self.prompt_ids: tuple[int, ...] = ()
        self.prompt_text = ""
        self.chat_state: str | None = None
        """Of a chat: whether its answer begins inside the reasoning."""
        self.detokenizer: Detokenizer | None = None
        self.logprobs: LogprobTrail | None = None
        """For a request that wants them."""
        self.queue_ms = 0.0
        self.completion_tokens = 0
        self.is_closed = False
        """True once its terminal answer is on the way; everything later about it is ignored."""
        self._held: list[str] = []
        self._is_first = True

    @property
    def public_id(self) -> str:
        """The client's own id where it gave one."""
        return self.inbound.client_id or self.id

    def piece(self, text: str) -> Chunk | None:
        """The chunk for a piece of text in mid-stream; None when there is nothing to send yet."""
        if not self.inbound.stream:
            self._held.append(text)
            return None
        return self._chunk(text, None) if text else None

    def last(self, text: str, finish_reason: str) -> Chunk:
        """The final chunk, with everything that was held back."""
        self._held.append(text)
        chunk = self._chunk("".join(self._held), finish_reason)
        self._held.clear()
        self.is_closed = True
        return chunk

    def finish(self, text: str, finish_reason: str) -> Chunk:
        """The final chunk when the engine ended the request: the tail of the text, which may hold a stop string."""
        assert self.detokenizer is not None, "tokenised before it was released"
        text += self.detokenizer.flush()
        return self.last(text, "stop" if self.detokenizer.stopped else finish_reason)

    def error(self, line: ErrorLine) -> ErrorLine:
        self.is_closed = True
        self._held.clear()
        return line

    def _chunk(self, text: str, finish_reason: str | None) -> Chunk:
        is_first, self._is_first = self._is_first, False
        is_last = finish_reason is not None
        logprobs, cumulative = self._take_logprobs(len(text), is_last=is_last)
        if is_first and self.inbound.echo_prompt:
            text = self.prompt_text + text
        return Chunk(
            text=text,
            completion_tokens=self.completion_tokens,
            finish_reason=finish_reason,
            prompt_tokens=len(self.prompt_ids) if is_last else None,
            queue_ms=self.queue_ms if is_first or is_last else None,
            num_input_tokens=len(self.prompt_ids) if is_last and self.inbound.wants_num_input_tokens else None,
            num_output_tokens=self.completion_tokens if is_last and self.inbound.wants_num_output_tokens else None,
            logprobs=logprobs,
            cumulative_logprob=cumulative,
            chat_state=self.chat_state if is_first else None,
        )

    def _take_logprobs(self, text_chars: int, *, is_last: bool) -> tuple[tuple[float, ...] | None, float | None]:
        trail = self.logprobs
        if trail is None:
            return None, None
        is_cut = self.detokenizer is not None and self.detokenizer.stopped
        taken = trail.take(text_chars, is_last=is_last, is_cut=is_cut)
        return taken or None, trail.cumulative

    def engine_request(self, release: Release) -> EngineRequest:
        """What the engine is asked, within what the scheduler released."""
        inbound = self.inbound
        return EngineRequest(
            id=self.id,
            prompt_ids=self.prompt_ids,
            max_tokens=release.max_tokens,
            sampling=inbound.sampling,
            stop_ids=() if inbound.end_id is None else (inbound.end_id,),
            wants_logprobs=inbound.wants_logprobs,
            beam_width=min(inbound.beam_width, release.max_beam_width or inbound.beam_width),
        )
