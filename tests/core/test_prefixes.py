"""Prefixes: a match is a whole beginning that was seen, and what is forgotten is what was used longest ago."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seekserve_backend.core.prefixes import PrefixIndex, block_hashes

IDS = st.lists(st.integers(0, 3), max_size=40)


@given(IDS, IDS)
def test_a_match_is_as_long_as_the_common_beginning_in_whole_blocks(first: list[int], second: list[int]) -> None:
    index = PrefixIndex(10_000, block_tokens=4)
    index.note(block_hashes(first, 4))
    common = next(
        (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
    assert index.match_tokens(block_hashes(second, 4)) == common // 4 * 4


def test_beginnings_outlive_ends_and_old_prompts_are_forgotten() -> None:
    index = PrefixIndex(5 * 4, block_tokens=4)
    system = [7] * 8
    for number in range(10):
        index.note(block_hashes(system + [100 + number] * 8, 4))
        assert len(index) <= 5
    assert index.match_tokens(block_hashes(system + [1] * 8, 4)) == 8
    assert index.match_tokens(block_hashes(system + [100] * 8, 4)) == 8
    assert index.match_tokens(block_hashes([9] * 16, 4)) == 0


def test_a_prompt_shorter_than_a_block_has_no_hash() -> None:
    assert block_hashes([1, 2, 3], 4) == ()
