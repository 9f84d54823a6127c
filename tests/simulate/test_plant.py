"""The plant against calculations by hand, and what it holds against what was given to it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulate.conftest import MODEL

from seekserve.simulate.plant import Plant, PlantOptions
from seekserve_backend.contract.step_model import StepModel


def test_one_request_step_by_step(model: StepModel) -> None:
    """600 tokens in chunks of 256, three answered, one token at a time."""
    plant = Plant(model, PlantOptions(chunk_tokens=256))
    plant.add("a", 600, 3)
    steps = [plant.step(0.0) for _ in range(5)]
    assert [step.prefill_tokens for step in steps] == [256, 256, 88, 0, 0]
    assert [step.firsts for step in steps] == [[], [], ["a"], [], []]
    assert [step.ends for step in steps] == [[], [], [], [], [("a", 3)]]
    # base(n) = 9.9 + 0.1 n; 1e-6 for each pair of a prompt token and one before it; 0.001 for each token held.
    assert steps[0].ms == pytest.approx(9.9 + 25.6 + 1e-6 * 256**2)
    assert steps[1].ms == pytest.approx(9.9 + 25.6 + 1e-6 * (2 * 256 * 256 + 256**2))
    assert steps[2].ms == pytest.approx(9.9 + 8.8 + 1e-6 * (2 * 512 * 88 + 88**2))
    assert steps[3].ms == pytest.approx(10.0 + 0.001 * 601)
    assert steps[4].ms == pytest.approx(10.0 + 0.001 * 602)
    assert len(plant) == 0
    assert plant.kv_tokens == 0.0


def test_a_chunk_is_shared_by_prompts_in_the_order_of_arrival(model: StepModel) -> None:
    plant = Plant(model, PlantOptions(chunk_tokens=256))
    plant.add("a", 200, 9)
    plant.add("b", 100, 9)
    first, second = plant.step(0.0), plant.step(0.0)
    assert (first.prefill_tokens, first.firsts, first.decoding) == (256, ["a"], 0)
    assert (second.prefill_tokens, second.firsts, second.decoding) == (44, ["b"], 1)
    assert first.ms == pytest.approx(9.9 + 25.6 + 1e-6 * (200**2 + 56**2))


def test_cached_tokens_are_not_read_again_and_one_always_is(model: StepModel) -> None:
    plant = Plant(model, PlantOptions(chunk_tokens=256))
    plant.add("a", 600, 1, cached_tokens=500)
    plant.add("b", 100, 1, cached_tokens=100)
    step = plant.step(0.0)
    assert step.prefill_tokens == 101
    assert step.ms == pytest.approx(9.9 + 10.1 + 1e-6 * (2 * 500 * 100 + 100**2 + 2 * 99 + 1))
    assert step.ends == [("a", 1), ("b", 1)]
    assert plant.hit_tokens == 599


def test_a_prompt_s_blocks_are_cached_once_it_was_read(model: StepModel) -> None:
    plant = Plant(model, PlantOptions(chunk_tokens=2048, kv_tokens=10_000))
    plant.add("a", 1100, 1, blocks=(1, 2, 3))
    plant.add("b", 1100, 1, blocks=(1, 2, 4))
    assert plant.step(0.0).prefill_tokens == 2048
    plant.step(0.0)
    plant.add("c", 1100, 1, blocks=(1, 2, 5))
    assert plant.step(0.0).prefill_tokens == 1100 - 1024
    plain = Plant(model, PlantOptions(has_prefix_cache=False))
    plain.add("a", 100, 1, cached_tokens=50, blocks=(1,))
    assert plain.step(0.0).prefill_tokens == 100


def test_cancel_gives_back_what_was_held_and_says_what_was_made(model: StepModel) -> None:
    plant = Plant(model, PlantOptions(chunk_tokens=100))
    for id in ("a", "b", "c"):
        plant.add(id, 100, 50)
    for _ in range(3):
        plant.step(0.0)
    assert plant.kv_tokens == 300 + 3 + 2 + 1
    assert plant.cancel("a") == 3
    assert plant.kv_tokens == 200 + 2 + 1
    plant.add("d", 100, 1)
    assert plant.cancel("d") == 0
    assert sorted(plant.ids()) == ["b", "c"]
    ends = [end for _ in range(60) if len(plant) for end in plant.step(0.0).ends]
    assert ends == [("b", 50), ("c", 50)]


def test_an_engine_that_starts_anew_has_lost_everything(model: StepModel) -> None:
    plant = Plant(model, PlantOptions(chunk_tokens=100))
    plant.add("a", 100, 50)
    plant.add("b", 100, 50)
    plant.step(0.0)
    assert plant.clear() == [("b", 0), ("a", 1)]
    assert len(plant) == 0
    assert plant.kv_tokens == 0.0


def test_slow_downs_stalls_and_noise_change_the_time_alone(model: StepModel) -> None:
    options = PlantOptions(slowdowns=((10.0, 2.0), (20.0, 0.5)), stalls=((30.0, 4.0),))
    plant = Plant(model, options)
    plant.add("a", 1, 99)
    plant.step(0.0)
    normal = plant.step(0.0).ms
    assert plant.step(10.0).ms == pytest.approx(2.0 * normal, rel=0.01)
    assert plant.step(25.0).ms == pytest.approx(0.5 * normal, rel=0.01)
    assert plant.step(31.0).ms == pytest.approx(4000.0 + 0.5 * normal, rel=0.01)
    assert plant.step(31.0).ms == pytest.approx(0.5 * normal, rel=0.01)
    noisy = Plant(model, PlantOptions(noise=0.1, seed=3))
    noisy.add("a", 1, 5000)
    times = [noisy.step(0.0).ms / (10.0 + 0.001 * n) for n in range(4000)]
    mean = sum(times) / len(times)
    assert mean == pytest.approx(1.0, abs=0.01)
    assert (sum((t - mean) ** 2 for t in times) / len(times)) ** 0.5 == pytest.approx(0.1, abs=0.01)


def test_accepted_drafts_shorten_answers_by_their_mean(model: StepModel) -> None:
    options = PlantOptions(draft_tokens=2, acceptance=0.5, seed=1)
    assert options.tokens_per_step == pytest.approx(1.0 + 0.5 + 0.25)
    plant = Plant(model, options)
    for n in range(200):
        plant.add(str(n), 1, 176)
    plant.step(0.0)
    steps, made = 0, 200
    while len(plant):
        step = plant.step(0.0)
        steps, made = steps + 1, made + step.decode_tokens
    assert made == 200 * 176
    assert 100 < steps < 130


def test_a_sure_draft_is_worth_a_token_and_each_costs_one(model: StepModel) -> None:
    plant = Plant(model, PlantOptions(draft_tokens=3, acceptance=1.0))
    plant.add("a", 1, 9)
    plant.step(0.0)
    first, second = plant.step(0.0), plant.step(0.0)
    assert first.ms == pytest.approx(9.9 + 0.4 + 0.002)
    assert (first.decode_tokens, second.decode_tokens, second.ends) == (4, 4, [("a", 9)])


requests = st.lists(st.tuples(st.integers(1, 700), st.integers(1, 30), st.integers(0, 800)), min_size=1, max_size=20)


@settings(deadline=None, max_examples=60)
@given(requests, st.integers(0, 2**32), st.integers(0, 3))
def test_tokens_are_conserved_whatever_comes_and_goes(
    asked: list[tuple[int, int, int]], seed: int, draft_tokens: int
) -> None:
    lot = random.Random(seed)
    plant = Plant(MODEL, PlantOptions(chunk_tokens=256, draft_tokens=draft_tokens, acceptance=0.6, seed=seed))
    read = made = ended_tokens = cancelled = 0
    firsts: set[str] = set()
    waiting = [(str(n), *each) for n, each in enumerate(asked)]
    cancelled_unread = 0
    while waiting or len(plant):
        if waiting and (lot.random() < 0.5 or not len(plant)):
            id, prompt, output, cached = waiting.pop()
            plant.add(id, prompt, output, cached)
        if lot.random() < 0.1:
            id = lot.choice(plant.ids())
            tokens = plant.cancel(id)
            cancelled += tokens
            cancelled_unread += id not in firsts
        if len(plant):
            step = plant.step(0.0)
            firsts |= {*step.firsts}
            read += step.prefill_tokens
            made += step.decode_tokens + len(step.firsts)
            ended_tokens += sum(tokens for _, tokens in step.ends)
            outputs = {str(n): output for n, (_, output, _) in enumerate(asked)}
            assert all(tokens == outputs[id] for id, tokens in step.ends)
    assert plant.kv_tokens == pytest.approx(0.0, abs=1e-6)
    if not draft_tokens:
        assert made == ended_tokens + cancelled
    if not cancelled_unread:
        assert read == sum(prompt - min(cached, prompt - 1) for prompt, _, cached in asked)


def test_a_full_pool_pauses_who_began_last_and_reads_it_again(model: StepModel) -> None:
    """300 tokens for two that come to 100 + 100 each, and one that comes to 60: the second gives way and comes back."""
    plant = Plant(model, PlantOptions(chunk_tokens=256, kv_tokens=300, may_pause=True))
    plant.add("a", 100, 100)
    plant.add("b", 100, 100)
    ends: dict[str, int] = {}
    firsts: list[str] = []
    resumed: list[float] = []
    steps = 0
    while len(plant):
        step = plant.step(float(steps))
        steps += 1
        firsts += step.firsts
        resumed += step.resumed_s
        ends |= dict(step.ends)
        assert plant.kv_tokens <= 300.0
        if steps == 60:
            plant.add("c", 50, 10)
    assert ends == {"a": 100, "b": 100, "c": 10}
    assert firsts == ["a", "b", "c"], "an answer that goes on has no second first token"
    assert plant.pauses == 1
    assert plant.reread_tokens == 100 + 50
    assert resumed == [50.0], "when both held 100 + 50 and there was no room for one token more of each"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(1, 200), st.integers(0, 30)), min_size=1, max_size=25),
    st.integers(0, 3),
    st.integers(500, 1200),
)
def test_whatever_is_paused_every_answer_is_complete(
    asked: list[tuple[int, int, int]], drafts: int, kv_tokens: int
) -> None:
    options = PlantOptions(chunk_tokens=128, kv_tokens=kv_tokens, may_pause=True, draft_tokens=drafts, acceptance=0.7)
    plant = Plant(MODEL, options)
    due: dict[int, list[str]] = {}
    for n, (_, _, at) in enumerate(asked):
        due.setdefault(at, []).append(str(n))
    ends: dict[str, int] = {}
    firsts: list[str] = []
    for step_number in range(20_000):
        for id in due.pop(step_number, []):
            plant.add(id, asked[int(id)][0], asked[int(id)][1])
        if not len(plant):
            if not due:
                break
            continue
        step = plant.step(float(step_number))
        assert plant.kv_tokens <= kv_tokens + 1.0
        firsts += step.firsts
        for id, tokens in step.ends:
            assert id not in ends
            ends[id] = tokens
    assert ends == {str(n): output for n, (_, output, _) in enumerate(asked)}
    assert sorted(firsts) == sorted(ends)
