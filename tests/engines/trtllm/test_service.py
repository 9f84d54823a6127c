"""The whole service on TensorRT-LLM's double: books, cancels, an engine that dies under load and is made anew."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.engines.trtllm.bundles import BLOCK_TOKENS, BLOCKS, KV, LIMITS, wait_until
from tests.engines.trtllm.conftest import World
from tests.service.fakes import BYTES, RecordingSink, encode, policy

from seekserve_backend.answers import Chunk, Inbound
from seekserve_backend.contract.refusal import ErrorCode, ErrorLine
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.engines.port import Engine, EngineError
from seekserve_backend.engines.trtllm.engine import TrtllmEngine
from seekserve_backend.service import Service


@contextmanager
def serving(make: Callable[[], Engine]) -> Iterator[Service]:
    made = Service(scheduler=Scheduler(policy(), LIMITS, KV), engine_factory=make, encode=encode, vocabulary=BYTES)
    made.start()
    try:
        yield made
    finally:
        made.stop(timeout_s=10)
        made.check_integrity()
        counts = made.stats().snapshot
        assert counts.offered == sum(counts.terminals.values()), counts


def ask(made: Service, text: str, **wishes: Any) -> RecordingSink:
    sink = RecordingSink()
    made.accept(Inbound(**{"text": text.encode(), "stream": True, "max_tokens": 60, **wishes}), sink)
    return sink


def test_two_hundred_requests_with_random_cancels_and_the_books_balance(world: World) -> None:
    engine = world.start({"step_ms": 2, "tokens_per_step": [1, 2]})
    rng = random.Random(7)
    sinks = []
    with serving(lambda: engine) as made:
        for _ in range(200):
            text = "".join(rng.choices("abcdefgh", k=rng.randint(1, 60)))
            sinks.append((text, ask(made, text, stream=rng.random() < 0.8, wants_logprobs=rng.random() < 0.3)))
            if rng.random() < 0.4:
                rng.choice(sinks)[1].has_left = True
            threading.Event().wait(rng.random() * 0.01)
        assert all(sink.done.wait(30) for _, sink in sinks)
        wait_until(lambda: made.stats().snapshot.running == 0)
        stats = engine.stats()
        assert (stats.running, stats.kv_free_blocks) == (0, stats.kv_total_blocks)
        terminals = made.stats().snapshot.terminals
    assert all(sink.terminals == 1 for _, sink in sinks)
    finished = [(text, sink) for text, sink in sinks if isinstance(sink.last, Chunk)]
    assert all(sink.text == text for text, sink in finished), "the double says what it was told"
    assert len(finished) == terminals["finished"]
    assert terminals["finished"] + terminals["cancelled"] == 200
    assert terminals["cancelled"] > 10


def test_stop_strings_cut_text_and_log_probabilities_alike(world: World) -> None:
    with serving(world.start) as made:
        sink = ask(made, "one two three", stop_words=("three",), wants_logprobs=True)
        assert sink.done.wait(20)
    chunks = [answer for answer in sink.answers if isinstance(answer, Chunk)]
    assert sink.text == "one two "
    assert [n for chunk in chunks for n in chunk.logprobs or ()] == [-0.125 - (b % 8) / 64 for b in b"one two "]
    assert chunks[-1].cumulative_logprob == sum(-0.125 - (b % 8) / 64 for b in b"one two ")


def test_a_dead_engine_fails_what_ran_and_serves_again(world: World) -> None:
    made_engines: list[TrtllmEngine] = []

    def make() -> TrtllmEngine:
        folder = world.folder / f"generation-{len(made_engines)}"
        made_engines.append(world.start({"step_ms": 5}, silence_s=1.0, folder=folder))
        return made_engines[-1]

    with serving(make) as made:
        lost = [ask(made, "lost " * 10) for _ in range(3)]
        wait_until(lambda: all(sink.answers for sink in lost))
        world.order(hang=True)
        for sink in lost:
            assert isinstance(sink.last, ErrorLine)
            assert sink.last.code is ErrorCode.FAILED
            assert "the engine failed" in sink.last.reason
        world.order()
        wait_until(lambda: made.stats().engine_restarts == 1)
        again = ask(made, "again")
        assert again.done.wait(20)
        assert again.text == "again"


def test_an_engine_that_dies_while_idle_is_replaced_before_anybody_asks(new_world: World) -> None:
    made_engines: list[TrtllmEngine] = []

    def make() -> TrtllmEngine:
        made_engines.append(new_world.start(folder=new_world.folder / f"generation-{len(made_engines)}"))
        return made_engines[-1]

    with serving(make) as made:
        assert ask(made, "first").done.wait(20)
        made_engines[0]._mailbox.fail(EngineError("a worker is gone"))
        wait_until(lambda: made.stats().engine_restarts == 1)
        second = ask(made, "second")
        assert second.done.wait(20)
        assert second.text == "second"


@pytest.mark.parametrize("kind", ["RequestError", "ValueError"])
def test_what_one_request_breaks_is_told_to_its_client_alone(world: World, kind: str) -> None:
    with serving(world.start) as made:
        world.order(submit_error={"message": "secret path /x", "kind": kind, "times": 1})
        bad = ask(made, "ill")
        assert isinstance(bad.last, ErrorLine)
        assert "secret" not in bad.last.reason
        good = ask(made, "good")
        assert good.done.wait(20)
        assert good.text == "good"
        assert made.stats().engine_restarts == 0


def test_an_engine_smaller_than_planned_gets_no_more_than_it_holds(world: World) -> None:
    """The core learns the engine's own total and waits; nothing fails for want of blocks."""
    small = {"tokens_per_block": BLOCK_TOKENS, "max_tokens": BLOCK_TOKENS * BLOCKS // 4}
    engine = world.start(kv_cache_config=small)
    with serving(lambda: engine) as made:
        first = ask(made, "x")
        assert first.done.wait(20)
        wait_until(lambda: engine.stats().kv_total_blocks == BLOCKS // 4)
        sinks = [ask(made, "abc" * 15) for _ in range(12)]
        assert all(sink.done.wait(20) for sink in sinks)
    assert all(sink.text == "abc" * 15 for sink in sinks)
