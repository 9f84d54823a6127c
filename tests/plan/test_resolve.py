"""Resolution: who wins, what the defaults are, and that every value remembers its source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_facts import facts

from seekserve.errors import ConfigError, ConflictError, DoesNotFit
from seekserve.plan.inputs import FIELDS, Inputs, environment_inputs, file_inputs, flag_inputs, merge
from seekserve.plan.plan import Plan
from seekserve.plan.resolve import resolve

FILE = Path("/etc/seekserve.yaml")


def plan(inputs: Inputs | None = None, memory: int | None = None, **fact_changes: Any) -> Plan:
    return resolve(inputs or Inputs(), facts(**fact_changes), host_memory_bytes=memory)


def flags(**values: object) -> Inputs:
    return flag_inputs(values)


def test_without_inputs_the_defaults_of_the_reference_engine_apply() -> None:
    made = plan()
    assert made.limits.to_json() == {
        "max_seq_len_tokens": 2048,
        "max_batch_size": 16,
        "max_num_tokens": 512,
        "prefill_chunk_tokens": 256,
    }
    assert made.kv.to_json() == {
        "dtype": "fp8_e4m3",
        "block_tokens": 32,
        "capacity_blocks": 1024,
        "bytes_per_token": 320,
        "may_pause": False,
    }
    assert (made.name, made.engine, made.prompt_limit_tokens) == ("toy", "reference", 2047)


def test_every_resolved_value_has_a_source() -> None:
    assert set(plan().sources) == {spec.plan_key for spec in FIELDS}


def test_flag_beats_environment_beats_file_beats_default() -> None:
    from_environment, problems = environment_inputs(
        {"SEEKSERVE_MAX_BATCH_SIZE": "4", "SEEKSERVE_MAX_SEQ_LEN": "1024", "SEEKSERVE_KV_DTYPE": ""}
    )
    from_file = file_inputs({"max_batch_size": 2, "max_seq_len_tokens": 512, "block_tokens": 64}, FILE)
    made = plan(merge(flags(max_batch_size=8), from_environment, from_file))
    assert problems == []
    assert (made.limits.max_batch_size, made.limits.max_seq_len_tokens, made.kv.block_tokens) == (8, 1024, 64)
    assert made.sources["limits.max_batch_size"] == "flag --max-batch-size"
    assert made.sources["limits.max_seq_len_tokens"] == "environment SEEKSERVE_MAX_SEQ_LEN"
    assert made.sources["kv_cache.block_tokens"] == "file /etc/seekserve.yaml"
    assert made.sources["kv_cache.dtype"] == "default"


def test_the_default_sequence_limit_is_the_models_where_that_is_shorter() -> None:
    made = plan(max_position_tokens=1000)
    assert made.limits.max_seq_len_tokens == 1000
    assert made.sources["limits.max_seq_len_tokens"] == "checkpoint max_position_embeddings"


def test_defaults_give_way_to_what_was_asked_for() -> None:
    assert plan(flags(max_batch_size=1000)).limits.max_num_tokens == 1000
    assert plan(flags(max_num_tokens=64)).limits.prefill_chunk_tokens == 64


def test_the_default_cache_takes_at_most_a_quarter_of_the_host() -> None:
    made = plan(memory=4 * 2048 * 320 * 2, run_bytes=0)
    assert made.kv.capacity_tokens == 2048 * 2
    assert made.sources["kv_cache.capacity_blocks"] == "default: 25% of the host's memory"


def test_a_capacity_that_is_no_whole_number_of_blocks_is_rounded_down_and_says_so() -> None:
    made = plan(flags(kv_capacity_tokens=5000))
    assert made.kv.capacity_blocks == 156
    assert "5000 tokens, rounded down" in made.sources["kv_cache.capacity_blocks"]


@pytest.mark.parametrize(
    ("given_flags", "kind", "numbers"),
    [
        ({"max_seq_len_tokens": 5000}, ConflictError, ["5000 (flag --max-seq-len)", "4096"]),
        ({"prefill_chunk_tokens": 600}, ConflictError, ["600 (flag --prefill-chunk)", "512 (default)"]),
        ({"max_batch_size": 40, "max_num_tokens": 32}, ConflictError, ["40 (flag --max-batch-size)", "32 (flag"]),
        ({"block_tokens": 48}, ConflictError, ["48 (flag --block-tokens)", "--block-tokens 32 or 64"]),
        (
            {"kv_capacity_tokens": 2000},
            DoesNotFit,
            ["2048 tokens takes 64 blocks", "62", "1984", "tokens 2048 or more"],
        ),
    ],
)
def test_values_that_disagree_are_reported_with_both_numbers(
    given_flags: dict[str, object], kind: type[Exception], numbers: list[str]
) -> None:
    with pytest.raises(kind) as caught:
        plan(flags(**given_flags))
    assert type(caught.value) is kind
    for number in numbers:
        assert number in str(caught.value)


def test_a_host_too_small_for_one_sequence_is_an_answer_with_numbers() -> None:
    with pytest.raises(DoesNotFit, match="one sequence of 2048 tokens takes 64 blocks"):
        plan(memory=1_000_000, run_bytes=10)


def test_a_cache_above_the_hosts_memory_names_the_largest_that_fits() -> None:
    with pytest.raises(DoesNotFit, match="at most --kv-capacity-tokens 31200 on this host"):
        plan(flags(kv_capacity_tokens=1_000_000), memory=10_000_000, run_bytes=10_000)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("max_batch_size", 0, "limits.max_batch_size must be at least 1, got 0"),
        ("max_seq_len_tokens", 1, "limits.max_seq_len_tokens must be at least 2, got 1"),
        ("max_batch_size", True, "must be an integer, got True"),
        ("block_tokens", -8, "kv_cache.block_tokens must be at least 1, got -8"),
        ("kv_dtype", "fp8", "did you mean fp8_e4m3?"),
        ("engine", "refrence", "did you mean reference?"),
        ("name", "../x", "is no model name"),
        ("name", 7, "must be text, got 7"),
    ],
)
def test_a_value_wrong_in_itself_is_a_config_error(name: str, value: object, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(flags(**{name: value}))
    assert text in str(caught.value)


def test_all_problems_are_reported_together() -> None:
    from_environment, problems = environment_inputs({"SEEKSERVE_MAX_NUM_TOKENS": "many"})
    inputs = merge(flags(max_batch_size=0, kv_dtype="int4", max_seq_len_tokens=9000), from_environment)
    with pytest.raises(ConfigError) as caught:
        resolve(inputs, facts(), host_memory_bytes=None, problems=problems)
    text = str(caught.value)
    assert "4 problems" in text
    for part in ("SEEKSERVE_MAX_NUM_TOKENS: expected an integer, got 'many'", "got 0", "int4", "9000"):
        assert part in text


def test_a_rule_about_a_wrong_value_is_not_reported_on_top_of_it() -> None:
    with pytest.raises(ConfigError) as caught:
        plan(flags(max_num_tokens=0, prefill_chunk_tokens=600))
    assert "prefill_chunk" not in str(caught.value)


SIZES = st.one_of(st.none(), st.integers(min_value=-2, max_value=10_000))


@given(
    max_seq_len_tokens=SIZES,
    max_batch_size=SIZES,
    max_num_tokens=SIZES,
    prefill_chunk_tokens=SIZES,
    block_tokens=SIZES,
    kv_capacity_tokens=SIZES,
    memory=st.one_of(st.none(), st.integers(min_value=0, max_value=10**10)),
)
def test_a_plan_keeps_every_rule_or_there_is_none(memory: int | None, **values: int | None) -> None:
    try:
        made = plan(flags(**values), memory=memory)
    except (ConfigError, ConflictError):
        return
    limits, kv = made.limits, made.kv
    assert limits.max_batch_size <= limits.max_num_tokens
    assert limits.prefill_chunk_tokens <= limits.max_num_tokens
    assert 2 <= limits.max_seq_len_tokens <= min(4096, kv.capacity_tokens)
    assert kv.block_tokens.bit_count() == 1
    given_values = {name: value for name, value in values.items() if value is not None and name != "kv_capacity_tokens"}
    resolved = {**limits.to_json(), **kv.to_json()}
    assert {name: resolved[name] for name in given_values} == given_values
