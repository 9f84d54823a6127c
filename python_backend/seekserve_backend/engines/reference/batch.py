"""What takes part in the next step, and in which forward passes.

Pure: works on token counts. `plan_step` keeps within the step's token budget, `group_packs` splits the planned work so
that no single pass is wasteful. The same sequences in the same order give the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

__all__ = ["Chunk", "Progress", "group_packs", "plan_step"]


class Progress(Protocol):
    """One request as the planner sees it."""

    @property
    def known_tokens(self) -> int:
        """Prompt plus produced tokens."""
        ...

    @property
    def cached_tokens(self) -> int:
        """Of those, the ones whose latents are in the KV cache."""
        ...

    @property
    def is_decoding(self) -> bool:
        """At least one token is produced, so one token of work gives the next."""
        ...

    @property
    def last_step(self) -> int:
        """Number of the step it last took part in, -1 before the first."""
        ...


P = TypeVar("P", bound=Progress)


@dataclass(frozen=True, slots=True)
class Chunk(Generic[P]):
    """Tokens `start` to `start + tokens` of one request, to be computed in this step."""

    sequence: P
    start: int
    tokens: int

    @property
    def context_tokens(self) -> int:
        return self.start + self.tokens

    @property
    def yields_token(self) -> bool:
        """The last known token is in it, so its logits decide the next one."""
        return self.context_tokens == self.sequence.known_tokens


def plan_step(sequences: Sequence[P], *, max_num_tokens: int, prefill_chunk_tokens: int) -> list[Chunk[P]]:
    """`sequences` in order of arrival; a step takes at most one chunk of each.

    Decoding first, then prefill; when decoding alone fills the step, the least recently served of all come first.
    """
    decoding = [sequence for sequence in sequences if sequence.is_decoding]
    if len(decoding) < max_num_tokens:
        order = decoding + [sequence for sequence in sequences if not sequence.is_decoding]
    else:
        # Otherwise the latest arrivals, prefill included, would stand still until earlier requests have ended.
        order = sorted(sequences, key=lambda sequence: sequence.last_step)
    chunks: list[Chunk[P]] = []
    budget_tokens = max_num_tokens
    for sequence in order:
        if budget_tokens == 0:
            break
        pending = sequence.known_tokens - sequence.cached_tokens
        tokens = min(pending, prefill_chunk_tokens, budget_tokens)
        chunks.append(Chunk(sequence, sequence.cached_tokens, tokens))
        budget_tokens -= tokens
    return chunks


def group_packs(chunks: Sequence[Chunk[P]], *, pack_tokens: int, pack_context_tokens: int) -> list[list[Chunk[P]]]:
    """Consecutive chunks that share one forward pass; a chunk above a limit gets a pass of its own.

    In a packed pass every query meets every key and the mask removes other requests' keys. While few queries share a
    pass this is cheap next to expanding the latents, hence the first limit; the second bounds the expanded memory.
    """
    packs: list[list[Chunk[P]]] = []
    tokens = context = 0
    for chunk in chunks:
        fits = tokens + chunk.tokens <= pack_tokens and context + chunk.context_tokens <= pack_context_tokens
        if not packs or not fits:
            packs.append([])
            tokens = context = 0
        packs[-1].append(chunk)
        tokens += chunk.tokens
        context += chunk.context_tokens
    return packs
