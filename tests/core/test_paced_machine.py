"""The paced scheduler under random events: books balance, bounds hold, the same events give the same decisions."""

from __future__ import annotations

import random
from typing import Any

import pytest

from seekserve_backend.contract.bundle import KvCache, Limits
from seekserve_backend.contract.policy import Policy
from seekserve_backend.contract.step_model import StepModel
from seekserve_backend.core.scheduler import Scheduler
from seekserve_backend.core.types import Accepted, End, Expire, Release, Request, Signals, StepReport, Terminal

SLOTS, BLOCKS, BLOCK_TOKENS = 6, 200, 16
MODEL = StepModel(
    base_points=((1, 5.0), (64, 20.0), (1024, 60.0)),
    kv_read_ms_per_token=1e-4,
    attention_ms_per_token2=1e-6,
    source="a test",
)
CLASSES = {
    "chat": {"priority": 0, "max_queue_requests": 50, "deadline_ms": 800, "tpot_slo_ms": 40},
    "draft": {"priority": 2, "max_queue_requests": 50, "deadline_ms": 2000, "deadline_ms_per_token": 1.0},
    "offline": {"priority": 3, "max_queue_requests": 50, "deadline_ms": 60_000, "is_offline": True},
}


def policy(**changes: Any) -> Policy:
    data = {"kind": "paced", "default_class": "chat", "classes": CLASSES, **changes}
    return Policy.from_data({**data, "paced": {"ramp_doubling_s": 0.5, **changes.get("paced", {})}}, "test")


