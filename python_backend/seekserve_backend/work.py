"""What the engine does for a request, or for several that asked the same: tokens become text once, whoever listens.

`lives` is replaced as a whole and only under the service's lock, so the engine's thread may read it without; everything
about tokens belongs to that thread alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .answers import Inbound
from .core.types import Release
from .engines.port import EngineRequest
from .logprobs import LogprobTrail
from .record import Piece, Record
from .text.detokenizer import Detokenizer
from .text.token_bytes import TokenBytes

if TYPE_CHECKING:
    from .live import Live

__all__ = ["Work"]


class Work:
    __slots__ = (
        "carried_tokens",
        "completion_tokens",
        "detokenizer",
        "first_prompt_tokens",
        "granted_tokens",
        "has_begun",
        "id",
        "inbound",
        "is_over",
        "is_paused",
        "is_whole",
        "key",
        "lives",
        "logprobs",
        "produced_ids",
        "prompt_ids",
        "record",
        "vocabulary",
    )

    def __init__(self, id: str, inbound: Inbound, prompt_ids: tuple[int, ...], vocabulary: TokenBytes) -> None:
        self.id = id
        """Of the request in the core, and of the one in the engine."""
        self.inbound = inbound
        """Wishes that all who listen share."""
        self.prompt_ids = prompt_ids
        self.first_prompt_tokens = len(prompt_ids)
        """Of the client's prompt; what the engine reads is more for work that was paused."""
        self.vocabulary = vocabulary
        self.detokenizer = Detokenizer(vocabulary, inbound.stop_words)
        self.logprobs = LogprobTrail(vocabulary) if inbound.wants_logprobs else None
        self.completion_tokens = 0
        self.carried_tokens = 0
        """Of these, made by the work that this one continues."""
        self.has_begun = False
        """The first token is there, since it was last given to the engine."""
        self.produced_ids: list[int] | None = None
        """Kept for work that may be paused."""
        self.lives: tuple[Live, ...] = ()
        """Who listens. The one whose id this is stands in the core as queued or running, the others as joined."""
        self.record: Record | None = None
        """Kept for those who may come later; most work has none."""
        self.key: Hashable | None = None
        """Under which equal requests find it."""
        self.granted_tokens = 0
        """max_tokens as accepted."""
        self.is_whole = True
        """False: pressure lowered what was asked for, so the answer is none for others."""
        self.is_over = False
        """Nothing that the engine still says about it is of interest."""
        self.is_paused = False
        """It is over for the engine, and `continued` goes on with it."""

    def again(self, id: str) -> Work:
        """The same for another request; nothing came of it since it was given to the engine."""
        work = self._heir(id, self.inbound, self.prompt_ids)
        work.key = self.key
        return work

    @property
    def made_tokens(self) -> int:
        """By this work alone."""
        return self.completion_tokens - self.carried_tokens

    @property
    def can_pause(self) -> bool:
        """True when reading prompt and answer again brings the same rest."""
        if self.produced_ids is None or len(self.lives) != 1:
            return False
        sampling = self.inbound.sampling
        is_greedy = sampling.temperature == 0.0 and self.inbound.beam_width == 1
        if not is_greedy or self.inbound.sampling.guide is not None:  # a guide would ask for a whole answer once more
            return False
        penalties = (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty - 1.0)
        return not any(penalties) and len(self.produced_ids) < self.granted_tokens

    def continued(self, id: str) -> Work:
        """The rest of paused work, for another request. Takes over the record and everything half said."""
        assert self.produced_ids is not None, "only what can be paused is"
        made = len(self.produced_ids)
        sampling = replace(self.inbound.sampling, min_tokens=max(0, self.inbound.sampling.min_tokens - made))
        inbound = replace(self.inbound, sampling=sampling, max_tokens=self.granted_tokens - made)
        return self._heir(id, inbound, (*self.prompt_ids, *self.produced_ids))

    def _heir(self, id: str, inbound: Inbound, prompt_ids: tuple[int, ...]) -> Work:
        work = Work(id, inbound, prompt_ids, self.vocabulary)
        work.first_prompt_tokens = self.first_prompt_tokens
        work.completion_tokens = work.carried_tokens = self.completion_tokens
        work.detokenizer, work.logprobs, work.record = self.detokenizer, self.logprobs, self.record
        work.produced_ids = None if self.produced_ids is None else []
        return work

    def feed(self, token_ids: Sequence[int], logprobs: Sequence[float], ended: str | None) -> Piece | None:
        """What these tokens add to the text; with `ended`, or after a stop string, the last piece."""
        self.has_begun = True
        self.completion_tokens += len(token_ids)
        if self.produced_ids is not None:
            self.produced_ids += token_ids
        if self.logprobs is not None:
            self.logprobs.add(token_ids, logprobs)
        piece = self.detokenizer.feed(token_ids)
        if piece.stopped:
            return self._piece(piece.text, "stop")
        if ended is not None:
            return self.end(ended, piece.text)
        return self._piece(piece.text, None) if piece.text else None

    def end(self, finish_reason: str, text: str = "") -> Piece:
        """The last piece when the engine ended it: the tail of the text, which may hold a stop string."""
        text += self.detokenizer.flush()
        return self._piece(text, "stop" if self.detokenizer.stopped else finish_reason)

    def _piece(self, text: str, finish_reason: str | None) -> Piece:
        trail = self.logprobs
        if trail is None:
            return Piece(text, self.completion_tokens, finish_reason)
        is_cut = self.detokenizer.stopped
        numbers = trail.take(len(text), is_last=finish_reason is not None, is_cut=is_cut)
        return Piece(text, self.completion_tokens, finish_reason, numbers, trail.cumulative)

    def engine_request(self, release: Release) -> EngineRequest:
        """What the engine is asked, within what the scheduler released."""
        inbound = self.inbound
        beam_width = min(inbound.beam_width, release.max_beam_width or inbound.beam_width)
        self.is_whole = release.max_tokens == self.granted_tokens and beam_width == inbound.beam_width
        return EngineRequest(
            id=self.id,
            prompt_ids=self.prompt_ids,
            max_tokens=release.max_tokens,
            sampling=inbound.sampling,
            stop_ids=() if inbound.end_id is None else (inbound.end_id,),
            wants_logprobs=inbound.wants_logprobs,
            beam_width=beam_width,
        )

    @property
    def size_bytes(self) -> int:
        """Of what is kept for those who come later."""
        tokens = len(self.prompt_ids) + len(self.produced_ids or ())
        return 8 * tokens + (0 if self.record is None else self.record.size_bytes)
