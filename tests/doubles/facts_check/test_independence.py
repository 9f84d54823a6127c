"""The double and seekserve.trtllm were written apart from each other. Here they judge the same argument sets.

The double follows the package's own validators; our checks may be stricter, and say so. What differs is listed in
disagreements.yaml with an opinion; nothing differs unlisted. A set that we take with a warning "unverified" is no
claim.
"""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.doubles.double_tests.conftest import Make
from tests.doubles.double_tests.package import Package
from tests.doubles.facts_check.corpus import Args, at_path, single_sets

from seekserve.trtllm import ArgFinding, resolve_version, validate_llm_args

LISTED = yaml.safe_load((Path(__file__).resolve().parent / "disagreements.yaml").read_text(encoding="utf-8"))
CLASSES = (
    ("1.2.1", "TorchLlmArgs"),
    ("1.3.0rc20", "TorchLlmArgs"),
    ("1.4.0rc4", "TorchLlmArgs"),
    ("1.2.1", "TrtLlmArgs"),
)
# Sets that public deployment guides use, or close to them: they must pass on both sides.
GOOD: Mapping[str, tuple[Any, ...]] = {
    "tensor_parallel_size": (1, 8),
    "max_batch_size": (1, 256),
    "max_num_tokens": (1024, 8192),
    "max_seq_len": (None, 4096),
    "enable_chunked_prefill": (True, False),
    "enable_attention_dp": (True, False),
    "enable_iter_perf_stats": (True, False),
    "stream_interval": (1, 10),
    "kv_cache_config.free_gpu_memory_fraction": (0.5, 0.9),
    "kv_cache_config.dtype": ("auto", "fp8"),
    "kv_cache_config.enable_block_reuse": (True, False),
    "kv_cache_config.tokens_per_block": (32, 64),
    "kv_cache_config.host_cache_size": (None, 1 << 30),
    "cuda_graph_config.enable_padding": (True, False),
    "cuda_graph_config.max_batch_size": (1, 64),
    "moe_config.backend": ("CUTLASS", "DEEPGEMM", "TRTLLM"),
    "scheduler_config.capacity_scheduler_policy": ("GUARANTEED_NO_EVICT", "MAX_UTILIZATION"),
    "speculative_config.MTP.use_relaxed_acceptance_for_thinking": (True, False),
    "disable_overlap_scheduler": (True, False),
}


@dataclass(frozen=True)
class Difference:
    path: str
    takes: str
    rule: str
    args: Args


def doubles_judgement(package: Package, cls: str, args: Args) -> bool:
    try:
        package.module("_double.config").CLASSES[cls](model="/model", **args)
    except (ValueError, AssertionError, FileNotFoundError):
        return False
    return True


def our_findings(version: str, cls: str, args: Args) -> list[ArgFinding]:
    kind = "trtllm-pytorch" if cls == "TorchLlmArgs" else "trtllm-engine"
    return validate_llm_args({"model": "/model", **args}, version, engine_kind=kind)


def differences(package: Package, version: str, cls: str) -> Iterator[Difference]:
    states, owner = resolve_version(version).between, "torch" if cls == "TorchLlmArgs" else "trt"
    for path, args in single_sets(package, cls, states, owner):
        found = our_findings(version, cls, args)
        errors = [finding for finding in found if finding.is_error]
        is_doubted = any("unverified" in finding.message or finding.rule == "argument-unverified" for finding in found)
        if not errors and is_doubted:
            continue
        if doubles_judgement(package, cls, args) == bool(errors):
            yield Difference(path, "double" if errors else "ours", errors[0].rule if errors else "", args)


def entry_of(difference: Difference) -> str | None:
    for entry in LISTED["fields"]:
        if entry["takes"] == difference.takes and fnmatch.fnmatchcase(difference.path, entry["path"]):
            return f"{entry['takes']} {entry['path']}"
    return difference.rule if difference.rule in LISTED["ours_refuses_by_rule"] else None


def test_nothing_differs_unlisted_and_nothing_is_listed_in_vain(double: Make) -> None:
    logging.disable(logging.CRITICAL)
    used, unlisted = set(), []
    try:
        for version, cls in CLASSES:
            package = double(version)
            for difference in differences(package, version, cls):
                entry = entry_of(difference)
                used.add(entry)
                if entry is None:
                    unlisted.append((version, cls, difference))
    finally:
        logging.disable(logging.NOTSET)
    assert unlisted == []
    listed = {*LISTED["ours_refuses_by_rule"], *(f"{entry['takes']} {entry['path']}" for entry in LISTED["fields"])}
    assert listed - used == set()


@pytest.mark.parametrize("version", ["1.2.1", "1.3.0rc20", "1.4.0rc4"])
def test_plain_combinations_pass_on_both_sides(double: Make, version: str) -> None:
    package = double(version)

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.dictionaries(st.sampled_from(sorted(GOOD)), st.integers(0, 5), max_size=12))
    def check(picks: dict[str, int]) -> None:
        args: Args = {}
        for path, pick in picks.items():
            values = GOOD[path]
            args = _merged(args, at_path(path, values[pick % len(values)]))
        errors = [finding for finding in our_findings(version, "TorchLlmArgs", args) if finding.is_error]
        assert errors == []
        assert doubles_judgement(package, "TorchLlmArgs", args)

    check()


def _merged(one: Args, other: Args) -> Args:
    out = dict(one)
    for key, value in other.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = _merged(out[key], value) if both else value
    return out
