"""The two-curve step model that lies nearest to measured steps, by non-negative least squares of relative errors.

    T = base(n) + d * K + q * sum(2 * before * c + c^2)

`base` is linear between knots and never falls, so its steps, d and q are all non-negative: the fit is one convex
problem, solved exactly (Lawson and Hanson, Solving Least Squares Problems, 1974, chapter 23). Errors are taken relative
to the prediction, again and again: relative to the measured times the model would come out too fast, because a long
step would make a small error. Steps that a first touch or a compiler made many times too long are set aside.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seekserve.errors import InputError
from seekserve_backend.contract.step_model import StepModel

from .samples import StepSample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Fit", "fit_steps", "nnls", "relative_errors"]

_LEAST_SAMPLES = 30
_FEWEST_AT_A_KNOT = 3
_OUTLIER_TIMES = 5.0
"""A step this many times as long or as short as predicted is set aside; lesser stalls belong to the machine."""
_ROUNDS = 4
_HELD_OUT_EVERY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    model: StepModel
    samples: int
    """Used for the model."""
    set_aside: int
    """Too far from all others."""
    held_out: int
    """Every fifth sample, not used for the model; the errors are of these, outliers included."""
    median_error: float
    """Of the absolute error over the measured time."""
    p90_error: float


def fit_steps(samples: Sequence[StepSample], *, source: str) -> Fit:
    """Raises InputError when the samples cannot carry a model."""
    usable = [each for each in samples if each.step_ms > 0.0 and each.tokens > 0]
    sizes = {each.tokens for each in usable}
    if len(usable) < _LEAST_SAMPLES or len(sizes) < 2:
        raise InputError(
            f"a step model needs at least {_LEAST_SAMPLES} steps of two or more sizes; here are {len(usable)} of "
            f"{len(sizes)}",
            hint="record under a load that goes from one request to a full batch",
        )
    held_out = usable[_HELD_OUT_EVERY - 1 :: _HELD_OUT_EVERY]
    train = [each for n, each in enumerate(usable) if n % _HELD_OUT_EVERY != _HELD_OUT_EVERY - 1]
    knots = _knots([each.tokens for each in train])
    first = _solve(train, knots, source)
    kept = _without_outliers(train, first)
    model = _solve(kept, knots, source)
    errors = relative_errors(model, held_out)
    return Fit(
        model=model,
        samples=len(kept),
        set_aside=len(train) - len(kept),
        held_out=len(held_out),
        median_error=errors[len(errors) // 2],
        p90_error=errors[min(len(errors) - 1, int(0.9 * len(errors)))],
    )


def relative_errors(model: StepModel, samples: Sequence[StepSample]) -> list[float]:
    """Absolute error over measured time of each step that took any, in rising order."""
    return sorted(abs(_predicted(model, each) / each.step_ms - 1.0) for each in samples if each.step_ms > 0.0)


def nnls(a: Floats, b: Floats) -> Floats:
    """x >= 0 that makes |a x - b| least; `a` has shape [rows, columns]."""
    gram, aim = a.T @ a, a.T @ b
    columns = a.shape[1]
    x = np.zeros(columns)
    free = np.zeros(columns, dtype=bool)
    tolerance = 1e-9 * max(1.0, float(np.abs(aim).max()))
    for _ in range(10 * columns):
        gradient = aim - gram @ x
        gradient[free] = -np.inf
        best = int(np.argmax(gradient))
        if gradient[best] <= tolerance:
            break
        free[best] = True
        while True:
            trial = np.zeros(columns)
            trial[free] = np.linalg.lstsq(gram[np.ix_(free, free)], aim[free], rcond=None)[0]
            if (trial[free] > 0.0).all():
                x = trial
                break
            blocking = free & (trial <= 0.0)
            # As far towards the trial as the first of them allows; that one is bound again.
            span = x[blocking] - trial[blocking]
            step = float(np.min(np.where(span > 0.0, x[blocking] / np.where(span > 0.0, span, 1.0), 0.0)))
            x = x + step * (trial - x)
            free &= x > 1e-15
            x[~free] = 0.0
            if not free.any():
                break
    return x


def _knots(tokens: Sequence[int]) -> list[int]:
    """Doubling from the smallest to the largest size, each with samples enough between it and the one before."""
    low, high = min(tokens), max(tokens)
    knots, at = [low], low
    while at < high:
        at = min(max(2 * at, at + 1), high)
        inside = sum(knots[-1] < each <= at for each in tokens)
        if inside >= _FEWEST_AT_A_KNOT or len(knots) == 1:
            knots.append(at)
        else:
            knots[-1] = at if at == high else knots[-1]
    return knots


def _solve(samples: Sequence[StepSample], knots: Sequence[int], source: str) -> StepModel:
    ms = np.array([each.step_ms for each in samples])
    design = _design(samples, knots)
    weights = 1.0 / ms
    for _ in range(_ROUNDS):
        a = design * weights[:, None]
        # Columns of one size: a tolerance that fits the first would else hide the last.
        scale = np.maximum(np.linalg.norm(a, axis=0), 1e-12)
        x = nnls(a / scale, ms * weights) / scale
        weights = 1.0 / np.maximum(design @ x, 1e-9)
    base = np.cumsum(x[: len(knots)])
    return StepModel(
        base_points=tuple((knot, round(float(value), 4)) for knot, value in zip(knots, base, strict=True)),
        kv_read_ms_per_token=float(x[-2]),
        attention_ms_per_token2=float(x[-1]),
        source=source,
    )


def _design(samples: Sequence[StepSample], knots: Sequence[int]) -> Floats:
    """Shape [samples, knots + 2]: base at the first knot, its rises to each next one, resident tokens, attention."""
    tokens = np.array([each.tokens for each in samples], dtype=float)
    columns = [np.ones(len(samples))]
    for n, (low, high) in enumerate(itertools.pairwise(knots)):
        part = (tokens - low) / (high - low)
        columns.append(np.clip(part, 0.0, None if n == len(knots) - 2 else 1.0))
    columns.append(np.array([each.kv_tokens for each in samples], dtype=float))
    columns.append(np.array([each.attention_tokens2 for each in samples], dtype=float))
    return np.stack(columns, axis=1)


def _without_outliers(samples: Sequence[StepSample], model: StepModel) -> list[StepSample]:
    ratios = [each.step_ms / max(_predicted(model, each), 1e-9) for each in samples]
    middle = float(np.median(ratios))
    return [
        each
        for each, ratio in zip(samples, ratios, strict=True)
        if middle / _OUTLIER_TIMES <= ratio <= middle * _OUTLIER_TIMES
    ]


def _predicted(model: StepModel, sample: StepSample) -> float:
    return model.step_ms(decode_tokens=sample.decode_tokens, kv_tokens=sample.kv_tokens, chunks=sample.chunks)
