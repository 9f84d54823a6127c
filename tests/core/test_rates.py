from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seekserve_backend.core.rates import DrainRate, jitter, retry_hint_ms


def run(per_s: float, seconds: float, *, start_s: float = 0.0, rate: DrainRate | None = None) -> DrainRate:
    rate = rate or DrainRate()
    rate.resume(start_s)
    for n in range(1, int(per_s * seconds) + 1):
        rate.observe(1, start_s + n / per_s, is_busy=True)
    return rate


@pytest.mark.parametrize("per_s", [0.2, 1.0, 8.0, 200.0])
def test_the_rate_approaches_the_completions_per_second(per_s: float) -> None:
    assert run(per_s, 300).per_s == pytest.approx(per_s, rel=0.3)


def test_a_change_of_speed_is_followed_within_a_minute() -> None:
    rate = run(20.0, 120)
    rate = run(5.0, 60, start_s=120.0, rate=rate)
    assert rate.per_s == pytest.approx(5.0, rel=0.5)


def test_idle_time_does_not_lower_the_rate() -> None:
    rate = run(10.0, 60)
    rate.observe(1, 60.0, is_busy=False)
    before = rate.per_s
    rate.resume(10_000.0)
    rate.observe(0, 10_000.1, is_busy=True)
    assert rate.per_s == pytest.approx(before, rel=0.02)


def test_the_rate_is_positive_before_anything_ended() -> None:
    assert DrainRate().per_s > 0


def test_an_engine_that_ends_nothing_is_believed_to_be_slow() -> None:
    rate = DrainRate()
    rate.resume(0.0)
    for second in range(1, 60):
        rate.observe(0, float(second), is_busy=True)
    assert rate.per_s < 0.05


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.floats(-1e9, 1e9), st.booleans()), max_size=30),
)
def test_the_rate_is_finite_and_positive_whatever_the_clock_does(steps: list[tuple[int, float, bool]]) -> None:
    rate = DrainRate()
    for ended, now, is_busy in steps:
        rate.resume(now)
        rate.observe(ended, now, is_busy=is_busy)
        assert math.isfinite(rate.per_s)
        assert rate.per_s > 0


@settings(deadline=None)
@given(
    ahead=st.integers(0, 10**6),
    per_s=st.floats(1e-6, 1e6),
    bounds=st.tuples(st.integers(1, 10**5), st.integers(0, 10**6)),
    count=st.integers(0, 10**9),
)
def test_a_hint_lies_within_the_policys_bounds(ahead: int, per_s: float, bounds: tuple[int, int], count: int) -> None:
    low_ms, high_ms = bounds[0], bounds[0] + bounds[1]
    hint_ms = retry_hint_ms(ahead=ahead, per_s=per_s, low_ms=low_ms, high_ms=high_ms, spread=jitter(count))
    assert low_ms <= hint_ms <= high_ms


@pytest.mark.parametrize(("ahead", "per_s", "about_ms"), [(0, 1.0, 1_000), (99, 10.0, 10_000), (9, 0.5, 20_000)])
def test_a_hint_is_the_time_to_drain_what_is_ahead(ahead: int, per_s: float, about_ms: int) -> None:
    hints = [retry_hint_ms(ahead=ahead, per_s=per_s, low_ms=1, high_ms=10**9, spread=jitter(n)) for n in range(100)]
    assert min(hints) >= 0.8 * about_ms - 1
    assert max(hints) <= 1.2 * about_ms
    assert sum(hints) / 100 == pytest.approx(about_ms, rel=0.03)


@pytest.mark.parametrize("ahead", [0, 10**6])
def test_hints_stay_spread_at_either_bound(ahead: int) -> None:
    hints = {retry_hint_ms(ahead=ahead, per_s=5.0, low_ms=500, high_ms=60_000, spread=jitter(n)) for n in range(100)}
    assert len(hints) > 50
