from __future__ import annotations

from typing import Any

import pytest

from seekserve_backend.engines.port import Sampling
from seekserve_backend.engines.sampling_bounds import sampling_problems


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"temperature": -0.1}, ["temperature"]),
        ({"temperature": float("nan")}, ["temperature"]),
        ({"temperature": float("inf")}, ["temperature"]),
        ({"top_k": -1}, ["top_k"]),
        ({"top_p": 0.0}, ["top_p"]),
        ({"top_p": 1.01}, ["top_p"]),
        ({"repetition_penalty": 0.0}, ["repetition_penalty"]),
        ({"presence_penalty": float("inf")}, ["presence_penalty"]),
        ({"frequency_penalty": float("nan"), "min_tokens": -1}, ["frequency_penalty", "min_tokens"]),
        ({"seed": -1}, ["seed"]),
        ({"seed": 2**64}, ["seed"]),
        ({"seed": 2**64 - 1, "temperature": 2.0, "top_p": 0.01, "top_k": 10_000}, []),
    ],
    ids=str,
)
def test_each_bad_field_is_named_with_its_bound(options: dict[str, Any], fields: list[str]) -> None:
    assert [problem.split()[0] for problem in sampling_problems(Sampling(**options))] == fields
