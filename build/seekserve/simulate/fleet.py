"""Many replicas behind a router: round robin, least loaded by price, or where the prompt's beginning is cached already.

A router knows what it sent where and what has ended, not what goes on inside. Its work for one request does not grow
with the number of replicas.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from seekserve.errors import InputError

from .price import Prices
from .records import Arrival

__all__ = ["ROUTERS", "LeastLoaded", "PrefixAware", "RoundRobin", "Router", "make_router"]

_EXPECTED_OUTPUT_TOKENS = 256.0
_REMEMBERED_BLOCKS = 1_000_000
_SAVING_WEIGHT = 4.0
"""What is read once is asked for again: a cached prefix is worth this many times what it saves now."""
_SLACK = 64


class Router(Protocol):
    def choose(self, id: str, arrival: Arrival) -> int:
        """The replica that is asked for it; `gone` must follow."""
        ...

    def gone(self, id: str) -> None:
        """It was refused or has ended."""
        ...


class RoundRobin:
    def __init__(self, replicas: int, prices: Prices) -> None:
        self._replicas = replicas
        self._next = 0

    def choose(self, id: str, arrival: Arrival) -> int:
        chosen = self._next
        self._next = (chosen + 1) % self._replicas
        return chosen

    def gone(self, id: str) -> None:
        """Nothing was remembered."""


class LeastLoaded:
    """By the engine time of what is queued or running; the first of equals."""

    def __init__(self, replicas: int, prices: Prices) -> None:
        self._prices = prices
        self.load_ms = [0.0] * replicas
        self._heap = [(0.0, n) for n in range(replicas)]
        """(load, replica), with loads that are no longer true still in it"""
        self._sent: dict[str, tuple[int, float]] = {}

    def choose(self, id: str, arrival: Arrival) -> int:
        return self._send(id, self.least_loaded(), self._cost_ms(arrival, 0))

    def gone(self, id: str) -> None:
        chosen, cost_ms = self._sent.pop(id)
        self._add(chosen, -cost_ms)

    def least_loaded(self) -> int:
        heap = self._heap
        while heap[0][0] != self.load_ms[heap[0][1]]:
            heapq.heappop(heap)
        return heap[0][1]

    def _cost_ms(self, arrival: Arrival, cached_tokens: int) -> float:
        expected = min(_EXPECTED_OUTPUT_TOKENS, arrival.max_tokens)
        prompt = arrival.prompt_tokens
        return self._prices.prompt_ms(prompt, cached_tokens) + self._prices.output_ms(prompt, expected)

    def _send(self, id: str, chosen: int, cost_ms: float) -> int:
        self._sent[id] = (chosen, cost_ms)
        self._add(chosen, cost_ms)
        return chosen

    def _add(self, replica: int, ms: float) -> None:
        self.load_ms[replica] += ms
        heapq.heappush(self._heap, (self.load_ms[replica], replica))
        if len(self._heap) > 4 * len(self.load_ms) + _SLACK:
            self._heap = [(load, n) for n, load in enumerate(self.load_ms)]
            heapq.heapify(self._heap)


class PrefixAware(LeastLoaded):
    """The replica that was last sent most of the prompt from its start, unless it is busier by more than that."""

    def __init__(self, replicas: int, prices: Prices, *, block_tokens: int = 512) -> None:
        super().__init__(replicas, prices)
        self._block_tokens = block_tokens
        self._seen: OrderedDict[int, int] = OrderedDict()

    def choose(self, id: str, arrival: Arrival) -> int:
        chosen = self.least_loaded()
        cost_ms = self._cost_ms(arrival, 0)
        warm, tokens = self._warm(arrival)
        if warm is not None:
            warm_ms = self._cost_ms(arrival, min(tokens, arrival.prompt_tokens - 1))
            if self.load_ms[warm] - self.load_ms[chosen] <= _SAVING_WEIGHT * (cost_ms - warm_ms):
                chosen, cost_ms = warm, warm_ms
        for block in arrival.blocks:
            self._seen[block] = chosen
            self._seen.move_to_end(block)
        while len(self._seen) > _REMEMBERED_BLOCKS:
            self._seen.popitem(last=False)
        return self._send(id, chosen, cost_ms)

    def _warm(self, arrival: Arrival) -> tuple[int | None, int]:
        seen = self._seen
        count = next((n for n, block in enumerate(arrival.blocks) if block not in seen), len(arrival.blocks))
        if not count:
            return None, 0
        return seen[arrival.blocks[count - 1]], count * self._block_tokens


ROUTERS: dict[str, Callable[[int, Prices], Router]] = {
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
    "prefix-aware": PrefixAware,
}


def make_router(name: str, replicas: int, prices: Prices) -> Router:
    if name not in ROUTERS:
        raise InputError(f"--router {name!r} is not known", hint=f"one of {', '.join(ROUTERS)}")
    return ROUTERS[name](replicas, prices)
