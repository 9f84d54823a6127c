"""The dashboard's panels: the answer first, then requests, batches and resources, with their targets drawn in."""

from __future__ import annotations

from seekserve_backend.contract.metric_names import PREFIX

from .panel import BAD, GOOD, WORSE, Line, Panel, Query, line_styles
from .recording import unserved_ratio
from .subject import Subject

__all__ = ["answer", "batches", "requests", "resources"]

_M = 'model=~"$model"'
_FIRING = 'alertstate="firing",alertname=~"Seekserve.*"'
_QUANTILE_DASHES = {"P99": (), "P50": (2, 4)}
_TERMINALS = ("finished", "refused", "expired", "cancelled", "failed", "routed")
_REASONS = (
    "queue_full",
    "too_late",
    "rung",
    "offline_full",
    "intake_full",
    "expired",
    "breaker",
    "draining",
    "swapping",
    "latency",
    "invalid",
    "too_large",
)


def _sum(name: str, by: str = "model") -> str:
    return f"sum by ({by}) ({PREFIX}{name}{{{_M}}})"


def _rate(name: str, by: str = "model") -> str:
    return f"sum by ({by}) (rate({PREFIX}{name}{{{_M}}}[$__rate_interval]))"


def answer(subject: Subject) -> list[Panel]:
    objective = subject.choices.objective
    return [
        Panel(
            title="Served",
            description="Requests that finished, of those that were no mistake of the client's, last 5 minutes; the "
            f"worst class. Promised: {100 * objective:g} %.",
            unit="percentunit",
            kind="stat",
            width=4,
            height=4,
            queries=(Query(f"min(1 - {unserved_ratio('5m')}{{{_M}}})", "served"),),
            steps=((None, BAD), (1 - 14.4 * (1 - objective), WORSE), (objective, GOOD)),
            most=1.0,
        ),
        Panel(
            title="TTFT P99",
            description="From arrival to first token, the slowest class, last 5 minutes.",
            unit="s",
            kind="stat",
            width=4,
            height=4,
            queries=(Query(f"max(model_class:{PREFIX}time_to_first_token_seconds:p99_5m{{{_M}}})", "TTFT P99"),),
        ),
        Panel(
            title="Output",
            description="Tokens produced per second, all models chosen.",
            unit="short",
            kind="stat",
            width=4,
            height=4,
            queries=(Query(f"sum(model:seekserve_output_tokens:rate1m{{{_M}}})", "tokens/s"),),
        ),
        Panel(
            title="Waiting",
            description="Requests in the queues.",
            unit="short",
            kind="stat",
            width=4,
            height=4,
            queries=(Query(f"sum({PREFIX}queue_requests{{{_M}}})", "requests"),),
        ),
        *(_pressed() if subject.has_rungs else _unpressed()),
        Panel(
            title="Breaker",
            description="Open: the engine fails, new requests are turned away.",
            unit="short",
            kind="stat",
            width=4,
            height=4,
            queries=(Query(f"max({PREFIX}breaker_state{{{_M}}})", "breaker"),),
            steps=((None, GOOD), (0.5, WORSE), (1.0, BAD)),
            words={0.0: "closed", 0.5: "half open", 1.0: "OPEN"},
        ),
        Panel(
            title="Alerts that fire",
            description="Empty is good. What to do stands in each alert's annotation `do`.",
            unit="short",
            kind="table",
            width=24,
            height=4,
            queries=(Query(f"count by (alertname, severity, model) (ALERTS{{{_FIRING}}})", ""),),
        ),
    ]


def _pressed() -> list[Panel]:
    return [
        Panel(
            title="Pressure",
            description="Urgent work asked for over what fits the targets. Above 1 some is refused.",
            unit="percentunit",
            kind="stat",
            width=4,
            height=4,
            queries=(Query(f"max({PREFIX}pressure_ratio{{{_M}}})", "pressure"),),
            steps=((None, GOOD), (0.8, WORSE), (1.0, BAD)),
        )
    ]


def _unpressed() -> list[Panel]:
    """Policies without a pressure of their own."""
    return [
        Panel(
            title="Running",
            description="Requests in the engine.",
            unit="short",
            kind="stat",
            width=4,
            height=4,
            queries=(Query(f"sum({PREFIX}running_requests{{{_M}}})", "requests"),),
        )
    ]


