"""An evaluation as text for people and as JSON for machines. Nothing is measured here.

Shares are percentages, differences are percentage points, TARGET minus OTHER: a minus sign is a drop.
"""

from __future__ import annotations

from collections.abc import Iterator

from seekserve.evaluate.error_report import errors_json, errors_lines, verdict
from seekserve.evaluate.run import Comparison, Evaluation, Side
from seekserve.evaluate.statistics import wilson
from seekserve.evaluate.target import Answer
from seekserve.evaluate.tasks import Task

__all__ = ["SHOWN", "report_json", "report_text"]

SHOWN = 5
"""Questions that are printed when answers are wrong or differ."""
_TEXT_CHARS = 80


def report_text(evaluation: Evaluation) -> str:
    lines = [f"TARGET  {_title(evaluation.target)}"]
    if evaluation.other is not None:
        lines.append(f"OTHER   {_title(evaluation.other)}")
    lines += ["", *_accuracy_lines(evaluation)]
    if evaluation.comparison is not None:
        lines += ["", *_comparison_lines(evaluation.comparison)]
    lines += _example_lines(evaluation)
    lines += errors_lines(evaluation)
    closing = verdict(evaluation)
    return "\n".join([*lines, *(["", closing] if closing else [])])


def report_json(evaluation: Evaluation) -> dict[str, object]:
    return {
        "match": evaluation.match,
        "max_tokens": evaluation.asking.max_tokens,
        "concurrency": evaluation.asking.concurrency,
        "tasks": [{"name": each.name, "asked": len(each.tasks), "in_file": each.in_file} for each in evaluation.sets],
        "target": _side_json(evaluation, evaluation.target),
        "other": None if evaluation.other is None else _side_json(evaluation, evaluation.other),
        "comparison": None if evaluation.comparison is None else _comparison_json(evaluation.comparison),
        "examples": [_example_json(evaluation, *example) for example in _examples(evaluation)],
        "errors": errors_json(evaluation),
    }


def _title(side: Side) -> str:
    known = ", ".join(f"{key} {value}" for key, value in side.facts.items())
    return f"{side.name} ({known})"


def _accuracy_lines(evaluation: Evaluation) -> Iterator[str]:
    yield f"{'task file':<18}  {'':<6}  {'right of asked':>15}  {'accuracy':>9}  95 % interval (Wilson)"
    sides = [("TARGET", evaluation.target)]
    if evaluation.other is not None:
        sides.append(("OTHER", evaluation.other))
    for n, each in enumerate(evaluation.sets):
        cut = "" if len(each.tasks) == each.in_file else f"  (the first {len(each.tasks)} of {each.in_file})"
        for m, (role, side) in enumerate(sides):
            yield _share_line(each.name if m == 0 else "", role, side.right[n]) + (cut if m == 0 else "")
    if len(evaluation.sets) > 1:
        for m, (role, side) in enumerate(sides):
            yield _share_line("all" if m == 0 else "", role, [right for part in side.right for right in part])
    for role, side in sides:
        yield from _notes(evaluation, role, side)


def _share_line(name: str, role: str, right: tuple[bool, ...] | list[bool]) -> str:
    count, asked = sum(right), len(right)
    low, high = wilson(count, asked)
    return (
        f"{name:<18}  {role:<6}  {f'{count} of {asked}':>15}  {100 * count / asked:>7.2f} %  "
        f"{100 * low:.2f} to {100 * high:.2f} %"
    )


def _notes(evaluation: Evaluation, role: str, side: Side) -> Iterator[str]:
    answers = [answer for part in side.answers for answer in part]
    cut, failed = sum(answer.is_cut for answer in answers), [answer for answer in answers if answer.failure]
    if cut:
        yield f"{role}: {cut} answers were cut off by --max-tokens {evaluation.asking.max_tokens} or the length limit"
    if failed:
        yield f"{role}: {len(failed)} questions failed and count as wrong; the first: {_short(failed[0].failure)}"