class World:
    """A scheduler, a naive engine, and what must be true of both after every event."""

    def __init__(self, rules: Policy, model: StepModel | None, seed: int, *, may_pause: bool = False) -> None:
        self.random = random.Random(seed)
        limits = Limits(max_seq_len_tokens=2048, max_batch_size=SLOTS, max_num_tokens=512, prefill_chunk_tokens=128)
        kv = KvCache(
            dtype="bf16", block_tokens=BLOCK_TOKENS, capacity_blocks=BLOCKS, bytes_per_token=2, may_pause=may_pause
        )
        self.may_pause = may_pause
        self.pauses = 0
        self.core = Scheduler(rules, limits, kv, model)
        self.policies = [
            rules,
            policy(paced={"dear_cushion": 0.0, "ramp_doubling_s": 0.0}),
            *(policy(kind=kind, max_running=3) for kind in ("fcfs", "static", "seed")),
        ]
        self.now = 5.0
        self.count = 0
        self.accepted: set[str] = set()
        self.over: set[str] = set()
        self.engine: dict[str, list[int]] = {}
        """id -> [prompt left to read, tokens to make, tokens made, blocks]"""
        self.log: list[object] = []

    def submit(self) -> None:
        pick = self.random
        id = f"r{self.count}"
        self.count += 1
        prompt = pick.choice([1, 20, 200, 700, 1500])
        answer = self.core.submit(
            Request(
                id=id,
                prompt_tokens=prompt,
                max_tokens=pick.choice([1, 30, 400, None]),
                request_class=pick.choice([*CLASSES, None]),
                tenant=pick.choice(["", "a", "b"]),
                deadline_ms=pick.choice([None, None, 300, 5000]),
                arrival_s=self.now - pick.choice([0.0, 0.0, 0.2]),
                is_probe=pick.random() < 0.05,
            ),
            self.now,
        )
        self.log.append(answer)
        if isinstance(answer, Accepted):
            self.accepted.add(id)
            self.wishes = getattr(self, "wishes", {})
            self.wishes[id] = (prompt, answer.max_tokens)
        else:
            self.over.add(id)
            assert answer.reason
            assert answer.retry_after_ms is None or 0 < answer.retry_after_ms <= 60_000

    def step(self) -> None:
        for decision in self.core.step(self.now, Signals()):
            self.log.append(decision)
            assert decision.id in self.accepted
            assert decision.id not in self.over, "nothing happens to a request after its end"
            if isinstance(decision, Expire):
                self.over.add(decision.id)
                if not decision.was_running:
                    assert decision.id not in self.engine
            else:
                assert isinstance(decision, Release)
                assert decision.id not in self.engine
                prompt, most = self.wishes[decision.id]
                blocks = -(-(prompt + most) // BLOCK_TOKENS)
                self.engine[decision.id] = [prompt, self.random.randint(1, most), 0, blocks]
        assert len(self.engine) <= SLOTS
        assert self.may_pause or sum(work[3] for work in self.engine.values()) <= BLOCKS

    def pause(self) -> None:
        """Whoever began last is read again, answer and all, until the rest fits."""
        held = {
            id: -(-(self.wishes[id][0] + work[2] - work[0] + 1) // BLOCK_TOKENS) for id, work in self.engine.items()
        }
        for id in reversed([*self.engine]):
            if sum(held.values()) <= BLOCKS:
                break
            self.engine[id][0] = self.wishes[id][0] + self.engine[id][2]
            self.pauses += held.pop(id) > 1

    def run(self) -> None:
        """One engine step."""
        self.pause()
        budget, read, firsts, ends, decoded = 128, 0, [], [], 0
        for id, work in self.engine.items():
            if work[0] > 0:
                c = min(budget, work[0])
                budget, read, work[0] = budget - c, read + c, work[0] - c
                if work[0] == 0:
                    firsts += [id] if work[2] == 0 else []
                    decoded += work[2] > 0
                    work[2] += 1
            else:
                work[2] += 1
                decoded += 1
            if work[0] == 0 and work[2] >= work[1]:
                ends.append(End(id=id, terminal=self.random.choice(list(Terminal)[:2]), tokens=work[2]))
        ms = self.random.uniform(5.0, 80.0)
        self.now += ms / 1000.0
        for end in ends:
            del self.engine[end.id]
            self.over.add(end.id)
        self.core.observe(
            StepReport(step_ms=ms, prefill_tokens=read, decode_tokens=decoded, firsts=tuple(firsts), ends=tuple(ends)),
            self.now,
        )

    def cancel(self) -> None:
        open_ids = sorted(self.accepted - self.over)
        if not open_ids:
            return
        id = self.random.choice(open_ids)
        self.core.cancel(id, self.now)
        if id in self.engine:
            made = self.engine.pop(id)[2]
            self.core.observe(
                StepReport(step_ms=0.0, ends=(End(id=id, terminal=Terminal.CANCELLED, tokens=made),)), self.now
            )
        self.over.add(id)

    def fail(self) -> None:
        if self.engine:
            id = self.random.choice(list(self.engine))
            del self.engine[id]
            self.core.fail(id, self.now)
            self.over.add(id)

    def turn(self) -> None:
        dice = self.random.random()
        if dice < 0.35:
            self.submit()
        elif dice < 0.55:
            self.step()
        elif dice < 0.85:
            self.run()
        elif dice < 0.92:
            self.now += self.random.choice([0.01, 0.3, 3.0])
        elif dice < 0.96:
            self.cancel()
        elif dice < 0.98:
            self.fail()
        else:
            self.core.replace_policy(self.random.choice(self.policies))
        self.core.check_integrity()

    def finish(self) -> None:
        """Nothing more comes: everything must end."""
        for _ in range(6000):
            self.step()
            self.run()
            self.core.check_integrity()
            if not (self.accepted - self.over) and not self.engine:
                break
        snapshot = self.core.snapshot()
        assert snapshot.offered == sum(snapshot.terminals.values()) == self.count
        assert (snapshot.running, snapshot.reserved_blocks) == (0, 0)


@pytest.mark.parametrize("model", [MODEL, None], ids=["modelled", "learned"])
@pytest.mark.parametrize("seed", range(12))
def test_every_request_ends_once_and_the_books_balance(seed: int, model: StepModel | None) -> None:
    world = World(policy(), model, seed)
    for _ in range(500):
        world.turn()
    world.finish()


def test_on_an_engine_that_may_pause_every_request_ends_once_and_the_books_balance() -> None:
    pauses = 0
    for seed in range(12):
        world = World(policy(paced={"start_output_tokens": 1.0}), MODEL, seed, may_pause=True)
        for _ in range(500):
            world.turn()
        world.finish()
        pauses += world.pauses
    assert pauses, "the cache must have been too small now and then"


def test_the_same_events_give_the_same_decisions() -> None:
    logs = []
    for _ in range(2):
        world = World(policy(), MODEL, 77)
        for _ in range(600):
            world.turn()
        logs.append(repr(world.log))
    assert logs[0] == logs[1]
