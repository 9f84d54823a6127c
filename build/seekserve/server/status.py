"""`seekserve status`: what a launched server is and does now, from its record, its health answers and its metrics.

Read only. A number that the server does not publish is left out, in the table as in the JSON.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from seekserve.server.heartbeat import Heartbeat, read_heartbeats
from seekserve.server.httpget import call, get_ok
from seekserve.server.metrics import ModelNumbers, model_numbers, parse_metrics
from seekserve.server.orders import read_results
from seekserve.server.record import LaunchRecord

__all__ = ["ModelStatus", "ServerStatus", "default_metrics_url", "status_lines", "status_of_record", "status_of_url"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    name: str
    is_ready: bool
    numbers: ModelNumbers | None
    """None where the model publishes none."""
    bundles: tuple[str, ...] = ()
    """What its instances serve; more than one while a swap lets the old one end. Empty where nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    id: str | None
    state: str
    """The record's state; `dead` when its supervising process is gone; for a bare URL `ready` or `not ready`."""
    is_ready: bool
    http_url: str
    grpc_url: str | None
    metrics_url: str
    pid: int | None = None
    server_pid: int | None = None
    up_s: float | None = None
    restarts: int | None = None
    log_file: str | None = None
    plan: str | None = None
    """Where it is more than one process with one rank."""
    error: str | None = None
    swap: str | None = None
    """What goes on, while one does."""
    models: tuple[ModelStatus, ...] = field(default=())

    def to_json(self) -> dict[str, object]:
        body = {key: value for key, value in asdict(self).items() if value is not None}
        body["models"] = [
            {
                "name": model.name,
                "is_ready": model.is_ready,
                **({"bundles": list(model.bundles)} if model.bundles else {}),
                **({} if model.numbers is None else model.numbers.to_json()),
            }
            for model in self.models
        ]
        return body


def status_of_record(path: Path) -> ServerStatus:
    record = LaunchRecord.read(path)
    is_supervised = record.supervisor_is_alive()
    run_dir = Path(record.run_dir)
    models = _models(record.http_url, record.metrics_url, record.models, read_heartbeats(run_dir))
    swap = next((result for result in read_results(run_dir) if not result.is_final), None)
    return ServerStatus(
        id=record.id,
        state=record.state if is_supervised or record.state == "failed" else "dead",
        is_ready=is_supervised and record.state == "ready" and all(model.is_ready for model in models),
        http_url=record.http_url,
        grpc_url=record.grpc_url,
        metrics_url=record.metrics_url,
        pid=record.pid,
        server_pid=record.server_pid,
        up_s=time.time() - record.started_s if is_supervised else None,
        restarts=record.restarts,
        log_file=record.log_file,
        plan=record.plan if record.world_size > 1 else None,
        error=record.error,
        swap=None if swap is None else f"model {swap.model}, {swap.how}, to {swap.bundle_dir}: {swap.text}",
        models=models,
    )


def status_of_url(http_url: str, metrics_url: str) -> ServerStatus:
    """For a server that this toolkit did not launch here; its models are those that publish numbers."""
    is_ready = get_ok(f"{http_url}/v2/health/ready")
    return ServerStatus(
        id=None,
        state="ready" if is_ready else "not ready",
        is_ready=is_ready,
        http_url=http_url,
        grpc_url=None,
        metrics_url=metrics_url,
        models=_models(http_url, metrics_url, ()),
    )


def default_metrics_url(http_url: str) -> str:
    return f"http://{urlsplit(http_url).hostname or ''}:8002/metrics"


def _models(
    http_url: str, metrics_url: str, names: tuple[str, ...], beats: Sequence[Heartbeat] = ()
) -> tuple[ModelStatus, ...]:
    answer = call(metrics_url)
    text = answer[1].decode("utf-8", errors="replace") if answer is not None and answer[0] == 200 else ""
    numbers = model_numbers(parse_metrics(text))
    return tuple(
        ModelStatus(
            name=name,
            is_ready=get_ok(f"{http_url}/v2/models/{name}/ready"),
            numbers=numbers.get(name),
            bundles=tuple(sorted({beat.bundle_dir for beat in beats if beat.model == name and beat.bundle_dir})),
        )
        for name in names or sorted(numbers)
    )


def status_lines(status: ServerStatus) -> list[str]:
    head = status.state if status.id is None else f"launch {status.id}: {status.state}"
    if status.up_s is not None:
        head += f", up {status.up_s:.0f} s, restarts {status.restarts}"
    lines = [head, f"  HTTP     {status.http_url}"]
    lines += [f"  gRPC     {status.grpc_url}"] if status.grpc_url is not None else []
    lines += [f"  metrics  {status.metrics_url}"]
    lines += [f"  plan     {status.plan}"] if status.plan is not None else []
    lines += [f"  log      {status.log_file}"] if status.log_file is not None else []
    lines += [f"  error    {status.error}"] if status.error is not None else []
    lines += [f"  swap     {status.swap}"] if status.swap is not None else []
    for model in status.models:
        lines.append(f"model {model.name}: {'ready' if model.is_ready else 'not ready'}")
        lines += [f"  bundle    {' and '.join(model.bundles)}"] if model.bundles else []
        lines += [f"  {line}" for line in _number_lines(model.numbers)]
    return lines


def _number_lines(numbers: ModelNumbers | None) -> list[str]:
    if numbers is None:
        return ["no numbers published"]
    plain, lines = numbers.plain, []
    queues = [f"{name} {count:.0f}" for name, count in sorted(numbers.by_label.get("queue_requests", {}).items())]
    if queues:
        lines.append(f"queue     {', '.join(queues)}")
    requests = [
        f"{plain[name]:.0f} {label}"
        for name, label in (
            ("intake_requests", "in intake"),
            ("running_requests", "running"),
            ("requests_offered_total", "offered so far"),
        )
        if name in plain
    ]
    ended: Counter[str] = Counter()
    for labels, count in numbers.by_label.get("requests_ended_total", {}).items():
        ended[labels.rpartition(",")[2]] += int(count)  # class,terminal
    requests += [f"{count} {terminal}" for terminal, count in sorted(ended.items())]
    if requests:
        lines.append(f"requests  {', '.join(requests)}")
    lines += _kv_line(plain)
    tokens = [
        f"{plain[name]:.0f} {label}"
        for name, label in (("prompt_tokens_total", "in"), ("output_tokens_total", "out"))
        if name in plain
    ]
    if tokens:
        lines.append(f"tokens    {', '.join(tokens)}")
    steps = plain.get("engine_step_seconds_count")
    engine = [f"step {1000 * plain['engine_step_seconds_sum'] / steps:.1f} ms on average"] if steps else []
    engine += [f"batch {plain['engine_batch_requests']:.0f}"] if "engine_batch_requests" in plain else []
    if engine:
        lines.append(f"engine    {', '.join(engine)}")
    if "policy_generation" in plain:
        lines.append(f"policy    generation {plain['policy_generation']:.0f}")
    return lines


def _kv_line(plain: dict[str, float]) -> list[str]:
    if "kv_used_blocks" not in plain:
        return []
    text = f"KV        {plain['kv_used_blocks']:.0f}"
    total = plain.get("kv_blocks")
    if total:
        text += f" of {total:.0f} blocks used ({100 * plain['kv_used_blocks'] / total:.0f} %)"
    else:
        text += " blocks used"
    return [text + (f", {plain['kv_reserved_blocks']:.0f} reserved" if "kv_reserved_blocks" in plain else "")]
