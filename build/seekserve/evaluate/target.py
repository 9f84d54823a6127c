"""What is asked: a bundle that runs in this process, or a server at an address. Chosen by what TARGET is.

A folder is a bundle, anything of the form HOST:PORT a server; an answer is text, however it came about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from seekserve.errors import InputError
from seekserve.evaluate.tasks import Task

__all__ = ["Answer", "Asking", "Progress", "Target", "choose_target"]

Progress = Callable[[int, int], None]
"""Answered so far, asked in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    text: str
    is_cut: bool
    """Ended by the token limit, not by the model."""
    failure: str = ""
    """Why there is no answer; such a question counts as wrong."""
    token_ids: tuple[int, ...] = ()
    """Prompt and answer, known for an engine in this process only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How the questions are asked; the same for both targets."""

    max_tokens: int
    concurrency: int


class Target(Protocol):
    @property
    def name(self) -> str:
        """As the user gave it."""
        ...

    @property
    def facts(self) -> dict[str, str]:
        """What is known of the build: engine, weights, KV."""
        ...

    def check(self, tasks: Sequence[Task], /) -> None:
        """Comes first. Raises for a target that is not there or a task that it could never be asked."""
        ...

    def answers(self, tasks: Sequence[Task], asking: Asking, progress: Progress) -> list[Answer]:
        """One for each task, in order."""
        ...


def choose_target(given: str, *, model: str | None) -> Target:
    """Opens nothing but the bundle's description. Raises InputError for what is neither folder nor address."""
    path = Path(given)
    if path.exists():
        from seekserve.evaluate.in_process import BundleTarget

        return BundleTarget(given)
    from seekserve.client.channel import target_of
    from seekserve.evaluate.served import ServerTarget

    try:
        return ServerTarget(given, target_of(given), model=model)
    except InputError:
        raise InputError(
            f"{given}: neither a folder that exists nor an address of the form HOST:PORT",
            hint="give a bundle made by `seekserve build-engine`, or the gRPC address of a running server",
        ) from None
