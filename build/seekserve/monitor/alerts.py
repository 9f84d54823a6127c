"""The alerts about the service itself: what is wrong, how bad it is, and what to do about it at three in the morning.

Critical: clients are being let down or soon will be. Warning: look today. Info: on the dashboard only.
"""

from __future__ import annotations

from seekserve_backend.contract.metric_names import PREFIX
from seekserve_backend.contract.rungs import Rung

from .recording import slow_ratio, unserved_ratio
from .rule import CRITICAL, INFO, WARNING, Alert, duration
from .subject import Subject

__all__ = ["ENGINE_STALL_S", "alerts"]

ENGINE_STALL_S = 10
STREAM_STALL_S = 10
SEND_STALL_S = 5

BURNS = (
    ("Fast", 14.4, "1h", "5m", CRITICAL, "two days"),
    ("Steady", 6.0, "6h", "30m", CRITICAL, "five days"),
    ("Slow", 3.0, "1d", "2h", WARNING, "ten days"),
    ("Creeping", 1.0, "3d", "6h", WARNING, "a month"),
)
"""(name, times the budget's own pace, long window, short window, severity, when a month's budget is gone). The short
window ends the alert soon after the trouble has ended."""

_UNSERVED_DO = (
    "Which kind: dashboard, row Requests. Refused for load: add a replica or lower the load. Expired: the queue is too "
    "long for the deadline. Failed: SeekserveBreakerOpen, the server's log."
)
_SLOW_DO = (
    "Steps take too long: batch too large for the promise, long prompts between the steps, a throttled GPU (row "
    "Resources). `seekserve diagnose` names the largest part."
)


def alerts(subject: Subject) -> list[Alert]:
    return [
        *_reach(subject),
        *_life(subject),
        *_faults(),
        *_rungs(subject),
        *_burns(subject),
        *_engine(),
        *_accounts(),
    ]


def _reach(subject: Subject) -> list[Alert]:
    found = [
        Alert(
            name="SeekserveTargetDown",
            expr='up{job="seekserve"} == 0',
            for_s=30,
            severity=CRITICAL,
            summary="{{ $labels.instance }} does not answer on its metrics port",
            do="`seekserve status` on that machine. If the launch is dead, its log says why; start it again. If it "
            "serves, the port is not reachable from here: host, firewall.",
        ),
        Alert(
            name="SeekserveNothingPublished",
            expr=f'absent({PREFIX}flush_timestamp_seconds{{job="seekserve"}})',
            for_s=120,
            severity=CRITICAL,
            summary="no target publishes any number of a model",
            do="The servers answer, but no model of ours is loaded: `seekserve status`, then the launch's log.",
        ),
    ]
    if subject.choices.gateways:
        found.append(
            Alert(
                name="SeekserveGatewayDown",
                expr='up{job="seekserve-gateway"} == 0',
                for_s=30,
                severity=CRITICAL,
                summary="the gateway {{ $labels.instance }} does not answer",
                do="HTTP clients get nothing; gRPC ones are not touched. Look at its log and start it again.",
            )
        )
    return found


def _life(subject: Subject) -> list[Alert]:
    # By its count of flushes, not by its clock: the machines' clocks need not agree.
    silent_s = max(15, 4 * subject.choices.scrape_interval_s)
    return [
        Alert(
            name="SeekserveStubDead",
            expr=f"increase({PREFIX}flushes_total[{duration(silent_s)}]) == 0",
            severity=CRITICAL,
            summary="{{ $labels.model }}: process {{ $labels.process }} has published nothing "
            f"for {silent_s} s",
            do="The backend's process is dead or stuck while Triton's health stays green. `seekserve launch` restarts "
            "the server by itself; where it runs without it, restart tritonserver (not just the model: requests that "
            "wait for the dead process hold their connections).",
        ),
        Alert(
            name="SeekserveRestarted",
            expr=f"min by (model) ({PREFIX}flushes_total) < 120"
            f" and on (model) count by (model) (last_over_time({PREFIX}flushes_total[15m] offset 2m))",
            severity=WARNING,
            summary="{{ $labels.model }}: a new process serves since {{ $value | humanizeDuration }}",
            do="Expected after a deployment or a swap. Otherwise the launch's log and `seekserve status` (restarts) "
            "say what died.",
        ),
        Alert(
            name="SeekserveEngineStuck",
            expr=f"{PREFIX}engine_loop_age_seconds > {ENGINE_STALL_S}",
            severity=CRITICAL,
            summary="{{ $labels.model }}: the engine has been in one step for {{ $value | humanizeDuration }}",
            do="A step takes tens of milliseconds; making an engine anew after a failure or for a swap takes as long "
            "as loading does (see SeekserveEngineRemade). Otherwise GPU or NCCL hang: look for Xid in the kernel log; "
            "the launch restarts the server when its own limit is reached.",
        ),
        Alert(
            name="SeekserveStreamStalled",
            expr=f"{PREFIX}stream_silence_seconds > {STREAM_STALL_S} or {PREFIX}send_age_seconds > {SEND_STALL_S}",
            severity=CRITICAL,
            summary="{{ $labels.model }}: a running stream has been silent for {{ $value | humanizeDuration }}",
            do="With SeekserveEngineStuck: see there. Without: Triton's gRPC front end stands still (send_age_seconds) "
            "or one long prompt blocks decoding (lower the chunk or long_prompt_tokens).",
        ),
    ]


