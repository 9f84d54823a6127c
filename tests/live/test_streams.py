"""Streams that outlive their connection, equal requests, heartbeats: the real server, the reference engine."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from tests.live.conftest import TINY, Deployment, Server, run_cli
from tests.live.dropping_proxy import DroppingProxy
from tests.live.test_safety import recover_from_known_crash, settled_counts

from seekserve.client import AsyncClient, Client, GenerateRequest
from seekserve.errors import InputError, RequestFailed, SeekserveError, ServerError
from seekserve_backend.contract.bundle import Bundle
from seekserve_backend.contract.policy import POLICY_FILE, Policy

POLICY = """
name: shared
classes:
  interactive: {priority: 0, max_queue_requests: 256, deadline_ms: 60000}
repeat_cache: {enabled: true}
resume: {resume_ttl_s: 2.0, max_streams: 64}
"""
LONG = {"prompt": "Count from 1 to 99.", "max_tokens": 160, "min_tokens": 160}


@pytest.fixture(scope="module")
def server(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("streams")
    (folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
    repository = folder / "repository"
    run_cli(
        "render",
        deployment.folder / "bundle",
        "--out",
        repository,
        "--name",
        TINY,
        "--policy",
        folder / "policy.yaml",
    )
    started = Server(deployment, repository=repository)
    try:
        yield started
    finally:
        code = started.stop()
    assert code == 0, started.report()


@pytest.fixture
def proxy(server: Server) -> Iterator[DroppingProxy]:
    made = DroppingProxy(server.grpc)
    yield made
    made.close()


def expected(server: Server, **wishes: object) -> str:
    """The same by a tenant of its own, so that nothing is shared."""
    with Client(server.grpc, TINY) as client:
        request = GenerateRequest(**{**LONG, **wishes}, tenant="nobody else")  # type: ignore[arg-type]
        return client.generate(request).text


def figure(server: Server, name: str) -> float:
    """From a flush that began after this call; there is one a second."""
    time.sleep(2.1)
    return server.metric(f"seekserve_{name}", TINY)


def test_dropped_connections_do_not_show_in_the_text(server: Server, proxy: DroppingProxy) -> None:
    whole = expected(server)
    before = settled_counts(server, TINY)
    with Client(proxy.url, TINY) as client:
        stream = client.stream(GenerateRequest(**LONG, tenant="a"), reconnects=8)  # type: ignore[arg-type]
        for n, _ in enumerate(stream):
            if n in (3, 20, 40):
                proxy.drop()
        assert stream.completion.text == whole
        assert (stream.completion.completion_tokens, stream.completion.finish_reason) == (160, "length")
    after = settled_counts(server, TINY)
    returns = after["offered"] - before["offered"] - 1
    assert 1 <= returns <= 8
    assert after["cancelled"] + after["finished"] - before["cancelled"] - before["finished"] == returns + 1
    assert after["failed"] == before["failed"]


def test_the_asyncio_client_comes_back_too(server: Server, proxy: DroppingProxy) -> None:
    whole = expected(server, seed=5, temperature=0.8)

    async def run() -> str:
        async with AsyncClient(proxy.url, TINY) as client:
            request = GenerateRequest(**LONG, seed=5, temperature=0.8, tenant="b")  # type: ignore[arg-type]
            stream = client.stream(request, reconnects=8)
            n = 0
            async for _ in stream:
                n += 1
                if n == 5:
                    proxy.drop()
            return stream.completion.text

    assert asyncio.run(run()) == whole


def test_a_stream_is_fetched_by_its_token_for_as_long_as_it_is_kept_and_by_its_tenant_alone(server: Server) -> None:
    whole = expected(server)
    with Client(server.grpc, TINY) as client:
        stream = client.stream(GenerateRequest(**LONG, resumable=True, tenant="c"))  # type: ignore[arg-type]
        first = next(stream).text + next(stream).text
        token, received = stream.resume_token, stream.received_bytes
        assert token is not None
        assert len(token) >= 32
        stream.leave()
        with pytest.raises(InputError, match="no stream of yours") as foreign:
            client.generate(GenerateRequest(resume_token=token, tenant="d"))
        with pytest.raises(InputError) as unknown:
            client.generate(GenerateRequest(resume_token="x" * 32, tenant="d"))
        assert str(foreign.value) == str(unknown.value)
        with client.resume(token, received_bytes=received, tenant="c") as rest:
            assert first + "".join(delta.text for delta in rest) == whole
        with client.resume(token, received_bytes=len(whole.encode()), tenant="c") as rest:
            assert [delta.text for delta in rest] == [""]
            assert rest.completion.finish_reason == "length"
        time.sleep(2.5)
        with pytest.raises(InputError, match="no stream of yours"):
            client.generate(GenerateRequest(resume_token=token, tenant="c"))


def test_leaving_on_purpose_frees_the_engine_at_once(server: Server) -> None:
    before = settled_counts(server, TINY)
    with Client(server.grpc, TINY) as client:
        request = GenerateRequest(prompt="Count", max_tokens=400, min_tokens=400, resumable=True, tenant="e")
        with client.stream(request) as stream:
            next(stream)
    after = settled_counts(server, TINY)
    assert after["cancelled"] - before["cancelled"] == 1
    assert after["finished"] - before["finished"] == 1, "the farewell"
    assert server.metric("seekserve_kept_streams", TINY) == 0


def test_equal_requests_run_the_engine_once(server: Server) -> None:
    asked = GenerateRequest(**LONG, tenant="f")  # type: ignore[arg-type]
    tokens = figure(server, "output_tokens_total")
    joins, hits = (server.metric(f"seekserve_repeat_{name}_total", TINY) for name in ("joins", "hits"))
    with Client(server.grpc, TINY) as client:
        first, second = client.stream(asked), client.stream(asked)
        texts = ["".join(delta.text for delta in stream) for stream in (first, second)]
        again = client.generate(asked)
    assert texts == [again.text, again.text]
    assert again.completion_tokens == 160
    assert figure(server, "output_tokens_total") - tokens == 160
    assert server.metric("seekserve_repeat_joins_total", TINY) - joins == 1
    assert server.metric("seekserve_repeat_hits_total", TINY) - hits == 1
    assert server.metric("seekserve_repeat_bytes", TINY) > 0
    settled_counts(server, TINY)


def test_who_waits_in_the_queue_hears_of_it(server: Server, deployment: Deployment) -> None:
    slots = Bundle.load(deployment.folder / "bundle").limits.max_batch_size
    with Client(server.grpc, TINY) as client, ExitStack() as fillers:
        for n in range(slots):
            request = GenerateRequest(prompt=f"Count {n}", max_tokens=400, min_tokens=400, tenant="g")
            next(fillers.enter_context(client.stream(request)))
        asked = GenerateRequest(prompt="late", max_tokens=3, heartbeat_ms=100, resumable=True, tenant="g")
        with client.stream(asked) as stream:
            deltas = [next(stream), next(stream)]
            assert stream.resume_token is not None, "known while it waits"
            waits = [delta.queue_ms or 0.0 for delta in deltas]
            assert [delta.text for delta in deltas] == ["", ""]
            assert 0 < waits[0] < waits[1]
            fillers.close()
            assert "".join(delta.text for delta in stream)


def test_a_stream_may_pause_while_its_client_is_away(server: Server) -> None:
    """Last of those with this policy: it is replaced, while serving."""
    whole = expected(server)
    text = POLICY.replace("resume_ttl_s: 2.0", "resume_ttl_s: 20.0, work_while_away: false")
    file = server.repository / TINY / POLICY_FILE
    before, old = settled_counts(server, TINY), file.read_text(encoding="utf-8")
    generation = server.metric("seekserve_policy_generation", TINY)
    file.write_text(Policy.from_data(yaml.safe_load(text), "test").to_json(), encoding="utf-8")
    until(lambda: server.metric("seekserve_policy_generation", TINY) == generation + 1)
    with Client(server.grpc, TINY) as client:
        stream = client.stream(GenerateRequest(**LONG, resumable=True, tenant="h"))  # type: ignore[arg-type]
        first = next(stream).text + next(stream).text
        token, received = stream.resume_token, stream.received_bytes
        assert token is not None
        stream.leave()
        assert settled_counts(server, TINY)["cancelled"] == before["cancelled"] + 1
        assert server.metric("seekserve_kv_used_blocks", TINY) == 0
        with client.resume(token, received_bytes=received, tenant="h") as rest:
            assert first + "".join(delta.text for delta in rest) == whole
            assert rest.completion.completion_tokens == 160
        client.give_up(token, "h")  # under this policy it would be kept for long
    file.write_text(old, encoding="utf-8")
    until(lambda: server.metric("seekserve_policy_generation", TINY) == generation + 2)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def storm(server: Server) -> list[str]:
    """How each of 120 streams ended: lost, resumed, given up, shared or read to the end, at any moment."""
    ended: list[str] = []

    def one(client: Client, rng: random.Random) -> str:
        prompt = f"Count from {rng.randint(1, 3)} to 9."
        request = GenerateRequest(prompt=prompt, max_tokens=rng.randint(1, 40), resumable=True, tenant="s")
        stream = client.stream(request)
        for _ in range(4):
            for n, _ in enumerate(stream):
                if n == rng.randint(0, 12):
                    break
            else:
                return "done"
            if stream.resume_token is None or rng.random() < 0.3:
                stream.close()
                return "closed"
            stream.leave()
            if rng.random() < 0.3:
                return "left"
            stream = client.resume(stream.resume_token, received_bytes=stream.received_bytes, tenant="s")
        stream.close()
        return "closed"

    def run(seed: int) -> None:
        rng = random.Random(seed)
        with Client(server.grpc, TINY) as client:
            for _ in range(12):
                try:
                    ended.append(one(client, rng))
                except InputError:
                    ended.append("not kept")
                except RequestFailed:
                    ended.append("failed")
                except ServerError as error:
                    ended.append("UNAVAILABLE" if "connection" in str(error) or "answers" in str(error) else "failed")
                except SeekserveError as error:
                    ended.append(str(error))

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended


def test_a_storm_of_losses_and_returns_leaves_server_and_books_intact(server: Server) -> None:
    before = settled_counts(server, TINY)
    ended = storm(server)
    crash = None
    if "UNAVAILABLE" in ended:
        crash = recover_from_known_crash(server, ["UNAVAILABLE"])
        before = settled_counts(server, TINY)
        ended = storm(server)
    assert len(ended) == 120
    assert {*ended} <= {"done", "closed", "left"}, ended
    time.sleep(2.5)  # what was left is kept for so long
    after = settled_counts(server, TINY)
    assert after["offered"] - before["offered"] >= 120 - ended.count("closed")
    assert after["failed"] == before["failed"]
    assert figure(server, "joined_requests") == 0
    assert server.metric("seekserve_kept_streams", TINY) == 0
    assert server.metric("seekserve_kv_used_blocks", TINY) == 0
    if crash is not None:
        pytest.xfail(f"a known race in Triton: {crash}; all clients were told, the next round passed")
