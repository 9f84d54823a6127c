from __future__ import annotations

from seekserve.simulate.prefix_cache import PrefixCache


def test_blocks_count_from_the_start_of_a_prompt_only() -> None:
    cache = PrefixCache(block_tokens=10)
    cache.use([1, 2, 3], room_tokens=1000.0)
    assert cache.match_tokens([1, 2, 9, 3]) == 20
    assert cache.match_tokens([2, 3]) == 20
    assert cache.match_tokens([9, 1]) == 0
    assert cache.match_tokens([]) == 0


def test_the_least_recently_used_go_first_and_of_a_prompt_its_end() -> None:
    cache = PrefixCache(block_tokens=10)
    cache.use([1, 2], room_tokens=50.0)
    cache.use([3, 4, 5], room_tokens=50.0)
    cache.use([1], room_tokens=50.0)
    cache.use([6], room_tokens=45.0)
    assert len(cache) == 4
    assert cache.match_tokens([2]) == 0
    assert cache.match_tokens([3, 4, 5]) == 20
    assert cache.match_tokens([1]) == 10


def test_no_room_holds_nothing() -> None:
    cache = PrefixCache(block_tokens=10)
    cache.use([1], room_tokens=-5.0)
    assert len(cache) == 0
