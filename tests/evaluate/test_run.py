"""From answers to a judgement: pairing, the allowed drop, what is printed. No model runs here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fake_server import Call, Running, chunk
from hypothesis import given
from hypothesis import strategies as st

from seekserve.data import tiny_checkpoint_folder
from seekserve.errors import ConflictError, InputError, MissingDependency
from seekserve.evaluate import EvaluateRequest, Evaluation, evaluate
from seekserve.evaluate.in_process import need_local
from seekserve.evaluate.report import report_json, report_text
from seekserve.evaluate.run import Comparison, compare
from seekserve.evaluate.statistics import mcnemar_p, paired_difference
from seekserve.evaluate.target import Asking


def comparison(ours: list[bool], theirs: list[bool], max_drop_points: float) -> Comparison:
    pairs = compare(ours, theirs)
    return Comparison(
        pairs=pairs, interval=paired_difference(pairs), p=mcnemar_p(pairs), max_drop_points=max_drop_points
    )


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=300))
def test_every_question_is_in_one_of_four_places(answers: list[tuple[bool, bool]]) -> None:
    ours, theirs = [a for a, _ in answers], [b for _, b in answers]
    pairs = compare(ours, theirs)
    assert pairs.asked == len(answers)
    assert pairs.difference * len(answers) == pytest.approx(sum(ours) - sum(theirs))


def test_a_drop_of_exactly_the_limit_passes_and_one_question_more_does_not() -> None:
    theirs = [True] * 200
    assert comparison([False] * 3 + [True] * 197, theirs, 1.5).is_within
    assert not comparison([False] * 4 + [True] * 196, theirs, 1.5).is_within
    assert comparison([True] * 200, [False] * 200, 0.0).is_within


# Of the shipped additions, the first forty; a server that is wrong on some of them.
def answers_wrong(on: range) -> Any:
    from seekserve.evaluate.tasks import read_task_sets

    (read,) = read_task_sets(["additions"], match="exact", limit=None)
    expected = {task.question: task.expected for task in read.tasks}
    wrong = {task.question for task in read.tasks[on.start : on.stop]}

    def script(call: Call) -> Iterator[Any]:
        question = json.loads(call.inputs()["messages"][2][4:])[-1]["content"]
        yield chunk("\x1b[2J" if question in wrong else expected[question], final=True, finish="stop")

    return script


def request(target: str, other: str | None = None, **changes: Any) -> EvaluateRequest:
    fields: dict[str, Any] = {
        "target": target,
        "other": other,
        "tasks": ("additions",),
        "match": "exact",
        "limit": 40,
        "model": None,
        "asking": Asking(max_tokens=32, concurrency=4),
        "max_drop_points": None,
        "wants_errors": False,
        "baseline": None,
    }
    return EvaluateRequest(**{**fields, **changes})


def quiet(_what: str, _done: int, _total: int) -> None:
    pass


@pytest.fixture
def compared(server: Running) -> Iterator[Evaluation]:
    """TARGET is wrong on 3 of 40, OTHER on none."""
    other = Running()
    server.triton.script, other.triton.script = answers_wrong(range(3)), answers_wrong(range(0))
    yield evaluate(request(server.url, other.url), quiet)
    other.drop()


def test_a_drop_beyond_the_limit_is_a_conflict_with_both_numbers(compared: Evaluation) -> None:
    with pytest.raises(ConflictError) as caught:
        compared.judge()
    assert caught.value.exit_code == 3
    for words in ("92.50 % of 40 questions", "100.00 %", "a drop of 7.50 points where --max-drop allows 1.5"):
        assert words in str(caught.value)


def test_the_report_shows_shares_intervals_and_the_questions_that_differ(compared: Evaluation) -> None:
    text = report_text(compared)
    low, high = (100 * bound for bound in paired_difference(compare([False] * 3 + [True] * 37, [True] * 40)))
    for words in (
        "37 of 40",
        "92.50 %",
        "80.14 to 97.42 %",
        "the first 40 of 1000",
        f"TARGET minus OTHER: -7.50 points, 95 % interval {low:+.2f} to {high:+.2f} (Newcombe",
        "only TARGET 0, only OTHER 3",
        "TOO LARGE: a drop of 7.50 points",
        "right in one, wrong in the other (3)",
        "additions:1 ",
        "(right)",
    ):
        assert words in text
    assert "\x1b" not in text


def test_the_json_report_has_the_same_figures(compared: Evaluation) -> None:
    data: Any = json.loads(json.dumps(report_json(compared), allow_nan=False))
    assert data["target"]["accuracy"]["right"] == data["target"]["by_task"]["additions"]["right"] == 37
    assert data["comparison"]["difference_points"] == -7.5
    assert (data["comparison"]["only_other_right"], data["comparison"]["is_within"]) == (3, False)
    assert [example["where"] for example in data["examples"]] == ["additions:1", "additions:2", "additions:3"]
    assert data["errors"] is None


def test_one_target_alone_is_measured_and_never_in_conflict(server: Running) -> None:
    server.triton.script = answers_wrong(range(2, 10))
    evaluation = evaluate(request(server.url), quiet)
    evaluation.judge()
    text = report_text(evaluation)
    assert "32 of 40" in text
    assert "wrong answers (the first 5 of 8)" in text
    assert "OTHER" not in text


def test_few_questions_that_agree_are_no_proof(server: Running) -> None:
    server.triton.script = answers_wrong(range(0))
    evaluation = evaluate(request(server.url, server.url), quiet)
    evaluation.judge()
    assert "do not rule out a drop of 8.76" in report_text(evaluation)


def test_several_task_files_are_judged_together(server: Running) -> None:
    server.triton.script = lambda _call: iter([chunk("4", final=True, finish="length")])
    evaluation = evaluate(request(server.url, tasks=("additions", "phrasings"), limit=2), quiet)
    text = report_text(evaluation)
    assert "phrasings" in text
    assert "0 of 4" in text
    assert "4 answers were cut off by --max-tokens 32" in text


USELESS: dict[str, tuple[dict[str, Any], str]] = {
    "max drop alone": ({"max_drop_points": 1.0}, "--max-drop compares two builds"),
    "baseline without errors": ({"baseline": "x"}, "--baseline is for the error tables"),
    "errors of a server": ({"wants_errors": True}, "reads the weights of TARGET"),
}


@pytest.mark.parametrize(("changes", "says"), USELESS.values(), ids=USELESS.keys())
def test_a_flag_that_would_do_nothing_is_refused(server: Running, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        evaluate(request(server.url, **changes), quiet)
    assert server.triton.calls == []


def test_a_model_name_needs_a_server(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="--model names a model of a server"):
        evaluate(request(str(tmp_path), model="m"), quiet)


def test_a_checkpoint_is_no_bundle_and_the_hint_says_how_to_make_one() -> None:
    with pytest.raises(InputError, match=r"no bundle.json[\s\S]*build-engine"):
        evaluate(request(str(tiny_checkpoint_folder())), quiet)


def test_without_the_engine_s_packages_the_pip_line_is_given() -> None:
    with pytest.raises(MissingDependency, match=r"needs torch, not installed here[\s\S]*seekserve\[local\]"):
        need_local("this", lambda name: None if name == "torch" else name)
