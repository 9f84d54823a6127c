"""Recording rules: what dashboards and alerts ask for again and again, computed once.

A request is served when it finished, and unserved when it expired, failed or was refused for another reason than a
mistake of its client's; cancelled ones are neither. Offline classes, which are there to be shed, promise nothing.
"""

from __future__ import annotations

from seekserve_backend.contract.metric_names import PREFIX

from .reading import INSIDE
from .rule import Recording
from .subject import Subject

__all__ = ["WINDOWS", "recordings", "slow_ratio", "unserved_ratio"]

WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
"""Those of the burn rates."""
_QUANTILES = (0.5, 0.95, 0.99)
_TIMES = (
    "time_to_first_token_seconds",
    "time_per_output_token_seconds",
    "request_duration_seconds",
    "queue_time_seconds",
    "batch_formation_seconds",
)
_TPOT = PREFIX + "time_per_output_token_seconds"


def unserved_ratio(window: str) -> str:
    return f"model_class:seekserve_requests_unserved:ratio_rate{window}"


def slow_ratio(window: str) -> str:
    return f"model_class:seekserve_time_per_output_token_slow:ratio_rate{window}"


def recordings(subject: Subject) -> list[Recording]:
    return [*_rates(), *_quantiles(), *_states(), *_unserved(subject), *_slow(subject)]


def _rates() -> list[Recording]:
    def rate(name: str, family: str, unit: str) -> Recording:
        return Recording(
            record=f"model:seekserve_{name}:rate1m", expr=f"sum by (model) (rate({PREFIX}{family}[1m]))", unit=unit
        )

    return [
        rate("requests_offered", "requests_offered_total", "requests/s"),
        rate("prompt_tokens", "prompt_tokens_total", "tokens/s"),
        rate("output_tokens", "output_tokens_total", "tokens/s"),
        Recording(
            record="model:seekserve_batch_requests:mean1m",
            expr=f"sum by (model) (rate({PREFIX}engine_step_requests_total[1m])) "
            f"/ (sum by (model) (rate({PREFIX}engine_step_seconds_count[1m])) > 0)",
            unit="requests",
        ),
        Recording(
            record="model:seekserve_prefix_hits:ratio_rate5m",
            expr=f"sum by (model) (rate({PREFIX}prefix_hits_total[5m])) "
            f"/ (sum by (model) (rate({PREFIX}prefix_lookups_total[5m])) > 0)",
            unit="ratio",
        ),
    ]


def _quantiles() -> list[Recording]:
    found = [
        Recording(
            record=f"model_class:{PREFIX}{name}:p{100 * quantile:g}_5m",
            expr=f"histogram_quantile({quantile:g}, sum by (model, class, le) (rate({PREFIX}{name}_bucket[5m])))",
            unit="seconds",
        )
        for name in _TIMES
        for quantile in _QUANTILES
    ]
    step = PREFIX + "engine_step_seconds"
    found += [
        Recording(
            record=f"model:{step}:p{100 * quantile:g}_5m",
            expr=f"histogram_quantile({quantile:g}, sum by (model, le) (rate({step}_bucket[5m])))",
            unit="seconds",
        )
        for quantile in _QUANTILES
    ]
    return found


def _states() -> list[Recording]:
    each = "sum by (model, process)"
    offered = f"{each} ({PREFIX}requests_offered_total)"
    # A server of another version may not know every place where a request can be.
    inside = "".join(f" - ({each} ({PREFIX}{name}) or 0 * {offered})" for name in INSIDE)
    return [
        Recording(
            record="model:seekserve_kv_used:ratio",
            expr=f"sum by (model) ({PREFIX}kv_used_blocks) / (sum by (model) ({PREFIX}kv_blocks) > 0)",
            unit="ratio",
        ),
        Recording(
            record="model_process:seekserve_requests_unaccounted:difference",
            # Only scrapes of one moment are compared: see the books in the table of metrics.
            expr=f"({offered} - {each} ({PREFIX}requests_ended_total){inside})"
            f" and {each} ({PREFIX}flushes_begun) == {each} ({PREFIX}flushes_total)",
            unit="requests",
        ),
    ]


def _unserved(subject: Subject) -> list[Recording]:
    ended, refused, urgent = PREFIX + "requests_ended_total", PREFIX + "requests_refused_total", subject.urgent
    found = []
    for window in WINDOWS:
        bad = (
            f'sum by (model, class) (rate({ended}{{terminal=~"expired|failed"{urgent}}}[{window}]))'
            f' + sum by (model, class) (rate({refused}{{reason!~"invalid|too_large"{urgent}}}[{window}]))'
        )
        good = f'sum by (model, class) (rate({ended}{{terminal="finished"{urgent}}}[{window}]))'
        found.append(Recording(record=unserved_ratio(window), expr=f"({bad}) / ({bad} + {good} > 0)", unit="ratio"))
    return found


def _slow(subject: Subject) -> list[Recording]:
    """Requests whose time per output token was above their class's promise, by the bucket at or above it."""
    found = []
    for window in WINDOWS:
        parts = []
        for name, bound in subject.tpot_bounds_s.items():
            within = f'sum by (model, class) (rate({_TPOT}_bucket{{class="{name}",le=~"{_le(bound)}"}}[{window}]))'
            count = f'sum by (model, class) (rate({_TPOT}_count{{class="{name}"}}[{window}]))'
            parts.append(f"1 - {within} / ({count} > 0)")
        if parts:
            found.append(
                Recording(record=slow_ratio(window), expr=" or ".join(f"({part})" for part in parts), unit="ratio")
            )
    return found


def _le(bound: float) -> str:
    """Prometheus 3 writes 1 as 1.0, older ones as it was exposed."""
    text = f"{bound:g}".replace(".", "[.]")
    return text if "." in text else f"{text}([.]0)?"
