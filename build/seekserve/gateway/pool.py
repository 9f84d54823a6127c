"""The backends: which are up, what they serve, how busy they are, and which one the next request goes to.

All of it lives on one event loop. `refresh` asks every backend once; a connection that fails marks its backend down at
once, and only the next successful look brings it back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from seekserve.client import AsyncClient
from seekserve.client.discovery import launched_metrics_url, state_folder
from seekserve.errors import SeekserveError
from seekserve.gateway.load import Load
from seekserve.gateway.options import BackendSpec
from seekserve.gateway.problems import Problem, ProblemError
from seekserve.gateway.resume import backend_mark
from seekserve.gateway.ring import Ring, prefix_key
from seekserve.gateway.scrape import scrape

__all__ = ["Backend", "Pool"]

_log = logging.getLogger(__name__)
_RETRY_AFTER_MS = 1000


class Backend:
    def __init__(self, spec: BackendSpec, *, idle_timeout_s: float) -> None:
        self.spec = spec
        self.name = spec.target
        self.client = AsyncClient(spec.target, idle_timeout_s=idle_timeout_s, connect_timeout_s=2.0)
        self.models: tuple[str, ...] = ()
        """Those that are ready; empty while it is down."""
        self.in_flight = 0
        self.loads: Mapping[str, Load] = {}
        self._in_flight_at_scrape = 0
        self._was_up: bool | None = None

    @property
    def is_up(self) -> bool:
        return bool(self.models)

    def score(self, model: str) -> float:
        return self.loads.get(model, Load()).score(self._unseen())

    def _unseen(self) -> int:
        # Without numbers of its own all that is known are the requests that this gateway has there.
        return self.in_flight - self._in_flight_at_scrape if self.loads else self.in_flight

    def mark_down(self) -> None:
        self.models = ()

    async def refresh(self) -> None:
        """One look at what is ready and how busy it is; never raises."""
        try:
            named = self.spec.models or await self.client.model_names()
            ready = [name for name in named if await self.client.is_ready(name)]
            why = f"not ready: {', '.join(named) or 'it serves no model'}"
        except SeekserveError as error:
            ready, why = [], error.message
        self.models = tuple(ready)
        if self.is_up is not self._was_up:
            self._was_up = self.is_up
            if self.is_up:
                _log.info("backend %s is up, with %s", self.name, ", ".join(ready))
            else:
                _log.warning("backend %s is down: %s", self.name, why)
        url = self.spec.metrics_url or launched_metrics_url(self.name, state_folder())
        in_flight = self.in_flight
        loads = await scrape(url) if url is not None and ready else None
        # Numbers that cannot be read any more are no numbers: old ones would draw or repel traffic for ever.
        self.loads, self._in_flight_at_scrape = (loads, in_flight) if loads is not None else ({}, 0)


class Pool:
    def __init__(self, backends: Collection[Backend], *, route: str = "least-loaded") -> None:
        self.backends = tuple(backends)
        self._by_name = {backend.name: backend for backend in self.backends}
        self._ring = Ring(list(self._by_name)) if route == "prefix" else None
        self._turn = 0

    def models(self) -> tuple[str, ...]:
        return tuple(sorted({model for backend in self.backends for model in backend.models}))

    @property
    def is_ready(self) -> bool:
        return any(backend.is_up for backend in self.backends)

    def pick(self, model: str, prompt: Mapping[str, Any], tried: Collection[str] = ()) -> Backend:
        """Raises ProblemError: 404 for a model that nobody serves, 503 when no backend is left that does."""
        able = [each for each in self.backends if model in each.models and each.name not in tried]
        if not able:
            raise ProblemError(self._nobody(model))
        if len(able) == 1:
            return able[0]
        if self._ring is not None:
            return self._by_name[self._ring.pick(prefix_key(prompt), {each.name: each.in_flight for each in able})]
        # Equals take turns: the numbers are a second old, and the first of the list would get all of that second.
        self._turn += 1
        first = self._turn % len(able)
        return min(able[first:] + able[:first], key=lambda backend: backend.score(model))

    def marked(self, mark: str) -> Backend:
        """The backend that a resume token means. Raises ProblemError when it is not there."""
        found = next((each for each in self.backends if backend_mark(each.name) == mark), None)
        if found is None:
            reason = "header x-resume-token: of no backend of this gateway"
            raise ProblemError(
                Problem(status=400, code="invalid", message=reason, kind="invalid", param="x-resume-token")
            )
        if found.is_up:
            return found
        reason = "the backend that has this stream is not there now"
        raise ProblemError(
            Problem(
                status=503,
                code="not_serving",
                message=reason,
                kind="not_serving",
                retry_after_ms=_RETRY_AFTER_MS,
            )
        )

    def has_another(self, model: str, tried: Collection[str]) -> bool:
        return any(model in each.models and each.name not in tried for each in self.backends)

    def _nobody(self, model: str) -> Problem:
        served = self.models()
        if served and model not in served:
            reason = f"model {model!r:.80} is not served here; served: {', '.join(served)}"
            return Problem(status=404, code="model_not_found", message=reason, kind="invalid", param="model")
        reason = f"no backend that is ready ({len(self.backends)} configured)"
        return Problem(
            status=503, code="not_serving", message=reason, kind="not_serving", retry_after_ms=_RETRY_AFTER_MS
        )

    async def refresh(self) -> None:
        await asyncio.gather(*(backend.refresh() for backend in self.backends))

    async def watch(self, period_s: float, refreshed: Callable[[], None] = lambda: None) -> None:
        """Refreshes until it is cancelled."""
        while True:
            await self.refresh()
            refreshed()
            await asyncio.sleep(period_s)

    async def close(self) -> None:
        await asyncio.gather(*(backend.client.close() for backend in self.backends))
