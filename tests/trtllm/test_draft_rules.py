"""Each rule of speculative decoding fires on its case and is silent on the neighbouring one."""

from __future__ import annotations

from typing import Any

import pytest

from seekserve.trtllm import validate_llm_args
from seekserve.trtllm.draft_rules import DRAFT_RULES

Args = dict[str, Any]
EAGLE = {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model": "draft"}


def spec(**settings: object) -> Args:
    return {"speculative_config": settings}


# rule, version, refused arguments, accepted arguments
CASES: list[tuple[str, str, Args, Args]] = [
    ("mtp-length", "1.2.1", spec(decoding_type="MTP", max_draft_len=3), spec(decoding_type="MTP")),
    (
        "mtp-length",
        "1.4",
        spec(decoding_type="MTP", max_draft_len=3, num_nextn_predict_layers=2),
        spec(decoding_type="MTP", max_draft_len=3),
    ),
    ("draft-length", "1.4", spec(decoding_type="NGram"), spec(decoding_type="NGram", max_draft_len=4)),
    ("draft-model", "1.4", spec(decoding_type="Eagle3", max_draft_len=3), {"speculative_config": EAGLE}),
    (
        "draft-model",
        "1.4",
        spec(**EAGLE, speculative_model_dir="other"),
        spec(decoding_type="Eagle3", max_draft_len=3, speculative_model_dir="other"),
    ),
    (
        "draft-schedule",
        "1.4",
        spec(**EAGLE, draft_len_schedule={4: 3}, max_concurrency=8),
        spec(**EAGLE, draft_len_schedule={4: 3}),
    ),
    ("draft-schedule", "1.4", spec(**EAGLE, draft_len_schedule={}), spec(**EAGLE, draft_len_schedule=None)),
    (
        "draft-schedule",
        "1.4",
        spec(**EAGLE, draft_len_schedule={4: 2, 8: 1}),
        spec(**EAGLE, draft_len_schedule={4: 3, 8: 1}),
    ),
    (
        "draft-schedule",
        "1.4",
        spec(**EAGLE, draft_len_schedule={4: 3, 8: 4}),
        spec(**EAGLE, draft_len_schedule={4: 3, 8: 0}),
    ),
    (
        "draft-model",
        "1.4",
        spec(**EAGLE, speculative_model_dir=None),
        spec(decoding_type="Eagle3", max_draft_len=3, speculative_model_dir="other"),
    ),
    ("draft-length", "1.4", spec(decoding_type="PARD"), spec(decoding_type="PARD", max_draft_len=4)),
    (
        "draft-tree",
        "1.2.1",
        spec(**EAGLE, use_dynamic_tree=True),
        spec(**EAGLE, use_dynamic_tree=True, dynamic_tree_max_topK=4),
    ),
    (
        "draft-tree",
        "1.4",
        spec(**EAGLE, use_dynamic_tree=True, dynamic_tree_max_topK=4, eagle_choices=[[0]]),
        spec(**EAGLE, eagle_choices=[[0]]),
    ),
    (
        "draft-rejection",
        "1.4",
        spec(decoding_type="NGram", max_draft_len=2, use_rejection_sampling=True),
        spec(**EAGLE, use_rejection_sampling=True),
    ),
    (
        "draft-suffix",
        "1.4",
        spec(decoding_type="SA", max_draft_len=2, max_matching_ngram_size=0),
        spec(decoding_type="SA", max_draft_len=2, max_matching_ngram_size=-1),
    ),
    (
        "draft-suffix",
        "1.4",
        spec(decoding_type="SA", max_draft_len=2, max_matching_ngram_size=65, enable_global_pool=True),
        spec(decoding_type="SA", max_draft_len=2, max_matching_ngram_size=65),
    ),
    (
        "draft-suffix",
        "1.4",
        spec(decoding_type="SA", max_draft_len=2, global_pool_size=4096),
        spec(decoding_type="SA", max_draft_len=2, global_pool_size=4096, enable_global_pool=True),
    ),
    (
        "draft-suffix",
        "1.4",
        spec(decoding_type="SA", max_draft_len=2, global_pool_size=64, enable_global_pool=True),
        spec(decoding_type="SA", max_draft_len=2, global_pool_size=2048, enable_global_pool=True),
    ),
    (
        "draft-block",
        "1.4",
        spec(decoding_type="DSpark", max_draft_len=4, block_size=8),
        spec(decoding_type="DSpark", max_draft_len=4, block_size=4),
    ),
]


def fired(args: Args, version: str) -> list[str]:
    return [each.rule for each in validate_llm_args(args, version) if each.is_error]


@pytest.mark.parametrize(("rule", "version", "refused", "accepted"), CASES)
def test_a_rule_fires_on_its_case_and_not_beside_it(rule: str, version: str, refused: Args, accepted: Args) -> None:
    assert rule in fired(refused, version)
    assert fired(accepted, version) == []


def test_no_rule_stumbles_over_values_of_another_type() -> None:
    others: tuple[object, ...] = (None, [], {}, {"x": "y"}, "x", 1.5, True)
    for wrong in others:
        for _, version, refused, _ in CASES:
            settings = refused["speculative_config"]
            for name in settings:
                validate_llm_args(spec(**{**settings, name: wrong}), version)


def test_every_rule_has_its_sentence() -> None:
    names = [rule.__name__ for rule in DRAFT_RULES]
    assert len(set(names)) == len(names)
