"""The queue between the engine's thread and one result.

Tied to the event loop that ran when the result was made, or to none. A waiter that is cancelled loses nothing. Once it
has been read without a loop, a loop may not read it any more.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import deque
from typing import Any

__all__ = ["MixedSyncAsyncAPIError", "ResultQueue", "running_loop"]

logger = logging.getLogger("tensorrt_llm")


class MixedSyncAsyncAPIError(Exception):
    """A queue was read both with and without an event loop."""


def running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class ResultQueue:
    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop
        self._items: deque[Any] = deque()
        self._arrived = threading.Condition()
        self._event = asyncio.Event() if loop is not None else None
        self._tainted = False

    def put(self, item: Any) -> None:
        """From any thread. What is meant for a loop that has ended is lost, as the real dispatcher loses it."""
        with self._arrived:
            self._items.append(item)
            self._arrived.notify_all()
        if self.loop is not None and self._event is not None:
            try:
                self.loop.call_soon_threadsafe(self._event.set)
            except RuntimeError:
                logger.error("the event loop of a result has ended; the response is lost")

    def is_empty(self) -> bool:
        return not self._items

    async def get(self) -> Any:
        assert self._event is not None, "made without an event loop: asynchronous use is not possible"
        if self._tainted:
            raise MixedSyncAsyncAPIError("this result was read synchronously before")
        while not self._items:
            self._event.clear()
            if self._items:
                break
            await self._event.wait()
        return self._items.popleft()

    def get_blocking(self, timeout_s: float | None = None) -> Any:
        """Raises queue.Empty after `timeout_s`; None waits for ever."""
        if self.loop is not None and not self._tainted:
            logger.warning("synchronous use of an asynchronous result")
            self._tainted = True
        with self._arrived:
            if not self._arrived.wait_for(lambda: bool(self._items), timeout_s):
                raise queue.Empty
            return self._items.popleft()
