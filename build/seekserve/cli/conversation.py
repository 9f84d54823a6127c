"""What `seekserve generate` sends as a chat, and how it shows the answer: content to stdout, reasoning to stderr."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from seekserve.client import AnswerReader, ChatAnswer

__all__ = ["AnswerPrinter", "chat_options", "read_messages"]


def read_messages(path: str) -> list[Any]:
    """The JSON list in a file, `-` for standard input. Raises InputError; what is in it is the server's to judge."""
    return _json_list("--messages", path)


def chat_options(tools: str | None, thinking: bool | None, reasoning_effort: str | None) -> dict[str, Any] | None:
    """None when nothing is asked for, so that servers without the input still answer."""
    options: dict[str, Any] = {}
    if tools is not None:
        options["tools"] = _json_list("--tools", tools)
    if thinking is not None:
        options["thinking"] = thinking
    if reasoning_effort is not None:
        options["reasoning_effort"] = int(reasoning_effort) if reasoning_effort.isdecimal() else reasoning_effort
    return options or None


def _json_list(option: str, path: str) -> list[Any]:
    from seekserve.errors import InputError

    where = f"{option} {path}"
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        value = json.loads(data.decode("utf-8"))
    except OSError as error:
        raise InputError(f"{where}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 at byte {error.start} of {len(error.object)}") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON (line {error.lineno}, column {error.colno}: {error.msg})") from None
    except (ValueError, RecursionError):
        raise InputError(f"{where}: not JSON that can be read (a huge number or too deep nesting)") from None
    if not isinstance(value, list):
        raise InputError(f"{where}: expected a JSON list, got {type(value).__name__}")
    return value


class AnswerPrinter:
    """Takes the text as it streams. Without `is_shown` it only takes the answer apart."""

    def __init__(self, *, has_tools: bool, is_shown: bool) -> None:
        self._has_tools = has_tools
        self._is_shown = is_shown
        self._reader: AnswerReader | None = None
        self._last = {False: "", True: ""}
        """What was written last to stdout and to stderr."""

    def feed(self, text: str, chat_state: str | None) -> None:
        from seekserve.client import AnswerReader

        if self._reader is None:
            self._reader = AnswerReader(chat_state, has_tools=self._has_tools)
        self._show(*self._reader.feed(text))

    def finish(self) -> ChatAnswer | None:
        """Writes what was held back, the calls (one JSON object a line) and ends of lines. None without any text."""
        answer = None
        if self._reader is not None:
            self._show(*self._reader.finish())
            answer = self._reader.answer
        self._end_line(is_stderr=True)
        self._end_line(is_stderr=False)
        if answer is not None and self._is_shown:
            for call in answer.tool_calls:
                line = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
                click.echo(f"{line}\n".encode(), nl=False)
        return answer

    def _show(self, reasoning: str, content: str) -> None:
        self._write(reasoning, is_stderr=True)
        if content:
            self._end_line(is_stderr=True)
        self._write(content, is_stderr=False)

    def _write(self, text: str, *, is_stderr: bool) -> None:
        if text and self._is_shown:
            # Bytes, since the terminal's declared encoding may not hold what a model writes.
            click.echo(text.encode("utf-8"), nl=False, err=is_stderr)
            self._last[is_stderr] = text

    def _end_line(self, *, is_stderr: bool) -> None:
        if self._last[is_stderr] and not self._last[is_stderr].endswith("\n"):
            self._write("\n", is_stderr=is_stderr)
