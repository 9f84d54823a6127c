"""Equal requests: which one is being worked on, and which answers are kept for the next that asks the same.

Knows nothing of requests but their keys. Kept results are the latest ones: bounded by bytes, by age and by a share of
all results so far; the oldest go first. Works and answers are the caller's own and are only handed back.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..contract.stream_options import RepeatCacheOptions

__all__ = ["ENTRY_BYTES", "Repeats"]

Work = TypeVar("Work")
Answer = TypeVar("Answer")

ENTRY_BYTES = 512
"""What the bookkeeping of one result takes, roughly; counted with its own bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result(Generic[Answer]):
    answer: Answer
    size_bytes: int
    made_s: float


class Repeats(Generic[Work, Answer]):
    """`now` must not run backwards."""

    def __init__(self, options: RepeatCacheOptions) -> None:
        self._options = options
        self._works: dict[Hashable, Work] = {}
        self._results: OrderedDict[Hashable, _Result[Answer]] = OrderedDict()
        self.bytes = 0
        self.hits = 0
        self.joins = 0
        self.results_so_far = 0

    @property
    def options(self) -> RepeatCacheOptions:
        return self._options

    @property
    def results(self) -> int:
        return len(self._results)

    def answer(self, key: Hashable, now: float) -> Answer | None:
        """A kept answer; counts as a hit."""
        self._trim(now)
        found = self._results.get(key)
        if found is None:
            return None
        self.hits += 1
        return found.answer

    def work(self, key: Hashable) -> Work | None:
        """What is being done about this key; whoever joins it says so with `joined`."""
        return self._works.get(key)

    def joined(self) -> None:
        self.joins += 1

    def lead(self, key: Hashable, work: Work) -> None:
        """From now on `work` may be joined. Another one under this key keeps its place."""
        self._works.setdefault(key, work)

    def leave(self, key: Hashable, work: Work) -> None:
        """`work` can no longer be joined, and brings no answer for others."""
        if self._works.get(key) is work:
            del self._works[key]

    def keep(self, key: Hashable, answer: Answer, size_bytes: int, now: float) -> None:
        """A complete answer. One that is kept already stays: it is the same."""
        self.results_so_far += 1
        if key not in self._results:
            self._results[key] = _Result(answer=answer, size_bytes=size_bytes + ENTRY_BYTES, made_s=now)
            self.bytes += size_bytes + ENTRY_BYTES
        self._trim(now)

    def replace(self, options: RepeatCacheOptions) -> None:
        """Other rules: what was kept or could be joined under the old ones is forgotten; counters go on."""
        self._options = options
        self.forget()

    def forget(self) -> None:
        self._works.clear()
        self._results.clear()
        self.bytes = 0

    def _trim(self, now: float) -> None:
        options = self._options
        most = math.ceil(options.keep_latest_share * self.results_so_far)
        while self._results:
            oldest = next(iter(self._results.values()))
            is_old = now - oldest.made_s > options.max_age_s
            if not (is_old or self.bytes > options.max_bytes or len(self._results) > most):
                return
            self._results.popitem(last=False)
            self.bytes -= oldest.size_bytes

    def check_integrity(self) -> None:
        """Raises AssertionError when the running sum is off or a bound is broken."""
        assert self.bytes == sum(result.size_bytes for result in self._results.values())
        assert self.bytes <= max(0, self._options.max_bytes)
        assert len(self._results) <= math.ceil(self._options.keep_latest_share * self.results_so_far)
