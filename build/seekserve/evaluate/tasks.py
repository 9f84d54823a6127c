"""Task files: JSON Lines of a question (`messages` or `prompt`) and the expected answer.

Strict: every fault of every file is reported at once, with its line. Other keys of a line are left alone, since
published question sets carry them. Where a line has both, `messages` is asked and `prompt` is its rendered text.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seekserve.data import TASK_SKILLS, task_file
from seekserve.errors import ConfigError
from seekserve.output import problems_text

__all__ = ["MATCHES", "Task", "TaskSet", "is_right", "read_task_sets"]

MATCHES = ("exact", "contains", "regex")
_SHOWN_PROBLEMS = 20
_KEYS = ("messages", "prompt", "expected")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    file: str
    line: int
    messages: tuple[Mapping[str, str], ...] | None
    prompt: str | None
    """Raw prompt; asked when there are no messages."""
    expected: str

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def question(self) -> str:
        """For people: the last thing that was said."""
        return self.messages[-1]["content"] if self.messages else self.prompt or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSet:
    name: str
    tasks: tuple[Task, ...]
    in_file: int
    """Tasks of the whole file; more than `tasks` when a limit cut it."""


def is_right(match: str, answer: str, expected: str) -> bool:
    """By one of MATCHES. White space around either text never counts, except inside a regular expression."""
    if match == "regex":
        return re.search(expected, answer) is not None
    given, wanted = answer.strip(), expected.strip()
    return wanted in given if match == "contains" else given == wanted


def read_task_sets(names: Sequence[str], *, match: str, limit: int | None) -> tuple[TaskSet, ...]:
    """Each of TASK_SKILLS by its name, everything else as a path. Raises ConfigError with all that is wrong."""
    problems = [f"--tasks {name} is given twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    sets = []
    for name in dict.fromkeys(names):
        tasks = _read_file(name, match, problems)
        sets.append(TaskSet(name=name, tasks=tuple(tasks[:limit]), in_file=len(tasks)))
    if problems:
        shown = problems[:_SHOWN_PROBLEMS]
        if len(problems) > len(shown):
            shown.append(f"and {len(problems) - len(shown)} more")
        raise ConfigError(
            problems_text("task files", shown),
            hint='one JSON object a line: {"prompt": "...", "expected": "..."}, or "messages" instead of "prompt"',
        )
    return tuple(sets)


def _read_file(name: str, match: str, problems: list[str]) -> list[Task]:
    path = task_file(name) if name in TASK_SKILLS else Path(name)
    try:
        data = path.read_bytes()
    except OSError as error:
        known = f" and it is none of the shipped ones ({', '.join(TASK_SKILLS)})" if not path.exists() else ""
        problems.append(f"{name}: cannot be read: {error.strerror or error}{known}")
        return []
    tasks = []
    before = len(problems)
    for number, raw in enumerate(data.split(b"\n"), start=1):
        if not raw.strip():
            continue
        faults: list[str] = []
        task = _read_line(name, number, raw, match, faults)
        problems += [f"{name}:{number}: {fault}" for fault in faults]
        if task is not None:
            tasks.append(task)
    if not tasks and len(problems) == before:
        problems.append(f"{name}: holds no task (0 lines)")
    return tasks


def _read_line(name: str, number: int, raw: bytes, match: str, faults: list[str]) -> Task | None:
    try:
        data = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        faults.append(f"not UTF-8 at byte {error.start} of {len(raw)}")
        return None
    except (ValueError, RecursionError) as error:
        faults.append(f"not JSON: {'nested too deeply' if isinstance(error, RecursionError) else error}")
        return None
    if not isinstance(data, dict):
        faults.append(f"expected a JSON object, got {_kind(data)}")
        return None
    faults += _faults(data, match)
    if faults:
        return None
    messages = data.get("messages")
    return Task(
        file=name,
        line=number,
        messages=None if messages is None else tuple(messages),
        prompt=data.get("prompt"),
        expected=data["expected"],
    )


def _faults(data: Mapping[str, Any], match: str) -> Iterator[str]:
    expected = data.get("expected")
    if not isinstance(expected, str):
        yield f"expected must be a text, got {_kind(expected)}{_near('expected', data)}"
    elif match == "regex":
        try:
            re.compile(expected)
        except re.error as error:
            yield f"expected is not a regular expression: {error}"
    elif match == "contains" and not expected.strip():
        yield "expected is empty, which every answer contains"
    messages, prompt = data.get("messages"), data.get("prompt")
    if messages is None and prompt is None:
        yield f"neither messages nor prompt is given{_near('messages', data) or _near('prompt', data)}"
    if prompt is not None and not (isinstance(prompt, str) and prompt):
        yield f"prompt must be a text of at least one character, got {_kind(prompt)}"
    if messages is not None:
        yield from _message_faults(messages)


def _message_faults(messages: object) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        yield f"messages must be a list of at least one message, got {_kind(messages)}"
        return
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            yield f"message {index} must be an object, got {_kind(message)}"
            continue
        for key in ("role", "content"):
            if not isinstance(message.get(key), str):
                yield f"message {index}: {key} must be a text, got {_kind(message.get(key))}"


def _near(key: str, data: Mapping[str, Any]) -> str:
    others = [name for name in data if name not in _KEYS]
    near = difflib.get_close_matches(key, others, 1)
    return f" (there is {near[0]!r})" if near and key not in data else ""


def _kind(value: object) -> str:
    if isinstance(value, (list, dict, str)) and not value:
        return {"list": "an empty list", "dict": "an empty object", "str": "an empty text"}[type(value).__name__]
    names = {"NoneType": "nothing", "str": "a text", "list": "a list", "dict": "an object", "bool": "true or false"}
    return names.get(type(value).__name__, "a number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return out
