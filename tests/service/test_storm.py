"""Everything that can happen to a request, at once and by chance: joins, returns, pauses, hand-overs, expiries,
cancels, faults, reloads, swaps. Whatever comes, each request gets one answer, its text is right, and the books hold."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.service.fakes import BYTES, KV, LIMITS, encode
from tests.service.storm_world import (
    CLASSES,
    OTHER,
    Faults,
    OtherModel,
    StormEngine,
    StormSink,
    foretold,
    some_policy,
)
from tests.service.test_exchange import variant
from tests.service.test_service import until

from seekserve_backend.answers import Chunk, Inbound
from seekserve_backend.contract.metric_names import FAMILY
from seekserve_backend.contract.refusal import ErrorLine
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.engines.port import Sampling
from seekserve_backend.exchange import Exchange
from seekserve_backend.service import Service
from seekserve_backend.triton.metric_samples import books, others

REQUESTS = 160
KINDS = ("paced", "fcfs", "static", "seed")


@dataclass
class Asked:
    sink: StormSink
    prompt: bytes
    tenant: str
    is_resumable: bool = False
    from_bytes: int = 0
    is_given_up: bool = False
    tokens_asked: int = 0

    @property
    def token(self) -> str | None:
        return next((a.resume_token for a in list(self.sink.answers) if isinstance(a, Chunk) and a.resume_token), None)


@dataclass
class Storm:
    seed: int
    asked: list[Asked] = field(default_factory=list)
    exchange: Exchange | None = None
    latest: tuple[bytes, dict[str, Any]] | None = None
    """What was asked last, to be asked again."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.faults = Faults()
        policy = some_policy(self.rng, KINDS[self.seed % len(KINDS)])
        self.made = Service(
            scheduler=Scheduler(policy, LIMITS, KV),
            policy=policy,
            engine_factory=lambda: StormEngine(self.faults),
            encode=encode,
            vocabulary=BYTES,
            variants=OtherModel(self.seed),
        )
        self.made.handover.ready = frozenset({OTHER})

    def ask(self) -> None:
        rng = self.rng
        prompt = rng.choice([b"A", b"A", b"Bb", b"Ccc", b"Ddddd", b"Eeeeeeeeee", rng.choice([b"bad", b"crash"])])
        is_resumable = rng.random() < 0.4
        wishes: dict[str, Any] = {
            "max_tokens": rng.choice([1, 4, 12, 12, 40]),
            "stream": is_resumable or rng.random() < 0.7,
            "tenant": rng.choice("ab"),
            "resumable": is_resumable,
            "request_class": rng.choice([None, None, *CLASSES]),
            "endpoint": rng.choice(["", "/v1/batch/completions"]),
            "deadline_ms": rng.choice([None, None, None, 3, 30, 10_000]),
            "sampling": Sampling(temperature=rng.choice([0.0, 0.0, 0.7])),
            "sampling_given": frozenset({"temperature"}),
            "is_probe": rng.random() < 0.03,
        }
        if wishes["stream"] and rng.random() < 0.3:
            wishes["heartbeat_ms"] = 2
        if rng.random() < 0.4:
            prompt, wishes = self.latest or (prompt, wishes)
        self.latest = (prompt, wishes)
        asked = Asked(StormSink(), prompt, wishes["tenant"], wishes["resumable"], tokens_asked=wishes["max_tokens"])
        self.asked.append(asked)
        self.made.accept(Inbound(text=prompt, **wishes), asked.sink)

    def come_back(self) -> None:
        rng = self.rng
        known = [each for each in self.asked[-25:] if each.token is not None]
        if not known:
            return
        before = rng.choice(known)
        received = before.from_bytes + len(before.sink.text)
        back = Asked(
            StormSink(),
            before.prompt,
            before.tenant if rng.random() < 0.9 else "stranger",
            is_resumable=True,
            from_bytes=rng.choice([0, received, received // 2, received + 99]),
            is_given_up=rng.random() < 0.15,
            tokens_asked=before.tokens_asked,
        )
        self.asked.append(back)
        inbound = Inbound(
            stream=True,
            tenant=back.tenant,
            resume_token=before.token,
            resume_from_bytes=back.from_bytes,
            resume_cancel=back.is_given_up,
            heartbeat_ms=rng.choice([None, 2]),
        )
        self.made.accept(inbound, back.sink)

    def leave(self) -> None:
        running = [each.sink for each in self.asked[-40:] if not each.sink.done.is_set()]
        if not running:
            return
        sink = self.rng.choice(running)
        sink.has_left = True
        # Most requests here take less time than the departures need to see it.
        with self.made._desk.cond:
            lives = [live for live in self.made._desk.live.values() if live.sink is sink]
        for live in lives:
            self.made._streams.left(live)
        self.made._streams.look()

    def swap(self) -> None:
        if self.exchange is None or self.exchange.is_over:
            new = variant(lambda: StormEngine(self.faults))
            self.exchange = self.made.exchange(new, self.rng.choice([0.01, 5.0]))

    def one_thing(self) -> None:
        rng = self.rng
        what = rng.choices(
            ["ask", "come_back", "leave", "policy", "fault", "swap", "rest", "look"],
            weights=[60, 25, 20, 3, 1, 1, 30, 8],
        )[0]
        if what == "policy":
            self.made.replace_policy(some_policy(rng, rng.choice(KINDS)))
        elif what == "fault":
            self.faults.next = rng.choice(["raise", "add", "end", "end"])
        elif what == "rest":
            threading.Event().wait(0.003)
        elif what == "look":
            self.look()
        else:
            getattr(self, what)()

    def look(self) -> None:
        self.made.check_integrity()
        stats = self.made.stats()
        snap = stats.snapshot
        live = snap.intake + sum(snap.queued_by_class.values()) + snap.running + snap.joined + snap.routed
        assert snap.offered == live + sum(snap.terminals.values())
        for name, labels, _ in (*books(stats), *others(stats, instance="i", unix_time_s=0.0)):
            assert set(FAMILY[name].labels) == set(labels), name
        for name, request_class, value in self.made.observations(10_000):
            assert (request_class in CLASSES) if FAMILY[name].labels else request_class is None, (name, request_class)
            assert value >= 0.0

    def judge(self, asked: Asked) -> None:
        sink = asked.sink
        assert sink.terminals == 1, sink.answers
        last = sink.answers[-1]
        chunks = [answer for answer in sink.answers if isinstance(answer, Chunk) and not answer.is_heartbeat]
        if not chunks or isinstance(last, ErrorLine) or last.finish_reason == "cancelled":
            return
        if chunks[0].served_by is not None:
            assert last.served_by == OTHER
            assert not asked.is_resumable
            return
        assert all(chunk.served_by is None for chunk in chunks)
        assert (chunks[0].resume_token is not None) is asked.is_resumable
        assert last.completion_tokens <= asked.tokens_asked
        assert last.prompt_tokens == len(asked.prompt), (asked.prompt, sink.answers)
        assert sink.text == foretold(asked.prompt, last.completion_tokens)[asked.from_bytes :]


@pytest.mark.parametrize("seed", range(12))
def test_each_request_gets_one_right_answer_whatever_happens(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    storm = Storm(seed)
    made = storm.made
    made.start()
    try:
        while len(storm.asked) < REQUESTS:
            storm.one_thing()
        storm.faults.next = None
        until(lambda: made.stats().open_requests == 0)
        # Nothing stays behind: what was asked to be cancelled leaves the engine a moment later.
        until(lambda: not (made._desk.live or made._desk.repeats._works or made._loop.in_engine or made._loop._held))
        storm.look()
    finally:
        made.stop(timeout_s=5)
    for asked in storm.asked:
        storm.judge(asked)
    storm.look()
    assert len(storm.asked) == made.stats().snapshot.offered
    ours = [record for record in caplog.records if record.exc_info and "storm" not in str(record.exc_info[1])]
    assert [record.getMessage() for record in ours if "fake encoder" not in str(record.exc_info)] == []
