"""From the port's request to the keywords of SamplingParams."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.engines.trtllm.bundles import BLOCK_TOKENS, request

from seekserve_backend.contract.bundle import Retention
from seekserve_backend.engines.port import EngineInfo, Guide, Sampling
from seekserve_backend.engines.trtllm.package import accepted, same_version
from seekserve_backend.engines.trtllm.sampling import guide_keywords, request_problems, retention_of, sampling_keywords

INFO = EngineInfo(
    kind="trtllm-pytorch",
    max_seq_len_tokens=128,
    max_batch_size=4,
    block_tokens=BLOCK_TOKENS,
    kv_total_blocks=64,
    vocab_size=1000,
    eos_ids=(1, 3),
    has_logprobs=True,
    max_beam_width=4,
)
ALWAYS = {"max_tokens": 20, "detokenize": False, "add_special_tokens": False}
ENDS = {"end_id": 1, "stop_token_ids": [3]}


def keywords(model_has_defaults: bool = False, **fields: Any) -> dict[str, Any]:
    return sampling_keywords(request(**fields), INFO, model_has_defaults=model_has_defaults, draw_seed=lambda: 77)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {**ENDS, "top_k": 1}),
        ({"stop_ids": (9,)}, {"end_id": 9, "top_k": 1}),
        ({"stop_ids": (9, 8, 7)}, {"end_id": 9, "stop_token_ids": [8, 7], "top_k": 1}),
        ({"sampling": Sampling(temperature=0.5)}, {**ENDS, "temperature": 0.5, "top_k": 0, "top_p": 1.0, "seed": 77}),
        (
            {"sampling": Sampling(temperature=0.5, top_k=5, top_p=0.9, seed=0)},
            {**ENDS, "temperature": 0.5, "top_k": 5, "top_p": 0.9, "seed": 0},
        ),
        ({"sampling": Sampling(min_tokens=50)}, {**ENDS, "top_k": 1, "min_tokens": 20}),
        (
            {"sampling": Sampling(repetition_penalty=1.1, presence_penalty=-1.0)},
            {**ENDS, "top_k": 1, "repetition_penalty": 1.1, "presence_penalty": -1.0},
        ),
        ({"beam_width": 4}, {**ENDS, "use_beam_search": True, "best_of": 4, "n": 1}),
        ({"wants_logprobs": True}, {**ENDS, "top_k": 1, "logprobs": 1}),
    ],
    ids=str,
)
def test_each_wish_becomes_its_keywords(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert keywords(**fields) == {**ALWAYS, **expected}


@pytest.mark.parametrize(
    ("guide", "expected"),
    [
        (Guide(kind="json", text=""), {"json_object": True}),
        (Guide(kind="json_schema", text="{}"), {"json": "{}"}),
        (Guide(kind="regex", text="a+"), {"regex": "a+"}),
        (Guide(kind="ebnf_grammar", text="root"), {"grammar": "root"}),
    ],
    ids=str,
)
def test_each_guide_becomes_its_keyword_and_is_refused_without_guided_decoding(
    guide: Guide, expected: dict[str, Any]
) -> None:
    assert guide_keywords(guide) == expected
    asked = request(sampling=Sampling(guide=guide))
    assert "no guided decoding" in "".join(request_problems(asked, INFO))
    assert request_problems(asked, replace(INFO, has_guides=True)) == []


def test_a_model_without_end_ids_runs_to_its_length() -> None:
    info = EngineInfo(
        kind="trtllm-pytorch",
        max_seq_len_tokens=128,
        max_batch_size=4,
        block_tokens=8,
        kv_total_blocks=64,
        vocab_size=1000,
        eos_ids=(),
    )
    assert sampling_keywords(request(), info, model_has_defaults=False)["end_id"] == -1


def test_a_neutral_penalty_is_said_where_the_models_own_would_take_its_place() -> None:
    assert keywords(model_has_defaults=True)["repetition_penalty"] == 1.0
    assert keywords(model_has_defaults=True)["top_k"] == 1, "greedy whatever the model's own temperature is"


def test_requests_without_a_seed_get_different_ones() -> None:
    sampled = request(sampling=Sampling(temperature=1.0))
    seeds = {sampling_keywords(sampled, INFO, model_has_defaults=False)["seed"] for _ in range(20)}
    assert len(seeds) == 20


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sampling": Sampling(top_k=-1)}, "top_k is -1, it must be at least 0"),
        ({"sampling": Sampling(top_p=0.0)}, "top_p is 0.0, it must be above 0"),
        ({"sampling": Sampling(temperature=float("nan"))}, "temperature is nan"),
        ({"sampling": Sampling(temperature=float("inf"))}, "temperature is inf"),
        ({"sampling": Sampling(repetition_penalty=0.0)}, "repetition_penalty is 0.0"),
        ({"sampling": Sampling(seed=2**64)}, "seed is"),
        ({"beam_width": 5}, "beam_width is 5, it must be 1 to 4"),
        ({"beam_width": 2, "sampling": Sampling(temperature=1.0)}, "one of both"),
        ({"beam_width": 2, "wants_logprobs": True}, "log probabilities"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"prompt": [0] * 120}, "prompt and max_tokens are 140, the limit is 128"),
    ],
    ids=str,
)
def test_faults_are_named(fields: dict[str, Any], words: str) -> None:
    (problem,) = request_problems(request(**fields), INFO)
    assert words in problem


def test_durations_of_retention_are_timedeltas() -> None:
    class Config:
        def __init__(self, **given: Any) -> None:
            self.given = given

        class TokenRangeRetentionConfig:
            def __init__(self, **given: Any) -> None:
                self.given = given

    made = retention_of(Retention(prompt_priority=80, prompt_duration_s=30.0, prompt_tokens=100), Config, 40)
    (span,) = made.given["token_range_retention_configs"]
    assert span.given == {"token_start": 0, "token_end": 40, "priority": 80, "duration_ms": timedelta(seconds=30)}
    assert made.given["decode_retention_priority"] == 35


@pytest.mark.parametrize(
    ("found", "wanted", "same"),
    [
        ("1.2.1", "1.2.1", True),
        ("1.2.1.post1", "1.2.1", True),
        ("1.2.1+cu130", "1.2.1", True),
        ("1.3.0rc20", "1.3.0rc20", True),
        ("1.3.0.rc20", "1.3.0rc20", True),
        ("1.3.0", "1.3.0rc20", False),
        ("1.3.0rc2", "1.3.0rc20", False),
        ("1.2.10", "1.2.1", False),
        ("unknown", "1.2.1", False),
    ],
)
def test_versions_are_the_same_up_to_the_candidate(found: str, wanted: str, same: bool) -> None:
    assert same_version(found, wanted) is same


def test_only_keywords_that_a_callable_has_are_passed() -> None:
    def narrow(inputs: object, *, a: int) -> None: ...

    def wide(**anything: int) -> None: ...

    assert accepted(narrow, {"a": 1, "b": 2}) == {"a": 1}
    assert accepted(wide, {"a": 1, "b": 2}) == {"a": 1, "b": 2}
