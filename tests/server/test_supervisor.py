from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seekserve.server.supervisor import RestartBudget


def test_three_restarts_are_allowed_and_the_fourth_is_not() -> None:
    budget = RestartBudget(max_restarts=3, window_s=600.0)
    assert [budget.take(float(now_s)) for now_s in range(4)] == [True, True, True, False]


def test_restarts_are_forgotten_after_the_window() -> None:
    budget = RestartBudget(max_restarts=1, window_s=10.0)
    assert [budget.take(now_s) for now_s in (0.0, 9.9, 10.0, 19.9, 20.0)] == [True, False, True, False, True]


def test_no_restart_at_all_may_be_asked_for() -> None:
    assert not RestartBudget(max_restarts=0, window_s=10.0).take(5.0)


# Whole seconds, so that the test's own sums are exact.
@given(gaps=st.lists(st.integers(0, 5), max_size=40), max_restarts=st.integers(0, 4), window=st.integers(1, 20))
def test_no_window_ever_holds_more_than_allowed(gaps: list[int], max_restarts: int, window: int) -> None:
    budget, now, taken = RestartBudget(max_restarts=max_restarts, window_s=float(window)), 0, []
    for gap in gaps:
        now += gap
        if budget.take(float(now)):
            taken.append(now)
    assert all(sum(1 for time in taken if end - window < time <= end) <= max_restarts for end in taken)
