"""The measurement from request to result: questions, answers, comparison, error tables. Prints nothing.

TARGET is the build in question, OTHER what it is measured against: a drop is what OTHER has more. Whether it is too
large is judged on the share of all questions of all task files together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from seekserve.errors import ConflictError, InputError
from seekserve.evaluate.statistics import Interval, Pairs, mcnemar_p, paired_difference
from seekserve.evaluate.target import Answer, Asking, Target, choose_target
from seekserve.evaluate.tasks import TaskSet, is_right, read_task_sets

if TYPE_CHECKING:
    from seekserve.evaluate.in_process import BundleTarget
    from seekserve.evaluate.kv_errors import KvErrors
    from seekserve.evaluate.weight_errors import WeightErrors

__all__ = ["DEFAULT_MAX_DROP_POINTS", "Comparison", "EvaluateRequest", "Evaluation", "Side", "evaluate"]

DEFAULT_MAX_DROP_POINTS = 1.5

Say = Callable[[str, int, int], None]
"""What is being done, how much of it is, how much there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateRequest:
    target: str
    other: str | None
    tasks: tuple[str, ...]
    match: str
    limit: int | None
    """At most so many questions of each task file, from its beginning."""
    model: str | None
    asking: Asking
    max_drop_points: float | None
    """None: not asked for, the default where there is an OTHER."""
    wants_errors: bool
    baseline: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One target and its answers, task file by task file."""

    name: str
    facts: dict[str, str]
    answers: tuple[tuple[Answer, ...], ...]
    right: tuple[tuple[bool, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`first` is TARGET, `second` is OTHER."""

    pairs: Pairs
    interval: Interval
    p: float
    max_drop_points: float

    @property
    def drop_points(self) -> float:
        return -100 * self.pairs.difference

    @property
    def is_within(self) -> bool:
        # Whole questions, so that a drop of exactly the limit is not too large by a rounding error.
        lost = self.pairs.only_second - self.pairs.only_first
        return 100 * lost <= self.max_drop_points * self.pairs.asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    match: str
    asking: Asking
    sets: tuple[TaskSet, ...]
    target: Side
    other: Side | None
    comparison: Comparison | None
    weights: WeightErrors | None
    weights_reason: str
    """Why `weights` is absent though errors were asked for."""
    kv: KvErrors | None

    def judge(self) -> None:
        """Raises ConflictError when the drop exceeds what is allowed."""
        comparison = self.comparison
        if comparison is None or comparison.is_within or self.other is None:
            return
        asked = comparison.pairs.asked
        ours = comparison.pairs.both + comparison.pairs.only_first
        theirs = comparison.pairs.both + comparison.pairs.only_second
        raise ConflictError(
            f"{self.target.name} is right in {100 * ours / asked:.2f} % of {asked} questions, {self.other.name} in "
            f"{100 * theirs / asked:.2f} %: a drop of {comparison.drop_points:.2f} points where --max-drop allows "
            f"{comparison.max_drop_points:g}",
            hint="--errors shows which weights and which layers' KV are rounded most",
        )


def evaluate(request: EvaluateRequest, say: Say) -> Evaluation:
    """Everything that can be wrong with the input is reported before the first question is asked."""
    sets = read_task_sets(request.tasks, match=request.match, limit=request.limit)
    _check(request)
    target = choose_target(request.target, model=request.model)
    other = None if request.other is None else choose_target(request.other, model=request.model)
    bundle = _bundle_for_errors(request, target)
    baseline, reason = _baseline(request, other)
    tasks = [task for each in sets for task in each.tasks]
    for each in (target, other):
        if each is not None:
            each.check(tasks)
    side = _ask(target, sets, request, partial(say, "TARGET"))
    other_side = None if other is None else _ask(other, sets, request, partial(say, "OTHER"))
    return Evaluation(
        match=request.match,
        asking=request.asking,
        sets=sets,
        target=side,
        other=other_side,
        comparison=None if other_side is None else _compare(side, other_side, request.max_drop_points),
        weights=None if bundle is None or baseline is None else _weights(bundle, baseline, say),
        weights_reason=reason if bundle is not None else "",
        kv=None if bundle is None else _kv(bundle, side, say),
    )


def compare(ours: Sequence[bool], theirs: Sequence[bool]) -> Pairs:
    """Who answered what right, question by question."""
    both = list(zip(ours, theirs, strict=True))
    return Pairs(
        both=both.count((True, True)),
        only_first=both.count((True, False)),
        only_second=both.count((False, True)),
        neither=both.count((False, False)),
    )


def _check(request: EvaluateRequest) -> None:
    if request.max_drop_points is not None and request.other is None:
        raise InputError("--max-drop compares two builds, and only TARGET is given", hint="give OTHER as well")
    if request.baseline is not None and not request.wants_errors:
        raise InputError("--baseline is for the error tables only", hint="give --errors as well, or leave it out")
    if request.model is not None and all(Path(name).exists() for name in (request.target, request.other) if name):
        raise InputError("--model names a model of a server, and no server is asked", hint="leave it out")


def _bundle_for_errors(request: EvaluateRequest, target: Target) -> BundleTarget | None:
    if not request.wants_errors:
        return None
    from seekserve.evaluate.in_process import BundleTarget

    if not isinstance(target, BundleTarget):
        raise InputError(
            f"--errors reads the weights of TARGET, and {request.target} is a server",
            hint="give the bundle that it serves",
        )
    return target


def _baseline(request: EvaluateRequest, other: Target | None) -> tuple[Path | None, str]:
    """The folder of the weights to compare with, or why there is none."""
    if not request.wants_errors:
        return None, ""
    if request.baseline is not None:
        from seekserve.checkpoint.hub import find_checkpoint

        folder = find_checkpoint(request.baseline)
        return (folder / "weights" if (folder / "weights" / "config.json").is_file() else folder), ""
    if other is None:
        return None, "no baseline: give OTHER, or --baseline CHECKPOINT of a higher precision"
    from seekserve.evaluate.in_process import BundleTarget

    if isinstance(other, BundleTarget):
        return other.folder / "weights", ""
    return None, "OTHER is a server, whose weights are out of reach: give --baseline CHECKPOINT"


def _ask(target: Target, sets: Sequence[TaskSet], request: EvaluateRequest, say: Callable[[int, int], None]) -> Side:
    tasks = [task for each in sets for task in each.tasks]
    flat = target.answers(tasks, request.asking, say)
    right = [
        not answer.failure and is_right(request.match, answer.text, task.expected)
        for task, answer in zip(tasks, flat, strict=True)
    ]
    ends, start = [], 0
    for each in sets:
        ends.append((start, start + len(each.tasks)))
        start += len(each.tasks)
    return Side(
        name=target.name,
        facts=target.facts,
        answers=tuple(tuple(flat[a:b]) for a, b in ends),
        right=tuple(tuple(right[a:b]) for a, b in ends),
    )


def _compare(side: Side, other: Side, max_drop_points: float | None) -> Comparison:
    pairs = compare([r for part in side.right for r in part], [r for part in other.right for r in part])
    return Comparison(
        pairs=pairs,
        interval=paired_difference(pairs),
        p=mcnemar_p(pairs),
        max_drop_points=DEFAULT_MAX_DROP_POINTS if max_drop_points is None else max_drop_points,
    )


def _weights(bundle: BundleTarget, baseline: Path, say: Say) -> WeightErrors:
    from seekserve.evaluate.weight_errors import measure_weight_errors

    return measure_weight_errors(bundle.folder / "weights", baseline, partial(say, "weight tensors"))


def _kv(bundle: BundleTarget, side: Side, say: Say) -> KvErrors:
    from seekserve.evaluate.kv_errors import measure_kv_errors

    sequences = [answer.token_ids for part in side.answers for answer in part]
    return measure_kv_errors(bundle.folder / "weights", sequences, partial(say, "KV sequences"))
