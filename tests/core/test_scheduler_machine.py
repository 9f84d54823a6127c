"""The scheduler against a plain model of it, under random events: books, order, bounds and reserves always hold."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from seekserve_backend.contract.bundle import KvCache, Limits
from seekserve_backend.contract.policy import Policy
from seekserve_backend.contract.refusal import ErrorCode
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.core.types import (
    Accepted,
    End,
    Expire,
    Phase,
    Refused,
    Release,
    Request,
    Signals,
    StepReport,
    Terminal,
)

SLOTS, BLOCKS, BLOCK_TOKENS, SEQ_TOKENS = 3, 9, 4, 40


def bounded(priority: int, requests: int, deadline_ms: int) -> dict[str, int]:
    return {"priority": priority, "max_queue_requests": requests, "deadline_ms": deadline_ms}


POLICIES = tuple(
    Policy.from_data({"kind": "fcfs", "default_max_tokens": 6, "max_intake_requests": 3, **data}, "machine")
    for data in (
        {"classes": {"interactive": bounded(0, 4, 400), "offline": bounded(1, 3, 2000)}, "bucket_edges_tokens": [8]},
        {"classes": {"offline": bounded(0, 2, 900), "interactive": bounded(2, 2, 300)}, "clamp_max_tokens": False},
        {"classes": {"interactive": bounded(0, 3, 500)}, "bucket_edges_tokens": []},
    )
)


@dataclass
class Known:
    """What the model knows of one request."""

    request_class: str
    is_probe: bool
    phase: Phase | Terminal = Phase.INTAKE
    order: int = 0
    due_s: float = float("inf")
    need_blocks: int = 0
    has_token: bool = False
    is_cancelled: bool = False


class Model:
    """Does each action on the core and on itself, and compares the two."""

    def __init__(self, policy: Policy) -> None:
        self.now_ms = 1000
        self.count = 0
        self.offered = 0
        self.known: dict[str, Known] = {}
        self.refused = 0
        self.in_engine: dict[str, int] = {}
        limits = Limits(max_seq_len_tokens=SEQ_TOKENS, max_batch_size=SLOTS, max_num_tokens=16, prefill_chunk_tokens=8)
        kv = KvCache(dtype="bf16", block_tokens=BLOCK_TOKENS, capacity_blocks=BLOCKS, bytes_per_token=2)
        self.policy = policy
        self.priorities = {name: rules.priority for name, rules in policy.classes.items()}
        self.core = Scheduler(policy, limits, kv)
        self.is_draining = False

    @property
    def now(self) -> float:
        return self.now_ms / 1000

    def ids(self, *phases: Phase | Terminal) -> list[str]:
        return [id for id, known in self.known.items() if known.phase in phases]

    def pick(self, pick: int, ids: list[str]) -> str | None:
        return ids[pick % len(ids)] if ids else None

    def check_refusal(self, answer: Refused, *, is_probe: bool) -> None:
        self.refused += 1
        may_return = answer.code.is_refusal
        assert (answer.retry_after_ms is not None) == may_return
        if answer.retry_after_ms is not None:
            assert self.policy.retry_after_min_ms <= answer.retry_after_ms <= self.policy.retry_after_max_ms
        assert not (is_probe and answer.code in (ErrorCode.OVERLOADED, ErrorCode.NOT_SERVING))

    def offer(self, name: str | None, prompt_bytes: int, is_probe: bool) -> None:
        id = f"r{self.count}"
        self.count += 1
        self.offered += 1
        answer = self.core.offer(id, prompt_bytes=prompt_bytes, request_class=name, now=self.now, is_probe=is_probe)
        if answer is not None:
            self.check_refusal(answer, is_probe=is_probe)
        else:
            assert is_probe or (not self.is_draining and len(self.ids(Phase.INTAKE)) < 3)
            self.known[id] = Known(name or self.policy.default_class, is_probe)

    def offer_an_id_in_use(self, pick: int) -> None:
        id = self.pick(pick, [*self.ids(*Phase), *self.in_engine])
        if id is not None:
            self.offered += 1
            answer = self.core.offer(id, prompt_bytes=1, request_class=None, now=self.now)
            assert answer is not None
            assert answer.code is ErrorCode.INVALID
            self.check_refusal(answer, is_probe=False)

    def submit_from_intake(
        self, pick: int, prompt_tokens: int, max_tokens: int | None, deadline_ms: int | None, lag_ms: int
    ) -> None:
        id = self.pick(pick, self.ids(Phase.INTAKE))
        if id is not None:
            known = self.known[id]
            self.submit(id, known, known.request_class, prompt_tokens, max_tokens, deadline_ms, lag_ms)

    def submit_directly(
        self, name: str | None, prompt_tokens: int, max_tokens: int | None, deadline_ms: int | None, is_probe: bool
    ) -> None:
        id = f"r{self.count}"
        self.count += 1
        self.offered += 1
        known = Known(name or self.policy.default_class, is_probe)
        self.known[id] = known
        self.submit(id, known, name, prompt_tokens, max_tokens, deadline_ms, 0)

    def submit(
        self,
        id: str,
        known: Known,
        name: str | None,
        prompt_tokens: int,
        max_tokens: int | None,
        deadline_ms: int | None,
        lag_ms: int,
    ) -> None:
        arrival_s = (self.now_ms - lag_ms) / 1000
        waiting = [k for k in self.known.values() if k.phase is Phase.QUEUED and not k.is_probe]
        in_class = sum(k.request_class == known.request_class for k in waiting)
        answer = self.core.submit(
            Request(
                id=id,
                prompt_tokens=prompt_tokens,
                max_tokens=max_tokens,
                request_class=name,
                deadline_ms=deadline_ms,
                arrival_s=arrival_s,
                is_probe=known.is_probe,
            ),
            self.now,
        )
        if isinstance(answer, Refused):
            self.check_refusal(answer, is_probe=known.is_probe)
            known.phase = Terminal.REFUSED
            return
        rules = self.policy.classes[known.request_class]
        assert known.is_probe or (not self.is_draining and in_class < rules.max_queue_requests)
        assert isinstance(answer, Accepted)
        asked = self.policy.default_max_tokens if max_tokens is None else max_tokens
        assert 1 <= answer.max_tokens <= asked
        assert prompt_tokens + answer.max_tokens <= SEQ_TOKENS
        if max_tokens is not None and not self.policy.clamp_max_tokens:
            assert answer.max_tokens == max_tokens
        known.phase = Phase.QUEUED
        known.order = self.count = self.count + 1
        known.need_blocks = -(-(prompt_tokens + answer.max_tokens) // BLOCK_TOKENS)
        known.due_s = arrival_s + (rules.deadline_ms if deadline_ms is None else deadline_ms) / 1000
        assert known.due_s > self.now

    def step(self) -> None:
        due = [
            id
            for id in self.ids(Phase.QUEUED, Phase.RUNNING)
            if self.known[id].due_s <= self.now and not self.known[id].has_token and not self.known[id].is_cancelled
        ]
        used = sum(self.in_engine.values())
        signals = Signals(kv_free_blocks=BLOCKS - used, kv_total_blocks=BLOCKS, engine_running=len(self.in_engine))
        decisions = self.core.step(self.now, signals)
        expired = [d for d in decisions if isinstance(d, Expire)]
        assert decisions[: len(expired)] == tuple(expired)
        assert sorted(d.id for d in expired) == sorted(due)
        for expire in expired:
            assert expire.was_running == (self.known[expire.id].phase is Phase.RUNNING)
            assert expire.waited_ms >= expire.deadline_ms - 1e-6
            self.known[expire.id].phase = Terminal.EXPIRED
        for decision in decisions[len(expired) :]:
            assert isinstance(decision, Release)
            self.check_release(decision)
        self.check_nobody_was_forgotten()

    def check_release(self, decision: Release) -> None:
        known = self.known[decision.id]
        assert known.phase is Phase.QUEUED
        if not known.is_probe:
            for other in (self.known[id] for id in self.ids(Phase.QUEUED)):
                if not other.is_probe and other is not known:
                    mine, theirs = self.priorities[known.request_class], self.priorities[other.request_class]
                    assert mine <= theirs
                    assert other.request_class != known.request_class or known.order < other.order
        known.phase = Phase.RUNNING
        self.in_engine[decision.id] = known.need_blocks

    def check_nobody_was_forgotten(self) -> None:
        """The engine is full, or the first in line (its position says so) does not fit."""
        waiting = self.ids(Phase.QUEUED)
        if waiting and len(self.in_engine) < SLOTS:
            first = min(waiting, key=lambda id: self.core.position(id) or 0)
            assert self.known[first].need_blocks > BLOCKS - sum(self.in_engine.values())

    def observe(self, tokens: list[int], ends: list[tuple[int, bool]]) -> None:
        reported, ended = [], []
        for pick in tokens:
            id = self.pick(pick, list(self.in_engine))
            if id is not None:
                reported.append(id)
                self.known[id].has_token = True
        for pick, is_failure in ends:
            id = self.pick(pick, list(self.in_engine))
            if id is not None:
                known = self.known[id]
                terminal = Terminal.FAILED if is_failure else Terminal.FINISHED
                ended.append(End(id=id, terminal=terminal))
                del self.in_engine[id]
                if known.phase is Phase.RUNNING:
                    known.phase = terminal
        # Tokens and ends of requests that are not in the engine must change nothing.
        for id in [id for id in self.known if id not in self.in_engine][-2:]:
            if all(id != end.id for end in ended):
                reported.append(id)
                ended.append(End(id=id, terminal=Terminal.FINISHED))
        report = StepReport(
            step_ms=1.0, prefill_tokens=4, decode_tokens=len(reported), firsts=tuple(reported), ends=tuple(ended)
        )
        self.core.observe(report, self.now)

    def cancel(self, pick: int) -> None:
        id = self.pick(pick, [*self.ids(*Phase), *list(self.known)[-2:]])
        if id is not None:
            known = self.known[id]
            phase = known.phase if isinstance(known.phase, Phase) else None
            assert self.core.cancel(id, self.now) is phase
            if phase is Phase.RUNNING:
                known.is_cancelled = True
            elif phase is not None:
                known.phase = Terminal.CANCELLED

    def fail(self, pick: int) -> None:
        id = self.pick(pick, [*self.ids(*Phase), *self.in_engine])
        if id is not None:
            self.core.fail(id, self.now)
            self.in_engine.pop(id, None)
            if isinstance(self.known[id].phase, Phase):
                self.known[id].phase = Terminal.FAILED

    def replace_policy(self, policy: Policy) -> None:
        self.policy = policy
        self.priorities.update({name: rules.priority for name, rules in policy.classes.items()})
        self.core.replace_policy(policy)

    def drain(self) -> None:
        self.core.set_draining(self.now)
        self.is_draining = True

    def check(self) -> None:
        self.core.check_integrity()
        snapshot = self.core.snapshot()
        assert snapshot.intake == len(self.ids(Phase.INTAKE))
        assert sum(snapshot.queued_by_class.values()) == len(self.ids(Phase.QUEUED))
        assert sum(snapshot.queued_by_bucket.values()) == len(self.ids(Phase.QUEUED))
        assert snapshot.running == len(self.ids(Phase.RUNNING))
        assert snapshot.offered == self.offered
        assert snapshot.reserved_blocks == sum(self.in_engine.values()) <= BLOCKS
        assert len(self.in_engine) <= SLOTS
        for terminal in Terminal:
            expected = self.refused if terminal is Terminal.REFUSED else len(self.ids(terminal))
            assert snapshot.terminals[terminal.value] == expected
        due = [
            known.due_s
            for known in self.known.values()
            if known.phase is Phase.QUEUED
            or (known.phase is Phase.RUNNING and not known.has_token and not known.is_cancelled)
        ]
        assert self.core.next_deadline_s() == min(due, default=None)
        positions = [self.core.position(id) for id in self.ids(Phase.QUEUED)]
        assert sorted(p for p in positions if p is not None) == list(range(len(positions)))


CLASSES = ("interactive", "offline")
PICK = st.integers(0, 10**6)
CLASS = st.sampled_from([*CLASSES, None, "nobody"])
PROMPT_TOKENS = st.sampled_from([3, 1, 9, 17, 30, 36, 0, 40, 50])
MAX_TOKENS = st.sampled_from([4, 1, 9, None, 30, 500, 0])
DEADLINE_MS = st.sampled_from([None, 200, 1000, 5000, 0])


class SchedulerMachine(RuleBasedStateMachine):
    """Short scenes, shrunk by hypothesis to the smallest that fails."""

    @initialize(policy=st.sampled_from(POLICIES))
    def start(self, policy: Policy) -> None:
        self.model = Model(policy)

    @rule(ms=st.sampled_from([1, 10, 60, 300]))
    def wait(self, ms: int) -> None:
        self.model.now_ms += ms

    @rule(name=CLASS, prompt_bytes=st.sampled_from([1, 2_000_000]), is_probe=st.booleans())
    def offer(self, name: str | None, prompt_bytes: int, is_probe: bool) -> None:
        self.model.offer(name, prompt_bytes, is_probe)

    @rule(pick=PICK)
    def offer_an_id_in_use(self, pick: int) -> None:
        self.model.offer_an_id_in_use(pick)

    @rule(pick=PICK, prompt=PROMPT_TOKENS, output=MAX_TOKENS, due_ms=DEADLINE_MS, lag_ms=st.sampled_from([0, 90]))
    def submit_from_intake(self, pick: int, prompt: int, output: int | None, due_ms: int | None, lag_ms: int) -> None:
        self.model.submit_from_intake(pick, prompt, output, due_ms, lag_ms)

    @rule(name=CLASS, prompt=PROMPT_TOKENS, output=MAX_TOKENS, due_ms=DEADLINE_MS, is_probe=st.booleans())
    def submit(self, name: str | None, prompt: int, output: int | None, due_ms: int | None, is_probe: bool) -> None:
        self.model.submit_directly(name, prompt, output, due_ms, is_probe)

    @rule(many=st.lists(st.sampled_from([(3, 1), (9, 5), (20, 6)]), min_size=2, max_size=5))
    def submit_good_ones(self, many: list[tuple[int, int]]) -> None:
        for prompt, output in many:
            self.model.submit_directly("interactive", prompt, output, None, False)

    @rule()
    def step(self) -> None:
        self.model.step()

    @rule(tokens=st.lists(PICK, max_size=2), ends=st.lists(st.tuples(PICK, st.booleans()), max_size=2))
    def observe(self, tokens: list[int], ends: list[tuple[int, bool]]) -> None:
        self.model.observe(tokens, ends)

    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        self.model.cancel(pick)

    @rule(pick=PICK)
    def fail(self, pick: int) -> None:
        self.model.fail(pick)

    @rule(policy=st.sampled_from(POLICIES))
    def replace_policy(self, policy: Policy) -> None:
        self.model.replace_policy(policy)

    @precondition(lambda self: self.model.count > 40)
    @rule()
    def drain(self) -> None:
        self.model.drain()

    @invariant()
    def the_books_agree_with_the_model(self) -> None:
        if hasattr(self, "model"):
            self.model.check()


SchedulerMachine.TestCase.settings = settings(deadline=None, max_examples=25, stateful_step_count=40)
test_the_scheduler_keeps_its_promises_under_any_events = SchedulerMachine.TestCase


def act(model: Model, rng: random.Random) -> None:
    pick, is_probe = rng.randrange(10**6), rng.random() < 0.05
    prompt, output = rng.choice([1, 3, 9, 17, 30, 50]), rng.choice([1, 4, 9, None, 30])
    due_ms, name = rng.choice([None, None, 200, 1000]), rng.choice(CLASSES)
    ends = [(rng.randrange(10**6), rng.random() < 0.1)] if rng.random() < 0.4 else []
    weighted: list[tuple[float, Callable[[], None]]] = [
        (6, lambda: model.offer(name, 1, is_probe)),
        (8, lambda: model.submit_directly(name, prompt, output, due_ms, is_probe)),
        (4, lambda: model.submit_from_intake(pick, prompt, output, due_ms, rng.randrange(100))),
        (8, model.step),
        (8, lambda: model.observe([pick], ends)),
        (1, lambda: model.cancel(pick)),
        (1, lambda: model.fail(pick)),
        (0.2, lambda: model.replace_policy(rng.choice(POLICIES))),
        (0.02, model.drain),
    ]
    weights, actions = zip(*weighted, strict=True)
    rng.choices(actions, weights)[0]()
    model.now_ms += rng.choice([0, 0, 10, 50])


@pytest.mark.parametrize("seed", range(12))
def test_the_scheduler_keeps_its_promises_over_a_long_busy_day(seed: int) -> None:
    rng = random.Random(seed)
    model = Model(rng.choice(POLICIES))
    for _ in range(400):
        act(model, rng)
        model.check()
    ended = {known.phase for known in model.known.values()}
    assert ended >= {Terminal.FINISHED, Terminal.EXPIRED, Terminal.REFUSED, Terminal.FAILED}
