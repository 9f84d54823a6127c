"""What the service tells of an opened breaker: who was at work, and how far, but not what was said."""

from __future__ import annotations

import dataclasses
import json

import pytest
from tests.service.fakes import policy, service
from tests.service.test_service import ScriptedEngine, ask, error, running, until

from seekserve_backend.answers import Chunk
from seekserve_backend.contract.policy import BreakerOptions
from seekserve_backend.contract.refusal import ErrorCode
from seekserve_backend.engines.port import EndEvent, EndReason, EngineStepReport

SECRET = b"the secret prompt"
AT_ONCE = dataclasses.replace(policy(), breaker=BreakerOptions(faults_in_a_row=1))


class FailingEngine(ScriptedEngine):
    """Once, when an answer has three bytes, it fails: as a whole, or that request alone."""

    def __init__(self, *, alone: bool) -> None:
        super().__init__(b"abcdefgh")
        self._alone = alone
        self.waits_for = 2

    def step(self, timeout_s: float) -> EngineStepReport:
        self.is_held = len(self._running) < self.waits_for
        broken = next((id for id in self._running if self._said[id] >= 3), None)
        if broken is None or not self.waits_for:
            return super().step(timeout_s)
        self.waits_for = 0
        if not self._alone:
            raise RuntimeError("the engine broke")
        self._remove(broken)
        ends = (EndEvent(id=broken, reason=EndReason.FAILED, message="this one broke"),)
        return EngineStepReport(step_ms=0.0, batch_size=2, prefill_tokens=0, ends=ends)


@pytest.mark.parametrize("alone", [True, False])
def test_an_opening_tells_who_was_at_work_and_how_far(alone: bool) -> None:
    engines = [FailingEngine(alone=alone)]
    with running(service(lambda: engines.pop() if engines else ScriptedEngine(b"ok"), with_policy=AT_ONCE)) as made:
        first = ask(made, SECRET, max_tokens=20, client_id="mine")
        until(lambda: made.stats().snapshot.running == 1)
        second = ask(made, SECRET, max_tokens=7)
        assert error(first).code is ErrorCode.FAILED
        if alone:
            assert isinstance(second.last, Chunk)
        else:
            assert error(second).code is ErrorCode.FAILED
        until(lambda: made.stats().snapshot.gauges["breaker_openings"] == 1.0)
        (opening,) = made.breaker_openings()
        assert made.breaker_openings() == [], "told once"
    requests = opening["requests"]
    assert isinstance(requests, list)
    told = [(each["id"], each["client_ids"], each["max_tokens"], each["has_failed"]) for each in requests]
    assert told == [("r1", ["mine"], 20, True), ("r2", ["r2"], 7, not alone)]
    assert [each["prompt_tokens"] for each in requests] == [len(SECRET)] * 2
    assert requests[0]["produced_tokens"] == 3
    assert {each["request_class"] for each in requests} == {"interactive"}
    assert "secret" not in json.dumps(opening)
