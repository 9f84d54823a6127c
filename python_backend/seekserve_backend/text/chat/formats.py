"""Which built-in format a bundle's family has. Others have the template that their checkpoint ships, or none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..reasoning import THINK_END, THINK_START
from .conversation import Message
from .dsml_text import Plain
from .errors import ChatError
from .options import ChatOptions
from .tokens import ASSISTANT, BOS, EOS, SYSTEM, USER
from .v4 import V4, V41, render_v4
from .v32 import render_v32
from .wording import V4_WORDING, V32_WORDING, V41_WORDING, Wording, with_texts

__all__ = ["BuiltInFormat", "built_in_format"]

_TOKENS = (BOS, EOS, USER, ASSISTANT, THINK_START, THINK_END)
_Render = Callable[[Sequence[Message], ChatOptions, Wording, Plain], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltInFormat:
    """A format of a release that ships an encoder instead of a template."""

    title: str
    render_text: _Render
    wording: Wording
    has_effort: bool
    tokens: tuple[str, ...] = _TOKENS
    """What the tokenizer has to have as single tokens."""

    def missing_tokens(self, added_tokens: Collection[str]) -> str | None:
        """What is wrong with a tokenizer's added tokens, with the look-alike that it may have; None if nothing is."""
        missing = [token for token in self.tokens if token not in added_tokens]
        if not missing:
            return None
        near = next((token for token in added_tokens if _look(token) == _look(missing[0])), None)
        hint = "" if near is None else f", but {near!r} ({_code_points(near)})"
        return (
            f"the format of {self.title} needs the token {missing[0]!r} ({_code_points(missing[0])}), "
            f"which its tokenizer does not have{hint}"
        )

    def render(self, messages: Sequence[Message], options: ChatOptions, plain: Plain) -> str:
        """The prompt, with exactly one BOS, up to where the answer begins. Raises ChatError."""
        if options.template_kwargs:
            name = sorted(options.template_kwargs)[0]
            raise ChatError(
                "chat_template_kwargs", f"{name!r} is unknown: the format of {self.title} has thinking and nothing else"
            )
        effort = options.reasoning_effort
        if effort is not None and not self.has_effort:
            raise ChatError("reasoning_effort", f"the format of {self.title} has none; leave it out")
        if effort is not None and options.thinking is False:
            raise ChatError("reasoning_effort", "only together with thinking; leave it out, or switch thinking on")
        if effort is not None:
            options = replace(options, thinking=True)
        shaped = [_with_reasoning_apart(_as_system(message)) for message in messages]
        return self.render_text(shaped, options, self.wording, plain)

    def with_texts(self, texts: Mapping[str, str]) -> BuiltInFormat:
        """With the sentences of the release's own encoder. Raises ValueError."""
        return replace(self, wording=with_texts(self.wording, texts))


_V32 = BuiltInFormat(title="DeepSeek-V3.2", render_text=render_v32, wording=V32_WORDING, has_effort=False)
_V4 = BuiltInFormat(
    title="DeepSeek-V4", render_text=partial(render_v4, dialect=V4), wording=V4_WORDING, has_effort=True
)
_V41 = BuiltInFormat(
    title="DeepSeek-V4.1",
    render_text=partial(render_v4, dialect=V41),
    wording=V41_WORDING,
    has_effort=True,
    tokens=(*_TOKENS, SYSTEM),
)
_BY_FAMILY = {
    "deepseek_v3_2": _V32,
    **dict.fromkeys(("deepseek_v4", "deepseek_v4_flash", "deepseek_v4_pro"), _V4),
    **dict.fromkeys(("deepseek_v4_1", "deepseek_v4_1_flash"), _V41),
}


def built_in_format(family: str | None) -> BuiltInFormat | None:
    """`family`: as the bundle has it, read from the checkpoint's files."""
    return _BY_FAMILY.get(family or "")


def _look(token: str) -> str:
    """The bars and gaps of DeepSeek's tokens look like ASCII and are not."""
    return token.replace("\uff5c", "|").replace("\u2581", "_")


def _code_points(token: str) -> str:
    return " ".join(dict.fromkeys(f"U+{ord(char):04X}" for char in token if not char.isalpha()))


def _as_system(message: Message) -> Message:
    """OpenAI's newer name for the system message; the formats' own role `developer` is for another use."""
    return {**message, "role": "system"} if message["role"] == "developer" else message


def _with_reasoning_apart(message: Message) -> Message:
    """Clients that keep the answer as it came send the reasoning inside its content."""
    content = message["content"]
    if message["role"] != "assistant" or "reasoning_content" in message or THINK_END not in (content or ""):
        return message
    reasoning, _, rest = content.partition(THINK_END)
    return {**message, "reasoning_content": reasoning.lstrip().removeprefix(THINK_START), "content": rest}
