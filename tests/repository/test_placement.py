"""Instances and their GPUs: lists of numbers, one for each instance, and every disagreement with both numbers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_bundle import toy_bundle
from toy_trtllm import toy_trtllm

from seekserve.errors import ConflictError, InputError
from seekserve.repository.placement import Placement, parse_gpus, place
from seekserve_backend.contract.bundle import Bundle


def refused(bundle: Bundle, instances: int | None, gpus: Sequence[str]) -> str:
    with pytest.raises(ConflictError) as caught:
        place(bundle, instances=instances, gpus=gpus)
    return str(caught.value)


def test_without_flags_there_is_one_instance_and_nothing_is_said_about_gpus() -> None:
    placement = place(toy_trtllm(), instances=None, gpus=())
    assert placement == Placement(instances=1, gpus=())
    assert placement.parameters == {}


def test_lists_of_gpus_make_as_many_instances() -> None:
    placement = place(toy_trtllm(tp=4), instances=None, gpus=("0,1,2,3", "4,5,6,7"))
    assert placement.instances == 2
    assert placement.parameters == {"gpu_device_ids": "0,1,2,3;4,5,6,7"}


@given(st.integers(1, 4), st.integers(1, 8))
def test_any_disjoint_lists_of_the_right_length_are_taken(tp: int, instances: int) -> None:
    gpus = [",".join(str(n * tp + k) for k in range(tp)) for n in range(instances)]
    text = place(toy_trtllm(tp=tp), instances=instances, gpus=gpus).parameters["gpu_device_ids"]
    assert [part.split(",") for part in text.split(";")] == [text.split(",") for text in gpus]


@pytest.mark.parametrize("text", ["", "a", "0,", ",0", "0 1", "0,1,", "-1", "1.0", "0x1", "٣", "0,1\n", "0,1;2,3"])
def test_what_is_no_list_of_numbers_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--gpus"):
        parse_gpus([text])


@pytest.mark.parametrize(
    ("instances", "gpus", "word"),
    [
        (2, (), "2 instances would all take the same 4 GPUs: say which, as in --gpus 0,1,2,3 --gpus 4,5,6,7"),
        (2, ("0,1,2,3",), "2 instances and 1 lists of GPUs"),
        (1, ("0,1,2,3", "4,5,6,7"), "1 instances and 2 lists of GPUs"),
        (None, ("0,1,2",), "--gpus 0,1,2 holds 3 GPUs where one replica takes 4 (tp 4 x pp 1)"),
        (None, ("0,1,2,3", "3,4,5,6"), "GPU 3 is given more than once"),
        (None, ("0,0,1,2",), "GPU 0 is given more than once"),
    ],
)
def test_each_disagreement_is_said_with_both_numbers(instances: int | None, gpus: tuple[str, ...], word: str) -> None:
    assert word in refused(toy_trtllm(tp=4), instances, gpus)


def test_all_problems_are_reported_together() -> None:
    text = refused(toy_trtllm(tp=4), 3, ("0,1", "1,2"))
    assert "instances and GPUs: 4 problems" in text


def test_an_engine_without_gpus_takes_instances_and_no_lists() -> None:
    assert place(toy_bundle(), instances=3, gpus=()).instances == 3
    assert "the reference engine runs without a GPU" in refused(toy_bundle(), None, ("0",))


def test_a_replica_over_several_nodes_is_one_instance() -> None:
    bundle = toy_trtllm(tp=16, nodes=2)
    assert place(bundle, instances=None, gpus=()).instances == 1
    text = refused(bundle, 2, ("0,1,2,3,4,5,6,7",))
    assert "2 instances, but one replica takes 2 nodes" in text
    assert "names GPUs of one node" in text


def test_fewer_than_one_instance_is_refused() -> None:
    with pytest.raises(InputError, match="--instances 0: at least 1"):
        place(toy_bundle(), instances=0, gpus=())
