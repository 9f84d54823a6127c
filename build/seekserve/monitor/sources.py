"""Where scrapes come from: servers' own endpoints, a Prometheus server over some time, or a file of an earlier look."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from seekserve.errors import InputError, ProtocolError, ServerError
from seekserve.server.httpget import call

from .reading import GPU_FAMILIES, Sample, Scrape, parse_text, scrape_of

__all__ = ["from_file", "from_prometheus", "local_metrics_url", "scrape", "scrape_some", "with_scheme"]

Get = Callable[[str], "tuple[int, bytes] | None"]
_HEAD = re.compile(r"# scraped (\S+) at ([\d.]+)\n")
_MOST_POINTS = 120


def with_scheme(url: str) -> str:
    """`host:8002` is as good as `http://host:8002/metrics`."""
    url = url if "://" in url else f"http://{url}"
    return url if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/metrics"


def local_metrics_url(*, pid_file: Path | None, launch_id: str | None, env: Mapping[str, str]) -> str:
    """Of the launch that is meant, found as `status` finds it."""
    from seekserve.server.record import LaunchRecord
    from seekserve.server.stopping import choose_record

    return LaunchRecord.read(choose_record(pid_file=pid_file, launch_id=launch_id, env=env)).metrics_url


def scrape(url: str, *, get: Get = call, clock: Callable[[], float] = time.time) -> Scrape:
    """One look. Raises ServerError when nobody answers there, ProtocolError when it is something else."""
    before_s = clock()
    answer = get(url)
    if answer is None:
        raise ServerError(
            f"no metrics at {url}: nobody answers",
            hint="is the server up? Its metrics port is told by `seekserve status`; 8002 is the usual one",
        )
    if answer[0] != 200:
        raise ServerError(f"no metrics at {url}: HTTP {answer[0]}")
    samples = parse_text(answer[1].decode("utf-8", errors="replace"))
    return scrape_of(samples, server=_server(url), time_s=(before_s + clock()) / 2.0)


def scrape_some(
    urls: Sequence[str],
    *,
    looks: int,
    pause_s: float,
    sleep: Callable[[float], None] = time.sleep,
    get: Get = call,
) -> list[Scrape]:
    """`looks` at each, `pause_s` apart."""
    out: list[Scrape] = []
    for n in range(looks):
        if n:
            sleep(pause_s)
        out += [scrape(url, get=get) for url in urls]
    return out


def from_file(path: Path) -> list[Scrape]:
    """Of `top --once --json`, of `diagnose --json`, or metrics text as `collect` writes it (one look each)."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(f"--dump {path} cannot be read: {reason}") from None
    head = _HEAD.match(text)
    if head is not None:
        return [scrape_of(parse_text(text), server=_server(head[1]), time_s=float(head[2]))]
    try:
        return [Scrape.from_json(entry) for entry in json.loads(text)["scrapes"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(
            f"--dump {path} holds no scrapes",
            hint="take the output of `seekserve top --once --json`, or the metrics/1.txt and 2.txt of a `collect`",
        ) from None


def from_prometheus(
    address: str,
    *,
    window_s: float,
    now_s: float | None = None,
    selector: str = "",
    get: Get = lambda url: call(url, timeout_s=30.0),
) -> list[Scrape]:
    """What it stored over the last `window_s`, as if its targets had been looked at then. `selector`: label matchers,
    as `job="triton"`.
    """
    end_s = time.time() if now_s is None else now_s
    step_s = max(window_s / _MOST_POINTS, 1.0)
    names = "|".join(["seekserve_.*", *GPU_FAMILIES])
    matchers = f'__name__=~"{names}"' + (f",{selector}" if selector else "")
    query = {
        "query": f"{{{matchers}}}",
        "start": f"{end_s - window_s:.3f}",
        "end": f"{end_s:.3f}",
        "step": f"{step_s:.3f}",
    }
    url = address if "://" in address else f"http://{address}"
    url = f"{url.rstrip('/')}/api/v1/query_range?{urlencode(query)}"
    answer = get(url)
    if answer is None:
        raise ServerError(f"Prometheus at {address}: nobody answers", hint="give its address as http://HOST:9090")
    try:
        body = json.loads(answer[1])
        result = body["data"]["result"] if body["status"] == "success" else None
    except (ValueError, KeyError, TypeError):
        raise ProtocolError(f"{address} does not answer as Prometheus does (HTTP {answer[0]})") from None
    if result is None:
        raise ServerError(f"Prometheus at {address} refused the query: {body.get('error', f'HTTP {answer[0]}')}")
    found = scrapes_of_matrix(result)
    if not found:
        raise ServerError(
            f"Prometheus at {address} has no metric of seekserve in the last {window_s:g} s",
            hint="does it scrape the server? `seekserve render --monitoring` writes the configuration",
        )
    return found


def scrapes_of_matrix(result: Sequence[Mapping[str, Any]]) -> list[Scrape]:
    """By instance and time; a target that was not scraped at a time has no scrape there."""
    samples: dict[tuple[str, float], list[Sample]] = {}
    for series in result:
        labels = {str(name): str(value) for name, value in series["metric"].items()}
        name = labels.pop("__name__")
        for time_s, value in series["values"]:
            samples.setdefault((labels.get("instance", ""), float(time_s)), []).append((name, labels, float(value)))
    return [scrape_of(mine, server=server, time_s=time_s) for (server, time_s), mine in sorted(samples.items())]


def _server(url: str) -> str:
    return urlsplit(url).netloc or url
