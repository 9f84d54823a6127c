"""The supervisor's word which bundle this instance shall serve: read once a second, answered in the heartbeat.

`swap-<model>.json` in the run folder is written whole by the launch, which waits for every instance. Being told what is
served already is answered at once, so the way back of a swap that failed elsewhere costs nothing. `retire-<pid>` says
that another instance has taken over: this one closes its engine, though Triton may keep its process.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..exchange import Exchange, ExchangeState, Variant

__all__ = ["SwapOrders"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    id: str
    bundle_dir: str
    drain_timeout_s: float
    load_timeout_s: float


class SwapOrders:
    def __init__(
        self,
        *,
        model: str,
        run_dir: Path | None,
        bundle_dir: str,
        read_variant: Callable[[Path], Variant],
        begin: Callable[[Variant, float], Exchange],
        retire: Callable[[], None],
    ) -> None:
        """`read_variant` and `retire` may take seconds; `begin` (with the time to drain) returns at once."""
        self._retire_path = None if run_dir is None else run_dir / f"retire-{os.getpid()}"
        self._retire = retire
        self._is_retired = False
        self._path = None if run_dir is None else run_dir / f"swap-{model}.json"
        self._bundle_dir = bundle_dir
        self._read_variant = read_variant
        self._begin = begin
        self._order: _Order | None = None
        self._exchange: Exchange | None = None
        self._ended: tuple[str, str] | None = None
        """(state, text) of the latest order, once it is over."""

    def look(self) -> dict[str, object]:
        """What the heartbeat says of it."""
        if not self._is_retired and self._retire_path is not None and self._retire_path.exists():
            self._is_retired = True
            threading.Thread(target=self._retire, name="seekserve-retire", daemon=True).start()
        self._note_end()
        order = self._new_order() if self._order is None or self._ended is not None else None
        if order is not None:
            self._take(order)
        return {"bundle_dir": self._bundle_dir, "swap": self._state()}

    def _take(self, order: _Order) -> None:
        self._order, self._exchange, self._ended = order, None, None
        if order.bundle_dir == self._bundle_dir:
            self._ended = ("done", "")
            return
        # Reading a large tokenizer must not hold up the heartbeat.
        threading.Thread(target=self._carry_out, args=(order,), name="seekserve-swap", daemon=True).start()

    def _carry_out(self, order: _Order) -> None:
        try:
            variant = self._read_variant(Path(order.bundle_dir))
        except Exception as error:
            _log.exception("the bundle %s cannot be read", order.bundle_dir)
            self._ended = ("failed", f"the bundle cannot be read ({error})")
            return
        self._exchange = self._begin(variant, order.drain_timeout_s)

    def _note_end(self) -> None:
        exchange = self._exchange
        if exchange is None or self._ended is not None or not exchange.is_over:
            return
        if exchange.state is ExchangeState.DONE:
            self._bundle_dir = exchange.variant.bundle_dir
        self._ended = (exchange.state.value, exchange.text)

    def _state(self) -> dict[str, object] | None:
        order, exchange = self._order, self._exchange
        if order is None:
            return None
        state, text = self._ended or ("reading" if exchange is None else exchange.state.value, "")
        if self._ended is None and exchange is not None and exchange.is_over:
            state = ExchangeState.LOADING.value  # it ended this very moment: told at the next beat, with its text
        return {
            "id": order.id,
            "state": state,
            "text": text,
            "failed_requests": 0 if exchange is None else exchange.failed_requests,
            "load_timeout_s": order.load_timeout_s,
        }

    def _new_order(self) -> _Order | None:
        if self._path is None:
            return None
        try:
            order = _Order(**json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError):
            _log.exception("the swap order %s cannot be read", self._path)
            return None
        return None if self._order is not None and self._order.id == order.id else order
