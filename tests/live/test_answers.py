"""Real text through the whole path: characters over several tokens, stop strings, sampling, both clients."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.live.conftest import TINY, Server

from seekserve.client import AsyncClient, Client, GenerateRequest
from seekserve.data import task_file

RECITALS = [json.loads(line) for line in task_file("reciting").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("task", RECITALS[:6], ids=lambda task: task["messages"][-1]["content"][:40])
def test_texts_with_cjk_and_emoji_arrive_whole_and_in_pieces(server: Server, task: dict[str, str]) -> None:
    with (
        Client(server.grpc, TINY) as client,
        client.stream(GenerateRequest(messages=task["messages"], max_tokens=500)) as stream,  # type: ignore[arg-type]
    ):
        pieces = [delta.text for delta in stream]
    assert "".join(pieces) == task["expected"]
    assert len(pieces) > 5
    assert not any("\ufffd" in piece for piece in pieces)


def test_a_stop_string_ends_the_text_before_itself(server: Server) -> None:
    with Client(server.grpc, TINY) as client:
        request = GenerateRequest(messages=[{"role": "user", "content": "Count from 3 to 19."}], stop=["12, 13"])
        done = client.generate(request)
    assert done.text == "3, 4, 5, 6, 7, 8, 9, 10, 11, "
    assert done.finish_reason == "stop"


def test_the_same_seed_gives_the_same_text(server: Server) -> None:
    with Client(server.grpc, TINY) as client:
        request = GenerateRequest(prompt="The", max_tokens=24, temperature=1.5, seed=5, top_k=50)
        other = GenerateRequest(prompt="The", max_tokens=24, temperature=1.5, seed=6, top_k=50)
        assert client.generate(request).text == client.generate(request).text != client.generate(other).text


def test_many_async_streams_at_once_each_get_their_own_answer(server: Server) -> None:
    sums = [(a, 99 - a) for a in range(0, 96, 4)]

    async def ask(client: AsyncClient, a: int, b: int) -> str:
        request = GenerateRequest(messages=[{"role": "user", "content": f"What is {a} + {b}?"}], max_tokens=32)
        return (await client.generate(request)).text

    async def all_of_them() -> list[str]:
        async with AsyncClient(server.grpc, TINY) as client:
            return await asyncio.gather(*(ask(client, a, b) for a, b in sums))

    answers = asyncio.run(all_of_them())
    right = sum(f"{a} + {b} = 99." == answer for (a, b), answer in zip(sums, answers, strict=True))
    assert right >= len(sums) - 1
