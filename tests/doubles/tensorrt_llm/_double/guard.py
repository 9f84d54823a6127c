"""Refuses what the real package lets pass and a client must never rely on.

A violation is an AssertionError, and a line of JSON in the file DOUBLE_TRTLLM_VIOLATIONS so that a client that swallows
the error is found out all the same.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["Guarded", "ThreadRule", "violation"]

# Standard modules that read all fields of an object for somebody else.
_READERS = {"tensorrt_llm", "dataclasses", "copy", "copyreg", "pickle", "pprint", "weakref"}


def violation(rule: str, message: str) -> NoReturn:
    path = os.environ.get("DOUBLE_TRTLLM_VIOLATIONS")
    if path:
        line = json.dumps({"rule": rule, "message": message, "pid": os.getpid()})
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    raise AssertionError(f"double of tensorrt_llm, rule {rule}: {message}")


class Guarded:
    """Private attributes are open to the package only."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name[0] == "_" and name[:2] != "__":
            _only_from_package(type(self).__name__, name, "read")
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name[0] == "_" and name[:2] != "__":
            _only_from_package(type(self).__name__, name, "set")
        object.__setattr__(self, name, value)


class ThreadRule:
    """The thread of the first call is the only one that may call."""

    def __init__(self) -> None:
        self._owner: int | None = None

    def enter(self, what: str) -> None:
        here = threading.get_ident()
        if self._owner is None:
            self._owner = here
        elif self._owner != here:
            violation("second-thread", f"{what} was called from another thread than the first call")


def _only_from_package(owner: str, name: str, verb: str) -> None:
    caller = sys._getframe(2).f_globals.get("__name__", "")
    if caller.partition(".")[0] not in _READERS:
        violation("private-attribute", f"{owner}.{name} was {verb} by {caller}")
