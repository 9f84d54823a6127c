"""An event loop in a daemon thread: what hangs in it must not keep the process from ending."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["LoopThread", "run_with_deadline"]

T = TypeVar("T")


class LoopThread:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Runs it there soon, in the order of calls; nothing happens once the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Raises TimeoutError when it takes longer; it is cancelled then."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise TimeoutError(f"not done within {timeout_s:.0f} s") from None

    def time(self) -> float:
        return self._loop.time()

    def close(self, timeout_s: float) -> None:
        self.call(self._loop.stop)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.close()


def run_with_deadline(function: Callable[[], T], timeout_s: float, *, name: str) -> T:
    """Runs it in a daemon thread of its own. Raises what it raises, or TimeoutError and leaves the thread behind."""
    done: concurrent.futures.Future[T] = concurrent.futures.Future()

    def target() -> None:
        try:
            done.set_result(function())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=target, name=name, daemon=True).start()
    try:
        return done.result(timeout_s)
    except concurrent.futures.TimeoutError:
        if done.done():
            raise
        raise TimeoutError(f"not done within {timeout_s:.0f} s") from None
