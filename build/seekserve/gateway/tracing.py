"""OpenTelemetry spans of a request: gateway, and below it queue, prefill and decode. Off unless an endpoint is named.

The trace goes on to Triton: `traceparent` travels as a gRPC header, where its own OpenTelemetry mode takes it up.
Without an endpoint the caller's header is handed on as it came.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from seekserve.errors import MissingDependency
from seekserve.gateway.record import Record

__all__ = ["NoTracer", "OtelTracer", "Span", "Tracer", "make_tracer"]

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class Span(Protocol):
    def forward(self) -> Mapping[str, str]:
        """Headers for the next hop."""
        ...

    def end(self, record: Record) -> None: ...


class Tracer(Protocol):
    def start(self, headers: Mapping[str, str], record: Record) -> Span: ...

    def close(self) -> None: ...


class _Passed:
    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def forward(self) -> Mapping[str, str]:
        return self._headers

    def end(self, record: Record) -> None:
        pass


class NoTracer:
    def start(self, headers: Mapping[str, str], record: Record) -> Span:
        parent = headers.get("traceparent", "")
        found = _TRACEPARENT.fullmatch(parent)
        if found is None:
            return _Passed({})
        record.trace_id = found[1]
        state = headers.get("tracestate")
        return _Passed({"traceparent": parent, **({"tracestate": state} if state else {})})

    def close(self) -> None:
        pass


class OtelTracer:
    """Spans to an exporter; `processor` is one of the SDK's."""

    def __init__(self, processor: Any) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = TracerProvider(resource=Resource.create({"service.name": "seekserve-gateway"}))
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("seekserve.gateway")
        self._propagator = TraceContextTextMapPropagator()

    def start(self, headers: Mapping[str, str], record: Record) -> Span:
        from opentelemetry.trace import SpanKind

        parent = self._propagator.extract(dict(headers))
        span = self._tracer.start_span(
            "gateway", context=parent, kind=SpanKind.SERVER, start_time=int(record.started_unix_s * 1e9)
        )
        record.trace_id = f"{span.get_span_context().trace_id:032x}"
        return _OtelSpan(self._tracer, self._propagator, span)

    def close(self) -> None:
        self._provider.shutdown()


class _OtelSpan:
    def __init__(self, tracer: Any, propagator: Any, span: Any) -> None:
        from opentelemetry.trace import set_span_in_context

        self._tracer = tracer
        self._propagator = propagator
        self._span = span
        self._context = set_span_in_context(span)

    def forward(self) -> Mapping[str, str]:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, context=self._context)
        return carrier

    def end(self, record: Record) -> None:
        """The phases are known when they are over: from sending to release, to the first text, to the end."""
        from opentelemetry.trace import StatusCode

        for name, begin_s, end_s in phases(record):
            child = self._tracer.start_span(name, context=self._context, start_time=_unix_ns(record, begin_s))
            child.end(_unix_ns(record, end_s))
        attributes = {
            "http.route": record.route,
            "http.response.status_code": record.status,
            "seekserve.request_id": record.request_id,
            "gen_ai.request.model": record.model,
            "gen_ai.usage.input_tokens": record.prompt_tokens,
            "gen_ai.usage.output_tokens": record.completion_tokens,
            "seekserve.backend": record.backend,
            "seekserve.retries": record.retries,
            "seekserve.code": record.code,
        }
        self._span.set_attributes({name: value for name, value in attributes.items() if value is not None})
        if record.status >= 500:
            self._span.set_status(StatusCode.ERROR, record.code)
        self._span.end(_unix_ns(record, record.ended_s if record.ended_s is not None else record.started_s))


def phases(record: Record) -> list[tuple[str, float, float]]:
    """(name, begin, end) on the record's clock, as far as the request came."""
    if record.sent_s is None or record.ended_s is None:
        return []
    first_s = record.first_s
    if record.queue_ms is None:
        return [] if first_s is None else [("decode", first_s, record.ended_s)]
    # The backend's own wait is part of what was waited here, whatever the network added.
    released_s = min(record.sent_s + record.queue_ms / 1000.0, first_s if first_s is not None else record.ended_s)
    out = [("queue", record.sent_s, released_s)]
    if first_s is not None:
        out += [("prefill", released_s, first_s), ("decode", first_s, record.ended_s)]
    return out


def _unix_ns(record: Record, at_s: float) -> int:
    return int((record.started_unix_s + at_s - record.started_s) * 1e9)


def make_tracer(endpoint: str | None) -> Tracer:
    """`endpoint`: base URL of an OTLP/HTTP collector. Raises MissingDependency without the packages."""
    if endpoint is None:
        return NoTracer()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise MissingDependency(
            f"spans for {endpoint} need OpenTelemetry, which is not installed ({error})",
            hint="pip install 'seekserve[otel]'",
        ) from error
    path = "" if endpoint.rstrip("/").endswith("/v1/traces") else "/v1/traces"
    return OtelTracer(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint.rstrip("/") + path)))
