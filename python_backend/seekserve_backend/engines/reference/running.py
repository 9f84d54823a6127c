"""One request while the engine has it: its tokens so far, its place in the cache, how it picks tokens.

Changed by the engine alone. Invariant: cached_tokens < known_tokens while it runs, since the newest token is always
still to be computed.
"""

from __future__ import annotations

import torch

from ..port import EngineRequest
from .sampling import Sampler

__all__ = ["Running"]


class Running:
    __slots__ = (
        "blocks",
        "cached_tokens",
        "ids",
        "is_cancelled",
        "known_tokens",
        "last_step",
        "request",
        "row",
        "sampler",
        "stop_ids",
    )

    def __init__(self, request: EngineRequest, *, row: int, eos_ids: tuple[int, ...]) -> None:
        prompt_tokens = len(request.prompt_ids)
        self.request = request
        self.row = row
        self.blocks: tuple[int, ...] = ()
        self.stop_ids = request.stop_ids or eos_ids
        self.sampler = Sampler(request.sampling, prompt_tokens=prompt_tokens, stop_ids=self.stop_ids)
        self.ids = torch.empty(prompt_tokens + request.max_tokens, dtype=torch.int64)
        self.ids[:prompt_tokens] = torch.tensor(request.prompt_ids)
        self.known_tokens = prompt_tokens
        self.cached_tokens = 0
        self.last_step = -1
        self.is_cancelled = False

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def produced_tokens(self) -> int:
        return self.known_tokens - len(self.request.prompt_ids)

    @property
    def is_decoding(self) -> bool:
        return self.produced_tokens > 0

    def append(self, token: int) -> None:
        self.ids[self.known_tokens] = token
        self.known_tokens += 1
