"""Escaping filters: every value that a template prints passes through exactly one of these.

A value of the wrong type is an error, never a guess. A printed string reads back as the same string, and never holds a
`${`, `{{` or `{%`, so that no other template tool can mistake it for a placeholder of its own.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

from seekserve.errors import RenderError

__all__ = ["FILTERS"]

_ENUM = re.compile(r"[A-Z][A-Z0-9_]*\Z")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*\Z")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PLACEHOLDER = re.compile(r"\$(?=\{)|\{(?=[{%])")


def pbtxt_string(value: Any) -> str:
    """A quoted text-format string. Non-ASCII text stays readable; control characters become octal escapes."""
    text = _text(value, "a string")
    body = "".join(_ESCAPES.get(char) or (char if char.isprintable() else _octal(char)) for char in text)
    return '"' + _PLACEHOLDER.sub(lambda match: _octal(match.group()), body) + '"'


def pbtxt_int(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RenderError(f"expected an integer, got {value!r}")
    return str(value)


def pbtxt_bool(value: Any) -> str:
    """One spelling: Triton reads `true`, not `True` (tensorrtllm_backend #365)."""
    if not isinstance(value, bool):
        raise RenderError(f"expected true or false, got {value!r}")
    return "true" if value else "false"


def pbtxt_enum(value: Any) -> str:
    text = _text(value, "an enum name")
    if not _ENUM.match(text):
        raise RenderError(f"expected an enum name such as KIND_CPU, got {text!r}")
    return text


def pbtxt_comment(value: Any) -> str:
    """A line that begins with #; a line break would let the rest of the text become configuration."""
    text = _text(value, "a line of text")
    if not text.isprintable():
        raise RenderError(f"a comment must be one printable line, got {text!r}")
    return f"# {text}"


def hash_comment(value: Any) -> str:
    """The same line in a Dockerfile, where it may not look like a directive to the parser (`# syntax=...`)."""
    line = pbtxt_comment(value)
    if re.match(r"#\s*\w+\s*=", line):
        raise RenderError(f"a comment must not look like a directive, got {line!r}")
    return line


def docker_image(value: Any) -> str:
    """A name without white space, quotes or `$`, which a Dockerfile would read as its own."""
    text = _text(value, "an image")
    if not _IMAGE.match(text):
        raise RenderError(f"expected the name of an image, got {text!r}")
    return text


def json_words(value: Any) -> str:
    """The JSON form of a Dockerfile's instructions, which no shell takes apart. It still replaces `$NAME` in some."""
    if not isinstance(value, (list, tuple)) or not value:
        raise RenderError(f"expected a list of words, got {value!r}")
    words = [_text(word, "a word") for word in value]
    if any("\n" in word or "\0" in word for word in words):
        raise RenderError(f"a word of a Dockerfile must be one line, got {words!r}")
    return json.dumps(words, ensure_ascii=False)


def sh_arg(value: Any) -> str:
    """One shell word."""
    text = _text(value, "a string")
    if "\0" in text:
        raise RenderError(f"a shell argument cannot hold a NUL character: {text!r}")
    return shlex.quote(text)


def _text(value: Any, wanted: str) -> str:
    if not isinstance(value, str):
        raise RenderError(f"expected {wanted}, got {value!r}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise RenderError(
            f"{value!r} is not valid Unicode (a file name in another encoding?)", hint="rename it to UTF-8"
        ) from None
    return value


def _octal(char: str) -> str:
    # Three digits always, so that a following digit cannot join the escape.
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8"))


FILTERS: Final[Mapping[str, Callable[[Any], str]]] = {
    function.__name__: function
    for function in (
        *(pbtxt_string, pbtxt_int, pbtxt_bool, pbtxt_enum, pbtxt_comment),
        *(hash_comment, docker_image, json_words, sh_arg),
    )
}
