"""The gateway's own numbers: what clients saw, measured at this edge. Labels never hold what a caller may invent."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from seekserve.gateway.pool import Pool
from seekserve.gateway.record import Record

__all__ = ["Metrics"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_KINDS = ("invalid", "auth", "rate", "load", "not_serving", "expired", "failed", "left")


class Metrics:
    """A registry of its own, so that several gateways may live in one process."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        name = "seekserve_gateway_{}".format
        self._requests = Counter(name("requests"), "HTTP requests that ended", ["route", "status"], registry=registry)
        self._problems = Counter(
            name("problems"),
            "Requests that ended without a full answer: load is 429 for load, not_serving 503, rate a key's own limit, "
            "expired a deadline, left a client that went away",
            ["kind"],
            registry=registry,
        )
        for kind in _KINDS:
            self._problems.labels(kind)
        self._retries = Counter(name("retries"), "Requests sent to a second backend", registry=registry)
        self._backend_errors = Counter(
            name("backend_errors"), "Errors and refusals by backend", ["backend", "code"], registry=registry
        )
        self.in_flight = Gauge(name("in_flight_requests"), "Requests being answered", registry=registry)
        self._ttft = Histogram(
            name("ttft_seconds"),
            "Arrival at the gateway to the first text sent to the client (streams only)",
            ["model"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._e2e = Histogram(
            name("e2e_seconds"),
            "Arrival at the gateway to the last byte, of full answers",
            ["model"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._tokens = Counter(
            name("tokens"), "Tokens of full answers, by direction", ["model", "direction"], registry=registry
        )
        self._up = Gauge(name("backend_up"), "1 while the backend serves a model", ["backend"], registry=registry)
        self._at_backend = Gauge(
            name("backend_in_flight_requests"), "Requests of this gateway there", ["backend"], registry=registry
        )

    def backend_error(self, backend: str, code: str, *, is_retried: bool) -> None:
        self._backend_errors.labels(backend, code).inc()
        if is_retried:
            self._retries.inc()

    def problem(self, kind: str) -> None:
        """Of a request that asks the model nothing."""
        self._problems.labels(kind).inc()

    def ended(self, record: Record) -> None:
        self._requests.labels(record.route, str(record.status)).inc()
        if record.kind is not None:
            self._problems.labels(record.kind).inc()
            return
        if record.model is None or record.status != 200:
            return
        if record.stream and record.ttft_ms is not None:
            self._ttft.labels(record.model).observe(record.ttft_ms / 1000.0)
        if record.e2e_ms is not None:
            self._e2e.labels(record.model).observe(record.e2e_ms / 1000.0)
        for direction, count in (("prompt", record.prompt_tokens), ("completion", record.completion_tokens)):
            if count is not None:
                self._tokens.labels(record.model, direction).inc(count)

    def text(self, pool: Pool) -> bytes:
        """Prometheus text."""
        for backend in pool.backends:
            self._up.labels(backend.name).set(float(backend.is_up))
            self._at_backend.labels(backend.name).set(backend.in_flight)
        return generate_latest(self._registry)
