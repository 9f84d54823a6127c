"""The GPU catalogue: complete entries with sources, forgiving spelling, and errors that name the nearest."""

from __future__ import annotations

import pytest

from seekserve.errors import ConfigError
from seekserve.plan.gpus import GIB, catalogue, find_gpu, gpu_of_device_name


@pytest.mark.parametrize("spelling", ["h200_sxm", "h200-sxm", "H200", "h200-sxm-141gb", "NVIDIA H200", " h200 "])
def test_one_gpu_has_many_spellings(spelling: str) -> None:
    assert find_gpu(spelling).name == "h200-sxm-141gb"


def test_every_entry_has_a_source_and_a_confidence() -> None:
    for gpu in catalogue().values():
        assert gpu.source, gpu.name
        assert gpu.confidence in ("high", "medium", "low")
        assert gpu.memory_bytes > 20 * GIB
        assert gpu.domain_gpus >= 1


def test_no_two_entries_answer_to_one_device_name() -> None:
    names = [name for gpu in catalogue().values() for name in gpu.device_names]
    assert len(names) == len(set(names))
    assert all(gpu_of_device_name(name) is not None for name in names)


def test_an_unknown_gpu_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no GPU 'h201'") as caught:
        find_gpu("h201")
    assert "h200-sxm-141gb" in str(caught.value)


def test_a_name_that_means_several_lists_them() -> None:
    with pytest.raises(ConfigError, match="can mean rtx-pro-6000-blackwell-server, rtx-pro-6000-blackwell-w"):
        find_gpu("rtx-pro")


def test_fp8_is_there_exactly_from_ada_on() -> None:
    for gpu in catalogue().values():
        assert ("fp8" in gpu.tflops) == (gpu.sm >= 89), gpu.name


def test_a_rack_is_one_nvlink_domain_of_small_hosts() -> None:
    assert (find_gpu("gb200").node_gpus, find_gpu("gb200").domain_gpus) == (4, 72)
    assert find_gpu("l4").domain_gpus == 1