def requests(subject: Subject) -> list[Panel]:
    return [
        Panel(
            title="Arrived and ended",
            description="Requests per second, and how they ended.",
            unit="reqps",
            queries=(
                Query(f"sum(rate({PREFIX}requests_offered_total{{{_M}}}[$__rate_interval]))", "arrived"),
                Query(_rate("requests_ended_total", "terminal"), "{{terminal}}"),
            ),
            lines={"arrived": Line("#999999", (10, 6)), **line_styles(_TERMINALS)},
        ),
        Panel(
            title="Refused, by reason",
            description="too_late: the first token would have come after the deadline. rung: its class is shed under "
            "pressure. invalid and too_large are the client's mistakes.",
            unit="reqps",
            queries=(Query(_rate("requests_refused_total", "reason"), "{{reason}}"),),
            lines=line_styles(_REASONS),
        ),
        _times(subject, "TTFT", "time_to_first_token_seconds", "From arrival to first token."),
        _times(
            subject,
            "TPOT",
            "time_per_output_token_seconds",
            "Mean time of a token after the first, of requests that finished. The line is the tightest promise.",
            limit_s=min((c.tpot_slo_ms / 1000 for c in subject.policy.classes.values() if c.tpot_slo_ms), default=None),
        ),
        _times(subject, "E2E", "request_duration_seconds", "From arrival to last token, of requests that finished."),
        _times(subject, "Queue time", "queue_time_seconds", "From arrival to release to the engine."),
    ]


def _times(subject: Subject, title: str, name: str, what: str, *, limit_s: float | None = None) -> Panel:
    classes = line_styles(list(subject.policy.classes))
    return Panel(
        title=f"{title} by class",
        description=f"{what} P99 drawn through, P50 dotted; over 5 minutes.",
        unit="s",
        queries=tuple(
            Query(f"max by (class) (model_class:{PREFIX}{name}:{label.lower()}_5m{{{_M}}})", f"{{{{class}}}} {label}")
            for label in _QUANTILE_DASHES
        ),
        lines={
            f"{each} {label}": Line(line.colour, dash)
            for each, line in classes.items()
            for label, dash in _QUANTILE_DASHES.items()
        },
        steps=() if limit_s is None else ((None, "transparent"), (limit_s, BAD)),
    )


def batches(subject: Subject) -> list[Panel]:
    found = [
        Panel(
            title="Queue by class",
            description="Waiting requests.",
            unit="short",
            queries=(Query(_sum("queue_requests", "class"), "{{class}}"),),
            lines=line_styles(list(subject.policy.classes)),
        ),
        Panel(
            title="Queue by prompt length",
            description="Waiting requests by the bucket that their prompt falls into, in tokens.",
            unit="short",
            queries=(Query(_sum("queue_bucket_requests", "bucket"), "{{bucket}}"),),
        ),
        _formation(subject),
        Panel(
            title="Batch size",
            description="Requests in the engine, and the mean batch of its steps.",
            unit="short",
            queries=(
                Query(_sum("running_requests"), "running {{model}}"),
                Query(f"model:seekserve_batch_requests:mean1m{{{_M}}}", "batch {{model}}"),
            ),
        ),
        Panel(
            title="Step time",
            description="Duration of the engine's steps.",
            unit="s",
            queries=tuple(
                Query(f"max(model:{PREFIX}engine_step_seconds:{label.lower()}_5m{{{_M}}})", label)
                for label in _QUANTILE_DASHES
            ),
            lines={label: Line(GOOD, dash) for label, dash in _QUANTILE_DASHES.items()},
        ),
        Panel(
            title="Tokens per second",
            description="Prompt tokens read (prefill) and tokens produced (decode).",
            unit="short",
            queries=(
                Query(f"sum(model:seekserve_prompt_tokens:rate1m{{{_M}}})", "prompt"),
                Query(f"sum(model:seekserve_output_tokens:rate1m{{{_M}}})", "output"),
            ),
            lines=line_styles(["prompt", "output"]),
        ),
    ]
    return found + (_currency() if subject.has_rungs else [])


def _formation(subject: Subject) -> Panel:
    classes = line_styles(list(subject.policy.classes))
    return Panel(
        title="Batch formation P99",
        description="From the scheduling round that released a request until the engine had it. Target: below 5 ms.",
        unit="s",
        queries=(Query(f"max by (class) (model_class:{PREFIX}batch_formation_seconds:p99_5m{{{_M}}})", "{{class}}"),),
        lines=classes,
        steps=((None, "transparent"), (0.005, BAD)),
    )


