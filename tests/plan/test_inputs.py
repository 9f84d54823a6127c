"""Inputs: one table, three ways to give a value, and UNSET where nobody gave one."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from seekserve.plan.inputs import FIELDS, Given, Inputs, environment_inputs, file_inputs, flag_inputs, merge
from seekserve.plan.plan import UNSET, Source
from seekserve.plan.target import ALL_FIELDS


def test_the_table_names_every_input_once() -> None:
    assert [spec.name for spec in ALL_FIELDS] == [field.name for field in fields(Inputs)]
    for column in ("flag", "variable", "file_key", "plan_key"):
        values = [getattr(spec, column) for spec in ALL_FIELDS]
        assert len(set(values)) == len(values)


def test_what_nobody_gave_is_unset() -> None:
    assert flag_inputs({"max_batch_size": None}) == Inputs()
    assert all(getattr(Inputs(), spec.name) is UNSET for spec in FIELDS)


def test_a_flag_of_zero_is_given() -> None:
    assert flag_inputs({"max_batch_size": 0}).max_batch_size == Given(0, Source.FLAG, "--max-batch-size")


@pytest.mark.parametrize("text", ["1.5", "1e3", "true", "16 tokens", "0x10"])
def test_a_variable_that_is_no_integer_is_a_problem_and_not_a_default(text: str) -> None:
    inputs, problems = environment_inputs({"SEEKSERVE_MAX_BATCH_SIZE": text})
    assert inputs == Inputs()
    assert problems == [f"environment SEEKSERVE_MAX_BATCH_SIZE: expected an integer, got {text!r}"]


def test_an_empty_variable_counts_as_not_given() -> None:
    assert environment_inputs({"SEEKSERVE_KV_DTYPE": "  "}) == (Inputs(), [])


def test_merging_keeps_the_first_that_has_a_value() -> None:
    first, second = flag_inputs({"name": "a"}), file_inputs({"name": "b", "block_tokens": 8}, Path("f"))
    merged = merge(first, second)
    assert merged.name == Given("a", Source.FLAG, "--name")
    assert merged.block_tokens == Given(8, Source.FILE, "f")
    assert merge() == Inputs()
