"""Sends each request at its time, whatever became of those before, and writes down what came of it.

Every latency counts from the intended time of sending, so a client that falls behind cannot hide a server that does;
by how much it fell behind is recorded beside it. No request is forgotten: what has no answer when the run is over is
counted as such.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from seekserve.errors import InputError, Refused, RequestFailed, SeekserveError, TimedOut
from seekserve.simulate.records import Arrival, Clients, Outcome

if TYPE_CHECKING:
    from seekserve.client import AsyncClient, AsyncStream, Delta, GenerateRequest

__all__ = ["Options", "Recording", "Refusal", "Shot", "fire"]

_LOOP_CHECK_S = 0.02
_AHEAD_S = 0.05
_OF_ONE_REQUEST = re.compile(r" \(request [^)]*\)")


@dataclass(frozen=True, slots=True)
class Shot:
    arrival: Arrival
    request: GenerateRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    clients: Clients = field(default_factory=Clients)
    cancel_share: float = 0.0
    """Part of the requests, by lot, that are given up `cancel_after_s` after they were sent."""
    cancel_after_s: float = 1.0
    drain_s: float = 60.0
    """How long answers are waited for after the last request was sent."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    prompt_tokens: int
    code: str
    ms: float
    """From the intended time of sending."""
    sent_ms: float
    """From when it was really sent."""


@dataclass(slots=True)
class Recording:
    outcomes: list[Outcome]
    started_s: float = 0.0
    """Second 0 of the run on `time.perf_counter`."""
    end_s: float = 0.0
    send_lag_ms: list[float] = field(default_factory=list)
    loop_lag_ms: list[float] = field(default_factory=list)
    gaps_ms: dict[int, int] = field(default_factory=dict)
    """Gaps between two responses of streamed answers, rounded up to whole milliseconds -> how many."""
    refusals: list[Refusal] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    """What failed requests were told -> how many."""
    unanswered: int = 0
    """Requests on which nothing arrived for longer than the client's timeout."""
    cut_off: int = 0
    """Requests that were still open when the run's time was over."""
    sent: int = 0
    open: int = 0


async def fire(
    client: AsyncClient,
    shots: Sequence[Shot],
    options: Options,
    *,
    progress: Callable[[float, Recording], None] | None = None,
) -> Recording:
    """`shots` in the order of time. `progress` is called about once a second with the time of the run."""
    return await _Run(client, shots, options, progress).go()


