"""The conversation formats of DeepSeek-V4 and V4.1, whose releases ship an encoder and no template.

There is no tool role: results become `<tool_result>` texts of a user turn, in the order of the calls. `A` and a
thinking tag stand only where an assistant turn follows or the answer begins. With tools the reasoning of all turns is
kept, without them that before the last user turn is left out. V4.1 marks system texts with a token of their own and
writes the effort as a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..reasoning import THINK_END, THINK_START
from .conversation import Message, in_call_order
from .dsml_text import Plain, calls_block, sections, with_leading_system
from .errors import ChatError
from .options import ChatOptions
from .tokens import ASSISTANT, BOS, EOS, SYSTEM, USER
from .wording import Wording

__all__ = ["V4", "V41", "V4Dialect", "render_v4"]


@dataclass(frozen=True, slots=True, kw_only=True)
class V4Dialect:
    block: str
    system: str
    """Stands before every system text."""
    efforts: Mapping[str, int]
    """Word -> number; V4 knows words only."""
    default_effort: int | None
    """None: the prompt says nothing of the effort by default."""
    system_counts_as_user: bool
    """In mid-conversation."""


V4 = V4Dialect(
    block="tool_calls", system="", efforts={"high": 0, "max": 100}, default_effort=None, system_counts_as_user=False
)
V41 = V4Dialect(
    block=" calls",
    system=SYSTEM,
    efforts={"low": 25, "high": 50, "xhigh": 75, "max": 100},
    default_effort=50,
    system_counts_as_user=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    role: str
    """system, user or assistant: tool results are of the user."""
    text: str
    reasoning: str = ""
    calls: str = ""


def render_v4(
    messages: Sequence[Message], options: ChatOptions, wording: Wording, plain: Plain, dialect: V4Dialect
) -> str:
    """The prompt up to where the answer begins. Raises ChatError."""
    turns = _turns(with_leading_system(messages, options), dialect, plain)
    is_thinking = bool(options.thinking)
    last_user = max((n for n, turn in enumerate(turns) if _asks(n, turn, dialect)), default=-1)
    keeps_all = bool(options.tools)
    out = [BOS, _effort(options, wording, dialect, starts_with_system=turns[0].role == "system")]
    for n, turn in enumerate(turns):
        if turn.role == "assistant":
            keeps = is_thinking and (keeps_all or n > last_user)
            out.append((turn.reasoning + THINK_END if keeps else "") + turn.text + turn.calls + EOS)
            continue
        if turn.role == "system":
            out.append((dialect.system if n else "") + turn.text)
            out.append(sections(options, wording, dialect.block, plain) if n == 0 else "")
        else:
            out.append(USER + turn.text)
        is_answered = n + 1 == len(turns) or turns[n + 1].role == "assistant"
        if is_answered and _asks(n, turn, dialect):
            thinks = is_thinking and (keeps_all or n >= last_user)
            out.append(ASSISTANT + (THINK_START if thinks else THINK_END))
    if not _asks(len(turns) - 1, turns[-1], dialect):
        raise ChatError("messages", f"the last message is of the {turns[-1].role}; there is nothing to answer")
    return "".join(out)


def _asks(n: int, turn: _Turn, dialect: V4Dialect) -> bool:
    return turn.role == "user" or (turn.role == "system" and n > 0 and dialect.system_counts_as_user)


def _effort(options: ChatOptions, wording: Wording, dialect: V4Dialect, *, starts_with_system: bool) -> str:
    """What stands before the first turn: the first system turn's token is written here."""
    if not options.thinking:
        return dialect.system if starts_with_system else ""
    number = _effort_number(options.reasoning_effort, dialect)
    if dialect.default_effort is None:
        return wording.effort_max if number == dialect.efforts["max"] else ""
    return dialect.system + wording.effort.format(budget=dialect.default_effort if number is None else number)


def _effort_number(effort: str | int | None, dialect: V4Dialect) -> int | None:
    if effort is None:
        return None
    if isinstance(effort, str) and effort in dialect.efforts:
        return dialect.efforts[effort]
    takes_numbers = dialect.default_effort is not None
    if takes_numbers and isinstance(effort, int) and 1 <= effort <= 100:
        return effort
    words = ", ".join(dialect.efforts) + (" or a number from 1 to 100" if takes_numbers else "")
    raise ChatError("reasoning_effort", f"this model knows {words}, not {effort!r}")


def _turns(messages: Sequence[Message], dialect: V4Dialect, plain: Plain) -> list[_Turn]:
    """User and tool messages that follow one another become one user turn, their texts parted by blank lines."""
    turns: list[_Turn] = []
    calls: Sequence[Mapping[str, object]] = ()
    n = 0
    while n < len(messages):
        message = messages[n]
        if message["role"] in ("user", "tool"):
            count = _run_of(messages, n)
            texts = _user_texts(messages[n : n + count], calls, plain)
            turns.append(_Turn(role="user", text="\n\n".join(texts)))
            n += count
            continue
        text = plain(message["content"] or "")
        if message["role"] == "system":
            turns.append(_Turn(role="system", text=text))
        else:
            calls = message.get("tool_calls", ())
            turns.append(
                _Turn(
                    role="assistant",
                    text=text,
                    reasoning=plain(message.get("reasoning_content", "")),
                    calls=calls_block(message.get("tool_calls", ()), dialect.block, plain, f"message {n}"),
                )
            )
        n += 1
    return turns


def _run_of(messages: Sequence[Message], n: int) -> int:
    others = (i for i, message in enumerate(messages[n:]) if message["role"] not in ("user", "tool"))
    return next(others, len(messages) - n)


def _user_texts(run: Sequence[Message], calls: Sequence[Mapping[str, object]], plain: Plain) -> list[str]:
    results = iter(in_call_order([message for message in run if message["role"] == "tool"], calls))
    return [
        f"<tool_result>{plain(next(results)['content'])}</tool_result>"
        if message["role"] == "tool"
        else plain(message["content"])
        for message in run
    ]
