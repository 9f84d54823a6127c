"""Present since 1.3; its fields are not established by the sources, so the double refuses to make one."""

from __future__ import annotations

from tensorrt_llm._double.guard import violation
from tensorrt_llm._double.profile import PROFILE

if PROFILE.api != "P13":
    raise ImportError(f"tensorrt_llm {PROFILE.version} has no conversation_params")

__all__ = ["ConversationParams"]


class ConversationParams:
    def __init__(self, **given: object) -> None:
        violation("unestablished", f"the fields of ConversationParams are not known, but got {', '.join(given)}")