def _currency() -> list[Panel]:
    names = ["price of a prompt", "credit"]
    bias = ["bias", "part for prompts", "pressure"]
    return [
        Panel(
            title="Price and credit",
            description="Engine time: what the prompts that arrive cost, and what may be spent on prompts now.",
            unit="s",
            queries=(
                Query(f"max({PREFIX}price_seconds{{{_M}}})", names[0]),
                Query(f"min({PREFIX}credit_seconds{{{_M}}})", names[1]),
            ),
            lines=line_styles(names),
            least=None,
        ),
        Panel(
            title="Rung",
            description="Of the pressure ladder; 0 is normal.",
            unit="short",
            queries=(Query(f"max by (model) ({PREFIX}rung{{{_M}}})", "{{model}}"),),
        ),
        Panel(
            title="Pressure, bias, prefill",
            description="Bias: measured step time over the step model's; 1 is as planned.",
            unit="short",
            queries=(
                Query(f"max({PREFIX}step_bias_ratio{{{_M}}})", bias[0]),
                Query(f"min({PREFIX}prefill_share_ratio{{{_M}}})", bias[1]),
                Query(f"max({PREFIX}pressure_ratio{{{_M}}})", bias[2]),
            ),
            lines=line_styles(bias),
        ),
    ]


def resources(subject: Subject) -> list[Panel]:
    kv, beside = ["in use", "reserved", "memory pressure"], ["joined", "at another model", "kept streams"]
    found = [
        Panel(
            title="KV cache",
            description="Of its blocks: in use, and what the running requests can come to hold. Target under load: "
            "above 85 % in use. Memory pressure: used and half of reserved, more where blocks are half empty.",
            unit="percentunit",
            queries=(
                Query(f"max(model:seekserve_kv_used:ratio{{{_M}}})", kv[0]),
                Query(
                    f"max({_sum('kv_reserved_blocks')} / {_sum('kv_blocks')})",
                    kv[1],
                ),
                Query(f"max({PREFIX}memory_pressure_ratio{{{_M}}})", kv[2]),
            ),
            lines=line_styles(kv),
            steps=((None, "transparent"), (0.85, "#009E73"), (0.97, BAD)),
        ),
        Panel(
            title="Beside the engine",
            description="Requests that get the answer of an equal one or that another model answers, and resumable "
            "streams that are kept without a connection.",
            unit="short",
            queries=(
                Query(f"sum({PREFIX}joined_requests{{{_M}}})", beside[0]),
                Query(f"sum({PREFIX}routed_requests{{{_M}}})", beside[1]),
                Query(f"sum({PREFIX}kept_streams{{{_M}}})", beside[2]),
            ),
            lines=line_styles(beside),
        ),
        Panel(
            title="Tardiness",
            description="Each stays far below a second: the engine loop's age, the longest silence of a running "
            "stream, the oldest send that has not returned.",
            unit="s",
            queries=(
                Query(f"max({PREFIX}engine_loop_age_seconds{{{_M}}})", "engine loop"),
                Query(f"max({PREFIX}stream_silence_seconds{{{_M}}}) or vector(0)", "stream"),
                Query(f"max({PREFIX}send_age_seconds{{{_M}}})", "send"),
            ),
            lines=line_styles(["engine loop", "stream", "send"]),
        ),
        Panel(
            title="CPU of the host",
            description="Triton's own measure; full CPUs delay scheduling and sending.",
            unit="percentunit",
            queries=(Query("max by (instance) (nv_cpu_utilization)", "{{instance}}"),),
            most=1.0,
        ),
    ]
    return found + (_gpus() if subject.choices.dcgm else [])


def _gpus() -> list[Panel]:
    def each(field: str) -> str:
        return f"max by (Hostname, gpu) ({field})"

    gpu = "{{Hostname}} {{gpu}}"
    memory = "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)"
    return [
        Panel(
            title="HBM bandwidth",
            description="Part of the cycles in which memory moved data. Target under load: 75 to 85 %.",
            unit="percentunit",
            queries=(Query(each("DCGM_FI_PROF_DRAM_ACTIVE"), gpu),),
            steps=((None, "transparent"), (0.75, "#009E73"), (0.85, WORSE)),
            most=1.0,
        ),
        Panel(
            title="GPU memory",
            description="In use; the KV cache is taken at the start, so this is level.",
            unit="percentunit",
            queries=(Query(each(memory), gpu),),
            steps=((None, "transparent"), (0.95, BAD)),
            most=1.0,
        ),
        Panel(
            title="GPU temperature",
            description="Throttling begins soon above 85 C.",
            unit="celsius",
            queries=(Query(each("DCGM_FI_DEV_GPU_TEMP"), gpu),),
            steps=((None, "transparent"), (85.0, BAD)),
            least=None,
        ),
    ]
