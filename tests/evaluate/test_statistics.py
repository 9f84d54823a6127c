"""Intervals and tests against published figures, and what must hold for any counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seekserve.evaluate.statistics import Pairs, mcnemar_p, paired_difference, wilson

# Newcombe, Statistics in Medicine 17 (1998) 857-872, table I, method 3
WILSON = [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)]
# the same volume, 2635-2650, method 10, and Fagerland et al., ibid. 33 (2014) 2850-2875, for the last
PAIRED = [
    ((36, 12, 2, 0), 0.0569, 0.3404),
    ((36, 14, 0, 0), 0.1528, 0.4167),
    ((1, 1, 7, 12), -0.507, -0.026),
]

counts = st.integers(min_value=0, max_value=400)
tables = st.tuples(counts, counts, counts, counts).filter(any)


def pairs(table: tuple[int, int, int, int]) -> Pairs:
    both, only_first, only_second, neither = table
    return Pairs(both=both, only_first=only_first, only_second=only_second, neither=neither)


@pytest.mark.parametrize(("right", "asked", "low", "high"), WILSON)
def test_wilson_gives_the_published_intervals(right: int, asked: int, low: float, high: float) -> None:
    assert wilson(right, asked) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(("table", "low", "high"), PAIRED)
def test_the_paired_interval_is_the_published_one(table: tuple[int, int, int, int], low: float, high: float) -> None:
    assert paired_difference(pairs(table)) == pytest.approx((low, high), abs=5e-4 if table[0] == 1 else 5e-5)


@pytest.mark.parametrize(("only_first", "only_second", "p"), [(0, 0, 1), (5, 0, 0.0625), (1, 7, 0.0703125), (3, 3, 1)])
def test_mcnemar_is_the_exact_binomial_test(only_first: int, only_second: int, p: float) -> None:
    assert mcnemar_p(pairs((9, only_first, only_second, 4))) == p


@pytest.mark.parametrize(("right", "asked"), [(0, 0), (3, 2), (-1, 5)])
def test_counts_that_cannot_be_are_a_programming_error(right: int, asked: int) -> None:
    with pytest.raises(ValueError, match="right of"):
        wilson(right, asked)


@given(counts, st.integers(min_value=1, max_value=400))
def test_wilson_holds_the_share_has_a_width_and_mirrors(right: int, asked: int) -> None:
    right = min(right, asked)
    low, high = wilson(right, asked)
    assert 0 <= low <= right / asked <= high <= 1
    assert low < high
    mirrored = wilson(asked - right, asked)
    assert mirrored == pytest.approx((1 - high, 1 - low))


@given(counts, st.integers(min_value=1, max_value=400))
def test_ten_times_as_many_questions_make_it_narrower(right: int, asked: int) -> None:
    right = min(right, asked)
    (low, high), (low10, high10) = wilson(right, asked), wilson(10 * right, 10 * asked)
    assert high10 - low10 < high - low


@given(tables)
def test_the_paired_interval_holds_the_difference_and_turns_with_the_sides(table: tuple[int, int, int, int]) -> None:
    low, high = paired_difference(pairs(table))
    assert -1 <= low <= pairs(table).difference + 1e-12
    assert pairs(table).difference - 1e-12 <= high <= 1
    both, only_first, only_second, neither = table
    turned = paired_difference(pairs((both, only_second, only_first, neither)))
    assert turned == pytest.approx((-high, -low), abs=1e-12)


@given(tables)
def test_p_is_a_probability_and_does_not_care_which_side_is_first(table: tuple[int, int, int, int]) -> None:
    both, only_first, only_second, neither = table
    p = mcnemar_p(pairs(table))
    assert 0 < p <= 1 or only_first + only_second > 300
    assert p == mcnemar_p(pairs((both, only_second, only_first, neither)))
