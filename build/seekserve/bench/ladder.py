"""The ladder of fixed lengths: so many clients at once, each with one request after the other, for every prompt length.

A closed loop, so it shows what the server can do and never what it does under overload.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seekserve.errors import SeekserveError
from seekserve.simulate.records import Arrival
from seekserve.simulate.stats import percentile

from .prompts import Prompts
from .utilisation import watched

if TYPE_CHECKING:
    from seekserve.client import AsyncClient, Completion

__all__ = ["CONCURRENCIES", "PROMPT_TOKENS", "Cell", "climb", "ladder_text"]

PROMPT_TOKENS = (1024, 2048, 4096)
CONCURRENCIES = (4, 8, 16, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    prompt_tokens: int
    concurrency: int
    output_tokens: int
    requests: int
    """That were answered to the end."""
    unserved: int
    """That were refused or failed."""
    output_tokens_per_s: float
    e2e_p50_s: float
    e2e_p95_s: float
    e2e_p99_s: float
    ttft_p95_s: float
    ttft_p99_s: float
    gpu_percent: float | None
    """Mean over GPUs and time; None where nothing reports it."""

    def to_json(self) -> dict[str, object]:
        values = {name: getattr(self, name) for name in self.__slots__}
        return {
            name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()
        }


async def climb(
    client: AsyncClient,
    prompts: Prompts,
    *,
    prompt_tokens: Sequence[int] = PROMPT_TOKENS,
    concurrencies: Sequence[int] = CONCURRENCIES,
    output_tokens: int = 128,
    rounds: int = 4,
    has_classes: bool = False,
    progress: Callable[[str], None] | None = None,
) -> list[Cell]:
    """Each client sends `rounds` requests a cell."""
    cells = []
    for length in prompt_tokens:
        for concurrency in concurrencies:
            if progress is not None:
                progress(f"prompt {length}, {concurrency} at once")
            arrival = Arrival(0.0, length, output_tokens, "", output_tokens)
            cells.append(await _cell(client, prompts, arrival, concurrency, rounds, has_classes))
    return cells


async def _cell(
    client: AsyncClient, prompts: Prompts, arrival: Arrival, concurrency: int, rounds: int, has_classes: bool
) -> Cell:
    done: list[Completion] = []
    unserved = 0
    streams = [
        [client.stream(prompts.request_for(arrival, stream=True, has_classes=has_classes)) for _ in range(rounds)]
        for _ in range(concurrency)
    ]

    async def one(n: int) -> None:
        nonlocal unserved
        for stream in streams[n]:
            try:
                async with stream:
                    async for _ in stream:
                        pass
                done.append(stream.completion)
            except SeekserveError:
                unserved += 1

    async with watched() as utilisation:
        started_s = time.perf_counter()
        await asyncio.gather(*(one(n) for n in range(concurrency)))
        wall_s = time.perf_counter() - started_s
    e2e_s = [each.e2e_s for each in done]
    ttft_s = [each.ttft_s for each in done if each.ttft_s is not None]
    return Cell(
        prompt_tokens=arrival.prompt_tokens,
        concurrency=concurrency,
        output_tokens=arrival.output_tokens,
        requests=len(done),
        unserved=unserved,
        output_tokens_per_s=sum(each.completion_tokens or 0 for each in done) / wall_s,
        e2e_p50_s=percentile(e2e_s, 0.5),
        e2e_p95_s=percentile(e2e_s, 0.95),
        e2e_p99_s=percentile(e2e_s, 0.99),
        ttft_p95_s=percentile(ttft_s, 0.95),
        ttft_p99_s=percentile(ttft_s, 0.99),
        gpu_percent=utilisation.mean_percent,
    )


def ladder_text(cells: Sequence[Cell]) -> str:
    lines = ["prompt  clients  requests  unserved   tokens/s  E2E p95 s  E2E p99 s  TTFT p95 s  TTFT p99 s  GPU %"]
    for cell in cells:
        gpu = "-" if cell.gpu_percent is None else f"{cell.gpu_percent:.0f}"
        lines.append(
            f"{cell.prompt_tokens:>6}  {cell.concurrency:>7}  {cell.requests:>8}  {cell.unserved:>8}  "
            f"{cell.output_tokens_per_s:>9.1f}  {cell.e2e_p95_s:>9.3f}  {cell.e2e_p99_s:>9.3f}  "
            f"{cell.ttft_p95_s:>10.3f}  {cell.ttft_p99_s:>10.3f}  {gpu:>5}"
        )
    return "\n".join(lines)
