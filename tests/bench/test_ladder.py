from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from fake_server import Call, Running, chunk, error

from seekserve.bench.ladder import Cell, climb, ladder_text
from seekserve.bench.prompts import Prompts
from seekserve.bench.utilisation import read_percent
from seekserve.client import AsyncClient


def climbed(server: Running) -> list[Cell]:
    async def go() -> list[Cell]:
        async with AsyncClient(server.url, "m") as client:
            prompts = Prompts(None, seed=0)
            return await climb(client, prompts, prompt_tokens=(4, 8), concurrencies=(1, 3), output_tokens=5, rounds=2)

    return asyncio.run(go())


def test_every_length_meets_every_number_of_clients(server: Running) -> None:
    server.triton.script = lambda _: iter([chunk("a"), chunk("b", final=True, finish="length", tokens=5)])
    cells = climbed(server)
    assert [(cell.prompt_tokens, cell.concurrency, cell.requests) for cell in cells] == [
        (4, 1, 2),
        (4, 3, 6),
        (8, 1, 2),
        (8, 3, 6),
    ]
    assert all(cell.output_tokens_per_s > 0 and cell.e2e_p99_s >= cell.e2e_p95_s > 0 for cell in cells)
    assert len(ladder_text(cells).splitlines()) == 5


def test_what_was_not_served_is_counted_and_does_not_end_the_climb(server: Running) -> None:
    def fails(_: Call) -> Iterator[Any]:
        yield error("broken")

    server.triton.script = fails
    cells = climbed(server)
    assert [cell.unserved for cell in cells] == [2, 6, 2, 6]
    assert cells[0].to_json()["e2e_p99_s"] is None


@pytest.mark.parametrize(
    ("text", "percent"), [("40\n60\n", 50.0), ("[N/A]\n", None), ("", None), ("100\n[N/A]\n", 100.0), ("7.5\n", 7.5)]
)
def test_utilisation_is_the_mean_of_the_gpus_that_report_it(text: str, percent: float | None) -> None:
    assert read_percent(text) == percent
