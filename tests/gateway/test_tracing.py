"""Spans: one for the request, its phases below it, and the same trace at the backend."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="not installed: opentelemetry (the otel extra)")

from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from seekserve.gateway.record import Record
from seekserve.gateway.tracing import NoTracer, OtelTracer

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def record(**more: Any) -> Record:
    return Record(request_id="r1", route="/v1/completions", client="", started_s=10.0, started_unix_s=1000.0, **more)


def spans_of(made: Record, headers: dict[str, str]) -> tuple[dict[str, Any], str]:
    exporter = InMemorySpanExporter()
    tracer = OtelTracer(SimpleSpanProcessor(exporter))
    span = tracer.start(headers, made)
    forwarded = span.forward()["traceparent"]
    span.end(made)
    tracer.close()
    return {each.name: each for each in exporter.get_finished_spans()}, forwarded


def test_queue_prefill_and_decode_lie_end_to_end_below_the_request() -> None:
    made = record(status=200, sent_s=10.5, queue_ms=1000.0, first_s=12.0, ended_s=14.0, model="m", completion_tokens=9)
    spans, forwarded = spans_of(made, {"traceparent": PARENT})
    times = {name: (span.start_time / 1e9, span.end_time / 1e9) for name, span in spans.items()}
    assert times == {
        "queue": (1000.5, 1001.5),
        "prefill": (1001.5, 1002.0),
        "decode": (1002.0, 1004.0),
        "gateway": (1000.0, 1004.0),
    }
    top = spans["gateway"]
    assert f"{top.parent.span_id:016x}" == "b7ad6b7169203331"
    assert made.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert all(spans[name].parent.span_id == top.context.span_id for name in ("queue", "prefill", "decode"))
    # What goes to the backend is the same trace, below this span.
    assert forwarded.split("-")[1:3] == [made.trace_id, f"{top.context.span_id:016x}"]
    assert top.attributes["gen_ai.usage.output_tokens"] == 9


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({"status": 400, "ended_s": 10.1}, {"gateway"}),
        ({"status": 429, "sent_s": 10.1, "ended_s": 10.2}, {"gateway"}),
        ({"status": 200, "sent_s": 10.1, "queue_ms": 5.0, "ended_s": 11.0}, {"gateway", "queue"}),
        ({"status": 200, "sent_s": 10.1, "first_s": 10.5, "ended_s": 11.0}, {"gateway", "decode"}),
    ],
)
def test_a_request_has_the_phases_that_it_came_to(more: dict[str, Any], names: set[str]) -> None:
    assert set(spans_of(record(**more), {})[0]) == names


def test_without_an_endpoint_a_callers_trace_is_handed_on_and_nothing_else() -> None:
    made = record()
    forwarded = NoTracer().start({"traceparent": PARENT, "tracestate": "a=1", "x": "y"}, made).forward()
    assert forwarded == {"traceparent": PARENT, "tracestate": "a=1"}
    assert NoTracer().start({"traceparent": "nonsense\n"}, record()).forward() == {}
