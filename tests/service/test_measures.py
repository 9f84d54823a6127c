from __future__ import annotations

from typing import Any

import pytest
from tests.service.fakes import RecordingSink

from seekserve_backend.answers import Inbound
from seekserve_backend.contract.metric_names import PREFIX
from seekserve_backend.engines.port import EngineStepReport
from seekserve_backend.live import Live
from seekserve_backend.measures import Measures


def live(**inbound: Any) -> Live:
    made = Live("r1", Inbound(text=b"x", **inbound), RecordingSink(), arrival_s=10.0, lane=1)
    made.prompt_ids, made.request_class = (1, 2, 3, 4), "chat"
    return made


def taken(measures: Measures) -> dict[str, tuple[str | None, float]]:
    return {name.removeprefix(PREFIX): (request_class, value) for name, request_class, value in measures.take(100)}


def test_the_times_of_one_request() -> None:
    measures, request = Measures(), live()
    measures.admitted(request, cached_tokens=2)
    request.queue_ms = 1500.0
    measures.taken(request, 11.75)
    for n, now_s in enumerate((12.0, 12.5, 14.0), start=1):
        request.completion_tokens = 2 * n
        measures.tokens(request, now_s)
    measures.finished(request, 14.5)
    assert taken(measures) == {
        "request_prompt_tokens": ("chat", 4.0),
        "queue_time_seconds": ("chat", 1.5),
        "batch_formation_seconds": ("chat", 0.25),
        "time_to_first_token_seconds": ("chat", 2.0),
        "request_duration_seconds": ("chat", 4.5),
        "request_output_tokens": ("chat", 6.0),
        "time_per_output_token_seconds": ("chat", pytest.approx(2.0 / 5)),
    }
    assert (measures.totals.prefix_lookups, measures.totals.prefix_hits, measures.totals.prefix_hit_tokens) == (1, 1, 2)
    assert measures.take(100) == []


def test_one_token_has_no_time_between_tokens() -> None:
    measures, request = Measures(), live()
    request.completion_tokens = 1
    measures.tokens(request, 11.0)
    measures.finished(request, 11.0)
    assert "time_per_output_token_seconds" not in taken(measures)


def test_probes_are_no_clients() -> None:
    measures, probe = Measures(), live(is_probe=True)
    measures.admitted(probe, cached_tokens=1)
    measures.taken(probe, 11.0)
    measures.tokens(probe, 11.0)
    measures.finished(probe, 12.0)
    assert measures.take(100) == []
    assert measures.totals.prefix_lookups == 0


def test_what_comes_too_fast_is_dropped_and_counted() -> None:
    measures = Measures(most_waiting=2)
    for _ in range(5):
        measures.step(EngineStepReport(step_ms=4.0, batch_size=3, prefill_tokens=0))
    assert measures.take(10) == [(PREFIX + "engine_step_seconds", None, 0.004)] * 2
    assert (measures.totals.dropped, measures.totals.step_requests) == (3, 15)


def test_a_wait_that_was_no_step_is_not_counted() -> None:
    measures = Measures()
    measures.step(EngineStepReport(step_ms=0.0, batch_size=0, prefill_tokens=0))
    assert measures.take(10) == []
