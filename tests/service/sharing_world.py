"""Shared by the tests of answers that more than one connection receives: an engine that counts, and a policy."""

from __future__ import annotations

import dataclasses

from tests.service.fakes import policy
from tests.service.test_service import ScriptedEngine

from seekserve_backend.contract.policy import Policy
from seekserve_backend.contract.stream_options import RepeatCacheOptions, ResumeOptions
from seekserve_backend.engines.port import EngineInfo, EngineRequest, EngineStepReport

SCRIPT = "naïve 😀 and so on to the end".encode()


class CountingEngine(ScriptedEngine):
    """Counts what it was given, and stops behind `pause_at` tokens until it may go on."""

    def __init__(self, script: bytes = SCRIPT, *, repeats_seeds: bool = False) -> None:
        super().__init__(script)
        self.added: list[EngineRequest] = []
        self.pause_at: int | None = None
        self._repeats_seeds = repeats_seeds

    @property
    def info(self) -> EngineInfo:
        return dataclasses.replace(super().info, repeats_seeds=self._repeats_seeds)

    def add(self, request: EngineRequest) -> None:
        self.added.append(request)
        super().add(request)

    def step(self, timeout_s: float) -> EngineStepReport:
        if self.pause_at is not None and max(self._said.values(), default=0) >= self.pause_at:
            self.is_held = True
        return super().step(timeout_s)

    def go_on(self) -> None:
        self.pause_at, self.is_held = None, False


def with_options(
    repeats: RepeatCacheOptions | None = None,
    resume: ResumeOptions | None = None,
    *,
    deadline_ms: int = 60_000,
    queue_requests: int = 1000,
) -> Policy:
    return dataclasses.replace(
        policy(queue_requests, deadline_ms=deadline_ms),
        repeat_cache=repeats or RepeatCacheOptions(enabled=True),
        resume=resume or ResumeOptions(),
    )
