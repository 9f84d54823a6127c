"""The conversation format of DeepSeek-V3.2, whose release ships an encoder and no template.

A user turn opens the answer to it: `U text A`, then `<think>` for the last user turn when thinking is on, otherwise
`</think>`. Reasoning of the turns before the last user message is left out, that of a running tool loop is kept. The
results of a turn's calls stand in one block.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..reasoning import THINK_END, THINK_START
from .conversation import Message
from .dsml_text import Plain, calls_block, sections, with_leading_system
from .errors import ChatError
from .options import ChatOptions
from .tokens import ASSISTANT, BOS, EOS, USER
from .wording import Wording

__all__ = ["render_v32"]

_BLOCK = "function_calls"


def render_v32(messages: Sequence[Message], options: ChatOptions, wording: Wording, plain: Plain) -> str:
    """The prompt up to where the answer begins. Raises ChatError."""
    messages = with_leading_system(messages, options)
    last_user = max((n for n, message in enumerate(messages) if message["role"] == "user"), default=-1)
    out = [BOS]
    n = 0
    while n < len(messages):
        message = messages[n]
        opening = THINK_START if options.thinking and n >= last_user else THINK_END
        if message["role"] == "tool":
            count = _results_from(messages, n)
            out.append(_results(messages[n : n + count], plain) + opening)
            n += count
            continue
        if message["role"] == "system":
            added = sections(options, wording, _BLOCK, plain) if n == 0 else ""
            out.append(plain(message["content"]) + added)
        elif message["role"] == "user":
            out.append(USER + plain(message["content"]) + ASSISTANT + opening)
        else:
            keeps_reasoning = bool(options.thinking) and n > last_user
            out.append(_assistant(message, n, keeps_reasoning=keeps_reasoning, plain=plain))
        n += 1
    if messages[-1]["role"] not in ("user", "tool"):
        raise ChatError("messages", f"the last message is of the {messages[-1]['role']}; there is nothing to answer")
    return "".join(out)


def _assistant(message: Message, n: int, *, keeps_reasoning: bool, plain: Plain) -> str:
    calls = message.get("tool_calls", ())
    reasoning = message.get("reasoning_content", "")
    if keeps_reasoning and not reasoning and not calls:
        raise ChatError(
            "messages", f"message {n}: an assistant message after the last user message needs reasoning_content here"
        )
    kept = plain(reasoning) + THINK_END if keeps_reasoning else ""
    content = plain(message["content"] or "")
    return kept + content + calls_block(calls, _BLOCK, plain, f"message {n}") + EOS


def _results_from(messages: Sequence[Message], n: int) -> int:
    """How many tool messages begin at `n`; there must be one for each call."""
    count = next((i for i, message in enumerate(messages[n:]) if message["role"] != "tool"), len(messages) - n)
    calls = len(messages[n - 1].get("tool_calls", ())) if n else 0
    if count != calls:
        raise ChatError(
            "messages",
            f"message {n}: {count} tool result{'s' if count > 1 else ''} for {calls} tool calls of the message before; "
            "each call needs exactly one",
        )
    return count


def _results(results: Sequence[Message], plain: Plain) -> str:
    lines = "".join(f"\n<result>{plain(result['content'])}</result>" for result in results)
    return f"\n\n<function_results>{lines}\n</function_results>\n\n"
