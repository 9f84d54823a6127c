"""The next token is chosen as `generate` chooses it, from each request's own generator."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import generate, make_engine, make_model, run_all

from seekserve_backend.engines.port import EndReason, EngineRequest, Sampling
from seekserve_backend.engines.reference.sampling import Sampler

pytestmark = pytest.mark.needs_local

PROMPT = (5, 17, 42, 17, 63)
SAMPLED = [
    {"temperature": 1.0},
    {"temperature": 0.7},
    {"temperature": 1.3, "top_k": 5},
    {"temperature": 1.0, "top_p": 0.8},
    {"temperature": 0.9, "top_k": 12, "top_p": 0.9, "repetition_penalty": 1.4},
]


def run(requests: list[EngineRequest], **options: Any) -> dict[str, list[int]]:
    engine = make_engine(make_model("v3"), **options)
    return {key: tokens for key, (tokens, _) in run_all(engine, [(0, request) for request in requests]).items()}


def request(request_id: str = "a", *, max_tokens: int = 12, stop_ids: tuple[int, ...] = (79,), **sampling: Any) -> Any:
    return EngineRequest(
        id=request_id, prompt_ids=PROMPT, max_tokens=max_tokens, stop_ids=stop_ids, sampling=Sampling(**sampling)
    )


@pytest.mark.parametrize("options", SAMPLED, ids=str)
@pytest.mark.parametrize("seed", [0, 11])
def test_sampled_output_equals_generate_with_the_same_seed(options: dict[str, Any], seed: int) -> None:
    ours = run([request(seed=seed, **options)])["a"]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        switched_off = {"top_k": 0, "top_p": 1.0}
        expected, _ = generate(
            make_model("v3"), PROMPT, 12, "fp32", do_sample=True, eos_token_id=79, **{**switched_off, **options}
        )
    assert ours == [token for token in expected if token != 79]


@pytest.mark.parametrize("options", [{"repetition_penalty": 1.8}, {"repetition_penalty": 0.6}], ids=str)
def test_greedy_repetition_penalty_equals_generate(options: dict[str, Any]) -> None:
    expected, _ = generate(make_model("v3"), PROMPT, 12, "fp32", eos_token_id=79, **options)
    assert run([request(**options)])["a"] == [token for token in expected if token != 79]


def test_min_tokens_masks_stop_ids_as_generate_does() -> None:
    first = run([request(max_tokens=1)])["a"][0]
    engine = make_engine(make_model("v3"))
    assert run_all(engine, [(0, request(stop_ids=(first,)))])["a"][1].reason is EndReason.STOP
    expected, _ = generate(make_model("v3"), PROMPT, 12, "fp32", eos_token_id=first, min_new_tokens=4)
    ours = run([request(stop_ids=(first,), min_tokens=4)])["a"]
    assert ours == [token for token in expected if token != first]
    assert len(ours) >= 4


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**64 - 1),
    options=st.sampled_from(SAMPLED),
    others=st.integers(1, 5),
    chunk=st.integers(1, 6),
)
def test_same_seed_gives_the_same_output_whatever_the_batch(
    seed: int, options: dict[str, Any], others: int, chunk: int
) -> None:
    alone = run([request(seed=seed, **options)])["a"]
    crowd = [request(str(i), max_tokens=3 + i, temperature=1.0, seed=i) for i in range(others)]
    assert run([*crowd, request(seed=seed, **options)], prefill_chunk_tokens=chunk)["a"] == alone


def test_without_a_seed_outputs_differ() -> None:
    requests = [request(str(i), max_tokens=20, temperature=2.0) for i in range(4)]
    assert len({tuple(tokens) for tokens in run(requests).values()}) == 4


@given(
    produced=st.lists(st.integers(0, 9), max_size=12),
    presence=st.floats(-2, 2),
    frequency=st.floats(-2, 2),
    logits=st.lists(st.floats(-4, 4, width=32), min_size=10, max_size=10),
)
def test_presence_and_frequency_penalty_follow_the_definition_over_produced_tokens(
    produced: list[int], presence: float, frequency: float, logits: list[float]
) -> None:
    sampling = Sampling(presence_penalty=presence, frequency_penalty=frequency)
    prompt = [1, 1, 2]
    counts = Counter(produced)
    expected = [x - counts[i] * frequency - (counts[i] > 0) * presence for i, x in enumerate(logits)]
    sampler = Sampler(sampling, prompt_tokens=len(prompt), stop_ids=())
    chosen = sampler.pick(torch.tensor(prompt + produced), torch.tensor(logits))
    assert expected[chosen] == pytest.approx(max(expected), abs=1e-5)


def test_only_raw_arg_max_counts_as_plain_greedy() -> None:
    def is_plain(**options: Any) -> bool:
        return Sampler(Sampling(**options), prompt_tokens=1, stop_ids=(1,)).is_plain_greedy

    assert is_plain()
    assert is_plain(top_k=3, top_p=0.5, seed=4)
    assert not is_plain(temperature=0.1)
    assert not is_plain(repetition_penalty=1.1)
    assert not is_plain(presence_penalty=0.1)
    assert not is_plain(min_tokens=1)
