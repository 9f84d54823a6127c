from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from seekserve_backend.contract.fields import ContractError, Fields


def problems(data: Any, read: Callable[[Fields], object]) -> tuple[str, ...]:
    fields = Fields(data, "here")
    read(fields)
    try:
        fields.done()
    except ContractError as error:
        return error.problems
    return ()


@pytest.mark.parametrize(
    ("value", "read", "result"),
    [
        ("x", lambda f: f.string("k"), "x"),
        (3, lambda f: f.integer("k"), 3),
        (3, lambda f: f.number("k"), 3.0),
        (False, lambda f: f.boolean("k"), False),
        ([1, 2], lambda f: f.integers("k"), (1, 2)),
        ({"a": 1}, lambda f: f.mapping("k"), {"a": 1}),
        (None, lambda f: f.opt_string("k"), None),
        (None, lambda f: f.opt_integer("k"), None),
        (None, lambda f: f.opt_number("k"), None),
        (7, lambda f: f.opt_integer("k", low=7, high=7), 7),
    ],
)
def test_good_values_are_read(value: Any, read: Callable[[Fields], object], result: object) -> None:
    fields = Fields({"k": value}, "here")
    assert read(fields) == result
    fields.done()


@pytest.mark.parametrize(
    ("value", "read", "problem"),
    [
        (3, lambda f: f.string("k"), "k: expected a string, got 3"),
        ("3", lambda f: f.integer("k"), "k: expected an integer, got '3'"),
        (True, lambda f: f.integer("k"), "k: expected an integer, got True"),
        (1.0, lambda f: f.integer("k"), "k: expected an integer, got 1.0"),
        (True, lambda f: f.number("k"), "k: expected a finite number, got True"),
        (float("nan"), lambda f: f.number("k"), "k: expected a finite number, got nan"),
        (float("inf"), lambda f: f.number("k"), "k: expected a finite number, got inf"),
        (0, lambda f: f.boolean("k"), "k: expected true or false, got 0"),
        ([1, "2"], lambda f: f.integers("k"), "k: expected a list of integers, got [1, '2']"),
        ([], lambda f: f.mapping("k"), "k: expected an object, got []"),
        (1, lambda f: f.integer("k", low=2), "k: expected at least 2, got 1"),
        (9, lambda f: f.integer("k", high=8), "k: expected at most 8, got 9"),
        (None, lambda f: f.integer("k"), "k: expected an integer, got None"),
        (
            "fp9",
            lambda f: f.string("k", choices=("fp8", "bf16")),
            "k: expected one of fp8, bf16 (did you mean fp8?), got 'fp9'",
        ),
    ],
)
def test_a_bad_value_names_key_wish_and_value(value: Any, read: Callable[[Fields], object], problem: str) -> None:
    assert problems({"k": value}, read) == (problem,)


def test_a_number_too_large_for_a_float_is_a_problem_and_no_crash() -> None:
    (problem,) = problems({"k": 10**400}, lambda f: f.number("k"))
    assert problem.startswith("k: expected a finite number")


def test_everything_wrong_is_reported_at_once() -> None:
    def read(fields: Fields) -> None:
        fields.integer("size")
        fields.string("name")
        child = fields.child("limits")
        child.integer("max_tokens", low=1)
        child.done()

    found = problems({"size": "big", "limits": {"max_tokens": 0, "max_token": 1}, "extra": 1}, read)
    assert found == (
        "size: expected an integer, got 'big'",
        "name: missing",
        "limits.max_tokens: expected at least 1, got 0",
        "limits.max_token: unknown key (did you mean max_tokens?)",
        "extra: unknown key",
    )


def test_an_error_says_which_document_it_is_about() -> None:
    with pytest.raises(ContractError, match=r"^policy\.yaml: x: unknown key$") as caught:
        Fields({"x": 1}, "policy.yaml").done()
    assert caught.value.where == "policy.yaml"


@pytest.mark.parametrize("data", [None, [], "text", 3])
def test_a_document_must_be_an_object(data: Any) -> None:
    assert problems(data, lambda _: None) == (f"document: expected an object, got {type(data).__name__}",)


def test_a_key_that_was_only_asked_for_counts_as_known() -> None:
    assert problems({"k": None}, lambda f: f.has("k")) == ()
