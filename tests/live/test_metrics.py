"""What stands on the metrics endpoint of a server under load: whole, well formed, and in balance at every scrape."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from tests.live.conftest import TINY, Server

from seekserve.client import Client, GenerateRequest
from seekserve.errors import SeekserveError
from seekserve.monitor.reading import INSIDE
from seekserve.server.metrics import Sample, parse_metrics
from seekserve_backend.contract.metric_names import BOOKS, FAMILIES, FAMILY, PREFIX, Kind

MODEL = TINY
LOAD_S = 8.0
CLIENTS = 12
ENDINGS = ("_bucket", "_sum", "_count")
# They need a cache that is looked up, or an engine that says more of itself, or a fault.
NOT_FROM_HERE = {
    "prefix_lookups_total",
    "prefix_hits_total",
    "prefix_hit_tokens_total",
    "kv_reused_blocks_total",
    "engine_queue_requests",
}
OFF_BY_DEFAULT = {
    "repeat_hits_total",
    "repeat_joins_total",
    "repeat_results",
    "repeat_bytes",
    "routes_started_total",
    "routes_taken_back_total",
}


@dataclass
class Scrapes:
    whole: int = 0
    torn: int = 0
    busy: int = 0
    """Whole ones with something open."""
    wrong: list[tuple[dict[str, float], str]] = field(default_factory=list)
    last: str = ""
    took_s: list[float] = field(default_factory=list)


def sums(samples: list[Sample], process: str) -> dict[str, float]:
    out: Counter[str] = Counter()
    for sample in samples:
        if sample.labels.get("model") == MODEL and sample.labels.get("process") == process:
            out[sample.name.removeprefix(PREFIX)] += sample.value  # type: ignore[assignment]
    return dict(out)


def look(server: Server, seen: Scrapes) -> None:
    begun_s = time.perf_counter()
    seen.last = text = server.scrape()
    seen.took_s.append(time.perf_counter() - begun_s)
    samples = parse_metrics(text)
    for process in {s.labels["process"] for s in samples if s.labels.get("model") == MODEL and "process" in s.labels}:
        found = sums(samples, process)
        if found.get("flushes_total") != found.get("flushes_begun"):
            seen.torn += 1
            continue
        seen.whole += 1
        waiting = sum(found[name] for name in INSIDE)
        seen.busy += waiting > 0
        if found["requests_offered_total"] != waiting + found["requests_ended_total"]:
            seen.wrong.append((found, text))


def load(server: Server, until_s: float) -> int:
    refused = 0
    with Client(server.grpc, MODEL) as client:
        n = 0
        while time.monotonic() < until_s:
            n += 1
            deadline_ms = 1 if n % 7 == 0 else None
            try:
                client.generate(
                    GenerateRequest(prompt="again " * (n % 50), max_tokens=1 + n % 40, deadline_ms=deadline_ms)
                )
            except SeekserveError:
                refused += 1
    return refused


@pytest.fixture(scope="module")
def scrapes(server: Server) -> Scrapes:
    seen, until_s = Scrapes(), time.monotonic() + LOAD_S
    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(load, server, until_s) for _ in range(CLIENTS)]
        while time.monotonic() < until_s:
            look(server, seen)
            time.sleep(0.01)
        assert sum(client.result() for client in clients) > 0, "some must have been refused or have expired"
    time.sleep(2.5)
    look(server, seen)
    mean_ms = 1000 * sum(seen.took_s) / len(seen.took_s)
    print(f"scrapes: {seen.whole} whole ({seen.busy} with requests open), {seen.torn} torn; {mean_ms:.1f} ms each")
    return seen


def test_the_books_balance_in_every_scrape_that_is_whole(scrapes: Scrapes) -> None:
    assert scrapes.wrong == []
    assert scrapes.busy > 0.5 * scrapes.whole, "the load must have been there"
    assert scrapes.torn < 0.2 * scrapes.whole


def test_every_family_is_there_and_none_is_unknown(scrapes: Scrapes) -> None:
    def family(name: str) -> str:
        stems = [name.removesuffix(ending) for ending in ENDINGS if name.removesuffix(ending) in FAMILY]
        return stems[0] if stems and name not in FAMILY else name

    samples = [s for s in parse_metrics(scrapes.last) if s.name.startswith(PREFIX)]
    shown = {family(s.name) for s in samples if s.labels["model"] == MODEL}
    absent = {PREFIX + name for name in NOT_FROM_HERE | OFF_BY_DEFAULT | {"stream_silence_seconds"}}
    assert sorted(shown ^ ({f.name for f in FAMILIES} - absent)) == []
    for sample in samples:
        described = FAMILY[family(sample.name)]
        own = set(sample.labels) - {"model", "process", "le"}
        assert own == set(described.labels), sample
    counters = [s.value for s in samples if s.name == PREFIX + "requests_admitted_total"]
    assert sum(counters) > 0


def test_what_finished_was_measured(scrapes: Scrapes) -> None:
    """Each histogram of finished requests has as many values as requests finished (probes are left out of both)."""
    samples = [s for s in parse_metrics(scrapes.last) if s.labels.get("model") == MODEL]
    process = next(s.labels["process"] for s in samples if "process" in s.labels)
    finished = sum(s.value for s in samples if s.labels.get("terminal") == "finished")
    found = sums(samples, process)
    for name in ("request_duration_seconds_count", "request_output_tokens_count"):
        assert 0 < found[name] <= finished <= found[name] + 5, name
    assert found["time_to_first_token_seconds_sum"] <= found["request_duration_seconds_sum"] * 1.5
    assert found["observations_dropped_total"] == 0


def test_prometheus_own_parser_takes_the_text(scrapes: Scrapes) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    families = {f.name: f for f in parser.text_string_to_metric_families(scrapes.last) if f.name.startswith(PREFIX)}
    for described in FAMILIES:
        found = families.get(described.name.removesuffix("_total")) or families.get(described.name)
        if found is not None:
            assert found.type == described.kind.value, described.name
            assert found.documentation == described.help
        else:
            assert described.kind is not Kind.HISTOGRAM


@pytest.mark.needs_debian
def test_promtool_finds_nothing_to_say_about_ours(scrapes: Scrapes) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool: scripts/ci_packages.sh installs Debian's prometheus")
    # Triton's own families break a rule or two of promtool's.
    ours = "".join(line + "\n" for line in scrapes.last.splitlines() if PREFIX in line)
    done = subprocess.run(["promtool", "check", "metrics"], input=ours, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_books_come_in_the_order_that_makes_a_whole_scrape_tell(scrapes: Scrapes) -> None:
    seen = [line.split()[2] for line in scrapes.last.splitlines() if line.startswith("# TYPE " + PREFIX)]
    names = [f.name for f in BOOKS]
    assert sorted(names, key=seen.index) == names
    assert seen.index(names[0]) == 0
