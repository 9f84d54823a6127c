from __future__ import annotations

import os
import signal

import pytest
from launch_world import World

from seekserve.server import Launch
from seekserve.server.metrics import ModelNumbers
from seekserve.server.record import LaunchRecord
from seekserve.server.status import (
    ModelStatus,
    ServerStatus,
    default_metrics_url,
    status_lines,
    status_of_record,
    status_of_url,
)

METRICS = """\
seekserve_running_requests{model="alpha"} 2
seekserve_intake_requests{model="alpha"} 1
seekserve_queue_requests{model="alpha",class="interactive"} 3
seekserve_queue_requests{model="alpha",class="batch"} 0
seekserve_kv_used_blocks{model="alpha"} 12
seekserve_kv_blocks{model="alpha"} 48
seekserve_kv_reserved_blocks{model="alpha"} 20
seekserve_requests_offered_total{model="alpha"} 9
seekserve_requests_ended_total{model="alpha",class="interactive",terminal="finished"} 3
seekserve_requests_ended_total{model="alpha",class="batch",terminal="finished"} 1
seekserve_engine_step_seconds_sum{model="alpha"} 0.0325
seekserve_engine_step_seconds_count{model="alpha"} 10
seekserve_engine_step_seconds_bucket{model="alpha",le="+Inf"} 10
seekserve_output_tokens_total{model="alpha"} 77
"""


def _lines(*models: ModelStatus) -> list[str]:
    status = ServerStatus(
        id=None,
        state="ready",
        is_ready=True,
        http_url="http://h:1",
        grpc_url=None,
        metrics_url="http://h:2/metrics",
        models=models,
    )
    return status_lines(status)


def test_a_running_launch_shows_its_urls_models_and_numbers(world: World) -> None:
    world.plan(metrics=METRICS)
    with Launch(world.options(), env=world.env) as launch:
        launch.start()
        launch.wait_ready()
        status = status_of_record(launch.record_path)
        bare = status_of_url(launch.http_url, launch.metrics_url)
    text = "\n".join(status_lines(status))
    for part in (
        f"launch {launch.id}: ready, up ",
        "restarts 0",
        launch.grpc_address,
        "model alpha: ready",
        "queue     batch 0, interactive 3",
        "requests  1 in intake, 2 running, 9 offered so far, 4 finished",
        "KV        12 of 48 blocks used (25 %), 20 reserved",
        "tokens    77 out",
        "engine    step 3.2 ms on average",
    ):
        assert part in text
    assert status.is_ready
    body = status.to_json()
    assert isinstance(body["models"], list)
    assert body["models"][0]["queue_requests"] == {"batch": 0.0, "interactive": 3.0}
    assert "prompt_tokens_total" not in body["models"][0]
    assert bare.is_ready
    assert [model.name for model in bare.models] == ["alpha"]


def test_what_is_not_published_has_no_line() -> None:
    numbers = ModelNumbers(plain={"running_requests": 0.0})
    assert _lines(ModelStatus(name="m", is_ready=True, numbers=numbers))[3:] == [
        "model m: ready",
        "  requests  0 running",
    ]
    assert _lines(ModelStatus(name="m", is_ready=False, numbers=None))[3:] == [
        "model m: not ready",
        "  no numbers published",
    ]


@pytest.mark.parametrize(
    ("plain", "line"),
    [
        ({"kv_used_blocks": 5.0}, "KV        5 blocks used"),
        ({"kv_used_blocks": 0.0, "kv_blocks": 10.0}, "KV        0 of 10 blocks used (0 %)"),
        ({"kv_blocks": 10.0}, None),
    ],
)
def test_kv_numbers_need_the_used_ones(plain: dict[str, float], line: str | None) -> None:
    lines = _lines(ModelStatus(name="m", is_ready=True, numbers=ModelNumbers(plain=plain)))[4:]
    assert lines == ([] if line is None else [f"  {line}"])


def test_a_launch_whose_supervisor_is_gone_is_dead(world: World) -> None:
    with Launch(world.options(), env=world.env) as launch:
        launch.start()
        launch.wait_ready()
        text = launch.record_path.read_text()
        pid = LaunchRecord.read(launch.record_path).server_pid
        launch.record_path.write_text(text.replace('"pid_started_s": ', '"pid_started_s": 1'))
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        while (status := status_of_record(launch.record_path)).models[0].is_ready:
            pass
        assert launch.stop() == 4
    assert status.state == "dead"
    assert not status.is_ready
    assert status.up_s is None


def test_a_server_that_is_not_there_is_not_ready() -> None:
    status = status_of_url("http://127.0.0.1:1", "http://127.0.0.1:1/metrics")
    assert not status.is_ready
    assert status.models == ()
    assert default_metrics_url("http://host:8000") == "http://host:8002/metrics"
