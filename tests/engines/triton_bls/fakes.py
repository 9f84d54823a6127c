"""A stock model in this process that says what a test makes it say, to one stream after the other."""

from __future__ import annotations

import collections
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

from seekserve_backend.contract.bundle import KvCache
from seekserve_backend.engines.port import EndEvent, EngineInfo, EngineRequest, EngineStepReport
from seekserve_backend.engines.triton_bls.engine import StockEngine, Timing
from seekserve_backend.engines.triton_bls.link import Link
from seekserve_backend.engines.triton_bls.port import StockCall, StockResponse

__all__ = ["Clock", "FakeStock", "Seen", "make_engine", "request", "values"]

END_ID = 1
_KV = KvCache(dtype="bf16", block_tokens=4, capacity_blocks=64, bytes_per_token=1)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class FakeStock:
    """Streams are named by the first token of their prompt. `obeys`: a stop ends the stream it names."""

    def __init__(self, *, obeys: bool = True, can_cancel: bool = False) -> None:
        self.obeys = obeys
        self.can_cancel = can_cancel
        self.calls: list[StockCall] = []
        self.stops: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.error_at_open: Exception | None = None
        self._said: dict[int, queue.SimpleQueue[StockResponse | None]] = collections.defaultdict(queue.SimpleQueue)
        self._names: dict[str, int] = {}
        self._lock = threading.Lock()

    def say(self, name: int, *token_ids: int, **more: Any) -> None:
        self._said[name].put(StockResponse(values=values(token_ids, **more)))

    def fail(self, name: int, text: str) -> None:
        self._said[name].put(StockResponse(values={}, error=text))

    def end(self, name: int) -> None:
        self._said[name].put(None)

    def open(self, call: StockCall) -> _FakeStream:
        inputs = {tensor.name: tensor for tensor in call.inputs}
        with self._lock:
            self.calls.append(call)
        if "stop" in inputs:
            return self._stop(call.request_id)
        if self.error_at_open is not None:
            raise self.error_at_open
        name = int(inputs["input_ids"].values[0])
        with self._lock:
            self._names[call.request_id] = name
        return _FakeStream(self, call.request_id, self._said[name], self._said[name].get())

    def _stop(self, request_id: str) -> _FakeStream:
        ends: queue.SimpleQueue[StockResponse | None] = queue.SimpleQueue()
        self.stops.put(request_id)
        if self.obeys:
            self.end(self._names[request_id])
        return _FakeStream(self, request_id, ends, None)

    def cancel(self, request_id: str) -> bool:
        if self.can_cancel:
            self.stops.put("cancel " + request_id)
            self.end(self._names[request_id])
        return self.can_cancel


class _FakeStream:
    def __init__(self, stock: FakeStock, request_id: str, said: Any, first: StockResponse | None) -> None:
        self._stock = stock
        self._request_id = request_id
        self._said = said
        self._first = first

    def __iter__(self) -> Iterator[StockResponse]:
        response = self._first
        while response is not None:
            yield response
            response = self._said.get()

    def cancel(self) -> bool:
        return self._stock.cancel(self._request_id)


def values(token_ids: Any, **more: Any) -> dict[str, Any]:
    return {"output_ids": [[list(token_ids)]], "sequence_length": [[len(token_ids)]], **more}


class Seen:
    """What an engine reported, by request."""

    def __init__(self, engine: StockEngine) -> None:
        self.engine = engine
        self.tokens: dict[str, list[int]] = collections.defaultdict(list)
        self.logprobs: dict[str, list[float]] = collections.defaultdict(list)
        self.ends: dict[str, EndEvent] = {}

    def step(self, timeout_s: float = 0.0) -> EngineStepReport:
        report = self.engine.step(timeout_s)
        assert len({event.id for event in report.tokens}) == len(report.tokens)
        for event in report.tokens:
            assert event.id not in self.ends
            self.tokens[event.id] += event.token_ids
            self.logprobs[event.id] += event.logprobs
        for end in report.ends:
            assert end.id not in self.ends, "one end for each request"
            self.ends[end.id] = end
        self.engine.check_integrity()
        return report

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(500):
            if holds():
                return
            self.step(0.02)
        raise AssertionError((dict(self.tokens), self.ends))


def make_engine(
    stock: FakeStock,
    *,
    link: Link | None = None,
    clock: Callable[[], float] | None = None,
    max_batch_size: int = 4,
    max_opening: int = 8,
    max_beam_width: int = 1,
    may_pause: bool = False,
    **timing: float,
) -> StockEngine:
    info = EngineInfo(
        kind="triton",
        max_seq_len_tokens=64,
        max_batch_size=max_batch_size,
        block_tokens=_KV.block_tokens,
        kv_total_blocks=_KV.capacity_blocks,
        vocab_size=100,
        eos_ids=(END_ID,),
        has_logprobs=True,
        max_beam_width=max_beam_width,
        may_pause=may_pause,
    )
    return StockEngine(
        link or Link(stock, max_streams=2 * max_batch_size),
        info,
        _KV,
        max_opening=max_opening,
        timing=Timing(**{"gather_s": 0.0, "close_wait_s": 0.0, **timing}),
        clock=clock or Clock(),
    )


def request(name: int, *, max_tokens: int = 8, **fields: Any) -> EngineRequest:
    return EngineRequest(id=f"r{name}", prompt_ids=(name, 5, 6), max_tokens=max_tokens, **fields)
