"""The chat template that a checkpoint ships, in Jinja's sandbox, and what of a request's options it can honour.

What the template cannot do is an error that says so, never left out in silence: tools for a template without `tools`,
thinking for one without the switch, variables that it does not read.
"""

from __future__ import annotations

import datetime
import difflib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from .text.chat.conversation import Message
from .text.chat.errors import ChatError
from .text.chat.options import ChatOptions
from .text.reasoning import THINK_END, ends_in_thinking

__all__ = ["ChatTemplate"]

_SWITCHES = ("thinking", "enable_thinking")
_GIVEN = ("messages", "tools", "add_generation_prompt", "bos_token", "eos_token", *_SWITCHES, "reasoning_effort")
# Where a template serialises the arguments itself, it must get them decoded; else as the text that they are.
_WANTS_DECODED_ARGUMENTS = re.compile(r"arguments['\"]?\]?\s*\|\s*tojson")
_ASKS_FOR_NONE = re.compile(r"content['\"]?\]?\s+is\s+(?:not\s+)?none", re.IGNORECASE)
_TOOL_ROLE = re.compile(r"['\"]tool['\"]")

Protect = Callable[[str, str, str], str]
"""(text, role it is of, name of the field) -> the text, safe to stand in a prompt."""


class ChatTemplate:
    """Compiled once; `render` is safe to call from several threads."""

    def __init__(self, text: str, *, bos: str, eos: str) -> None:
        """Raises jinja2.TemplateSyntaxError."""
        environment = _environment()
        self._text = text
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self._template = environment.from_string(text)
        self.variables = _variables_of(environment.parse(text)) - set(environment.globals)
        """What the template reads of what it is given."""

    def render(self, messages: Sequence[Message], options: ChatOptions, protect: Protect) -> str:
        """The prompt up to where the answer begins. Raises ChatError."""
        values = {
            **self._tokens,
            **self._variables(options, protect),
            "messages": [self._shaped(n, message, protect) for n, message in enumerate(messages)],
            "add_generation_prompt": True,
        }
        from jinja2 import TemplateError

        try:
            prompt: str = self._template.render(values)
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise ChatError("messages", f"the chat template refused the conversation: {error}") from None
        self._check_thinking(options, prompt)
        return prompt

    def _variables(self, options: ChatOptions, protect: Protect) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if options.tools:
            if "tools" not in self.variables:
                raise ChatError(
                    "tools",
                    "its chat template knows no tools; leave them out, or serve it with a template that has them "
                    "(chat_template.jinja in the checkpoint's folder)",
                )
            values["tools"] = _mapped(list(options.tools), lambda text: protect(text, "", "tools"))
        if options.schema is not None:
            raise ChatError("response_format", "its chat template has no place for a schema; leave it out")
        if options.thinking is not None:
            values |= {name: options.thinking for name in _SWITCHES if name in self.variables}
        if options.reasoning_effort is not None:
            if "reasoning_effort" not in self.variables:
                raise ChatError("reasoning_effort", "its chat template has none; leave it out")
            values["reasoning_effort"] = _mapped(
                options.reasoning_effort, lambda text: protect(text, "", "reasoning_effort")
            )
        own = sorted(self.variables - set(_GIVEN))
        for name, value in options.template_kwargs.items():
            if name not in own:
                raise ChatError("chat_template_kwargs", _unknown(name, [*own, *self._switches()]))
            values[name] = _mapped(value, lambda text: protect(text, "", "chat_template_kwargs"))
        return values

    def _switches(self) -> list[str]:
        return [name for name in (*_SWITCHES, "reasoning_effort") if name in self.variables]

    def _check_thinking(self, options: ChatOptions, prompt: str) -> None:
        if options.thinking is None or any(name in self.variables for name in _SWITCHES):
            return
        # Without a switch: a template that knows the tags is of a model that always thinks, another of one that cannot.
        thinks = ends_in_thinking(prompt) or THINK_END in self._text
        if options.thinking != thinks:
            what = "always thinks" if thinks else "does not think"
            raise ChatError("thinking", f"its chat template has no switch for it: the model {what}; leave it out")

    def _shaped(self, number: int, message: Message, protect: Protect) -> Message:
        role = message["role"]
        if role == "tool" and not _TOOL_ROLE.search(self._text):
            raise ChatError("messages", f"message {number}: its chat template knows no role tool")
        if "tool_calls" in message and "tool_calls" not in self._text:
            raise ChatError("messages", f"message {number}: its chat template knows no tool_calls")
        if role == "developer" and "developer" not in self._text:
            role = "system"
        texts = {key: value for key, value in message.items() if key not in ("role", "tool_calls")}
        out: Message = {"role": role, **_mapped(texts, lambda text: protect(text, role, "messages"))}
        if out["content"] is None and not _ASKS_FOR_NONE.search(self._text):
            out["content"] = ""
        if "tool_calls" in message:
            out["tool_calls"] = [self._call(call, protect) for call in message["tool_calls"]]
        return out

    def _call(self, call: dict[str, Any], protect: Protect) -> dict[str, Any]:
        def plain(text: str) -> str:
            return protect(text, "", "messages")

        arguments: Any = call["function"]["arguments"]
        if _WANTS_DECODED_ARGUMENTS.search(self._text):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                raise ChatError("messages", f"the arguments of {call['function']['name']!r} are not JSON") from None
        function = {"name": plain(call["function"]["name"]), "arguments": _mapped(arguments, plain)}
        return {**call, "function": function, **({"id": plain(call["id"])} if "id" in call else {})}


def _variables_of(tree: Any) -> frozenset[str]:
    """Names that the template reads and does not itself set, and those that it sets only where they are not given."""
    from jinja2 import meta, nodes

    read = meta.find_undeclared_variables(tree)
    set_inside = {node.name for node in tree.find_all(nodes.Name) if node.ctx in ("store", "param")}
    asked_for = {
        test.node.name
        for test in tree.find_all(nodes.Test)
        if test.name in ("defined", "undefined") and isinstance(test.node, nodes.Name)
    }
    return frozenset(read - set_inside | read & asked_for)


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    listed = f"it reads {', '.join(known)}" if known else "it reads none"
    return f"its chat template does not read {name!r}; {listed}" + (f"; did you mean {near[0]}?" if near else "")


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """`value` with every text in it changed, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _mapped(inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [_mapped(inner, change) for inner in value]
    return value


def _environment() -> Any:
    """As transformers compiles chat templates: its options, extension, filter and functions."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    def strftime_now(form: str) -> str:
        return datetime.datetime.now().strftime(form)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment
