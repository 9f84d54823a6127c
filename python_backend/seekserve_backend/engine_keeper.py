"""The life of the service's engine: made, made anew after a failure, exchanged for another variant's, given up.

The engine loop's thread alone calls the methods, without the desk's lock: making an engine may take minutes. Any thread
may call `stats` and read the fields. Between two calls there is an engine, or `is_broken` is set and everybody has been
told. What an engine held is the loop's to answer, before it asks for another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from .contract.refusal import ErrorCode
from .desk import Desk
from .engines.port import Engine, EngineStats
from .exchange import Exchange, ExchangeState

__all__ = ["BROKEN", "EngineKeeper"]

BROKEN = "the engine is broken; the server must be restarted"

_log = logging.getLogger(__name__)
_RESTARTS_IN_A_ROW = 2


class EngineKeeper:
    """Makes its engine in the constructor, so that a bundle that cannot be loaded fails there."""

    def __init__(self, desk: Desk, engine_factory: Callable[[], Engine]) -> None:
        self._desk = desk
        self._engine_factory = engine_factory
        started_s = desk.clock()
        self.engine: Engine | None = engine_factory()
        """To be touched by the loop's thread alone."""
        self.settled_s = desk.clock()
        """When the making of an engine last ended, well or not."""
        self.load_s = self.settled_s - started_s
        """What making the present engine took."""
        self.info = self.engine.info
        """Of the first engine, and of one that took its place; one made after a failure is of the same bundle."""
        self._failures_in_a_row = 0
        self.restarts = 0
        self.is_rebuilding = False
        self.is_broken = False
        """There is no engine, and none will be made."""

    def stats(self) -> EngineStats | None:
        engine = self.engine
        return None if engine is None else engine.stats()

    def worked(self) -> None:
        """A step, and all that came of it, went well."""
        self._failures_in_a_row = 0

    def make_anew(self) -> None:
        """After a failure; one too many in a row is the end."""
        self._failures_in_a_row += 1
        self.is_rebuilding = True
        self.close()
        if self._failures_in_a_row <= _RESTARTS_IN_A_ROW:
            try:
                self.engine = self._engine_factory()
                self.restarts += 1
            except Exception:
                _log.exception("a new engine could not be made")
        self._settle()
        if self.engine is None:
            self.give_up()

    def exchange(self, wish: Exchange) -> None:
        """Puts the variant's engine in the place of this one, or makes this one again; the door opens after it."""
        if self.engine is None:
            wish.fail(BROKEN)
            return
        wish.state = ExchangeState.LOADING
        self.is_rebuilding = True
        self.close()
        desk, variant = self._desk, wish.variant
        started_s = desk.clock()
        try:
            self.engine = variant.engine_factory()
            variant.check(self.engine.info)
        except Exception as error:
            _log.exception("the engine of %s could not be made", variant.bundle_dir)
            self._take_back(wish, f"its engine could not be made ({type(error).__name__}: {error})")
        else:
            self.load_s = desk.clock() - started_s
            self.info = self.engine.info
            self._engine_factory = variant.engine_factory
            self._failures_in_a_row = 0
            with desk.cond:
                desk.core.replace_engine(variant.limits, variant.kv, variant.step_model)
                wish.taken(variant)
                desk.core.resume()
            wish.state = ExchangeState.DONE
        self._settle()

    def _take_back(self, wish: Exchange, why: str) -> None:
        self.close()
        try:
            self.engine = self._engine_factory()
        except Exception:
            _log.exception("the engine of the old variant could not be made again")
            self.give_up()
            wish.fail(f"{why}; neither could the old one again")
            return
        with self._desk.cond:
            self._desk.core.resume()
        wish.fail(why)

    def _settle(self) -> None:
        """The time first: whoever sees the end of the rebuilding must not see the loop as old as it was before."""
        self.settled_s = self._desk.clock()
        self.is_rebuilding = False

    def close(self) -> None:
        """Whatever it raises: there is none after it."""
        old, self.engine = self.engine, None
        try:
            if old is not None:
                old.close()
        except Exception:
            _log.exception("closing the engine failed")

    def give_up(self) -> None:
        """Nothing new is taken any more, and everything that is open is answered."""
        self.close()
        self.is_broken = True
        _log.error("there is no engine after %d failures; not serving until restarted", self._failures_in_a_row)
        desk = self._desk
        desk.drain()
        desk.outbox.flush()
        with desk.cond:
            left = list(desk.live.values())
        for live in left:
            try:
                desk.fail(live, ErrorCode.NOT_SERVING, BROKEN)
            except Exception:  # the others shall have their answer all the same
                _log.exception("request %s could not be told that the engine is broken", live.id)