class _Run:
    def __init__(
        self,
        client: AsyncClient,
        shots: Sequence[Shot],
        options: Options,
        progress: Callable[[float, Recording], None] | None,
    ) -> None:
        self._client = client
        self._shots = shots
        self._options = options
        self._progress = progress
        self._recording = Recording([Outcome(shot.arrival) for shot in shots])
        self._start_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        lot = random.Random(f"cancels-{options.seed}")
        self._is_given_up = [lot.random() < options.cancel_share for _ in shots]

    def _now_s(self) -> float:
        return time.perf_counter() - self._start_s

    async def go(self) -> Recording:
        # A stream packs its request when it is made: done now, it does not hold up the sending.
        streams = deque(self._client.stream(shot.request) for shot in self._shots)
        await self._client.model()
        self._start_s = self._recording.started_s = time.perf_counter() + _AHEAD_S
        watching = asyncio.create_task(self._watch())
        try:
            for n, shot in enumerate(self._shots):
                await self._sleep_until(shot.arrival.time_s)
                task = asyncio.create_task(self._one(n, streams.popleft()))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await self._drain()
        finally:
            watching.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(watching, *self._tasks, return_exceptions=True)
        self._recording.end_s = self._now_s()
        return self._recording

    async def _drain(self) -> None:
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=self._options.drain_s)
        self._recording.cut_off = sum(outcome.state == "open" for outcome in self._recording.outcomes)

    async def _sleep_until(self, time_s: float) -> None:
        while (left_s := time_s - self._now_s()) > 0.0:
            await asyncio.sleep(left_s)

    async def _watch(self) -> None:
        """Takes the event loop's pulse, and reports progress."""
        recording, said_s = self._recording, 0.0
        while True:
            before = time.perf_counter()
            await asyncio.sleep(_LOOP_CHECK_S)
            recording.loop_lag_ms.append(1000.0 * (time.perf_counter() - before - _LOOP_CHECK_S))
            now = self._now_s()
            if self._progress is not None and now - said_s >= 1.0:
                said_s = now
                recording.open = len(self._tasks)
                self._progress(now, recording)

    async def _one(self, n: int, stream: AsyncStream) -> None:
        outcome, clients = self._recording.outcomes[n], self._options.clients
        asked_s, attempt = outcome.arrival.time_s, 1
        while True:
            outcome.asked_s, outcome.tries = asked_s, attempt
            outcome.state, outcome.first_s, outcome.hint_ms = "open", None, None
            await self._try(outcome, stream, is_given_up=self._is_given_up[n])
            if outcome.state == "finished" or self._is_given_up[n] or attempt > clients.retries:
                return
            was_told_never = outcome.state in ("refused", "expired") and outcome.hint_ms is None
            if was_told_never and clients.honours_hint:
                return
            hint_s = clients.backoff_s if outcome.hint_ms is None else outcome.hint_ms / 1000.0
            asked_s = self._now_s() + (hint_s if clients.honours_hint else clients.backoff_s)
            attempt += 1
            outcome.wasted_tokens += outcome.tokens
            outcome.tokens = 0
            stream = self._client.stream(self._shots[n].request)
            await self._sleep_until(asked_s)

    async def _try(self, outcome: Outcome, stream: AsyncStream, *, is_given_up: bool) -> None:
        recording, loop = self._recording, asyncio.get_running_loop()
        sent_s = self._now_s()
        recording.sent += 1
        recording.send_lag_ms.append(1000.0 * (sent_s - outcome.asked_s))
        timers = []
        if is_given_up:
            timers.append(loop.call_later(self._options.cancel_after_s, stream.close))
        if self._options.clients.patience_s is not None:
            timers.append(loop.call_later(self._options.clients.patience_s, _lose_patience, outcome, stream))
        try:
            await self._read(outcome, stream)
        except SeekserveError as error:
            self._note(outcome, error, sent_s)
        finally:
            for timer in timers:
                timer.cancel()
            stream.close()

    async def _read(self, outcome: Outcome, stream: AsyncStream) -> None:
        gaps, last_s = self._recording.gaps_ms, 0.0
        async for delta in stream:
            now = self._now_s()
            outcome.tokens = _tokens(delta, outcome.tokens)
            if outcome.first_s is None:
                outcome.first_s = now
            else:
                gap_ms = int(1000.0 * (now - last_s)) + 1
                gaps[gap_ms] = gaps.get(gap_ms, 0) + 1
            last_s = now
        outcome.end_s = self._now_s()
        if outcome.first_s is None:
            outcome.first_s = outcome.end_s
        outcome.tokens = stream.completion.completion_tokens or outcome.tokens
        if stream.completion.queue_ms is not None:
            outcome.released_s = outcome.asked_s + stream.completion.queue_ms / 1000.0
        outcome.state = "left" if stream.completion.finish_reason == "cancelled" else "finished"

    def _note(self, outcome: Outcome, error: SeekserveError, sent_s: float) -> None:
        now, recording = self._now_s(), self._recording
        outcome.end_s = now
        if isinstance(error, (Refused, InputError)):  # what cannot be served as it is counts as refused for good
            code = error.code if isinstance(error, Refused) else "invalid"
            outcome.state = "expired" if code == "expired" else "refused"
            outcome.hint_ms = error.retry_after_ms if isinstance(error, Refused) else None
            ms, sent_ms = 1000.0 * (now - outcome.asked_s), 1000.0 * (now - sent_s)
            recording.refusals.append(Refusal(outcome.arrival.prompt_tokens, code, ms, sent_ms))
            return
        if isinstance(error, TimedOut):
            recording.unanswered += 1
        is_ours = isinstance(error, RequestFailed) and "cancelled by this client" in error.message
        outcome.state = "left" if is_ours else "failed"
        if not is_ours:
            what = _OF_ONE_REQUEST.sub("", error.message)[:160]
            recording.failures[what] = recording.failures.get(what, 0) + 1


def _lose_patience(outcome: Outcome, stream: AsyncStream) -> None:
    if outcome.first_s is None:
        stream.close()


def _tokens(delta: Delta, before: int) -> int:
    """Servers that do not say how many so far send one token in each response."""
    return before + 1 if delta.completion_tokens is None else delta.completion_tokens
