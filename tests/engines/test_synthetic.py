from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from seekserve_backend.contract.step_model import StepModel
from seekserve_backend.engines.port import EndReason, EngineError, EngineInfo, EngineRequest, EngineStepReport, Sampling
from seekserve_backend.engines.synthetic import Pace, SyntheticEngine
from seekserve_backend.engines.synthetic_faults import FAULTS_VARIABLE, Faults

INFO = EngineInfo(
    kind="synthetic",
    max_seq_len_tokens=4096,
    max_batch_size=8,
    block_tokens=16,
    kv_total_blocks=1024,
    vocab_size=256,
    eos_ids=(),
)
MODEL = StepModel(
    base_points=((0, 0.0), (10_000, 10_000.0)),
    kv_read_ms_per_token=1.0,
    attention_ms_per_token2=0.0,
    source="a millisecond for everything",
)


class World:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 1e-4)


def engine(*, chunk_tokens: int = 100, faults: Faults | None = None, world: World | None = None) -> SyntheticEngine:
    world = world or World()
    pace = Pace(world.clock, world.sleep)
    return SyntheticEngine(
        INFO, token_id=7, chunk_tokens=chunk_tokens, step_model=MODEL, says=(1, 2), faults=faults, pace=pace
    )


def ask(made: SyntheticEngine, id: str = "a", *, prompt: int = 4, max_tokens: int = 10, min_tokens: int = 0) -> None:
    sampling = Sampling(min_tokens=min_tokens)
    made.add(EngineRequest(id=id, prompt_ids=(5,) * prompt, max_tokens=max_tokens, sampling=sampling))


def until_idle(made: SyntheticEngine) -> Iterator[EngineStepReport]:
    while made.stats().running:
        yield made.step(0.0)


@pytest.mark.parametrize(
    ("max_tokens", "min_tokens", "made_tokens", "reason"),
    [
        (10, 0, 10, EndReason.LENGTH),
        (10, 3, 3, EndReason.STOP),
        (10, 10, 10, EndReason.LENGTH),
        (4, 9, 4, EndReason.LENGTH),
    ],
)
def test_min_tokens_is_the_exact_length_when_given(
    max_tokens: int, min_tokens: int, made_tokens: int, reason: EndReason
) -> None:
    made = engine()
    ask(made, max_tokens=max_tokens, min_tokens=min_tokens)
    reports = list(until_idle(made))
    assert sum(len(event.token_ids) for report in reports for event in report.tokens) == made_tokens
    assert [end.reason for end in reports[-1].ends] == [reason]
    assert made.stats().kv_free_blocks == INFO.kv_total_blocks


def test_the_answer_says_what_it_was_told_to_say_again_and_again() -> None:
    made = engine()
    ask(made, max_tokens=5)
    assert [event.token_ids[0] for report in until_idle(made) for event in report.tokens] == [1, 2, 1, 2, 1]


def test_a_step_reads_the_cache_that_is_held_not_what_is_reserved() -> None:
    made = engine(chunk_tokens=30)
    ask(made, prompt=40, max_tokens=4)
    times_ms = [report.step_ms for report in until_idle(made)]
    # 30 prompt tokens, nothing held; 10 more beside 30 held; then one decoding beside what is held so far.
    assert times_ms == pytest.approx([30.0, 10.0 + 30.0, 1.0 + 41.0, 1.0 + 42.0, 1.0 + 43.0], abs=0.2)


def test_blocks_are_taken_for_all_that_may_be_asked_for() -> None:
    made = engine()
    ask(made, prompt=16, max_tokens=32, min_tokens=1)
    assert made.stats().kv_free_blocks == INFO.kv_total_blocks - 3


def test_what_the_caller_spends_between_steps_is_part_of_the_next_one() -> None:
    world = World()
    pace = Pace(world.clock, world.sleep)
    pace.wait(20.0)
    world.now += 0.005
    before = world.now
    assert pace.wait(20.0) == pytest.approx(20.0, abs=0.2)
    assert world.now - before == pytest.approx(0.015, abs=0.0005)


def test_a_caller_that_is_too_slow_is_not_caught_up_with() -> None:
    world = World()
    pace = Pace(world.clock, world.sleep)
    pace.wait(20.0)
    world.now += 5.0
    pace.wait(20.0)
    before = world.now
    pace.wait(20.0)
    assert world.now - before == pytest.approx(0.020, abs=0.0005)


