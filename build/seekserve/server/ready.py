"""Ready means: the server says so, every model says so, and each model of ours has generated one token over gRPC.

Triton's health answers stay green with a dead stub behind them, so only a generation proves the path. The probe carries
the launch's key, which exempts it from shedding; a load on the service must not make a healthy server look dead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from seekserve.errors import StartFailed
from seekserve.server.httpget import get_ok, model_states
from seekserve.server.models import ServedModel
from seekserve.server.probe import ProbeFailed

__all__ = ["ReadyCheck", "wait_until_ready"]

Probe = Callable[[str, float], None]
"""(model, deadline in seconds) -> None, or ProbeFailed"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyCheck:
    http_url: str
    models: Sequence[ServedModel]
    admin: Mapping[str, str]
    timeout_s: float
    poll_s: float


def wait_until_ready(check: ReadyCheck, *, probe: Probe, still_running: Callable[[], str | None]) -> float:
    """Seconds until ready. `still_running` returns a sentence once the server has ended. StartFailed otherwise."""
    start_s = time.monotonic()
    deadline_s = start_s + check.timeout_s
    stage = "the server answers"
    waiting = [model for model in check.models if model.is_ours]
    while True:
        ended = still_running()
        if ended is not None:
            raise StartFailed(f"tritonserver ended before it was ready: {ended}")
        if get_ok(f"{check.http_url}/v2/health/live"):
            stage = _models_stage(check) or _probe_stage(waiting, probe, deadline_s) or ""
            if not stage:
                return time.monotonic() - start_s
        if time.monotonic() >= deadline_s:
            raise StartFailed(
                f"not ready after {time.monotonic() - start_s:.1f} s (--ready-timeout-s {check.timeout_s:g}): "
                f"still waiting until {stage}",
                hint="raise --ready-timeout-s if the model simply needs longer to load",
            )
        time.sleep(min(check.poll_s, max(0.0, deadline_s - time.monotonic())))


def _models_stage(check: ReadyCheck) -> str | None:
    unready = [model.name for model in check.models if not get_ok(f"{check.http_url}/v2/models/{model.name}/ready")]
    if not unready:
        return None
    states = model_states(check.http_url, check.admin)
    for name in unready:
        state, reason = states.get(name, ("", ""))
        if state == "UNAVAILABLE":
            raise StartFailed(f"model {name!r} failed to load: {reason or 'no reason given'}")
    return f"model {unready[0]!r} is ready"


def _probe_stage(waiting: list[ServedModel], probe: Probe, deadline_s: float) -> str | None:
    """Probes what has not passed yet; a model that passed is taken off the list."""
    while waiting:
        name = waiting[0].name
        try:
            probe(name, max(0.1, deadline_s - time.monotonic()))
        except ProbeFailed as error:
            if not error.can_pass_later:
                raise StartFailed(f"model {name!r} is loaded but cannot generate: {error}") from error
            return f"model {name!r} generates (last answer: {error})"
        waiting.pop(0)
    return None
