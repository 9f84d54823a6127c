"""Leaving early, by any way, reaches the server as a gRPC cancel; leaving late or twice harms nobody."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from drive import HELLO, Drive
from fake_server import PATIENCE_S, Call, Running, chunk

from seekserve.client import AsyncClient, Client, GenerateRequest
from seekserve.client.sync import close_within
from seekserve.errors import RequestFailed


def endless(call: Call) -> Iterator[Any]:
    yield chunk("a", final=False)
    yield chunk("b", final=False)
    call.hang()


def numbered(call: Call) -> Iterator[Any]:
    for number in range(5):
        yield chunk(f"{call.request.id}.{number} ", final=number == 4)


def assert_cancelled(server: Running) -> None:
    assert server.last.is_ended.wait(PATIENCE_S)
    assert server.last.was_cancelled


def test_leaving_the_block_cancels(server: Running, drive: Drive) -> None:
    server.triton.script = endless
    assert [delta.text for delta in drive(server.url, leave_after=1).deltas] == ["a"]
    assert_cancelled(server)


def test_a_finished_request_is_not_cancelled(server: Running, drive: Drive) -> None:
    assert drive(server.url).done.text == "ok"
    assert server.last.is_ended.wait(PATIENCE_S)
    assert not server.last.was_cancelled


def test_the_request_is_half_closed_at_once_and_that_is_no_cancel(server: Running, drive: Drive) -> None:
    def script(call: Call) -> Iterator[Any]:
        assert call.is_half_closed.wait(PATIENCE_S)
        yield chunk("after half-close", final=True)

    server.triton.script = script
    assert drive(server.url).done.text == "after half-close"


def test_breaking_out_of_a_bare_loop_cancels(server: Running) -> None:
    server.triton.script = endless
    with Client(server.url, "m") as client:
        for _ in client.stream(HELLO):
            break
        gc.collect()
        assert_cancelled(server)


def test_breaking_out_of_a_bare_async_loop_cancels(server: Running) -> None:
    server.triton.script = endless

    async def run() -> None:
        async with AsyncClient(server.url, "m") as client:
            async for _ in client.stream(HELLO):
                break
            gc.collect()
            await asyncio.to_thread(assert_cancelled, server)

    asyncio.run(run())


def test_an_exception_in_the_body_cancels_and_passes_through(server: Running) -> None:
    server.triton.script = endless
    with Client(server.url, "m") as client:

        def use() -> None:
            with client.stream(HELLO) as stream:
                next(stream)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            use()
        assert_cancelled(server)


def test_cancelling_the_task_cancels_the_request(server: Running) -> None:
    server.triton.script = endless

    async def run() -> None:
        async with AsyncClient(server.url, "m") as client:
            is_started = asyncio.Event()

            async def read() -> None:
                async with client.stream(HELLO) as stream:
                    async for _ in stream:
                        is_started.set()

            task = asyncio.create_task(read())
            await is_started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(assert_cancelled, server)

    asyncio.run(run())


def test_closing_from_elsewhere_ends_a_waiting_reader_with_an_error(server: Running) -> None:
    server.triton.script = endless
    with Client(server.url, "m") as client:
        stream = client.stream(HELLO)
        assert [next(stream).text, next(stream).text] == ["a", "b"]
        closer = threading.Timer(0.1, stream.close)
        closer.start()
        with pytest.raises(RequestFailed, match="cancelled by this client"):
            next(stream)
        closer.join()
        assert_cancelled(server)


def test_closing_an_async_stream_from_another_task_ends_its_reader_with_an_error(server: Running) -> None:
    server.triton.script = endless

    async def run() -> None:
        async with AsyncClient(server.url, "m") as client:
            stream = client.stream(HELLO)
            assert [(await anext(stream)).text, (await anext(stream)).text] == ["a", "b"]
            asyncio.get_running_loop().call_later(0.1, stream.close)
            with pytest.raises(RequestFailed, match="cancelled by this client"):
                await anext(stream)
            await asyncio.to_thread(assert_cancelled, server)

    asyncio.run(run())


def test_closing_twice_and_after_the_end_does_nothing(server: Running) -> None:
    with Client(server.url, "m") as client:
        stream = client.stream(HELLO)
        assert [delta.text for delta in stream] == ["ok"]
        stream.close()
        stream.close()
        assert list(stream) == []
        assert stream.completion.text == "ok"


def test_closing_the_client_cancels_what_runs(server: Running) -> None:
    server.triton.script = endless
    client = Client(server.url, "m")
    stream = client.stream(HELLO)
    next(stream)
    client.close()
    assert_cancelled(server)
    with pytest.raises(RequestFailed):
        list(stream)
    client.close()


def test_many_streams_of_one_client_do_not_disturb_each_other(server: Running) -> None:
    server.triton.script = numbered

    async def run() -> list[str]:
        async with AsyncClient(server.url, "m") as client:
            requests = [GenerateRequest(prompt="x", request_id=str(i)) for i in range(8)]
            return [done.text for done in await asyncio.gather(*map(client.generate, requests))]

    assert asyncio.run(run()) == ["".join(f"{i}.{n} " for n in range(5)) for i in range(8)]


def test_threads_may_share_a_blocking_client(server: Running) -> None:
    server.triton.script = numbered
    with Client(server.url, "m") as client, ThreadPoolExecutor(8) as pool:
        requests = [GenerateRequest(prompt="x", request_id=str(i)) for i in range(24)]
        texts = [done.text for done in pool.map(client.generate, requests)]
    assert texts == ["".join(f"{i}.{n} " for n in range(5)) for i in range(24)]


def test_a_closed_client_leaves_no_thread_and_takes_no_request(server: Running) -> None:
    before = {thread for thread in threading.enumerate() if thread.name.startswith("seekserve")}
    with Client(server.url, "m") as client:
        client.generate(HELLO)
    after = {thread for thread in threading.enumerate() if thread.name.startswith("seekserve")}
    assert after <= before
    with pytest.raises((RuntimeError, ValueError)):
        client.generate(HELLO)


def test_closing_gives_up_on_a_channel_that_never_closes() -> None:
    class Stuck:
        def __init__(self) -> None:
            self.may_end = threading.Event()

        def close(self) -> None:
            self.may_end.wait(PATIENCE_S)

    channel = Stuck()
    close_within(channel, 0.05)
    assert not channel.may_end.is_set()
    channel.may_end.set()
