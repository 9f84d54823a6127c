"""What a request gets from TensorRT-LLM through the port, in every release that can be aimed at."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.engines.trtllm.bundles import BLOCKS, EOS, KV, LIMITS, Run, request
from tests.engines.trtllm.conftest import World

from seekserve_backend.engines.port import EndReason, Guide, Sampling


def script(world: World, tokens: list[int]) -> dict[str, Any]:
    path = world.folder / "script.json"
    path.write_text(json.dumps({"*": tokens}))
    return {"DOUBLE_TRTLLM_SCRIPT": str(path)}


def test_tokens_arrive_in_steps_and_the_end_id_is_not_among_them(world: World) -> None:
    run = Run(world.start()).add(request(prompt=range(10, 40), max_tokens=60)).until_ended("a")
    assert run.tokens() == list(range(10, 40))
    assert len(run.events["a"]) > 3
    assert run.ends["a"].reason is EndReason.STOP


def test_a_guide_is_passed_on_where_guided_decoding_is_switched_on(world: World) -> None:
    engine = world.start(guided_decoding_backend="xgrammar")
    assert engine.info.has_guides
    wish = Sampling(guide=Guide(kind="regex", text="[0-9]+"))
    run = Run(engine).add(request(sampling=wish)).until_ended("a")
    assert run.ends["a"].reason is EndReason.STOP


def test_max_tokens_ends_with_length_and_exactly_as_many(world: World) -> None:
    run = Run(world.start()).add(request(prompt=range(10, 40), max_tokens=7)).until_ended("a")
    assert run.tokens() == list(range(10, 17))
    assert run.ends["a"].reason is EndReason.LENGTH


def test_every_eos_id_of_the_checkpoint_ends_a_text(world: World) -> None:
    run = Run(world.start(**script(world, [20, 21, 3, 22]))).add(request()).until_ended("a")
    assert (run.tokens(), run.ends["a"].reason) == ([20, 21], EndReason.STOP)


def test_stop_ids_of_the_request_replace_those_of_the_checkpoint(world: World) -> None:
    engine = world.start(**script(world, [20, 3, 21, EOS, 22, 23]))
    run = Run(engine).add(request(stop_ids=(22, 99))).until_ended("a")
    assert (run.tokens(), run.ends["a"].reason) == ([20, 3, 21, EOS], EndReason.STOP)


@pytest.mark.parametrize(
    "shape",
    [
        {"end_id_in_output": True},
        {"end_id_in_output": False},
        {"empty_last_step": True},
        {"tokens_per_step": [3, 1, 2]},
        {"tokens_per_step": [4], "empty_last_step": True},
    ],
    ids=str,
)
def test_however_the_last_steps_look_no_stop_id_gets_through(old_world: World, shape: dict[str, Any]) -> None:
    engine = old_world.start(shape, **script(old_world, [20, 21, 22, 23, 24, 3]))
    run = Run(engine).add(request()).until_ended("a")
    assert (run.tokens(), run.ends["a"].reason) == ([20, 21, 22, 23, 24], EndReason.STOP)


def test_a_text_that_ends_at_once_has_no_tokens_and_an_end(world: World) -> None:
    run = Run(world.start(**script(world, [EOS]))).add(request()).until_ended("a")
    assert run.tokens() == []
    assert run.ends["a"].reason is EndReason.STOP


def test_min_tokens_keeps_a_text_going(world: World) -> None:
    engine = world.start(**script(world, [20, EOS, 21, 22, EOS]))
    run = Run(engine).add(request(sampling=Sampling(min_tokens=4))).until_ended("a")
    assert len(run.tokens()) == 4
    assert run.ends["a"].reason is EndReason.STOP


def test_one_event_per_request_and_report_however_many_responses_came(world: World) -> None:
    run = Run(world.start({"step_ms": 0.2})).add(*(request(f"r{n}", range(10, 50), 60) for n in range(4)))
    run.until_ended("r0", "r1", "r2", "r3")
    for report in run.reports:
        ids = [event.id for event in report.tokens]
        assert len(ids) == len(set(ids))
        assert report.batch_size >= len(ids)
        assert report.step_ms >= 0
    assert sum(report.prefill_tokens for report in run.reports) == 4 * 40
    stats = run.engine.stats()
    assert (stats.tokens_out, stats.prompt_tokens_in, stats.running) == (160, 160, 0)


def test_log_probabilities_come_with_their_tokens_when_wanted(world: World) -> None:
    run = Run(world.start({"tokens_per_step": [2, 1]}))
    run.add(request("with", range(10, 20), wants_logprobs=True), request("without", range(10, 20)))
    run.until_ended("with", "without")
    assert run.tokens("with") == list(range(10, 20))
    assert run.logprobs("with") == [-0.125 - (token % 8) / 64 for token in range(10, 20)]
    assert run.logprobs("without") == []
    assert all(len(event.logprobs) == len(event.token_ids) for event in run.events["with"])


def test_beams_come_in_one_piece_with_the_end(world: World) -> None:
    engine = world.start(beams=4)
    assert engine.info.max_beam_width == 4
    assert engine.info.runtime_controls == {"beam_width"}
    run = Run(engine).add(request(prompt=range(10, 20), beam_width=3)).until_ended("a")
    assert len(run.events["a"]) == 1
    assert run.tokens() == list(range(10, 20))


def test_a_drafting_engine_is_one_with_several_tokens_a_step(world: World) -> None:
    run = Run(world.start({"tokens_per_step": 4})).add(request(prompt=range(10, 40), max_tokens=60)).until_ended("a")
    assert run.tokens() == list(range(10, 40))
    assert max(len(event.token_ids) for event in run.events["a"]) >= 4


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.7, top_k=40, top_p=0.9, seed=2**64 - 1),
        Sampling(temperature=1.0),
        Sampling(repetition_penalty=1.2, presence_penalty=-1.0, frequency_penalty=0.5, min_tokens=3),
    ],
    ids=["sampled", "plain", "penalised"],
)
def test_every_kind_of_sampling_is_taken(world: World, sampling: Sampling) -> None:
    run = Run(world.start()).add(request(prompt=range(10, 20), sampling=sampling)).until_ended("a")
    assert run.tokens() == list(range(10, 20))


def test_a_request_may_fill_the_whole_sequence_and_no_more(world: World) -> None:
    engine = world.start()
    whole = LIMITS.max_seq_len_tokens
    run = Run(engine).add(request(prompt=[10] * 100, max_tokens=whole - 100)).until_ended("a")
    assert len(run.tokens()) == whole - 100
    with pytest.raises(ValueError, match="129, the limit is 128"):
        engine.add(request(prompt=[10] * 100, max_tokens=whole - 99))


def test_an_engine_directory_serves_too(engine_world: World) -> None:
    engine = engine_world.start(engine="trtllm-engine")
    assert (engine.info.kind, engine.info.eos_ids, engine.info.has_logprobs) == ("trtllm-engine", (EOS,), False)
    run = Run(engine).add(request(prompt=range(10, 40), max_tokens=60)).until_ended("a")
    assert run.tokens() == list(range(10, 40))
    assert len(run.events["a"]) > 3


def test_an_engine_directory_gives_log_probabilities_at_the_end(engine_world: World) -> None:
    engine = engine_world.start(engine="trtllm-engine", gather_generation_logits=True)
    assert engine.info.has_logprobs
    run = Run(engine).add(request(prompt=range(10, 20), wants_logprobs=True)).until_ended("a")
    # In one piece: aborting a stream with log probabilities takes such an engine down.
    assert len(run.events["a"]) == 1
    assert run.logprobs() == [-0.125 - (token % 8) / 64 for token in range(10, 20)]


def test_where_it_may_pause_only_what_a_request_has_filled_counts(world: World) -> None:
    kv = replace(KV, may_pause=True)
    engine = world.start(kv=kv, scheduler_config={"capacity_scheduler_policy": "MAX_UTILIZATION"})
    assert engine.info.may_pause
    run = Run(engine).add(request(prompt=range(10, 41), max_tokens=90))
    assert engine.stats().kv_free_blocks == BLOCKS - 4, "31 tokens and the first of its answer"
    run.until(lambda: len(run.tokens()) >= 9)
    assert engine.stats().kv_free_blocks == BLOCKS - -(-(31 + len(run.tokens()) + 1) // 8)
    run.until_ended("a")
    assert engine.stats().kv_free_blocks == BLOCKS
