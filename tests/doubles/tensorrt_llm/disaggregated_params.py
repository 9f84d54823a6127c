"""State passed between a context server and a generation server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["DisaggregatedParams"]

_TYPES = ("context_only", "generation_only", "context_and_generation")


@dataclass(slots=True, kw_only=True)
class DisaggregatedParams:
    request_type: str | None = None
    first_gen_tokens: list[int] | None = None
    ctx_request_id: int | None = None
    opaque_state: bytes | None = None
    draft_tokens: list[int] | None = None
    multimodal_embedding_handles: list[dict[str, Any]] | None = field(default=None)
    multimodal_hashes: list[list[int]] | None = None

    def __post_init__(self) -> None:
        if self.request_type is not None:
            self.request_type = self.request_type.lower()
            if self.request_type not in _TYPES:
                raise ValueError(f"request_type {self.request_type!r} is not one of {', '.join(_TYPES)}")
