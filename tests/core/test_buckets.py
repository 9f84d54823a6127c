from __future__ import annotations

import pytest

from seekserve_backend.core.buckets import Buckets


@pytest.mark.parametrize(
    ("tokens", "label"),
    [(1, "0-1k"), (1023, "0-1k"), (1024, "1k-4k"), (4095, "1k-4k"), (4096, "4k+"), (10**6, "4k+")],
)
def test_edges_are_exclusive_at_the_top(tokens: int, label: str) -> None:
    assert Buckets((1024, 4096)).label(tokens) == label


def test_uneven_edges_are_written_out() -> None:
    assert list(Buckets((100, 1500)).counts()) == ["0-100", "100-1500", "1500+"]


def test_without_edges_there_is_one_bucket() -> None:
    assert Buckets(()).label(5) == "0+"


def test_what_enters_and_leaves_is_counted() -> None:
    buckets = Buckets((10,))
    buckets.enter(buckets.label(3))
    buckets.enter(buckets.label(30))
    buckets.leave(buckets.label(9))
    assert buckets.counts() == {"0-10": 0, "10+": 1}
