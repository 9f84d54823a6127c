"""Puts the service's numbers on Triton's metrics endpoint, once a second, off the token path.

Facts about Triton's custom metrics that shape this (24.10, measured): one call takes 20 us, and up to a few
milliseconds beside a busy Python thread; of two calls that Triton refuses the second kills the server, so nothing that
it could refuse is ever asked, and the first error is the last call; a series goes away only with its family's handle.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable
from typing import Any

from ..contract.metric_names import BOOKS, FAMILY, PREFIX, Kind
from ..measures import Observation
from ..service import ServiceStats
from .metric_samples import Sample, books, others

__all__ = ["Metrics"]

_log = logging.getLogger(__name__)
_BOOKS = frozenset(family.name for family in BOOKS)
_FLUSHES, _BEGUN = PREFIX + "flushes_total", PREFIX + "flushes_begun"
_QUEUES = PREFIX + "queue_requests"
_AT_A_TIME = 200
_OBSERVE_S = 0.25
"""A flush passes on single observations for no longer than this, since the heartbeat comes from the same thread."""

_Key = tuple[str, tuple[tuple[str, str], ...]]


class Metrics:
    """Of one thread. Families and series are made as their first sample comes; only what changed is sent."""

    def __init__(
        self,
        utils: Any,
        model: str,
        *,
        instance: str = "",
        observations: Callable[[int], list[Observation]] = lambda _most: [],
        process: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        self._utils = utils
        self._common = {"model": model, "process": process or str(os.getpid())}
        self._instance = instance
        self._observations = observations
        self._clock = clock
        self._unix_time = unix_time
        self._families: dict[str, Any] = {}
        self._series: dict[_Key, Any] = {}
        self._last: dict[_Key, float] = {}
        self._flushes = 0
        self._is_off = False

    def flush(self, stats: ServiceStats) -> None:
        if self._is_off:
            return
        try:
            self._flush_books(stats)
            rest = others(stats, instance=self._instance, unix_time_s=self._unix_time())
            self._forget_all_but(rest)
            for sample in rest:
                self._put(sample)
            self._observe()
        except Exception:
            self._is_off = True
            _log.exception("metrics failed and are off until the model is loaded again")

    def close(self) -> None:
        """Takes this process's series off the endpoint; a later flush does nothing."""
        self._is_off = True
        self._last.clear()
        self._series.clear()
        self._families.clear()

    def _flush_books(self, stats: ServiceStats) -> None:
        if not self._flushes:
            for family in BOOKS:  # in their order: see there
                self._make_family(family.name)
        self._flushes += 1
        self._put((_BEGUN, {}, self._flushes))
        found = books(stats)
        for sample in found:
            self._put(sample)
        self._empty_queues_of_gone_classes(found)
        self._put((_FLUSHES, {}, self._flushes))

    def _empty_queues_of_gone_classes(self, found: list[Sample]) -> None:
        """A class that a new policy lacks has no sample any more, and its last one would stand for ever."""
        known = {(name, tuple(labels.items())) for name, labels, _ in found}
        for name, labels in [key for key in self._last if key[0] == _QUEUES and key not in known]:
            self._put((name, dict(labels), 0))

    def _put(self, sample: Sample) -> None:
        name, labels, value = sample
        if not math.isfinite(value):
            return
        key = (name, tuple(labels.items()))
        before = self._last.get(key)
        if before == value:
            return
        series = self._series.get(key) or self._make_series(key)
        if FAMILY[name].kind is Kind.COUNTER:
            # A source that began anew (an engine made again) starts from 0, as Prometheus takes it as well.
            more = value if before is None or value < before else value - before
            if more > 0:
                series.increment(more)
        else:
            series.set(value)
        self._last[key] = value

    def _observe(self) -> None:
        until_s = self._clock() + _OBSERVE_S
        while found := self._observations(_AT_A_TIME):
            for name, request_class, value in found:
                key: _Key = (name, () if request_class is None else (("class", request_class),))
                (self._series.get(key) or self._make_series(key)).observe(value)
            if self._clock() >= until_s:
                return

    def _forget_all_but(self, samples: list[Sample]) -> None:
        """What is no longer known disappears, family by family, and comes back with what is still known of it."""
        known = {(name, tuple(labels.items())) for name, labels, _ in samples}
        gone = {
            key[0]
            for key in self._last
            if key not in known and key[0] not in _BOOKS and FAMILY[key[0]].kind is Kind.GAUGE
        }
        for name in gone:
            for key in [key for key in self._series if key[0] == name]:
                del self._series[key], self._last[key]
            del self._families[name]  # the last reference: no collection, which would hold up every thread

    def _make_series(self, key: _Key) -> Any:
        name, labels = key
        family = self._families.get(name) or self._make_family(name)
        described = FAMILY[name]
        options = {"buckets": list(described.buckets)} if described.kind is Kind.HISTOGRAM else {}
        self._series[key] = series = family.Metric(labels={**self._common, **dict(labels)}, **options)
        return series

    def _make_family(self, name: str) -> Any:
        described, kinds = FAMILY[name], self._utils.MetricFamily
        self._families[name] = family = kinds(
            name=name, description=described.help, kind=getattr(kinds, described.kind.name)
        )
        return family
