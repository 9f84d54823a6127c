"""Against a gRPC server that answers by a script: what each kind of answer becomes in the records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from fake_server import Call, Running, chunk, error

from seekserve.bench.load import DEFAULT_SLO
from seekserve.bench.openloop import Options, Recording, Shot, fire
from seekserve.bench.prompts import Prompts
from seekserve.bench.results import judge, result_text
from seekserve.client import AsyncClient
from seekserve.simulate.records import Arrival, Clients
from seekserve_backend.contract.refusal import ErrorCode, ErrorLine


def shots(count: int, *, gap_s: float = 0.01) -> list[Shot]:
    prompts = Prompts(None, seed=0)
    arrivals = [Arrival(gap_s * n, 3, 4, "interactive", 100) for n in range(count)]
    return [Shot(each, prompts.request_for(each, stream=True)) for each in arrivals]


def record(server: Running, count: int, options: Options | None = None, *, timeout_s: float = 20.0) -> Recording:
    async def go() -> Recording:
        async with AsyncClient(server.url, "m", idle_timeout_s=timeout_s) as client:
            return await fire(client, shots(count), options or Options(drain_s=20.0))

    return asyncio.run(go())


def answer(_: Call) -> Iterator[Any]:
    yield chunk("a", queue_ms=1.5)
    yield chunk("b")
    yield chunk("c", final=True, finish="length", tokens=4)


def refusal(code: ErrorCode, retry_after_ms: int | None) -> Any:
    return error(ErrorLine(code=code, reason="because", retry_after_ms=retry_after_ms).to_line())


def states(recording: Recording) -> list[str]:
    return [outcome.state for outcome in recording.outcomes]


def test_latencies_count_from_the_intended_time_and_the_delay_is_told(server: Running) -> None:
    server.triton.script = answer
    recording = record(server, 5)
    assert states(recording) == ["finished"] * 5
    assert [o.asked_s for o in recording.outcomes] == [o.arrival.time_s for o in recording.outcomes]
    assert all(o.first_s is not None and o.end_s is not None and o.first_s > o.asked_s for o in recording.outcomes)
    assert len(recording.send_lag_ms) == recording.sent == 5
    assert min(recording.send_lag_ms) >= 0.0
    assert [o.tokens for o in recording.outcomes] == [4] * 5
    assert sum(recording.gaps_ms.values()) == 10


def test_a_slow_answer_does_not_hold_up_the_next_request(server: Running) -> None:
    def first_waits_for_the_last(call: Call) -> Iterator[Any]:
        if len(server.triton.calls) == 1:
            while len(server.triton.calls) < 4 and not call.is_ended.wait(0.01):
                pass
        yield from answer(call)

    server.triton.script = first_waits_for_the_last
    assert states(record(server, 4)) == ["finished"] * 4


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (ErrorCode.OVERLOADED, "refused"),
        (ErrorCode.NOT_SERVING, "refused"),
        (ErrorCode.EXPIRED, "expired"),
        (ErrorCode.TOO_LARGE, "refused"),
        (ErrorCode.FAILED, "failed"),
    ],
)
def test_what_the_server_says_decides_what_a_request_counts_as(server: Running, code: ErrorCode, state: str) -> None:
    server.triton.script = lambda _: iter([refusal(code, None)])
    recording = record(server, 2)
    assert states(recording) == [state] * 2
    assert len(recording.refusals) == (0 if state == "failed" else 2)
    assert bool(recording.failures) is (state == "failed")
    assert recording.unanswered == recording.cut_off == 0


def test_failures_are_counted_by_what_was_said_whichever_request_it_was(server: Running) -> None:
    def fails(_: Call) -> Iterator[Any]:
        line = ErrorLine(code=ErrorCode.FAILED, reason="it broke", request_id=f"r{len(server.triton.calls)}")
        yield error(line.to_line())

    server.triton.script = fails
    (told,) = record(server, 3).failures.items()
    assert told[0].endswith("it broke")
    assert told[1] == 3


def test_a_client_that_honours_the_hint_comes_back_and_its_targets_count_anew(server: Running) -> None:
    def busy_at_first(call: Call) -> Iterator[Any]:
        if len(server.triton.calls) == 1:
            yield refusal(ErrorCode.OVERLOADED, 20)
        else:
            yield from answer(call)

    server.triton.script = busy_at_first
    recording = record(server, 1, Options(clients=Clients(retries=2), drain_s=20.0))
    (outcome,) = recording.outcomes
    assert (outcome.state, outcome.tries, recording.sent) == ("finished", 2, 2)
    assert outcome.asked_s >= 0.02
    assert len(recording.refusals) == 1


@pytest.mark.parametrize(("honours_hint", "tries"), [(True, 1), (False, 3)])
def test_told_never_only_a_client_that_does_not_listen_comes_back(
    server: Running, honours_hint: bool, tries: int
) -> None:
    server.triton.script = lambda _: iter([refusal(ErrorCode.TOO_LARGE, None)])
    clients = Clients(retries=2, honours_hint=honours_hint, backoff_s=0.01)
    (outcome,) = record(server, 1, Options(clients=clients, drain_s=20.0)).outcomes
    assert outcome.tries == tries


def stuck(call: Call) -> Iterator[Any]:
    call.hang()
    yield from ()


def test_a_request_without_an_answer_is_counted_as_such(server: Running) -> None:
    server.triton.script = stuck
    recording = record(server, 3, timeout_s=0.2)
    assert recording.unanswered == 3
    assert states(recording) == ["failed"] * 3


def test_a_request_that_is_open_when_the_time_is_over_is_counted_as_such(server: Running) -> None:
    server.triton.script = stuck
    recording = record(server, 3, Options(drain_s=0.1))
    assert recording.cut_off == 3
    assert recording.unanswered == 0


def test_requests_that_are_given_up_are_cancelled_at_the_server(server: Running) -> None:
    server.triton.script = stuck
    recording = record(server, 3, Options(cancel_share=1.0, cancel_after_s=0.1, drain_s=20.0))
    assert states(recording) == ["left"] * 3
    assert all(call.is_ended.wait(20) and call.was_cancelled for call in server.triton.calls)
    assert not recording.failures


def test_a_client_without_patience_hangs_up_and_comes_back(server: Running) -> None:
    def slow_at_first(call: Call) -> Iterator[Any]:
        if len(server.triton.calls) == 1:
            call.hang()
        yield from answer(call)

    server.triton.script = slow_at_first
    clients = Clients(retries=1, backoff_s=0.01, patience_s=0.3)
    recording = record(server, 1, Options(clients=clients, drain_s=20.0))
    assert [(o.state, o.tries) for o in recording.outcomes] == [("finished", 2)]


def test_a_result_has_the_fields_of_a_simulation_and_says_what_a_live_run_adds(server: Running) -> None:
    server.triton.script = answer
    result = judge(record(server, 5), DEFAULT_SLO, label="x", trace="t", url=server.url, model="m")
    run = result.to_json()
    assert run["policy"] == "x"
    assert {"trace", "speed", "seed", "goodput_rps", "attainment", "ttft_p99_s", "tpot_p99_ms"} <= set(run)
    assert run["attainment"] == 1.0
    assert run["busy_ratio"] is None
    live = run["live"]
    assert isinstance(live, dict)
    assert live["unanswered"] == 0
    assert isinstance(live["send_lag_p99_ms"], float)
    assert "attainment 1.000" in result_text(result)


def test_progress_is_reported_while_it_runs(server: Running) -> None:
    server.triton.script = answer
    seen: list[int] = []

    async def go() -> Recording:
        async with AsyncClient(server.url, "m") as client:
            options = Options(drain_s=20.0)
            return await fire(
                client, shots(3, gap_s=0.8), options, progress=lambda _, recording: seen.append(recording.sent)
            )

    asyncio.run(go())
    assert seen
