from __future__ import annotations

import pytest

from seekserve_backend.text.bos import with_one_bos


@pytest.mark.parametrize(
    ("ids", "bos_id", "expected"),
    [
        ([5, 6], 0, (0, 5, 6)),
        ([0, 5, 6], 0, (0, 5, 6)),
        ([0, 0, 0, 5], 0, (0, 5)),
        ([0, 5, 0, 6], 0, (0, 5, 0, 6)),  # a BOS inside is part of the prompt
        ([], 0, (0,)),
        ([0], 0, (0,)),
        ([0, 0, 5], None, (0, 0, 5)),
    ],
)
def test_exactly_one_bos_leads(ids: list[int], bos_id: int | None, expected: tuple[int, ...]) -> None:
    assert with_one_bos(ids, bos_id) == expected
