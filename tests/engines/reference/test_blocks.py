from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seekserve_backend.engines.reference.blocks import BlockPool


@given(total=st.integers(1, 30), asks=st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=60))
def test_blocks_are_never_lost_nor_held_twice(total: int, asks: list[tuple[bool, int]]) -> None:
    pool = BlockPool(total)
    held: list[tuple[int, ...]] = []
    for takes, number in asks:
        if takes:
            if pool.can_take(number):
                held.append(pool.take(number))
            else:
                assert number > pool.free_blocks
        elif held:
            pool.give_back(held.pop(number % len(held)))
        pool.check_integrity()
        out = [block for blocks in held for block in blocks]
        assert len(set(out)) == len(out)
        assert pool.free_blocks + len(out) == total
    for blocks in held:
        pool.give_back(blocks)
    assert pool.free_blocks == total


def test_the_same_calls_give_the_same_blocks() -> None:
    def tables() -> list[tuple[int, ...]]:
        pool = BlockPool(10)
        first, second = pool.take(3), pool.take(2)
        pool.give_back(first)
        return [first, second, pool.take(5)]

    assert tables() == tables()


def test_taking_more_than_is_free_takes_nothing() -> None:
    pool = BlockPool(4)
    pool.take(3)
    with pytest.raises(ValueError, match="2 KV blocks asked for, 1 of 4 are free"):
        pool.take(2)
    assert pool.free_blocks == 1


@pytest.mark.parametrize("blocks", [(0, 0), (3,), (4,), (-1,)])
def test_a_block_that_is_not_out_cannot_be_given_back(blocks: tuple[int, ...]) -> None:
    pool = BlockPool(4)
    pool.take(2)
    with pytest.raises(ValueError, match="given back"):
        pool.give_back(blocks)
    pool.check_integrity()
    assert pool.free_blocks == 2


def test_a_pool_without_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 block"):
        BlockPool(0)
