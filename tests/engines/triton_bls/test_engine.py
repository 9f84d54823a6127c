"""Life of a request in front of the stock model: each end, each fault, and when its place is free again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.triton_bls.fakes import Clock, FakeStock, Seen, make_engine, request, values

from seekserve_backend.engines.port import EndReason, EngineError
from seekserve_backend.engines.triton_bls.link import Link
from seekserve_backend.engines.triton_bls.port import StockResponse


def test_tokens_come_as_they_are_said_and_length_ends_with_the_last() -> None:
    stock = FakeStock()
    seen = Seen(make_engine(stock))
    seen.engine.add(request(7, max_tokens=3))
    stock.say(7, 20)
    seen.until(lambda: seen.tokens["r7"] == [20])
    assert not seen.ends
    stock.say(7, 21, 22)
    # The end does not wait for the stream's.
    seen.until(lambda: "r7" in seen.ends)
    assert (seen.tokens["r7"], seen.ends["r7"].reason) == ([20, 21, 22], EndReason.LENGTH)
    stock.end(7)
    seen.until(lambda: seen.engine.stats().kv_free_blocks == 64)
    stats = seen.engine.stats()
    assert (stats.tokens_out, stats.prompt_tokens_in, stats.running, stats.queued) == (3, 3, 0, 0)


def test_a_shown_stop_id_ends_the_request_and_is_no_token() -> None:
    stock = FakeStock()
    seen = Seen(make_engine(stock))
    seen.engine.add(request(7, stop_ids=(30, 31)))
    stock.say(7, 20, 31, 5)
    seen.until(lambda: "r7" in seen.ends)
    assert (seen.tokens["r7"], seen.ends["r7"].reason) == ([20], EndReason.STOP)
    stock.end(7)


def test_a_hidden_stop_id_is_the_end_of_the_stream() -> None:
    stock = FakeStock()
    seen = Seen(make_engine(stock))
    seen.engine.add(request(7))
    stock.say(7, 20)
    stock.say(7)
    stock.end(7)
    seen.until(lambda: "r7" in seen.ends)
    assert (seen.tokens["r7"], seen.ends["r7"].reason) == ([20], EndReason.STOP)


def test_the_sequence_limit_is_a_length_end() -> None:
    stock = FakeStock()
    seen = Seen(make_engine(stock))
    seen.engine.add(request(7, max_tokens=61))
    stock.say(7, *[20] * 61)
    seen.until(lambda: "r7" in seen.ends)
    assert seen.ends["r7"].reason is EndReason.LENGTH
    stock.end(7)


def test_log_probabilities_are_those_of_the_new_tokens() -> None:
    stock = FakeStock()
    seen = Seen(make_engine(stock))
    seen.engine.add(request(7, max_tokens=3, wants_logprobs=True))
    stock.say(7, 20, output_log_probs=[[[-1.0]]])
    stock.say(7, 21, 22, output_log_probs=[[[-1.0, -2.0, -3.0]]])
    seen.until(lambda: "r7" in seen.ends)
    assert seen.logprobs["r7"] == [-1.0, -2.0, -3.0]
    stock.end(7)


def test_beams_bring_the_first_one_at_the_end() -> None:
    stock = FakeStock()
    seen = Seen(make_engine(stock, max_beam_width=2))
    seen.engine.add(request(7, beam_width=2))
    stock.say(7, output_ids=[[[20, 21, 1], [30, 31, 32]]], sequence_length=[[3, 3]])
    seen.until(lambda: "r7" in seen.ends)
    assert (seen.tokens["r7"], seen.ends["r7"].reason) == ([20, 21], EndReason.STOP)
    stock.end(7)
    with pytest.raises(ValueError, match="beam_width is 3, the limit is 2"):
        seen.engine.add(request(8, beam_width=3))


def test_a_cancel_ends_at_once_and_keeps_its_place_until_the_stock_model_ended() -> None:
    stock = FakeStock(obeys=False)
    seen = Seen(make_engine(stock, max_batch_size=1))
    seen.engine.add(request(7))
    stock.say(7, 20)
    seen.until(lambda: bool(seen.tokens["r7"]))
    seen.engine.cancel("r7")
    seen.engine.cancel("r7")
    seen.engine.cancel("nobody")
    assert [end.reason for end in seen.step().ends] == [EndReason.CANCELLED]
    assert stock.stops.get(timeout=5) == stock.calls[0].request_id
    assert not seen.engine.can_add(request(8))
    assert seen.engine.stats().kv_free_blocks == 64 - 3
    stock.say(7, 21)
    stock.end(7)
    seen.until(lambda: seen.engine.can_add(request(8)))
    assert seen.tokens["r7"] == [20]
    assert len(stock.calls) == 2


def test_a_request_behind_a_cancelled_one_waits_inside() -> None:
    stock = FakeStock(obeys=False)
    seen = Seen(make_engine(stock, max_batch_size=1))
    seen.engine.add(request(7))
    seen.engine.cancel("r7")
    seen.engine.add(request(8))
    seen.step()
    assert seen.engine.stats().queued == 1
    with pytest.raises(ValueError, match="no room for 3 KV blocks"):
        seen.engine.add(request(9))
    stock.end(7)
    stock.say(8, 30, 1)
    seen.until(lambda: "r8" in seen.ends)
    assert seen.tokens["r8"] == [30]
    stock.end(8)


def test_a_waiting_request_that_is_cancelled_never_reaches_the_stock_model() -> None:
    stock = FakeStock(obeys=False)
    seen = Seen(make_engine(stock, max_batch_size=1))
    seen.engine.add(request(7))
    stock.say(7, 20)
    seen.until(lambda: bool(seen.tokens["r7"]))
    seen.engine.cancel("r7")
    seen.engine.add(request(8))
    seen.engine.cancel("r8")
    seen.until(lambda: "r8" in seen.ends)
    stock.end(7)
    seen.until(lambda: seen.engine.stats().kv_free_blocks == 64)
    assert {call.request_id for call in stock.calls} == {stock.calls[0].request_id}


def test_a_later_triton_is_asked_to_cancel_instead() -> None:
    stock = FakeStock(can_cancel=True)
    seen = Seen(make_engine(stock))
    seen.engine.add(request(7))
    stock.say(7, 20)
    seen.until(lambda: bool(seen.tokens["r7"]))
    seen.engine.cancel("r7")
    assert stock.stops.get(timeout=5).startswith("cancel ")
    seen.until(lambda: seen.engine.stats().kv_free_blocks == 64)
    assert len(stock.calls) == 1


def test_a_stop_without_effect_is_repeated_and_at_last_the_place_is_given_up() -> None:
    stock, clock = FakeStock(obeys=False), Clock()
    seen = Seen(make_engine(stock, clock=clock, max_batch_size=1))
    seen.engine.add(request(7))
    stock.say(7, 20)
    seen.until(lambda: bool(seen.tokens["r7"]))
    seen.engine.cancel("r7")
    first = stock.stops.get(timeout=5)
    # Only once the first stop was answered.
    seen.until(lambda: not next(iter(seen.engine._link.open.values())).is_stop_queued)
    clock.now_s += 1.5
    seen.step()
    assert stock.stops.get(timeout=5) == first
    clock.now_s += 30
    seen.step()
    assert seen.engine.can_add(request(8))
    stock.end(7)


def test_a_stream_that_goes_on_after_its_end_is_stopped() -> None:
    stock, clock = FakeStock(), Clock()
    seen = Seen(make_engine(stock, clock=clock))
    seen.engine.add(request(7))
    stock.say(7, 1)
    seen.until(lambda: "r7" in seen.ends)
    assert stock.stops.empty()
    clock.now_s += 1.5
    seen.step()
    stock.stops.get(timeout=5)
    seen.until(lambda: seen.engine.stats().kv_free_blocks == 64)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (StockResponse(values={}, error="CUDA out of memory"), "CUDA out of memory"),
        (StockResponse(values=values([20] * 9)), "9 tokens where 8 were asked for"),
        (StockResponse(values=values([20])), "0 log probabilities for 1 tokens"),
        (StockResponse(values={}), "without any output"),
        (StockResponse(values={"output_ids": []}), "IndexError"),
    ],
)
def test_a_fault_is_of_its_request_alone(said: StockResponse, message: str) -> None:
    stock = FakeStock()
    seen = Seen(make_engine(stock))
    seen.engine.add(request(7, wants_logprobs=True))
    seen.engine.add(request(8))
    stock._said[7].put(said)
    stock.end(7)
    seen.until(lambda: "r7" in seen.ends)
    assert seen.ends["r7"].reason is EndReason.FAILED
    assert message in seen.ends["r7"].message
    stock.say(8, 30, 1)
    stock.end(8)
    seen.until(lambda: "r8" in seen.ends)
    assert seen.ends["r8"].reason is EndReason.STOP


def test_a_call_that_raises_fails_its_request() -> None:
    stock = FakeStock()
    stock.error_at_open = RuntimeError("no shared memory")
    seen = Seen(make_engine(stock))
    seen.engine.add(request(7))
    seen.until(lambda: "r7" in seen.ends)
    assert "RuntimeError: no shared memory" in seen.ends["r7"].message


def test_three_times_gone_in_a_row_is_the_whole_engine() -> None:
    stock = FakeStock()
    seen = Seen(make_engine(stock))
    gone = "Stub process 'tensorrt_llm_0_0' is not healthy."
    for name in (7, 8, 9):
        seen.engine.add(request(name))
        if name == 8:
            stock.say(8, 20)
        stock.fail(name, gone)
        stock.end(name)
        seen.until(lambda name=name: f"r{name}" in seen.ends)  # type: ignore[misc]
    for name in (10, 11):
        stock.fail(name, gone)
        stock.end(name)
        seen.engine.add(request(name))
    with pytest.raises(EngineError, match=r"[34] requests in a row: Stub process"):
        seen.until(lambda: False)


def test_silence_of_one_that_had_begun_is_of_that_request_and_silence_of_all_is_the_whole_engine() -> None:
    stock, clock = FakeStock(obeys=False), Clock()
    seen = Seen(make_engine(stock, clock=clock, stall_s=60.0))
    for name in (7, 8, 9):
        seen.engine.add(request(name, max_tokens=20))
    stock.say(7, 20)
    for n in range(4):
        stock.say(8, 30)
        seen.until(lambda n=n: len(seen.tokens["r8"]) == n + 1)  # type: ignore[misc]
        clock.now_s += 40
        seen.step()
    # The third was never answered: the stock model may still have it in its queue.
    assert {**seen.ends}.keys() == {"r7"}
    assert "silent for 80 s" in seen.ends["r7"].message
    clock.now_s += 25
    with pytest.raises(EngineError, match="nothing from any of 2 requests for 65 s"):
        seen.step()
    assert seen.engine.stats().running == 0
    for name in (7, 8, 9):
        stock.end(name)


def test_only_so_many_requests_are_unanswered_at_once() -> None:
    stock = FakeStock()
    seen = Seen(make_engine(stock, max_opening=2))
    for name in (7, 8, 9):
        seen.engine.add(request(name))
    assert seen.engine.stats().queued == 1
    stock.say(7, 20)
    seen.until(lambda: seen.engine.stats().queued == 0)
    for name in (7, 8, 9):
        stock.say(name, 1)
        stock.end(name)
    seen.until(lambda: len(seen.ends) == 3)


def test_an_engine_made_anew_knows_what_the_last_one_left_running() -> None:
    stock, clock = FakeStock(obeys=False), Clock()
    link = Link(stock, max_streams=2)
    old = make_engine(stock, link=link, clock=clock, max_batch_size=1)
    old.add(request(7))
    old.close()
    old.close()
    with pytest.raises(EngineError, match="closed"):
        old.step(0.0)
    seen = Seen(make_engine(stock, link=link, clock=clock, max_batch_size=1))
    assert not seen.engine.can_add(request(8))
    stock.end(7)
    seen.until(lambda: seen.engine.can_add(request(8)))


def test_streams_that_never_end_and_hold_every_thread_are_the_whole_engine() -> None:
    stock, clock = FakeStock(obeys=False), Clock()
    seen = Seen(make_engine(stock, clock=clock, max_batch_size=1, max_opening=1))
    seen.engine.add(request(7))
    seen.engine.cancel("r7")
    seen.step()
    clock.now_s += 31
    seen.step()
    seen.engine.add(request(8))
    with pytest.raises(EngineError, match="hold all threads"):
        seen.step()
    stock.end(7)


def test_closing_waits_for_the_streams_it_stops() -> None:
    stock = FakeStock()
    engine = make_engine(stock, close_wait_s=5.0)
    engine.add(request(7))
    stock.say(7, 20)
    Seen(engine).until(lambda: engine.stats().tokens_out == 1)
    engine.close()
    assert not engine._link.open


@settings(max_examples=25, deadline=None)
@given(
    plans=st.lists(
        st.tuples(
            st.lists(st.sampled_from([20, 21, 1]), max_size=6),
            st.sampled_from(["end", "cancel", "error"]),
        ),
        max_size=8,
    )
)
def test_every_request_ends_once_and_nothing_is_kept(plans: list[tuple[list[int], str]]) -> None:
    stock = FakeStock()
    seen = Seen(make_engine(stock, max_opening=3))
    cancels: dict[str, Any] = {}
    for name, (tokens, how) in enumerate(plans, start=10):
        seen.until(lambda name=name: seen.engine.can_add(request(name)))  # type: ignore[misc]
        seen.engine.add(request(name))
        for token in tokens:
            stock.say(name, token)
        if how == "cancel":
            cancels[f"r{name}"] = None
            seen.engine.cancel(f"r{name}")
        if how == "error":
            stock.fail(name, "no luck")
        stock.end(name)
    seen.until(lambda: len(seen.ends) == len(plans) and not seen.engine._link.open)
    stats = seen.engine.stats()
    assert (stats.running, stats.kv_free_blocks) == (0, 64)
    for name, (tokens, _) in enumerate(plans, start=10):
        assert seen.tokens[f"r{name}"] == tokens[: len(seen.tokens[f"r{name}"])]
        assert 1 not in seen.tokens[f"r{name}"]


def test_where_the_stock_model_may_pause_only_what_a_request_has_filled_counts() -> None:
    stock = FakeStock()
    seen = Seen(make_engine(stock, may_pause=True))
    seen.engine.add(request(7, max_tokens=40))
    assert seen.engine.stats().kv_free_blocks == 64 - 1
    stock.say(7, *range(20, 30))
    seen.until(lambda: len(seen.tokens["r7"]) == 10)
    assert seen.engine.stats().kv_free_blocks == 64 - -(-(3 + 10 + 1) // 4)
    seen.engine.cancel("r7")
    seen.until(lambda: seen.engine.stats().kv_free_blocks == 64)
