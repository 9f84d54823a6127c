from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seekserve.bench.knee import find_knee


@given(st.floats(0.05, 50.0), st.floats(0.1, 20.0))
def test_the_knee_of_a_sharp_edge_is_found_to_the_resolution(edge: float, start: float) -> None:
    found = find_knee(lambda rate: 1.0 if rate <= edge else 0.5, start, most_runs=60)
    assert found.rate_rps is not None
    assert found.broke_at_rps is not None
    assert found.rate_rps <= edge < found.broke_at_rps <= 1.1 * found.rate_rps * 1.0001


def test_each_rate_tried_is_told_with_what_it_gave() -> None:
    found = find_knee(lambda rate: 1.0 - rate / 10.0, 0.5)
    assert all(attainment == 1.0 - rate / 10.0 for rate, attainment in found.tried)
    assert found.tried[0] == (0.5, 0.95)


def test_a_server_that_holds_nothing_has_no_knee() -> None:
    found = find_knee(lambda _: 0.0, 1.0, most_runs=5)
    assert found.rate_rps is None
    assert "no rate tried" in found.text(0.9)


def test_a_server_that_holds_everything_is_not_given_a_knee_that_was_never_seen() -> None:
    found = find_knee(lambda _: 1.0, 1.0, most_runs=5)
    assert found.broke_at_rps is None
    assert "nothing tried broke it" in found.text(0.9)


def test_nothing_measured_does_not_count_as_held() -> None:
    assert find_knee(lambda _: float("nan"), 1.0, most_runs=3).rate_rps is None
