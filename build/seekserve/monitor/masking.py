"""Takes secrets, and what clients wrote, out of everything that leaves the machine. Pure.

Three nets, since each has holes: a value under a telling name goes, whatever it is; a value that is known to be secret
goes wherever it stands; and what has the shape of a well-known kind of key goes. Masking too much is a nuisance, too
little is a leak: in doubt it is masked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

__all__ = ["MASK", "Masker", "is_sensitive", "known_secrets"]

MASK = "***"
LEFT_OUT = "(left out: what clients wrote)"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ALWAYS = frozenset(
    [
        "secret",
        "secrets",
        "password",
        "passwords",
        "passwd",
        "pwd",
        "passphrase",
        "credential",
        "credentials",
        "apikey",
        "authorization",
        "bearer",
        "cookie",
        "jwt",
        "webhook",
    ]
)
_AT_END = frozenset(["key", "keys", "token", "auth", "pass", "pat"])
_OF_KEYS = frozenset(["access", "api", "private", "ssh", "signing", "encryption", "admin", "probe", "license"])
# Tokens of text, and keys and values of attention: numbers and names that a report cannot do without.
_HARMLESS_BEFORE = frozenset(
    [
        "bos",
        "eos",
        "pad",
        "unk",
        "sep",
        "cls",
        "mask",
        "end",
        "stop",
        "per",
        "first",
        "last",
        "draft",
        "next",
        "prefix",
        "special",
    ]
)
_CONTENT = frozenset(
    [
        "prompt",
        "prompts",
        "text_input",
        "input_text",
        "messages",
        "content",
        "input_ids",
        "prompt_ids",
        "text_output",
        "output_text",
        "text",
        "stop_words",
        "bad_words",
        "tools",
    ]
)
_SHORTEST_KNOWN = 6
_SHAPES = re.compile(
    r"hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|nvapi-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}"
    r"|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,}|AKIA[0-9A-Z]{16}|xox[abprs]-[A-Za-z0-9-]{10,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"
)
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_USER = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s@\"'<>]+@")
_SCHEME = re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"',;]+")
_PAIR = re.compile(
    r"""(?P<name>[A-Za-z_][\w.-]*)(?P<joint>\\?["']?\s{0,8}[:=]\s{0,8})"""
    r"""(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s]+)"""
)
_FLAG = re.compile(r"(?P<name>--?[A-Za-z][\w-]*)(?P<joint>[ \t]+)(?P<value>\"[^\"]*\"|'[^']*'|[^\s]+)")
_LINE = re.compile(r"(?m)^(?P<start>[ \t]*(?:-[ \t]+)?(?:export[ \t]+)?[\"']?)(?P<name>[A-Za-z_][\w.-]*)"
                   r"(?P<joint>[\"']?[ \t]*[:=][ \t]*)(?P<value>[^\n]*)$")  # fmt: skip
_PBTXT = re.compile(r'(key:\s*"(?P<name>[^"]+)"\s*,?\s*value:?\s*\{\s*string_value:\s*)"(?:[^"\\]|\\.)*"', re.DOTALL)


def is_sensitive(name: str) -> bool:
    """Whether the value of a variable, flag, header or field of this name is to be hidden."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return False
    if _ALWAYS & set(words):
        return True
    if {"key", "keys"} & set(words) and _OF_KEYS & set(words):
        return True
    if words[-1] not in _AT_END:
        return False
    return not (len(words) > 1 and words[-1] == "token" and words[-2] in _HARMLESS_BEFORE)


def known_secrets(*environments: Mapping[str, str]) -> list[str]:
    """Values of variables with telling names: looked for wherever else they may stand. Short ones would hit words."""
    found = {
        value for env in environments for name, value in env.items() if is_sensitive(name)
        if len(value) >= _SHORTEST_KNOWN
    }  # fmt: skip
    return sorted(found)


class Masker:
    """`known`: values that are secret wherever they stand."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        forms = {form for value in known for form in (value, json.dumps(value)[1:-1], quote(value, safe=""))}
        longest_first = sorted((form for form in forms if len(form) >= _SHORTEST_KNOWN), key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def text(self, text: str) -> str:
        """Of a log, a listing or a file without a better reader."""
        text = _SHAPES.sub(MASK, _PEM.sub(MASK, self._without_known(text)))
        text = _SCHEME.sub(rf"\1 {MASK}", _USER.sub(rf"\1{MASK}@", text))
        return _FLAG.sub(_hide_pair, _PAIR.sub(_hide_pair, text))

    def lines(self, text: str) -> str:
        """As `text`, for `name: value` and `NAME=value` lines: a telling name hides all of its line."""
        return self.text(_LINE.sub(_hide_line, text))

    def pbtxt(self, text: str) -> str:
        """Of config.pbtxt, where the names of parameters stand as values of `key`."""
        hidden = _PBTXT.sub(lambda m: f'{m.group(1)}"{MASK}"' if is_sensitive(m["name"]) else m.group(), text)
        hidden = _PEM.sub(MASK, self._without_known(hidden))
        return _USER.sub(rf"\1{MASK}@", _SHAPES.sub(MASK, hidden))

    def env(self, env: Mapping[str, str]) -> dict[str, str]:
        return {name: MASK if is_sensitive(name) else self.text(value) for name, value in sorted(env.items())}

    def argv(self, arguments: Sequence[str]) -> list[str]:
        out, hides_next = [], False
        for argument in map(self._without_known, arguments):
            if hides_next and not argument.startswith("--"):
                out.append(MASK)
                hides_next = False
                continue
            name, equals, value = argument.partition("=")
            is_flag = argument.startswith("-")
            hides_next = is_flag and not equals and is_sensitive(name)
            if equals and is_sensitive(name):
                out.append(f"{name}={MASK}")
            else:
                out.append(f"{name}={self._setting(value)}" if equals else self.text(argument))
        return out

    def json(self, data: Any) -> Any:
        """A copy; what clients wrote is left out too."""
        if isinstance(data, Mapping):
            return {self.text(str(name)): self._field(str(name), value) for name, value in data.items()}
        if isinstance(data, (list, tuple)):
            if data and all(isinstance(each, str) for each in data):
                return self.argv(data)
            return [self.json(each) for each in data]
        return self.text(data) if isinstance(data, str) else data

    def json_text(self, text: str) -> str:
        """Of a JSON file; as plain text where it is none."""
        try:
            return json.dumps(self.json(json.loads(text)), indent=2, ensure_ascii=False) + "\n"
        except (ValueError, RecursionError):
            return self.lines(text)

    def _field(self, name: str, value: Any) -> Any:
        if name.lower() in _CONTENT and value not in (None, "", [], {}):
            return LEFT_OUT
        if is_sensitive(name) and isinstance(value, (str, list, dict)) and value:
            return MASK
        return self.json(value)

    def _setting(self, value: str) -> str:
        """`admin,repository:header-key=VALUE`: a whole argument, so everything after the last sign is the value."""
        name, equals, rest = value.rpartition("=")
        return f"{name}={MASK}" if equals and rest and is_sensitive(name) else self.text(value)

    def _without_known(self, text: str) -> str:
        return text if self._known is None else self._known.sub(MASK, text)


def _hide_pair(match: re.Match[str]) -> str:
    name, joint, value = match["name"], match["joint"], match["value"]
    if is_sensitive(name):
        return f"{name}{joint}{_masked_like(value)}"
    if name.lower() in _CONTENT and value[:1] in "\"'[":
        return f"{name}{joint}{LEFT_OUT}"
    # A value may hold a pair of its own, as `api:header-key=VALUE` does.
    return f"{name}{joint}{_PAIR.sub(_hide_pair, value)}"


def _hide_line(match: re.Match[str]) -> str:
    if not (is_sensitive(match["name"]) and match["value"].strip()):
        return match.group()
    return f"{match['start']}{match['name']}{match['joint']}{_masked_like(match['value'])}"


def _masked_like(value: str) -> str:
    closing = value[-1] if len(value) > 1 and value[-1] in "\"'" and value[0] == value[-1] else ""
    return f"{closing}{MASK}{closing}"
