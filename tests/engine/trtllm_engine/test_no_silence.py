"""Whatever a build composes, the builder's own rules change nothing of it: what would be switched off is refused."""

from __future__ import annotations

import argparse
import itertools
import sys
from dataclasses import replace
from typing import Any

import pytest
from tests.engine.trtllm_engine.machine import A100, B200, DOUBLE, H100, Case, Make, machine

from seekserve.engine.outcome import BuildWish, TrtllmWish
from seekserve.engine.trtllm_engine.flags import build_flags, checked
from seekserve.engine.trtllm_engine.job import Job, read_job
from seekserve.errors import ConflictError

sys.path.insert(0, str(DOUBLE))
import trtllm_build_double as builder

ALGOS = {"bf16": None, "fp8_tensor": "FP8", "awq": "W4A16_AWQ", "w4a8_awq": "W4A8_AWQ", "int8": "W8A16"}
SMS = {A100: 80, H100: 90, B200: 100}
LIMITS = ("max_seq_len", "max_num_tokens", "max_batch_size", "max_beam_width")
SWITCHES = ("use_paged_context_fmha", "use_fp8_context_fmha")


@pytest.mark.parametrize("gpu", SMS)
def test_nothing_is_switched_off_without_a_word(gpu: str, make: Make) -> None:
    accepted = 0
    for kv, chunks in itertools.product(("bf16", "fp8_e4m3"), (True, False)):
        case = make("r1-distill-qwen-7b", H100, kv_dtype=kv, chunked_prefill=chunks)
        target = make("r1-distill-qwen-7b", gpu, kv_dtype="bf16").plan.deployment
        assert target is not None
        for weights, reuse in itertools.product(ALGOS, (True, False)):
            job = job_of(case, weights, target.target, reuse=reuse)
            flags = build_flags(job, "checkpoint", "engine", "cache")
            try:
                checked(job, "trtllm-build", flags, machine().environ)
            except ConflictError:
                continue
            accepted += 1
            asked = {name: flags[name] == "enable" for name in SWITCHES}
            assert made_of(asked, weights, kv, flags, SMS[gpu]) == asked
            assert asked["use_paged_context_fmha"] == (reuse or chunks)
    assert accepted > 10


def job_of(case: Case, weights: str, target: Any, *, reuse: bool) -> Job:
    """Also for weights and GPUs that a plan would have refused before."""
    deployment = case.plan.deployment
    assert deployment is not None
    plan = replace(
        case.plan, weights_dtype=weights, deployment=replace(deployment, case=replace(deployment.case, target=target))
    )
    own = TrtllmWish(args={"kv_cache_config": {"enable_block_reuse": reuse}})
    wish = BuildWish(target=case.out, link_weights=False, force=False, dry_run=True, trtllm=own)
    return read_job(wish, plan, case.source)


def made_of(asked: dict[str, bool], weights: str, kv: str, flags: dict[str, object], sm: int) -> dict[str, Any]:
    """What the double's rules, which are the builder's, make of them. They raise RuntimeError where it would."""
    limits = {name: flags[name] for name in LIMITS}
    build = {**limits, "max_input_len": 1024, "opt_num_tokens": None, "max_draft_len": 0}
    build["gather_context_logits"] = False
    rest = {"context_fmha": True, "streamingllm": False, "pp_reduce_scatter": False, "multiple_profiles": False}
    plugins = {**asked, **rest, "tokens_per_block": flags["tokens_per_block"]}
    quantization = {"quant_algo": ALGOS[weights], "kv_cache_quant_algo": "FP8" if kv == "fp8_e4m3" else None}
    model = {"max_position_embeddings": 131072, "quantization": quantization}
    builder.apply_rules(build, plugins, model, argparse.Namespace(speculative_decoding_mode=None), sm)
    assert {name: build[name] for name in limits} == limits
    return {name: plugins[name] for name in asked}
