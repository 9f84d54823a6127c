"""Life of a request: taking it, ending it in each way, giving its blocks back, failing alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import make_engine, make_model, run_all

from seekserve_backend.engines.port import EndReason, EngineError, EngineRequest, Sampling

pytestmark = pytest.mark.needs_local

POISON = 33


def request(request_id: str = "a", prompt: tuple[int, ...] = (5, 6, 7), max_tokens: int = 5, **fields: Any) -> Any:
    return EngineRequest(id=request_id, prompt_ids=prompt, max_tokens=max_tokens, **{"stop_ids": (79,), **fields})


@pytest.fixture
def model() -> Any:
    return make_model("v3")


@pytest.fixture
def poisoned_model(model: Any) -> Iterator[Any]:
    """Token 33 makes every logit of its request NaN."""
    embedding = model.model.embed_tokens.weight
    kept = embedding[POISON].clone()
    embedding[POISON] = float("nan")
    yield model
    embedding[POISON] = kept


@pytest.fixture
def fragile_model(model: Any) -> Iterator[Any]:
    """A pass that holds token 33 raises."""

    def hook(_module: Any, args: tuple[Any, ...]) -> None:
        if bool((args[0] == POISON).any()):
            raise RuntimeError("the kernel gave up")

    handle = model.model.embed_tokens.register_forward_pre_hook(hook)
    yield model
    handle.remove()


def test_length_end_has_exactly_max_tokens(model: Any) -> None:
    tokens, end = run_all(make_engine(model), [(0, request(max_tokens=7))])["a"]
    assert (len(tokens), end.reason) == (7, EndReason.LENGTH)


def test_a_stop_id_ends_the_request_and_is_not_among_the_tokens(model: Any) -> None:
    tokens, _ = run_all(make_engine(model), [(0, request())])["a"]
    stopped, end = run_all(make_engine(model), [(0, request(stop_ids=(tokens[2],)))])["a"]
    assert (stopped, end.reason) == (tokens[: tokens.index(tokens[2])], EndReason.STOP)


def test_the_checkpoints_eos_ids_stop_unless_the_request_has_its_own(model: Any) -> None:
    tokens, _ = run_all(make_engine(model), [(0, request())])["a"]
    engine = make_engine(model, eos_ids=(78, tokens[0]))
    assert engine.info.eos_ids == (78, tokens[0])
    assert run_all(engine, [(0, request(stop_ids=()))])["a"][1].reason is EndReason.STOP
    assert run_all(engine, [(0, request())])["a"][1].reason is EndReason.LENGTH


def test_a_request_may_fill_the_whole_sequence(model: Any) -> None:
    engine = make_engine(model, max_seq_len_tokens=32, blocks=8)
    tokens, end = run_all(engine, [(0, request(prompt=tuple(range(20)), max_tokens=12))])["a"]
    assert (len(tokens), end.reason) == (12, EndReason.LENGTH)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (request(prompt=()), "the prompt has no tokens"),
        (request(prompt=(80,)), "0 to 79"),
        (request(prompt=(-1,)), "0 to 79"),
        (request(max_tokens=0), "max_tokens is 0"),
        (request(max_tokens=94), "97, the limit is 96"),
        (request(sampling=Sampling(top_p=2.0)), "top_p is 2.0"),
        (request("running"), "id is running"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_request_that_breaks_a_limit_is_refused_and_leaves_nothing(model: Any, bad: Any, says: str) -> None:
    engine = make_engine(model)
    engine.add(request("running"))
    before = engine.stats()
    with pytest.raises(ValueError, match=says):
        engine.add(bad)
    engine.check_integrity()
    assert engine.stats() == before


def test_a_request_that_can_never_fit_says_so(model: Any) -> None:
    engine = make_engine(model, blocks=3)
    assert not engine.can_add(request(max_tokens=20))
    with pytest.raises(ValueError, match="never fit into 3 KV blocks"):
        engine.add(request(max_tokens=20))


def test_can_add_counts_the_worst_case_and_has_no_effect(model: Any) -> None:
    engine = make_engine(model, blocks=5, block_tokens=4)
    engine.add(request("a", max_tokens=9))
    before = engine.stats()
    assert before.kv_free_blocks == 2
    assert engine.can_add(request("b", max_tokens=5))
    assert not engine.can_add(request("b", max_tokens=6))
    assert engine.stats() == before
    with pytest.raises(ValueError, match="ask can_add first"):
        engine.add(request("b", max_tokens=6))


def test_no_more_requests_than_batch_slots(model: Any) -> None:
    engine = make_engine(model, max_batch_size=2)
    engine.add(request("a"))
    engine.add(request("b"))
    assert not engine.can_add(request("c"))


def test_a_cancelled_request_ends_with_the_next_step_and_its_blocks_are_free_then(model: Any) -> None:
    engine = make_engine(model)
    engine.add(request())
    engine.step(0.0)
    engine.cancel("a")
    engine.cancel("a")
    engine.cancel("unknown")
    assert engine.stats().kv_free_blocks == 62
    report = engine.step(0.0)
    assert [(end.id, end.reason) for end in report.ends] == [("a", EndReason.CANCELLED)]
    assert report.tokens == ()
    assert engine.stats().kv_free_blocks == 64
    assert engine.step(0.0).ends == ()


def test_an_id_can_be_used_again_after_its_end(model: Any) -> None:
    engine = make_engine(model)
    assert run_all(engine, [(0, request())]) == run_all(engine, [(0, request())])


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    operations=st.lists(st.tuples(st.sampled_from(["add", "step", "step", "cancel"]), st.integers(0, 50)), max_size=40),
    blocks=st.integers(4, 20),
)
def test_every_added_request_ends_once_and_all_blocks_return(operations: list[tuple[str, int]], blocks: int) -> None:
    engine = make_engine(make_model("v2_lite"), blocks=blocks, max_batch_size=4, prefill_chunk_tokens=5)
    added: list[str] = []
    ended: list[str] = []
    for operation, number in operations:
        if operation == "add":
            new = request(str(len(added)), tuple(range(1 + number % 13)), 1 + number % 7, stop_ids=(number,))
            if engine.can_add(new):
                engine.add(new)
                added.append(new.id)
        elif operation == "cancel":
            engine.cancel(str(number))
        else:
            ended.extend(end.id for end in engine.step(0.0).ends)
        engine.check_integrity()
    while engine.stats().running:
        ended.extend(end.id for end in engine.step(0.0).ends)
    assert sorted(ended) == sorted(added)
    assert engine.stats().kv_free_blocks == blocks


def crowd() -> list[tuple[int, EngineRequest]]:
    return [(0, request(str(i), (POISON, i) if i == 2 else (i + 1, i))) for i in range(5)]


def test_a_request_with_broken_logits_fails_alone(poisoned_model: Any) -> None:
    alone = {r.id: run_all(make_engine(poisoned_model), [(0, r)])[r.id] for _, r in crowd() if r.id != "2"}
    outcome = run_all(make_engine(poisoned_model), crowd())
    tokens, end = outcome.pop("2")
    assert (tokens, end.reason) == ([], EndReason.FAILED)
    assert "not finite" in end.message
    assert outcome == alone


def test_a_request_that_breaks_the_pass_fails_alone(fragile_model: Any) -> None:
    engine = make_engine(fragile_model)
    outcome = run_all(engine, crowd())
    assert [key for key, (_, end) in outcome.items() if end.reason is EndReason.FAILED] == ["2"]
    assert "the kernel gave up" in outcome["2"][1].message
    assert engine.stats().kv_free_blocks == 64


def test_blocks_of_a_broken_request_serve_the_next_one(poisoned_model: Any) -> None:
    engine = make_engine(poisoned_model, blocks=4)
    expected = run_all(engine, [(0, request("a", (1, 2)))])["a"]
    run_all(engine, [(0, request("broken", (POISON, POISON, 1, 2, 3, 4)))])
    assert run_all(engine, [(0, request("a", (1, 2)))])["a"] == expected


def test_when_no_pass_works_the_engine_says_so_and_holds_nothing(fragile_model: Any) -> None:
    engine = make_engine(fragile_model)
    for i in range(3):
        engine.add(request(str(i), (POISON, i)))
    with pytest.raises(EngineError, match="no forward pass works any more: the kernel gave up"):
        engine.step(0.0)
    engine.check_integrity()
    assert (engine.stats().running, engine.stats().kv_free_blocks) == (0, 64)


def test_statistics_count_prompt_tokens_produced_tokens_and_steps(model: Any) -> None:
    engine = make_engine(model, prefill_chunk_tokens=4)
    engine.add(request("a", tuple(range(10)), 3))
    engine.add(request("b", tuple(range(2)), 3))
    reports = [engine.step(0.0) for _ in range(5)]
    assert [(r.batch_size, r.prefill_tokens, len(r.tokens)) for r in reports] == [
        (2, 6, 1),
        (2, 4, 1),
        (2, 2, 2),
        (1, 0, 1),
        (1, 0, 1),
    ]
    stats = engine.stats()
    assert (stats.steps, stats.prompt_tokens_in, stats.tokens_out, stats.running) == (5, 12, 6, 0)
    assert stats.last_batch_size == 1
    assert stats.last_step_ms == reports[-1].step_ms > 0


def test_an_idle_step_reports_nothing(model: Any) -> None:
    engine = make_engine(model)
    report = engine.step(60.0)
    assert (report.batch_size, report.tokens, report.ends) == (0, (), ())
    assert engine.stats().steps == 0


def test_a_closed_engine_holds_nothing_and_takes_nothing(model: Any) -> None:
    engine = make_engine(model)
    engine.add(request())
    engine.close()
    engine.close()
    assert engine.stats().kv_free_blocks == 64
    for call in (lambda: engine.add(request("b")), lambda: engine.step(0.0)):
        with pytest.raises(EngineError, match="closed"):
            call()


def test_more_positions_than_the_model_has_are_refused(model: Any) -> None:
    with pytest.raises(EngineError, match="max_seq_len_tokens is 257, the model has 256"):
        make_engine(model, max_seq_len_tokens=257)
