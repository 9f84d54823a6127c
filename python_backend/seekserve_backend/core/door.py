"""Refusals that come of the server, not of the request: it drains, is paused or broken, or the id is in use; and when
anybody who is refused may come back. It decides nothing about when these hold."""

from __future__ import annotations

from ..contract.policy import Policy
from ..contract.refusal import ErrorCode
from .books import Books
from .breaker import Breaker
from .rates import DrainRate, jitter, retry_hint_ms, spread_ms
from .refusals import Refusal, Why
from .types import Terminal

__all__ = ["Door"]


class Door:
    def __init__(self, policy: Policy, books: Books, breaker: Breaker) -> None:
        self.policy = policy
        self._books = books
        self._breaker = breaker
        self.drain = DrainRate()

    def in_use(self, id: str) -> Refusal:
        entry = self._books.live.get(id)
        where = "leaving the engine" if entry is None else entry.phase.value
        return Refusal(
            code=ErrorCode.INVALID,
            why=Why.INVALID,
            field="id",
            reason=f"request id {id[:64]!r} is in use ({where}); take a new one",
        )

    def draining(self) -> Refusal:
        left = len(self._books.live)
        return Refusal(
            code=ErrorCode.NOT_SERVING,
            why=Why.DRAINING,
            ahead=left,
            reason=f"this server is draining ({left} requests left) and takes no new ones; ask another replica",
        )

    def paused(self, until_s: float, reason: str, now: float) -> Refusal:
        wait_s = max(0.0, until_s - now) + len(self._books.live) / self.drain.per_s
        return Refusal(code=ErrorCode.NOT_SERVING, why=Why.SWAPPING, reason=reason, wait_ms=1000.0 * wait_s)

    def broken(self, now: float) -> Refusal | None:
        """None for one that the breaker lets try."""
        if self._breaker.admits(now):
            return None
        return Refusal(
            code=ErrorCode.NOT_SERVING,
            why=Why.BREAKER,
            reason=f"the engine failed ({self._breaker.openings} times so far) and is being let cool down",
            wait_ms=self._breaker.wait_ms(now),
        )

    def refusal_hint_ms(self, no: Refusal) -> int | None:
        """None: there is no point in coming back."""
        if no.wait_ms is not None:
            return spread_ms(
                no.wait_ms,
                low_ms=self.policy.retry_after_min_ms,
                high_ms=self.policy.retry_after_max_ms,
                spread=jitter(self._books.counts.terminals[Terminal.REFUSED]),
            )
        return None if no.ahead is None else self.hint_ms(no.ahead, Terminal.REFUSED)

    def hint_ms(self, ahead: int, terminal: Terminal) -> int:
        """Until so many have ended, at the rate of late."""
        return retry_hint_ms(
            ahead=ahead,
            per_s=self.drain.per_s,
            low_ms=self.policy.retry_after_min_ms,
            high_ms=self.policy.retry_after_max_ms,
            spread=jitter(self._books.counts.terminals[terminal]),
        )
