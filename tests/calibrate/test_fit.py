from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seekserve.calibrate.fit import fit_steps, nnls, relative_errors
from seekserve.calibrate.samples import StepSample
from seekserve.errors import InputError
from seekserve_backend.contract.step_model import StepModel

TRUE = StepModel(
    base_points=((1, 10.0), (8, 12.0), (64, 20.0), (600, 90.0)),
    kv_read_ms_per_token=2e-4,
    attention_ms_per_token2=3e-6,
    source="true",
)


def steps(count: int, *, noise: float = 0.0, seed: int = 0) -> list[StepSample]:
    chance = random.Random(seed)
    made = []
    for _ in range(count):
        decode, kv = chance.randint(0, 64), chance.randint(0, 60_000)
        chunks = ((chance.randint(0, 8000), chance.randint(1, 536)),) if not decode or chance.random() < 0.5 else ()
        ms = TRUE.step_ms(decode_tokens=decode, kv_tokens=kv, chunks=chunks) * chance.uniform(1 - noise, 1 + noise)
        made.append(StepSample(decode_tokens=decode, kv_tokens=kv, chunks=chunks, step_ms=ms))
    return made


def test_a_model_is_found_again_through_noise_and_outliers() -> None:
    samples = steps(2000, noise=0.05)
    disturbed = [
        each
        if n % 50
        else StepSample(
            decode_tokens=each.decode_tokens, kv_tokens=each.kv_tokens, chunks=each.chunks, step_ms=9 * each.step_ms
        )
        for n, each in enumerate(samples)
    ]
    fit = fit_steps(disturbed, source="here")
    assert fit.set_aside >= 30
    assert fit.median_error < 0.06
    assert fit.model.source == "here"
    assert max(relative_errors(fit.model, steps(200, seed=1))) < 0.1
    assert fit.model.kv_read_ms_per_token == pytest.approx(TRUE.kv_read_ms_per_token, rel=0.15)
    assert fit.model.attention_ms_per_token2 == pytest.approx(TRUE.attention_ms_per_token2, rel=0.15)


@given(seed=st.integers(0, 1000), count=st.integers(40, 120))
def test_whatever_was_measured_a_larger_step_is_never_predicted_to_be_faster(seed: int, count: int) -> None:
    chance = random.Random(seed)
    samples = [
        StepSample(
            decode_tokens=chance.randint(1, 40),
            kv_tokens=chance.randint(0, 99),
            chunks=(),
            step_ms=chance.random() + 0.01,
        )
        for _ in range(count)
    ]
    model = fit_steps(samples, source="").model
    times = [model.base_ms(n) for n in range(1, 80)]
    assert all(b >= a - 1e-9 for a, b in itertools.pairwise(times))
    assert model.kv_read_ms_per_token >= 0.0


@given(seed=st.integers(0, 10_000), rows=st.integers(1, 30), columns=st.integers(1, 8))
def test_the_least_squares_are_the_least(seed: int, rows: int, columns: int) -> None:
    """The conditions of Karush, Kuhn and Tucker: no allowed direction leads further down."""
    chance = np.random.default_rng(seed)
    a, b = chance.normal(size=(rows, columns)), chance.normal(size=rows)
    x = nnls(a, b)
    gradient = a.T @ (a @ x - b)
    assert (x >= 0.0).all()
    assert (gradient >= -1e-6).all()
    assert np.abs(gradient[x > 1e-9]).max(initial=0.0) < 1e-6


def test_too_little_is_said() -> None:
    alike = [StepSample(decode_tokens=4, kv_tokens=9, chunks=(), step_ms=1.0)] * 100
    with pytest.raises(InputError, match="here are 100 of 1"):
        fit_steps(alike, source="")
    with pytest.raises(InputError, match="here are 5 of"):
        fit_steps(steps(5), source="")