def test_after_a_rest_a_step_begins_when_it_is_asked_for() -> None:
    world = World()
    pace = Pace(world.clock, world.sleep)
    pace.wait(20.0)
    world.now += 0.005
    pace.rest()
    before = world.now
    pace.wait(20.0)
    assert world.now - before == pytest.approx(0.020, abs=0.0005)


class Drill:
    def __init__(self, folder: Path) -> None:
        self.world = World()
        self.path = folder / "faults.json"
        self.faults = Faults(self.path, clock=self.world.clock, sleep=self.world.sleep)
        self.engine = engine(faults=self.faults, world=self.world)
        ask(self.engine, max_tokens=1000)
        self.engine.step(0.0)

    def tell(self, **fault: object) -> None:
        self.path.with_suffix(".new").write_text(json.dumps(fault))
        self.path.with_suffix(".new").rename(self.path)


@pytest.fixture
def drill(tmp_path: Path) -> Drill:
    return Drill(tmp_path)


def test_told_to_raise_it_raises_once(drill: Drill) -> None:
    drill.tell(fault="raise")
    with pytest.raises(EngineError, match="drill"):
        drill.engine.step(0.0)
    assert drill.engine.step(0.0).tokens


def test_told_to_hang_it_hangs_in_one_step(drill: Drill) -> None:
    drill.tell(fault="hang", for_s=8)
    before = drill.world.now
    drill.engine.step(0.0)
    assert drill.world.now - before >= 8.0
    before = drill.world.now
    drill.engine.step(0.0)
    assert drill.world.now - before < 1.0


def test_told_to_be_slow_its_steps_take_so_many_times_as_long_for_a_while(drill: Drill) -> None:
    usual_ms = drill.engine.step(0.0).step_ms
    drill.tell(fault="slow", factor=3, for_s=1)
    assert drill.engine.step(0.0).step_ms == pytest.approx(3 * usual_ms, rel=0.3)
    drill.world.now += 2.0
    assert drill.engine.step(0.0).step_ms < 2 * usual_ms


def test_told_to_lose_its_cache_it_fails_all_that_runs_and_works_on(drill: Drill) -> None:
    drill.tell(fault="lose_kv")
    assert [end.reason for end in drill.engine.step(0.0).ends] == [EndReason.FAILED]
    assert drill.engine.stats().kv_free_blocks == INFO.kv_total_blocks
    ask(drill.engine, "b")
    assert drill.engine.step(0.0).tokens


@pytest.mark.parametrize("text", ["", "{", '{"fault": "explode"}', '{"fault": "slow", "factor": -1}', "[]"])
def test_a_file_that_makes_no_sense_is_passed_over(drill: Drill, text: str) -> None:
    drill.path.write_text(text)
    assert drill.engine.step(0.0).tokens


def test_a_file_from_before_the_start_is_over(tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    path.write_text('{"fault": "raise"}')
    assert Faults(path).strike() == 1.0


def test_without_the_variable_there_are_no_faults() -> None:
    assert Faults.from_environment({}) is None
    assert Faults.from_environment({FAULTS_VARIABLE: "/x"}) is not None


def test_a_full_cache_pauses_who_began_last_and_every_answer_is_whole() -> None:
    small = dataclasses.replace(INFO, kv_total_blocks=8, may_pause=True)
    made = SyntheticEngine(small, token_id=7, chunk_tokens=100)
    ask(made, "a", prompt=32, max_tokens=60)  # 6 blocks in the end
    ask(made, "b", prompt=32, max_tokens=60)
    ask(made, "c", prompt=4, max_tokens=5)
    assert not made.can_add(EngineRequest(id="d", prompt_ids=(1,) * 32, max_tokens=60)), "1 block is left"
    tokens = {"a": 0, "b": 0, "c": 0}
    ended: list[str] = []
    prefilled = paused = 0
    for report in until_idle(made):
        prefilled += report.prefill_tokens
        paused += made.stats().queued or 0
        for event in report.tokens:
            tokens[event.id] += len(event.token_ids)
        ended += [end.id for end in report.ends]
        assert made.stats().kv_free_blocks >= 0
    assert tokens == {"a": 60, "b": 60, "c": 5}
    assert ended == ["c", "a", "b"]
    assert (prefilled, paused > 0) == (68, True), "each prompt counts once, though b was read again"
    assert made.stats().kv_free_blocks == 8
