"""Continuing an answer whose connection broke: what the caller gets to keep, and what it sends back. Pure.

The server keeps a resumable stream for a while under a token of its own. The gateway keeps nothing: its token says
which backend has the stream and how its text began, so any gateway in front of the same backends can go on with it. The
position is an event id: bytes of the model's raw text, tags and markers included, that all events so far were made of.
Events without an id are told again.
The whole text is asked for again and read up to there in silence, which puts the readers of reasoning and tool calls
back into the state that they were in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from seekserve.gateway.problems import Problem, ProblemError

__all__ = ["Resume", "backend_mark", "cut", "is_on", "read_resume", "wrap"]

_STATES = {"content": "c", "thinking": "t", None: "n"}
_TOKEN = re.compile(r"([0-9a-f]{8})\.([ctn])\.([\x21-\x7e]{1,512})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    mark: str
    """Of the backend that has the stream."""
    chat_state: str | None
    token: str
    """The backend's own."""
    from_bytes: int
    """Of raw text that need not be told again."""
    is_given_up: bool = False
    """The stream shall end, and its work be cancelled."""


def backend_mark(name: str) -> str:
    """Tells backends apart without naming addresses to callers."""
    return hashlib.blake2b(name.encode(), digest_size=4).hexdigest()


def wrap(token: str, backend: str, chat_state: str | None) -> str:
    return f"{backend_mark(backend)}.{_STATES.get(chat_state, 'n')}.{token}"


def read_resume(headers: Mapping[str, str]) -> Resume | None:
    """From `x-resume-token`, `last-event-id` and `x-resume-cancel`; None without a token. Raises ProblemError (400)."""
    given = headers.get("x-resume-token")
    if given is None:
        return None
    found = _TOKEN.fullmatch(given)
    if found is None:
        raise _bad("x-resume-token", "not a token that a gateway gave out")
    position = headers.get("last-event-id", "0")
    if not (position.isascii() and position.isdecimal() and len(position) <= 10):
        raise _bad("last-event-id", "expected the id of an event of the stream")
    state = next(state for state, letter in _STATES.items() if letter == found[2])
    return Resume(
        mark=found[1],
        chat_state=state,
        token=found[3],
        from_bytes=int(position),
        is_given_up=is_on(headers, "x-resume-cancel"),
    )


def is_on(headers: Mapping[str, str], header: str) -> bool:
    return headers.get(header, "").lower() in ("1", "true")


def cut(text: str, skip_bytes: int) -> tuple[str, str]:
    """What of `text` lies before the position and what behind it."""
    data = text.encode("utf-8", "replace")
    if skip_bytes >= len(data):
        return text, ""
    return data[:skip_bytes].decode("utf-8", "replace"), data[skip_bytes:].decode("utf-8", "replace")


def _bad(header: str, sentence: str) -> ProblemError:
    message = f"header {header}: {sentence}"
    return ProblemError(Problem(status=400, code="invalid", message=message, kind="invalid", param=header))
