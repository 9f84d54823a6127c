from __future__ import annotations

import pytest

from seekserve.bench.lag import bound_ms, lag_of
from seekserve.bench.load import DEFAULT_SLO
from seekserve.simulate.slo import ClassSlo, SloFile


def slo(*ttft_ms: float | None) -> SloFile:
    classes = {f"c{n}": ClassSlo(share=1.0, ttft_ms=ms, e2e_ms=1000.0) for n, ms in enumerate(ttft_ms)}
    return SloFile(name="s", classes=classes)


@pytest.mark.parametrize(
    ("targets_ms", "bound"),
    [((1000.0,), 20.0), ((100.0, 1000.0), 10.0), ((None,), 20.0), ((None, 50.0), 5.0)],
)
def test_the_bound_is_a_tenth_of_the_smallest_target_and_at_most_20_ms(
    targets_ms: tuple[float | None, ...], bound: float
) -> None:
    assert bound_ms(slo(*targets_ms)) == bound


@pytest.mark.parametrize(
    ("send_ms", "loop_ms", "is_valid"), [(1.0, 1.0, True), (25.0, 1.0, False), (1.0, 25.0, False), (20.0, 20.0, True)]
)
def test_a_run_is_valid_only_while_both_ways_keep_up(send_ms: float, loop_ms: float, is_valid: bool) -> None:
    lag = lag_of([send_ms] * 10, [loop_ms] * 10, DEFAULT_SLO)
    assert lag.is_valid is is_valid
    assert ("NOT VALID" in lag.verdict) is not is_valid


def test_one_late_request_in_a_thousand_does_not_spoil_a_run() -> None:
    assert lag_of([1.0] * 999 + [500.0], [], DEFAULT_SLO).is_valid
