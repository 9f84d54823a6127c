"""Everything that touches the LLM object while it serves: submit, read, abort, statistics, watch. On one event loop.

TensorRT-LLM binds results and statistics to the loop that runs when they are made and is not thread-safe, so nothing
here runs anywhere else. A result that raised is never touched again; an abort is never waited for.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ..port import EndReason, EngineError
from .flight import Arrival, Flight
from .mailbox import Mailbox
from .package import Package
from .processes import Workers
from .silence import allowed_silence_s
from .statistics import Statistics

__all__ = ["Driver"]

_log = logging.getLogger(__name__)
_WATCH_PERIOD_S = 1.0
_STATISTICS_WAIT_S = 0.5
_STATISTICS_PAUSE_S = 0.1


class Driver:
    """All methods on the event loop's thread."""

    def __init__(
        self,
        llm: Any,
        package: Package,
        *,
        mailbox: Mailbox,
        workers: Workers,
        statistics: Statistics | None,
        silence_s: float,
    ) -> None:
        self._llm = llm
        self._package = package
        self._mailbox = mailbox
        self._workers = workers
        self._statistics = statistics
        self._silence_s = silence_s
        self._tasks: dict[Flight, asyncio.Task[None]] = {}
        self._results: dict[Flight, Any] = {}
        self._background: list[asyncio.Task[None]] = []
        self._heard_s = 0.0
        self._reads_statistics = self._is_stopping = False

    def start(self) -> None:
        """Watches from now on, also while nothing runs."""
        self._background.append(asyncio.create_task(self._watch()))

    def submit(self, flight: Flight) -> None:
        now = asyncio.get_running_loop().time()
        if not self._tasks:
            self._heard_s = now
        try:
            result = self._llm.generate_async(list(flight.request.prompt_ids), **flight.keywords)
        except Exception as error:
            self._failed(flight, error, is_submission=True)
            return
        self._results[flight] = result
        self._tasks[flight] = asyncio.create_task(self._follow(flight, result))
        if self._statistics is not None and not self._reads_statistics:
            # Before the first request, statistics have nowhere to come from.
            self._reads_statistics = True
            self._background.append(asyncio.create_task(self._read_statistics(self._statistics)))

    def abort(self, flight: Flight) -> None:
        """The engine is told; what still comes of it is dropped, and nobody waits for its end: there may be none."""
        result, task = self._results.pop(flight, None), self._tasks.pop(flight, None)
        if task is not None:
            task.cancel()
        if result is None:
            return
        try:
            result.abort()
        except Exception as error:
            self._broken(error)

    async def stop(self) -> None:
        """Ends every task; the LLM object is the caller's again."""
        for flight in list(self._tasks):
            self.abort(flight)
        self._is_stopping = True
        for task in self._background:
            task.cancel()
        # A cancel can be lost inside the package's own waiting; the flag ends such a task at its next turn.
        if self._background:
            await asyncio.wait(self._background, timeout=2 * _STATISTICS_WAIT_S)

    async def _follow(self, flight: Flight, result: Any) -> None:
        try:
            if flight.is_streamed:
                async for output in result:
                    if self._deliver(flight, output):
                        return
            elif self._deliver(flight, await result):
                return
        except Exception as error:
            self._failed(flight, error)
        else:
            self._end(flight, Arrival(flight=flight, end=EndReason.FAILED, message="it ended without a reason"))

    def _deliver(self, flight: Flight, output: Any) -> bool:
        """Passes one response on; True when it was the last."""
        self._heard_s = asyncio.get_running_loop().time()
        try:
            arrival = flight.read(output)
        except ValueError as error:
            arrival = Arrival(flight=flight, end=EndReason.FAILED, message=str(error))
        if arrival.end is None:
            if arrival.token_ids:
                self._mailbox.put(arrival)
            return False
        if not output.finished:
            output.abort()
        self._end(flight, arrival)
        return True

    def _end(self, flight: Flight, arrival: Arrival) -> None:
        self._forget(flight)
        self._mailbox.put(arrival)

    def _forget(self, flight: Flight) -> None:
        self._results.pop(flight, None)
        self._tasks.pop(flight, None)

    def _failed(self, flight: Flight, error: Exception, *, is_submission: bool = False) -> None:
        """One request's fault, or everybody's: only what the package calls a request's fault is one.

        At submission a ValueError is one too: releases before 2026 refused too long prompts with it.
        """
        of_one = (self._package.request_error, ValueError, TypeError) if is_submission else self._package.request_error
        if not isinstance(error, of_one):
            self._broken(error)
            return
        self._end(flight, Arrival(flight=flight, end=EndReason.FAILED, message=f"{type(error).__name__}: {error}"))

    def _broken(self, error: Exception) -> None:
        dead = self._package.engine_dead
        what = "is dead" if dead is not None and isinstance(error, dead) else "failed"
        fault = EngineError(f"TensorRT-LLM {what}: {type(error).__name__}: {error}")
        fault.__cause__ = error
        self._give_up(fault)

    def _give_up(self, fault: EngineError) -> None:
        self._mailbox.fail(fault)
        for task in self._tasks.values():
            if task is not asyncio.current_task():
                task.cancel()
        self._tasks.clear()
        self._results.clear()

    async def _watch(self) -> None:
        while not self._is_over():
            await asyncio.sleep(_WATCH_PERIOD_S)
            pid = self._workers.dead_rank()
            if pid is not None:
                self._give_up(EngineError(f"TensorRT-LLM's worker {pid} is gone; what it worked on would never end"))
            elif self._tasks:
                self._check_silence()

    def _is_over(self) -> bool:
        return self._is_stopping or self._mailbox.fault is not None

    def _check_silence(self) -> None:
        silent_s = asyncio.get_running_loop().time() - self._heard_s
        allowed_s = allowed_silence_s(self._tasks, least_s=self._silence_s)
        if silent_s > allowed_s:
            self._give_up(
                EngineError(
                    f"TensorRT-LLM has said nothing for {silent_s:.0f} s with {len(self._tasks)} requests running "
                    f"(allowed: {allowed_s:.0f} s); it hangs or is dead"
                )
            )

    async def _read_statistics(self, statistics: Statistics) -> None:
        """The only reader there may be: reading drains, and two would steal from each other."""
        loop = asyncio.get_running_loop()
        while not self._is_over():
            try:
                async for row in self._llm.get_stats_async(timeout=_STATISTICS_WAIT_S):
                    statistics.take(row, loop.time())
                    if self._is_over():
                        return
            except Exception as error:
                _log.warning("no statistics from TensorRT-LLM any more (%s: %s)", type(error).__name__, error)
                return
            await asyncio.sleep(_STATISTICS_PAUSE_S)
