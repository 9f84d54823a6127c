"""Both engines at once, or one after the other: decided by numbers that are said."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.repository.toy_bundle import toy_bundle

from seekserve.data import tiny_checkpoint_folder
from seekserve.errors import DoesNotFit
from seekserve.swap.way import Way, choose_way, needed_bytes

GIB = 1 << 30


def choose(asked: str, needed: int, available: int) -> Way:
    return choose_way(asked, toy_bundle(), old_gpus=(), new_gpus=(), needed=lambda: needed, available_bytes=available)


@pytest.mark.parametrize(
    ("asked", "needed", "available", "how"),
    [
        ("auto", GIB, GIB, "side-by-side"),
        ("auto", GIB + 1, GIB, "drain"),
        ("drain", GIB, 9 * GIB, "drain"),
        ("side-by-side", GIB, 9 * GIB, "side-by-side"),
    ],
)
def test_cpu_engines_go_by_the_memory_of_the_host(asked: str, needed: int, available: int, how: str) -> None:
    way = choose(asked, needed, available)
    assert way.how == how
    assert "the new engine takes 1.0 GiB" in way.why
    assert f"{available / GIB:.1f} GiB are available" in way.why


def test_side_by_side_that_does_not_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(DoesNotFit, match=r"takes 2\.0 GiB, 1\.0 GiB are available") as caught:
        choose("side-by-side", 2 * GIB, GIB)
    assert "--how drain" in str(caught.value)


def test_the_need_is_weights_in_float32_the_whole_cache_and_a_process(tmp_path: Path) -> None:
    (tmp_path / "weights").symlink_to(tiny_checkpoint_folder())
    bundle = toy_bundle()
    cache = bundle.kv.capacity_tokens * bundle.kv.bytes_per_token
    one = needed_bytes(bundle, tmp_path, instances=1)
    weights = one - cache - GIB
    on_disk = sum(path.stat().st_size for path in tiny_checkpoint_folder().glob("*.safetensors"))
    assert on_disk < weights < 4.2 * on_disk
    assert needed_bytes(bundle, tmp_path, instances=3) == 3 * one
