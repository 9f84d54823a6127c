"""DSML as it is written into prompts: calls of earlier turns, the list of tools, the schema of the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..reasoning import THINK_END, THINK_START
from ..tool_calls.dsml import DSML, DSML_BLOCKS
from .conversation import Message
from .errors import ChatError
from .options import ChatOptions
from .wording import Wording

__all__ = ["Plain", "calls_block", "sections", "to_json", "with_leading_system"]

Plain = Callable[[str], str]
"""Makes a text that people wrote safe to stand in a prompt; called exactly once for each."""


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def calls_block(calls: Sequence[Mapping[str, Any]], block: str, plain: Plain, where: str) -> str:
    """With the blank line before it; empty without calls."""
    if not calls:
        return ""
    blank = DSML_BLOCKS[block]
    invokes = "\n".join(_invoke(call["function"], blank, plain, where) for call in calls)
    return f"\n\n<{DSML}{block}>\n{invokes}\n</{DSML}{block}>"


def _invoke(function: Mapping[str, Any], blank: str, plain: Plain, where: str) -> str:
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise ChatError("messages", f"{where}: the arguments of {function['name']!r} are not a JSON object")
    lines = "\n".join(_parameter(key, value, blank, plain) for key, value in arguments.items())
    return f'<{DSML}{blank}invoke name="{plain(function["name"])}">\n{lines}\n</{DSML}{blank}invoke>'


def _parameter(key: str, value: Any, blank: str, plain: Plain) -> str:
    is_text = isinstance(value, str)
    shown = plain(value if is_text else to_json(value))
    flag = "true" if is_text else "false"
    return f'<{DSML}{blank}parameter name="{plain(key)}" string="{flag}">{shown}</{DSML}{blank}parameter>'


def sections(options: ChatOptions, wording: Wording, block: str, plain: Plain) -> str:
    """What is added to the system text: the tools, and the schema of the answer."""
    parts = []
    if options.tools:
        blank = DSML_BLOCKS[block]
        parts.append(
            wording.tools.format(
                dsml_token=DSML,
                thinking_start_token=THINK_START,
                thinking_end_token=THINK_END,
                tool_schemas="\n".join(plain(to_json(tool["function"])) for tool in options.tools),
                block=block,
                blank=blank,
                # The names that the encoder of V4.1 has for them.
                tc_block_name=block,
                tool_call_tag_name=f"{blank}invoke",
                tool_parameter_tag_name=f"{blank}parameter",
            )
        )
    if options.schema is not None:
        parts.append(wording.schema.format(schema=plain(to_json(options.schema))))
    return "".join(f"\n\n{part}" for part in parts)


def with_leading_system(messages: Sequence[Message], options: ChatOptions) -> list[Message]:
    """A system message in front, if there is something to add to it and the conversation has none there."""
    needs_one = bool(options.tools or options.schema is not None)
    if needs_one and messages[0]["role"] != "system":
        return [{"role": "system", "content": ""}, *messages]
    return list(messages)
