"""Tool calls in a model's output, in DeepSeek's own markers, read as the text streams in."""

from __future__ import annotations

from .events import CallArguments, CallEnd, CallStart, Content, Event
from .parser import ToolCallParser

__all__ = ["CallArguments", "CallEnd", "CallStart", "Content", "Event", "ToolCallParser"]
