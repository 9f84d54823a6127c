"""Chat messages of a body, their shape checked; what the template makes of them is the server's to say. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["read_messages"]

_ROLES = ("system", "user", "assistant", "tool", "developer")


def read_messages(value: Any, bad: Callable[[str, str], None]) -> list[dict[str, Any]]:
    """`bad(param, sentence)` is called for each fault. Content given in text parts comes out as one text."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        bad("messages", "expected a list of at least one message")
        return []
    return [_message(number, each, bad) for number, each in enumerate(value)]


def _message(number: int, value: Any, bad: Callable[[str, str], None]) -> dict[str, Any]:
    where = f"messages[{number}]"
    if not isinstance(value, Mapping):
        bad(where, "expected an object")
        return {}
    role = value.get("role")
    if role not in _ROLES:
        bad(f"{where}.role", f"must be one of {', '.join(_ROLES)}, got {role!r:.30}")
    content = value.get("content")
    out = {key: each for key, each in value.items() if each is not None}
    if isinstance(content, list):
        out["content"] = _joined(f"{where}.content", content, bad)
    elif content is None:
        if role != "assistant":
            bad(f"{where}.content", "missing")
    elif not isinstance(content, str):
        bad(f"{where}.content", "expected a text or a list of text parts")
    return out


def _joined(where: str, parts: list[Any], bad: Callable[[str, str], None]) -> str:
    texts = []
    for part in parts:
        if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            bad(where, f"only text parts are taken, got {kind!r:.30}")
    return "\n".join(texts)
