"""The rules in the real promtool: a day that is well fires nothing, and each trouble fires what is meant for it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from tests.monitor.prometheus_world import MISSING
from tests.monitor.subjects import subject

from seekserve.monitor.check import expressions
from seekserve.monitor.files import all_alerts, files_of
from seekserve_backend.contract.policy import POLICY_KINDS

pytestmark = [
    pytest.mark.needs_debian,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (scripts/ci_packages.sh)"),
]

STEP_S = 30
END_S = 960
STEPS = 130
M = 'model="m",process="7"'
GPU = 'gpu="0",Hostname="h"'
CHAT = f'class="chat",{M}'


def level(value: float) -> str:
    return f"{value:g}x{STEPS}"


def rise(per_step: float, start: float = 0) -> str:
    return f"{start:g}+{per_step:g}x{STEPS}"


def series(name: str, labels: str) -> str:
    return f"{name}{{{labels}}}"


def refused(reason: str, request_class: str = "chat") -> str:
    return series("seekserve_requests_refused_total", f'class="{request_class}",code="x",reason="{reason}",{M}')


def ended(terminal: str, request_class: str = "chat") -> str:
    return series("seekserve_requests_ended_total", f'class="{request_class}",terminal="{terminal}",{M}')


def mine(name: str) -> str:
    return series(f"seekserve_{name}", M)


TPOT = "seekserve_time_per_output_token_seconds"
FORMATION = "seekserve_batch_formation_seconds"
WELL = {
    'up{job="seekserve",instance="a"}': level(1),
    'up{job="seekserve-gateway",instance="g"}': level(1),
    'up{job="dcgm",instance="d"}': level(1),
    series("seekserve_flush_timestamp_seconds", f'job="seekserve",{M}'): rise(STEP_S),
    mine("flushes_total"): rise(STEP_S, 1000),
    mine("flushes_begun"): rise(STEP_S, 1000),
    mine("requests_offered_total"): rise(100),
    ended("finished"): rise(100),
    ended("finished", "off.line"): rise(0),
    **{ended(terminal): rise(0) for terminal in ("expired", "failed", "cancelled", "refused")},
    refused("queue_full"): rise(0),
    refused("invalid"): rise(0),
    refused("rung", "off.line"): rise(0),
    mine("intake_requests"): level(0),
    series("seekserve_queue_requests", CHAT): level(0),
    mine("running_requests"): level(0),
    mine("engine_loop_age_seconds"): level(0.1),
    mine("stream_silence_seconds"): level(0.1),
    mine("send_age_seconds"): level(0),
    mine("breaker_state"): level(0),
    mine("breaker_openings_total"): rise(0),
    mine("engine_restarts_total"): rise(0),
    mine("rung"): level(0),
    mine("step_bias_ratio"): level(1),
    mine("kv_used_blocks"): level(90),
    mine("kv_blocks"): level(100),
    mine("observations_dropped_total"): rise(0),
    **{series(f"{TPOT}_bucket", f'le="{le}",{CHAT}'): rise(100) for le in ("0.05", "+Inf")},
    series(f"{TPOT}_count", CHAT): rise(100),
    **{series(f"{FORMATION}_bucket", f'le="{le}",{CHAT}'): rise(100) for le in ("0.0025", "0.005", "0.01", "+Inf")},
    series("DCGM_FI_DEV_GPU_TEMP", GPU): level(60),
    series("DCGM_FI_DEV_THERMAL_VIOLATION", GPU): rise(0),
    series("DCGM_FI_DEV_FB_USED", GPU): level(90),
    series("DCGM_FI_DEV_FB_FREE", GPU): level(10),
    series("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", GPU): rise(0),
    series("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", GPU): rise(0),
    series("DCGM_FI_DEV_ROW_REMAP_FAILURE", GPU): level(0),
    series("DCGM_FI_DEV_XID_ERRORS", GPU): level(0),
}


@dataclass(frozen=True)
class Trouble:
    fires: tuple[str, ...]
    """Without `Seekserve`. These and no others."""
    changes: Mapping[str, str]
    at_s: int = END_S
    gone: tuple[str, ...] = field(default=())


def burns(kind: str, *names: str) -> tuple[str, ...]:
    return tuple(f"BudgetBurn{kind}{name}" for name in names)


def slow(part: float) -> dict[str, str]:
    return {series(f"{TPOT}_bucket", f'le="0.05",{CHAT}'): rise(100 * (1 - part))}


def unserved(beside_100: int, what: str = "") -> dict[str, str]:
    """So many for each 100 that finish."""
    return {mine("requests_offered_total"): rise(100 + beside_100), (what or ended("expired")): rise(beside_100)}


TIMESTAMP = series("seekserve_flush_timestamp_seconds", f'job="seekserve",{M}')
TROUBLES = {
    "well": Trouble((), {}),
    "target": Trouble(("TargetDown",), {'up{job="seekserve",instance="a"}': f"1x20 0x{STEPS}"}),
    "gateway": Trouble(("GatewayDown",), {'up{job="seekserve-gateway",instance="g"}': f"1x20 0x{STEPS}"}),
    "nothing": Trouble(("NothingPublished",), {}, gone=(TIMESTAMP,)),
    "dead": Trouble(
        ("StubDead",), dict.fromkeys((mine("flushes_total"), mine("flushes_begun")), f"1000+30x25 1750x{STEPS}")
    ),
    # An older process was there before, and is gone.
    "restarted": Trouble(("Restarted",), {mine("flushes_total"): f"1000+30x30 _x1 0+30x{STEPS}"}),
    "stuck": Trouble(("EngineStuck",), {mine("engine_loop_age_seconds"): level(11)}),
    "silent": Trouble(("StreamStalled",), {mine("stream_silence_seconds"): level(11)}),
    "send": Trouble(("StreamStalled",), {mine("send_age_seconds"): level(6)}),
    "breaker": Trouble(("BreakerOpen",), {mine("breaker_state"): level(1)}),
    "half open": Trouble((), {mine("breaker_state"): level(0.5)}),
    "opened between two scrapes": Trouble(("BreakerOpen",), {mine("breaker_openings_total"): f"0x30 1x{STEPS}"}),
    "remade": Trouble(("EngineRemade",), {mine("engine_restarts_total"): f"0x25 1x{STEPS}"}),
    **{f"rung {n}": Trouble((f"Rung{n}",), {mine("rung"): level(n)}) for n in (1, 2, 3, 4)},
    "a cup of failures": Trouble(burns("Unserved", "Creeping"), unserved(2)),
    "more": Trouble(burns("Unserved", "Creeping", "Slow"), unserved(4)),
    "much": Trouble(burns("Unserved", "Creeping", "Slow", "Steady"), unserved(9)),
    "outage": Trouble(burns("Unserved", "Creeping", "Slow", "Steady", "Fast"), unserved(100)),
    "refused for load": Trouble(
        burns("Unserved", "Creeping", "Slow", "Steady", "Fast"),
        {**unserved(100, ended("refused")), refused("queue_full"): rise(100)},
    ),
    "clients' mistakes": Trouble((), {**unserved(100, ended("refused")), refused("invalid"): rise(100)}),
    "shed offline work": Trouble(
        (), {**unserved(100, ended("refused", "off.line")), refused("rung", "off.line"): rise(100)}
    ),
    "an outage that is over": Trouble(
        burns("Unserved", "Creeping", "Slow"),
        {
            ended("expired"): f"0+100x40 4000x{STEPS}",
            mine("requests_offered_total"): f"0+200x40 8100+100x{STEPS}",
        },
        at_s=3600,
    ),
    "slow": Trouble(burns("Slow", "Creeping", "Slow", "Steady", "Fast"), slow(0.5)),
    "kv": Trouble(("KvPressure",), {mine("kv_used_blocks"): level(98)}),
    "bias": Trouble(("BiasDrift",), {mine("step_bias_ratio"): level(1.6)}),
    "bias down": Trouble(("BiasDrift",), {mine("step_bias_ratio"): level(0.5)}),
    "formation": Trouble(
        ("BatchFormationSlow",),
        {series(f"{FORMATION}_bucket", f'le="{le}",{CHAT}'): rise(90) for le in ("0.0025", "0.005")},
    ),
    "lost": Trouble(("RequestsUnaccounted",), {mine("requests_offered_total"): rise(100, 1)}),
    "joined and routed ones are somewhere": Trouble(
        (),
        {
            mine("requests_offered_total"): rise(100, 7),
            mine("joined_requests"): level(4),
            mine("routed_requests"): level(3),
        },
    ),
    "a torn scrape proves nothing": Trouble(
        (), {mine("requests_offered_total"): rise(100, 1), mine("flushes_begun"): rise(STEP_S, 1001)}
    ),
    "dropped": Trouble(("ObservationsDropped",), {mine("observations_dropped_total"): rise(5)}),
    "exporter": Trouble(("GpuExporterDown",), {'up{job="dcgm",instance="d"}': level(0)}),
    "hot": Trouble(("GpuHot",), {series("DCGM_FI_DEV_GPU_TEMP", GPU): level(86)}),
    "throttled": Trouble(("GpuThrottled",), {series("DCGM_FI_DEV_THERMAL_VIOLATION", GPU): rise(1000)}),
    "memory": Trouble(("GpuMemoryFull",), {series("DCGM_FI_DEV_FB_USED", GPU): level(200)}),
    "ecc": Trouble(("GpuEcc",), {series("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", GPU): f"0x25 1x{STEPS}"}),
    "remapped": Trouble(("GpuEcc",), {series("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", GPU): f"0x25 1x{STEPS}"}),
    "remap failed": Trouble(("GpuEcc",), {series("DCGM_FI_DEV_ROW_REMAP_FAILURE", GPU): level(1)}),
    "xid": Trouble(("GpuXid",), {series("DCGM_FI_DEV_XID_ERRORS", GPU): f"0x25 79x{STEPS}"}),
}


def run(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True)


def write(folder: Path, kind: str = "paced") -> Path:
    for name, text in files_of(subject(kind)).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def as_test(name: str, trouble: Trouble) -> dict[str, object]:
    values = {**WELL, **trouble.changes}
    return {
        "name": name,
        "interval": f"{STEP_S}s",
        "input_series": [{"series": n, "values": v} for n, v in values.items() if n not in trouble.gone],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{trouble.at_s}s",
                "exp_samples": [
                    {"labels": f'{{alertname="Seekserve{each}"}}', "value": 1} for each in sorted(trouble.fires)
                ],
            }
        ],
    }


def test_each_trouble_fires_its_alert_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path)
    tests = {
        "rule_files": ["rules/seekserve.recording.yml", "rules/seekserve.alerts.yml"],
        "evaluation_interval": f"{STEP_S}s",
        "tests": [as_test(name, trouble) for name, trouble in TROUBLES.items()],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests, sort_keys=False), encoding="utf-8")
    done = run("promtool", "test", "rules", "tests.yml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    fired = {name for trouble in TROUBLES.values() for name in trouble.fires}
    untested = {alert.name.removeprefix("Seekserve") for alert in all_alerts(subject())} - fired
    assert untested == set(), "every alert has its trouble here"


@pytest.mark.parametrize("kind", POLICY_KINDS)
def test_prometheus_and_alertmanager_take_the_files(tmp_path: Path, kind: str) -> None:
    write(tmp_path, kind)
    for argv in (
        ("promtool", "check", "config", "--lint=all", "--lint-fatal", "prometheus.yml"),
        ("promtool", "check", "rules", "--lint=all", "--lint-fatal", "rules/seekserve.alerts.yml"),
        ("promtool", "check", "rules", "--lint=all", "--lint-fatal", "rules/seekserve.recording.yml"),
        ("amtool", "check-config", "alertmanager.yml"),
    ):
        done = run(*argv, cwd=tmp_path)
        assert done.returncode == 0, (argv, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        (("severity=critical",), "critical"),
        (("severity=warning",), "warning"),
        (("severity=info",), "info"),
        ((), "info"),
    ],
)
def test_alerts_go_where_they_should(tmp_path: Path, labels: tuple[str, ...], receivers: str) -> None:
    write(tmp_path)
    done = run("amtool", "config", "routes", "test", "--config.file=alertmanager.yml", *labels, cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, receivers)


@pytest.mark.parametrize("kind", ["paced", "fcfs"])
def test_every_query_of_the_dashboard_is_promql(tmp_path: Path, kind: str) -> None:
    board = json.loads((write(tmp_path, kind) / "grafana/dashboards/seekserve.json").read_text("utf-8"))
    rules = [{"record": f"panel:query_{n}:x", "expr": expr} for n, (_, expr) in enumerate(expressions(board))]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}), encoding="utf-8")
    done = run("promtool", "check", "rules", "panels.yml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
