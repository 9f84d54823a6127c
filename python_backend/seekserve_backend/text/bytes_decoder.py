"""Bytes to text, piece by piece: only complete characters leave, the rest waits for its other bytes.

Invariant: the pieces joined, plus `flush`, equal one `bytes.decode("utf-8", "replace")` of everything, however cut.
"""

from __future__ import annotations

import codecs

__all__ = ["IncrementalUtf8"]


class IncrementalUtf8:
    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        return self._decoder.decode(data)

    def flush(self) -> str:
        """The end: an unfinished character becomes U+FFFD."""
        return self._decoder.decode(b"", final=True)
