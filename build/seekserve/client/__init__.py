"""Typed gRPC streaming clients, blocking and asyncio: deltas, usage, typed refusals, cancel on abandon.

Importing it imports gRPC: the command line does so inside a command. They never hang: every wait has a bound.
"""

from __future__ import annotations

from seekserve.client.aio import AsyncClient, AsyncStream
from seekserve.client.assemble import TextKind
from seekserve.client.chat import AnswerReader, ChatAnswer, ToolCall, read_answer
from seekserve.client.request import Completion, Delta, GenerateRequest, ServerInfo
from seekserve.client.sync import Client, Stream

__all__ = [
    "AnswerReader",
    "AsyncClient",
    "AsyncStream",
    "ChatAnswer",
    "Client",
    "Completion",
    "Delta",
    "GenerateRequest",
    "ServerInfo",
    "Stream",
    "TextKind",
    "ToolCall",
    "read_answer",
]
