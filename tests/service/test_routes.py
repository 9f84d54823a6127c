"""Routes and class limits as a client meets them."""

from __future__ import annotations

from typing import Any

from tests.service.fakes import RecordingSink, service, synthetic
from tests.service.test_service import ScriptedEngine, ask, error, finish_reason, running

from seekserve_backend.contract.policy import Policy
from seekserve_backend.contract.refusal import ErrorCode
from seekserve_backend.engines.port import Engine, EngineRequest
from seekserve_backend.engines.synthetic import SyntheticEngine
from seekserve_backend.service import Service

PLAIN = {"max_queue_requests": 1000, "deadline_ms": 60_000}


def routed(**changes: Any) -> Policy:
    data = {
        "default_class": "chat",
        "routes": [
            {"class": "offline", "header": {"x-request-type": "offline"}},
            {"class": "batch", "endpoint": "/v1/batch/*"},
        ],
        "classes": {
            "chat": {**PLAIN, "sampling": {"frequency_penalty": {"min": 0.8, "max": 1.2, "default": 0.8}}},
            "batch": {**PLAIN, "sampling": {"temperature": {"max": 0.5, "outside": "refuse"}}},
            "offline": {**PLAIN, "max_prompt_tokens": 3, "max_output_tokens": 2},
        },
    }
    return Policy.from_data({**data, **changes}, "test")


def test_where_a_request_comes_from_decides_what_it_may() -> None:
    asked: dict[int, EngineRequest] = {}

    def engine() -> Engine:
        made = synthetic()
        assert isinstance(made, SyntheticEngine)
        add = made.add

        def noted(request: EngineRequest) -> None:
            asked[len(request.prompt_ids)] = request
            add(request)

        made.add = noted  # type: ignore[method-assign]
        return made

    def send(made: Service, text: str, **wishes: Any) -> RecordingSink:
        named = frozenset(wishes.pop("named", ()))
        return ask(made, text.encode(), sampling_given=named, **wishes)

    with running(service(engine, with_policy=routed())) as made:
        assert finish_reason(send(made, "a")) == "length"
        assert asked[1].sampling.frequency_penalty == 0.8
        offline = {"headers": {"x-request-type": "offline"}}
        assert finish_reason(send(made, "aa", **offline)) == "length"
        assert (asked[2].max_tokens, asked[2].sampling.frequency_penalty) == (2, 0.0)
        long = error(send(made, "aaaa", **offline))
        assert (long.code, long.field) == (ErrorCode.TOO_LARGE, "prompt")
        hot = asked[1].sampling.__class__(temperature=0.9)
        warm = error(send(made, "aaa", endpoint="/v1/batch/completions", sampling=hot, named=["temperature"]))
        assert (warm.code, warm.field) == (ErrorCode.INVALID, "temperature")
        assert "at most 0.5" in warm.reason
    assert set(asked) == {1, 2}


def test_a_queue_timeout_says_what_was_waited_for() -> None:
    classes = {"chat": {**PLAIN, "queue_timeout_ms": 300, "max_running": 1}}
    engine = ScriptedEngine(b"ab")
    engine.is_held = True
    with running(service(lambda: engine, with_policy=routed(classes=classes, routes=[]))) as made:
        first = ask(made)
        late = error(ask(made))
        assert late.code is ErrorCode.EXPIRED
        assert "its class may wait 300 ms" in late.reason
        assert late.retry_after_ms is not None
        engine.is_held = False
        assert finish_reason(first) == "stop"
