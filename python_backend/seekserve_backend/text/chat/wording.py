"""The sentences that tell a model of the releases without a template about tools, schemas and effort.

Markers, tags and order are the release's wire format. The sentences around them are our own wording of what the
release's encoder says at that place, unless the bundle carries the encoder's own (`with_texts`), which is better: a
model follows best what it was trained on.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

__all__ = ["CHAT_TEXTS_FILE", "V4_WORDING", "V32_WORDING", "V41_WORDING", "Wording", "with_texts"]

CHAT_TEXTS_FILE = "chat_texts.json"
"""In a bundle, beside tokenizer.json: `texts`, the sentences of the release's own encoder, where the build found it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """Texts with the fields of `str.format` that each line names."""

    tools: str
    """{dsml_token}, {tool_schemas}, {thinking_start_token}, {thinking_end_token}, {block}, {blank}"""
    schema: str
    """{schema}"""
    effort_max: str = ""
    """At the very start of the prompt, when the greatest effort is asked for."""
    effort: str = ""
    """{budget}"""


_SCHEMA = "## Response Format:\n\nAnswer with JSON that follows this schema, and with nothing else:\n{schema}"

_EXAMPLE = """<{dsml_token}{block}>
<{dsml_token}{blank}invoke name="$TOOL_NAME">
<{dsml_token}{blank}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{dsml_token}{blank}parameter>
...
</{dsml_token}{blank}invoke>
<{dsml_token}{blank}invoke name="$TOOL_NAME2">
...
</{dsml_token}{blank}invoke>
</{dsml_token}{block}>"""

_V32_TOOLS = (
    "## Tools\n\n"
    'The functions listed below can be called. A reply calls them by a "<{dsml_token}{block}>" block of this form:\n'
    + _EXAMPLE
    + """

A parameter with string="true" holds the text itself, without quotes or escapes; one with string="false" holds a value
in JSON (number, boolean, array or object). When thinking is on, think again after the results of a call:
<{dsml_token}{block}>
...
</{dsml_token}{block}>

<function_results>
...
</function_results>

{thinking_start_token}...{thinking_end_token}

The functions, as JSON schemas:
<functions>
{tool_schemas}
</functions>
"""
)

_V4_TOOLS = (
    "## Tools\n\n"
    'The tools listed below can be called. A reply calls them by a "<{dsml_token}{block}>" block of this form:\n\n'
    + _EXAMPLE
    + """

A parameter with `string="true"` holds the text itself; one with `string="false"` holds a value in JSON (number,
boolean, array or object).

When thinking is on (the reply begins with {thinking_start_token}), all reasoning stands between
{thinking_start_token} and {thinking_end_token}, before any call and before the answer. When it is off, calls or the
answer follow {thinking_end_token} at once.

### Available Tool Schemas

{tool_schemas}

Use these tool names and parameter schemas exactly as they are given.
"""
)

_V4_EFFORT_MAX = (
    "Reasoning Effort: the greatest possible, without shortcuts.\n"
    "Take the problem apart completely, find its root cause, and test the reasoning against every path, edge case and "
    "counter-example.\n"
    "Write down the whole deliberation: each step, each alternative and each rejected hypothesis, until no assumption "
    "is left unchecked.\n\n"
)

V32_WORDING = Wording(tools=_V32_TOOLS, schema=_SCHEMA)
V4_WORDING = Wording(tools=_V4_TOOLS, schema=_SCHEMA, effort_max=_V4_EFFORT_MAX)
V41_WORDING = Wording(
    tools=_V4_TOOLS,
    schema=_SCHEMA,
    effort="Reasoning Effort: {budget} (range 1-100, a higher number asks for more thorough reasoning)\n\n",
)


def with_texts(wording: Wording, texts: Mapping[str, str]) -> Wording:
    """`wording` with the texts of the release's own encoder, by field name. Raises ValueError for what does not fit."""
    known = {field.name for field in fields(wording)}
    for name, text in texts.items():
        if name not in known:
            raise ValueError(f"{name!r} is not one of {', '.join(sorted(known))}")
        _check_fields(name, text)
    return replace(wording, **texts)


_FIELDS = {
    "tools": {
        *("dsml_token", "tool_schemas", "thinking_start_token", "thinking_end_token", "block", "blank"),
        *("tc_block_name", "tool_call_tag_name", "tool_parameter_tag_name"),
    },
    "schema": {"schema"},
    "effort_max": set[str](),
    "effort": {"budget"},
}


def _check_fields(name: str, text: str) -> None:
    """No attribute or index access: the text is data, and `str.format` would follow it into objects."""
    try:
        found = {field for _, field, _, _ in string.Formatter().parse(text) if field is not None}
    except ValueError as error:
        raise ValueError(f"{name}: not a format text: {error}") from None
    strange = found - _FIELDS[name]
    if strange:
        raise ValueError(f"{name}: unknown field {sorted(strange)[0]!r}")
