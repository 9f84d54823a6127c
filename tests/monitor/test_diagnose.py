"""Each finding is provoked: by a fault of a simulated engine or a kind of load where one can bring it about, else by
the numbers that a server in that state would publish.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.monitor.exposition import Exposition
from tests.monitor.simulated import EPOCH_S, SLO, arrivals_at, scrapes

from seekserve.errors import InputError
from seekserve.monitor.diagnose import TREES, diagnose, diagnosis_text
from seekserve.monitor.reading import Scrape, parse_text, scrape_of
from seekserve.monitor.tree import Branch, Kind, Leaf
from seekserve.simulate.plant import PlantOptions
from seekserve.simulate.records import Arrival, Clients

CHANGE_S, END_S = 40.0, 80.0
"""The service is calm until the first; the window that is looked at begins there."""
CALM = arrivals_at(4, END_S)


def then(rate: float, **more: Any) -> list[Arrival]:
    """Calm, and from CHANGE_S on something else."""
    return arrivals_at(4, CHANGE_S) + arrivals_at(rate, END_S - CHANGE_S, start_s=CHANGE_S, **more)


@functools.cache
def _known(what: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    return what()


def found(arrivals: Sequence[Arrival], *args: Any, start_s: float = CHANGE_S, **more: Any) -> dict[str, Any]:
    looks = scrapes(arrivals, *args, until_s=END_S, **more)
    diagnosis = diagnose([look for look in looks if look.time_s >= EPOCH_S + start_s])
    return {finding.id: finding for finding in diagnosis.findings}


def stalled() -> dict[str, Any]:
    return found(CALM, STALL)


def broken() -> dict[str, Any]:
    return found(CALM, BREAKS)


def flooded() -> dict[str, Any]:
    return found(then(40))


def test_a_calm_service_has_nothing_wrong() -> None:
    looks = scrapes(CALM, until_s=END_S)[-9:]
    for promised in (None, SLO.classes):
        diagnosis = diagnose(looks, promised=promised)
        assert (diagnosis.findings, diagnosis.is_wrong) == ((), False)
    assert diagnosis_text(diagnosis) == "Nothing is wrong: chat at h:8002 over 40 s."


SLOW = PlantOptions(slowdowns=((0.0, 1.0), (CHANGE_S, 3.0)))
STALL = PlantOptions(stalls=((CHANGE_S + 8.0, 8.0),))
FAILS = PlantOptions(failures_s=(CHANGE_S + 5.0, CHANGE_S + 15.0, CHANGE_S + 25.0))
BREAKS = PlantOptions(failures_s=tuple(CHANGE_S + 5.0 + n / 2 for n in range(60)))
COLD = arrivals_at(4, CHANGE_S, cached=100) + arrivals_at(4, 40, start_s=CHANGE_S, prompt=600)
LONG = [
    Arrival(CHANGE_S + 0.05 + n * 5.0, 12_000, 20, "interactive", 60) for n in range(8)
] + arrivals_at(5, 40, start_s=CHANGE_S, offline_every=0)  # fmt: skip


@pytest.mark.parametrize(
    ("expected", "kind", "run"),
    [
        ("slow-engine", Kind.FAULT, lambda: found(CALM, SLOW)),
        ("step-hiccups", Kind.FAULT, stalled),
        ("failing", Kind.FAULT, lambda: found(CALM, FAILS)),
        ("breaker-open", Kind.FAULT, broken),
        ("not-serving", Kind.FAULT, broken),
        ("overload", Kind.OVERLOAD, flooded),
        ("overload", Kind.OVERLOAD, lambda: found(then(40), policy="fcfs", max_batch_size=16)),
        ("shedding", Kind.OVERLOAD, flooded),
        ("expiring", Kind.OVERLOAD, stalled),
        (
            "kv-full",
            Kind.OVERLOAD,
            lambda: found(then(10, prompt=1500, output=150, max_tokens=160), policy="fcfs", kv_blocks=1000),
        ),
        (
            "kv-overreserved",
            Kind.WASTE,
            lambda: found(then(60, prompt=20, output=10, max_tokens=200), policy="fcfs", kv_blocks=120),
        ),
        ("slots-full", Kind.OVERLOAD, lambda: found(then(40), max_batch_size=8)),
        (
            "clients-leave",
            Kind.WASTE,
            lambda: found(then(40), policy="fcfs", max_batch_size=8, clients=Clients(patience_s=3.0)),
        ),
        ("ramping", Kind.NOTE, lambda: found(arrivals_at(40, 15), start_s=0.0)),
        ("fewer-requests", Kind.NOTE, lambda: found(arrivals_at(8, 60) + arrivals_at(1, 20, start_s=60.0))),
        ("longer-prompts", Kind.NOTE, lambda: found(then(2, prompt=3000))),
        ("cache-cold", Kind.WASTE, lambda: found(COLD)),
        ("shorter-answers", Kind.NOTE, lambda: found(then(4, output=3))),
        ("smaller-batch", Kind.NOTE, lambda: found(arrivals_at(20, CHANGE_S) + arrivals_at(1, 40, start_s=CHANGE_S))),
        ("bigger-batch", Kind.NOTE, lambda: found(then(25))),
        ("long-prompts-ahead", Kind.WASTE, lambda: found(arrivals_at(4, CHANGE_S) + LONG)),
    ],
)
def test_a_simulated_fault_or_load_is_found(expected: str, kind: Kind, run: Callable[[], dict[str, Any]]) -> None:
    findings = _known(run)
    assert expected in findings, sorted(findings)
    finding = findings[expected]
    assert finding.kind is kind
    assert all(any(char.isdigit() for char in text) for text in finding.numbers[:1]), finding.numbers


def test_a_cause_goes_with_its_symptoms_and_comes_first() -> None:
    looks = [look for look in scrapes(CALM, SLOW, until_s=END_S) if look.time_s >= EPOCH_S + CHANGE_S]
    first = diagnose(looks, promised=SLO.classes).findings[0]
    assert first.id == "slow-engine"
    assert any(text.startswith("TPOT P90 of interactive") for text in diagnose(looks).findings[0].numbers)
    assert "latency > tokens slow" in diagnose(looks).findings[0].paths


Said = Callable[[Exposition, float], Any]


def _busy(e: Exposition, n: float) -> None:
    """Ten requests a second that are served well."""
    e.set("requests_offered_total", 100 * n).set("requests_ended_total", 100 * n, "interactive", "finished")
    e.set("flush_timestamp_seconds", EPOCH_S + 10.0 * n).set("running_requests", 4).set("queue_requests", 0, "a")
    times = [0.2] * int(100 * n)
    e.observe("time_to_first_token_seconds", times, "interactive").observe("queue_time_seconds", times, "interactive")


def _slow_since(e: Exposition, n: float, metric: str, seconds: float) -> None:
    e.observe(metric, [seconds] * int(max(0.0, n - 1.0) * 100), "interactive")


def _told(said: Said, gpu: str = "") -> list[Scrape]:
    looks = []
    for n in (1.0, 2.0):
        exposition = Exposition()
        _busy(exposition, n)
        said(exposition, n)
        looks.append(
            scrape_of(parse_text(exposition.text() + gpu), server="h:8002", time_s=EPOCH_S + 10.0 * n + 0.5)
        )  # fmt: skip
    return looks


def _late(e: Exposition, n: float) -> None:
    _slow_since(e, n, "time_to_first_token_seconds", 9.0)


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ("dead-process", lambda e, n: e.set("flush_timestamp_seconds", EPOCH_S - 60.0)),
        ("stalled", lambda e, n: e.set("stream_silence_seconds", 12.0)),
        ("stalled", lambda e, n: e.set("engine_loop_age_seconds", 8.0)),
        ("answers-not-sent", lambda e, n: e.set("send_age_seconds", 3.0)),
        ("answers-not-sent", lambda e, n: e.set("outbox_responses", 900.0)),
        ("slow-formation", lambda e, n: e.observe("batch_formation_seconds", [0.02] * int(10 * n), "interactive")),
        ("slow-intake", lambda e, n: e.set("intake_requests", 30.0)),
        ("bad-requests", lambda e, n: e.set("requests_refused_total", 20 * n, "unknown", "invalid", "invalid")),
        ("batch-beyond-target", lambda e, n: (
            e.set("step_target_seconds", 0.04).observe("engine_step_seconds", [0.08] * int(100 * n)),
            _slow_since(e, n, "time_per_output_token_seconds", 0.2),
        )),
        ("prefill-starved", lambda e, n: (e.set("prefill_share_ratio", 0.05), _late(e, n))),
        ("held-back", lambda e, n: (
            e.set("queue_requests", 9, "interactive").set("max_running_requests", 64),
            e.set("output_tokens_total", 1000 + 10 * n),
            e.observe("engine_step_seconds", [0.02] * int(100 * n)),
        )),
        ("late-first-token", lambda e, n: _late(e, n)),
        ("slow-tokens", lambda e, n: _slow_since(e, n, "time_per_output_token_seconds", 0.5)),
        ("less-done", lambda e, n: e.set("output_tokens_total", 1000 + 10 * n).observe(
            "engine_step_seconds", [0.02] * int(100 * n))),
        ("model-too-slow", lambda e, n: e.set("step_bias_ratio", 0.5)),
        ("streams-not-resumed", lambda e, n: e.set("streams_dropped_total", 20 * n).set("streams_resumed_total", n)),
        ("observations-dropped", lambda e, n: e.set("observations_dropped_total", 50 * n)),
        ("cache-idle", lambda e, n: e.set("queue_requests", 9, "interactive").set("kv_blocks", 100).set(
            "kv_used_blocks", 3)),
    ],
)  # fmt: skip
def test_what_a_server_in_that_state_says_is_found(expected: str, said: Said) -> None:
    findings = {finding.id for finding in diagnose(_told(said)).findings}
    assert expected in findings
    assert findings <= {expected, "breaker-open", "slow-engine", "smaller-batch"}, "nothing else is made of it"


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("gpu-throttled", 'DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu="0",UUID="GPU-1"} 72\n'),
        ("gpu-xid", 'DCGM_FI_DEV_XID_ERRORS{gpu="3"} 79\n'),
        ("gpu-ecc", 'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu="3"} 2\n'),
        ("bandwidth-full", 'DCGM_FI_PROF_DRAM_ACTIVE{gpu="3"} 0.91\n'),
    ],
)
def test_what_a_gpu_exporter_says_is_found(expected: str, text: str) -> None:
    assert [each.id for each in diagnose(_told(lambda e, n: None, text)).findings] == [expected]


def _leaves(branch: Branch) -> list[Leaf]:
    below = [leaf for child in branch.leaves for leaf in (_leaves(child) if isinstance(child, Branch) else [child])]
    return below + ([branch.unexplained] if branch.unexplained is not None else [])


def test_every_finding_of_the_trees_is_provoked_above() -> None:
    tests: list[Any] = [
        test_a_simulated_fault_or_load_is_found,
        test_what_a_server_in_that_state_says_is_found,
        test_what_a_gpu_exporter_says_is_found,
    ]
    provoked = {row[0] for test in tests for row in test.pytestmark[0].args[1]}
    assert {leaf.id for tree in TREES for leaf in _leaves(tree)} == provoked


@settings(deadline=None)
@given(st.floats(0.0, 1e6), st.floats(0.0, 1e6), st.sampled_from(["kv_used_blocks", "queue", "step_bias_ratio"]))
def test_no_numbers_make_it_fail(a: float, b: float, name: str) -> None:
    def said(e: Exposition, n: float) -> None:
        value = a if n == 1.0 else b
        e.set("queue_requests", value, "interactive") if name == "queue" else e.set(name, value)
        e.set("kv_blocks", b).set("requests_ended_total", value, "interactive", "failed")

    assert diagnosis_text(diagnose(_told(said)))


def test_one_look_or_no_model_is_said_to_be_too_little() -> None:
    one = _told(lambda e, n: None)[:1]
    with pytest.raises(InputError, match="two are needed"):
        diagnose(one)
    with pytest.raises(InputError, match=r"no numbers of the model 'x'; they are of chat"):
        diagnose(one, model="x")
    with pytest.raises(InputError, match="no numbers of a model"):
        diagnose([Scrape(server="h", time_s=1.0)])
