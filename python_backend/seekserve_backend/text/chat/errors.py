"""What is wrong with a conversation or its options, in the words of whoever sent it."""

from __future__ import annotations

__all__ = ["ChatError"]


class ChatError(ValueError):
    """A conversation or its options cannot be honoured; `field` is what the client calls it."""

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"{field}: {reason}")