def _faults() -> list[Alert]:
    return [
        Alert(
            name="SeekserveBreakerOpen",
            expr=f"max by (model) ({PREFIX}breaker_state) == 1"
            f" or sum by (model) (increase({PREFIX}breaker_openings_total[2m])) > 0",
            severity=CRITICAL,
            summary="{{ $labels.model }}: the breaker opened; new requests are turned away",
            do="The engine fails, load is not the cause. The server's log has the errors of the failed requests; "
            "`seekserve doctor` and the GPU alerts next. It tries again by itself and closes when requests end well.",
        ),
        Alert(
            name="SeekserveEngineRemade",
            expr=f"sum by (model) (increase({PREFIX}engine_restarts_total[10m])) > 0",
            severity=WARNING,
            summary="{{ $labels.model }}: the engine failed and was made anew",
            do="What ran in it was answered with an error. Find the exception in the server's log; if it comes again "
            "with one kind of request, that is the one to keep out.",
        ),
    ]


def _rungs(subject: Subject) -> list[Alert]:
    if not subject.has_rungs:
        return []
    return [
        Alert(
            name=f"SeekserveRung{level}",
            expr=f"max by (model) ({PREFIX}rung) == {level}",
            for_s=0 if rung.critical_only else 30,
            severity=_rung_severity(rung),
            labels={"rung": str(level)},
            summary=f"{{{{ $labels.model }}}}: rung {level} of {len(subject.policy.rungs)} "
            f"(entered at pressure {rung.at:g}): {_rung_effect(rung)}",
            do="More is asked for than fits the targets. Nothing is broken: what is refused is told when to come back. "
            "Look at who asks (queue by class), add a replica, or lower what is promised.",
        )
        for level, rung in enumerate(subject.policy.rungs, start=1)
    ]


def _rung_severity(rung: Rung) -> str:
    if rung.critical_only:
        return CRITICAL
    return WARNING if rung.shed_by_priority or rung.route_to is not None else INFO


def _rung_effect(rung: Rung) -> str:
    effects = (
        (rung.critical_only, "only the most important class is taken"),
        (rung.shed_by_priority, "less important classes are shed"),
        (rung.refuse_offline, "offline work is refused"),
        (rung.stop_offline and not rung.refuse_offline, "offline work waits"),
        (rung.offline_max_tokens is not None, f"offline answers end at {rung.offline_max_tokens} tokens"),
        (rung.max_beam_width is not None, f"at most {rung.max_beam_width} beams"),
        (rung.no_speculation, "no speculation"),
        (rung.route_to is not None, f"new work goes to {rung.route_to}"),
    )
    return ", ".join(text for is_so, text in effects if is_so) or "nothing is changed yet"


def _burns(subject: Subject) -> list[Alert]:
    budget = 1.0 - subject.choices.objective
    kinds = [
        (
            "Unserved",
            unserved_ratio,
            "of the requests were refused, expired or failed",
            _UNSERVED_DO,
        )
    ]
    if subject.tpot_bounds_s:
        kinds.append(
            (
                "Slow",
                slow_ratio,
                "of the answers came slower than promised",
                _SLOW_DO,
            )
        )
    return [
        Alert(
            name=f"SeekserveBudgetBurn{kind}{name}",
            expr=f"{ratio(long)} > {factor * budget:.6g} and {ratio(short)} > {factor * budget:.6g}",
            severity=severity,
            labels={"burn": name.lower()},
            summary=f"{{{{ $labels.model }}}}, class {{{{ $labels.class }}}}: {{{{ $value | humanizePercentage }}}} "
            f"{what} in the last {long}; at this pace a month's budget ({budget:.4g} of all) is gone in {gone}",
            do=do,
        )
        for kind, ratio, what, do in kinds
        for name, factor, long, short, severity, gone in BURNS
    ]


def _engine() -> list[Alert]:
    return [
        Alert(
            name="SeekserveKvPressure",
            expr="model:seekserve_kv_used:ratio > 0.97",
            for_s=120,
            severity=WARNING,
            summary="{{ $labels.model }}: {{ $value | humanizePercentage }} of the KV cache is in use",
            do="Above 85 % is what it is for; at the brim requests wait for blocks. Shorter max_tokens, FP8 KV, more "
            "memory for the cache, or another replica: `seekserve plan --explain`.",
        ),
        Alert(
            name="SeekserveBiasDrift",
            expr=f"{PREFIX}step_bias_ratio > 1.5 or {PREFIX}step_bias_ratio < 0.67",
            for_s=600,
            severity=WARNING,
            summary="{{ $labels.model }}: engine steps take {{ $value | humanize }} times what the step model says",
            do="The scheduler corrects for it, so nothing breaks. Above 1: throttled GPU, another tenant on it, or a "
            "build that is slower than planned. Below 1: the plan is too careful. Measure again and plan anew.",
        ),
        Alert(
            name="SeekserveBatchFormationSlow",
            expr=f"model_class:{PREFIX}batch_formation_seconds:p99_5m > 0.005",
            for_s=600,
            severity=INFO,
            summary="{{ $labels.model }}, class {{ $labels.class }}: batches take {{ $value | humanizeDuration }} to "
            "form (P99, target below 5 ms)",
            do="Released requests wait for the engine: full batch, no KV blocks, or a busy CPU (row Resources).",
        ),
    ]


def _accounts() -> list[Alert]:
    return [
        Alert(
            name="SeekserveRequestsUnaccounted",
            expr="model_process:seekserve_requests_unaccounted:difference != 0",
            for_s=120,
            severity=WARNING,
            summary="{{ $labels.model }}: {{ $value }} requests more arrived than are open or ended",
            do="A fault of this software. Keep the server's log and `seekserve collect`'s archive, and report it.",
        ),
        Alert(
            name="SeekserveObservationsDropped",
            expr=f"sum by (model) (increase({PREFIX}observations_dropped_total[10m])) > 0",
            severity=INFO,
            summary="{{ $labels.model }}: {{ $value | humanize }} measurements were dropped; its histograms are short",
            do="The process has no time to publish: the machine's CPUs are full.",
        ),
    ]
