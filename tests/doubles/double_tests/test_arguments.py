"""Arguments of the double's constructor as mappings and as objects, and what a release in doubt takes."""

from __future__ import annotations

import pytest
from tests.doubles.double_tests.conftest import Make


def test_objects_and_mappings_mean_the_same(double: Make) -> None:
    package = double()
    llmapi = package.module("llmapi")
    made = package.llm(
        kv_cache_config=llmapi.KvCacheConfig(tokens_per_block=8, max_tokens=80),
        scheduler_config=llmapi.SchedulerConfig(
            capacity_scheduler_policy=llmapi.CapacitySchedulerPolicy.MAX_UTILIZATION
        ),
        speculative_config=llmapi.MTPDecodingConfig(num_nextn_predict_layers=2),
        cuda_graph_config=None,
    )
    given = package.llm(
        kv_cache_config={"tokens_per_block": 8, "max_tokens": 80},
        scheduler_config={"capacity_scheduler_policy": "MAX_UTILIZATION"},
        speculative_config={"decoding_type": "MTP", "num_nextn_predict_layers": 2},
        cuda_graph_config=None,
    )
    assert made.args == given.args
    assert made.args.speculative_config.max_draft_len == 2
    assert made.args.max_beam_width == 1
    made.shutdown()
    given.shutdown()


def test_errors_of_nested_arguments_name_the_key(double: Make) -> None:
    package = double()
    with pytest.raises(ValueError, match=r"kv_cache_config: free_gpu_memory_fraction: 1\.5 is out of range"):
        package.llm(kv_cache_config={"free_gpu_memory_fraction": 1.5})
    with pytest.raises(ValueError, match="extra inputs are not permitted"):
        package.module("llmapi").KvCacheConfig(free_gpu_memory=0.5)
    with pytest.raises(TypeError):
        package.module("llmapi").KvCacheConfig(0.5)


@pytest.mark.parametrize(("doubts", "is_taken"), [("{}", True), ('{"args": "refuse"}', False)])
def test_argument_of_one_bracketing_state_is_a_matter_of_doubt(double: Make, doubts: str, is_taken: bool) -> None:
    package = double("1.3.0rc20", DOUBLE_TRTLLM_DOUBTS=doubts)
    for args in ({"onboard_blocks": False}, {"iteration_stats_interval": 2}):
        if is_taken:
            package.module("llmapi").KvCacheConfig(**args)
        else:
            with pytest.raises(ValueError):
                package.module("llmapi").KvCacheConfig(**args)


def test_newest_release_maps_the_old_draft_length(double: Make) -> None:
    package = double("1.4.0rc4")
    args = package.module("llmapi").TorchLlmArgs(
        model="/m", speculative_config={"decoding_type": "MTP", "num_nextn_predict_layers": 3}
    )
    assert args.speculative_config.max_draft_len == 3


def test_import_prints_a_banner_and_takes_the_hook(double: Make, capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    before = sys.excepthook
    assert double("1.3.0rc20").root.__version__ == "1.3.0rc20"
    assert "TensorRT-LLM version: 1.3.0rc20" in capsys.readouterr().out
    assert sys.excepthook is not before


def test_unknown_profile_and_doubt_are_errors(double: Make) -> None:
    with pytest.raises(RuntimeError, match="not one of"):
        double("1.0.0")
    with pytest.raises(RuntimeError, match="unknown names"):
        double(DOUBLE_TRTLLM_DOUBTS='{"trace": true}')
