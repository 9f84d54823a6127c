"""One look at a backend's /metrics: the load of each of its models."""

from __future__ import annotations

import asyncio
import collections
import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping

from seekserve.gateway.load import FAMILIES, PRESSURES, Load, read_load

__all__ = ["loads_of", "scrape"]

_TIMEOUT_S = 2.0
_MOST_BYTES = 4 * 1024 * 1024


async def scrape(url: str) -> Mapping[str, Load] | None:
    """None when the numbers cannot be had; off the event loop, as a slow endpoint must not hold up streams."""
    try:
        return await asyncio.to_thread(lambda: loads_of(_get(url)))
    except (OSError, ValueError, http.client.HTTPException):
        return None


def loads_of(text: str) -> Mapping[str, Load]:
    """Prometheus text -> load by model, summed over instances and labels, of pressures the largest. Or ValueError."""
    from prometheus_client.parser import text_string_to_metric_families

    # A server has a thousand lines and more, and reading them all once a second would be felt in every stream.
    wanted = "\n".join(line for line in text.splitlines() if line.startswith(FAMILIES))
    sums: dict[str, dict[str, float]] = collections.defaultdict(lambda: collections.defaultdict(float))
    for family in text_string_to_metric_families(wanted):
        for sample in family.samples:
            of_model = sums[sample.labels.get("model", "")]
            if sample.name in PRESSURES:
                of_model[sample.name] = max(of_model[sample.name], sample.value)
            else:
                of_model[sample.name] += sample.value
    return {model: read_load(samples) for model, samples in sums.items()}


def _get(url: str) -> str:
    # A proxy from the environment cannot reach this machine's loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=_TIMEOUT_S) as answer:
        data: bytes = answer.read(_MOST_BYTES)
    return data.decode("utf-8", "replace")
