"""The request log: one JSON object on a line for each request, when it has ended."""

from __future__ import annotations

import json
import sys
from typing import TextIO

from seekserve.gateway.record import Record

__all__ = ["RequestLog", "open_log"]


class RequestLog:
    def __init__(self, stream: TextIO | None, *, owns: bool = False) -> None:
        self._stream = stream
        self._owns = owns

    def write(self, record: Record) -> None:
        """A log that cannot be written costs no request its answer."""
        if self._stream is None:
            return
        try:
            self._stream.write(json.dumps(record.to_json(), ensure_ascii=True) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None
            print("gateway: the request log cannot be written any more; it has ended", file=sys.stderr)

    def close(self) -> None:
        if self._owns and self._stream is not None:
            self._stream.close()


def open_log(name: str) -> RequestLog:
    """ "-" is standard output, an empty name no log, anything else a file that is appended to (OSError)."""
    if name == "-":
        return RequestLog(sys.stdout)
    return RequestLog(open(name, "a", encoding="utf-8"), owns=True) if name else RequestLog(None)  # noqa: PTH123