def _comparison_lines(comparison: Comparison) -> Iterator[str]:
    pairs, (low, high) = comparison.pairs, comparison.interval
    yield (
        f"TARGET minus OTHER: {100 * pairs.difference:+.2f} points, "
        f"95 % interval {100 * low:+.2f} to {100 * high:+.2f} (Newcombe's score interval for paired shares)"
    )
    yield (
        f"  both right {pairs.both}, only TARGET {pairs.only_first}, only OTHER {pairs.only_second}, "
        f"neither {pairs.neither}; exact McNemar p = {comparison.p:.3g}"
    )
    limit = comparison.max_drop_points
    if not comparison.is_within:
        yield f"  TOO LARGE: a drop of {comparison.drop_points:.2f} points where --max-drop allows {limit:g}"
    elif -100 * low > limit:
        yield (
            f"  within --max-drop {limit:g}, but {pairs.asked} questions do not rule out a drop of {-100 * low:.2f}: "
            "ask more of them to be sure"
        )
    else:
        yield f"  within --max-drop {limit:g}, and so is the whole interval"


def _examples(evaluation: Evaluation) -> list[tuple[int, int]]:
    """Which questions are worth a look, by file and place: where right and wrong differ, else where TARGET is wrong."""
    other = evaluation.other
    found = [
        (n, i)
        for n, part in enumerate(evaluation.target.right)
        for i, right in enumerate(part)
        if (not right if other is None else right != other.right[n][i])
    ]
    return found[:SHOWN]


def _example_lines(evaluation: Evaluation) -> Iterator[str]:
    examples = _examples(evaluation)
    if not examples:
        return
    comparison = evaluation.comparison
    if comparison is None:
        total = sum(not right for part in evaluation.target.right for right in part)
    else:
        total = comparison.pairs.only_first + comparison.pairs.only_second
    title = "wrong answers" if comparison is None else "right in one, wrong in the other"
    yield ""
    yield f"{title} ({total})" if total == len(examples) else f"{title} (the first {len(examples)} of {total})"
    for n, i in examples:
        task = evaluation.sets[n].tasks[i]
        yield f"  {task.where}  {_short(task.question)}"
        yield f"    expected  {_short(task.expected)}"
        yield f"    TARGET    {_answered(evaluation.target, n, i)}"
        if evaluation.other is not None:
            yield f"    OTHER     {_answered(evaluation.other, n, i)}"


def _answered(side: Side, n: int, i: int) -> str:
    answer = side.answers[n][i]
    text = f"failed: {_short(answer.failure)}" if answer.failure else _short(answer.text)
    return text + ("  (right)" if side.right[n][i] else "")


def _short(text: str) -> str:
    """One printable line: what a model writes must not move the terminal's cursor."""
    shown = repr(text)
    return shown if len(shown) <= _TEXT_CHARS else f"{shown[: _TEXT_CHARS - 4]}...{shown[-1]}"


def _side_json(evaluation: Evaluation, side: Side) -> dict[str, object]:
    answers = [answer for part in side.answers for answer in part]
    return {
        "name": side.name,
        **side.facts,
        "accuracy": _share_json([right for part in side.right for right in part]),
        "by_task": {each.name: _share_json(list(part)) for each, part in zip(evaluation.sets, side.right, strict=True)},
        "cut": sum(answer.is_cut for answer in answers),
        "failed": sum(bool(answer.failure) for answer in answers),
    }


def _share_json(right: list[bool]) -> dict[str, object]:
    count, asked = sum(right), len(right)
    low, high = wilson(count, asked)
    return {"right": count, "asked": asked, "share": count / asked, "low": low, "high": high}


def _comparison_json(comparison: Comparison) -> dict[str, object]:
    pairs = comparison.pairs
    return {
        "difference_points": 100 * pairs.difference,
        "low_points": 100 * comparison.interval.low,
        "high_points": 100 * comparison.interval.high,
        "both_right": pairs.both,
        "only_target_right": pairs.only_first,
        "only_other_right": pairs.only_second,
        "neither_right": pairs.neither,
        "mcnemar_p": comparison.p,
        "max_drop_points": comparison.max_drop_points,
        "is_within": comparison.is_within,
    }


def _example_json(evaluation: Evaluation, n: int, i: int) -> dict[str, object]:
    task: Task = evaluation.sets[n].tasks[i]

    def answered(side: Side) -> dict[str, object]:
        answer: Answer = side.answers[n][i]
        return {"text": answer.text, "failure": answer.failure or None, "is_right": side.right[n][i]}

    return {
        "where": task.where,
        "question": task.question,
        "expected": task.expected,
        "target": answered(evaluation.target),
        "other": None if evaluation.other is None else answered(evaluation.other),
    }
