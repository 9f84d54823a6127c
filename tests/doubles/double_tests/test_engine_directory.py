"""The engine-directory class of the releases that have the TensorRT backend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.doubles.double_tests.conftest import Make
from tests.doubles.double_tests.package import Package, write_engine


def engine_llm(package: Package, folder: Path, **args: Any) -> Any:
    return package.module("_tensorrt_engine").LLM(model=str(folder), skip_tokenizer_init=True, **args)


def test_engine_decides_sizes(double: Make, tmp_path: Path) -> None:
    package = double()
    llm = engine_llm(package, write_engine(tmp_path / "engine", "1.2.1"), max_batch_size=100, max_seq_len=77)
    assert (llm.args.max_batch_size, llm.args.max_num_tokens, llm.args.max_seq_len) == (4, 64, 128)
    result = llm.generate_async([5, 6], sampling_params=package.params(), streaming=False).result()
    assert result.outputs[0].token_ids == [5, 6, 1]
    assert result.outputs[0].cumulative_logprob is not None
    rows = llm.get_stats(timeout=0.4)
    assert rows[0]["maxBatchSizeStatic"] == 4
    assert rows[0]["kvCacheStats"]["tokensPerBlock"] == 8
    llm.shutdown()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"tensor_parallel_size": 4}, "tp_size 4"),
        ({"pipeline_parallel_size": 2}, "pp_size 2"),
        ({"guided_decoding_backend": "llguidance"}, "xgrammar"),
        ({"cuda_graph_config": {}}, "cuda_graph_config"),
        ({"enable_iter_perf_stats": True}, "enable_iter_perf_stats"),
    ],
)
def test_arguments_that_do_not_fit_the_engine_are_refused(
    double: Make, tmp_path: Path, args: dict[str, Any], words: str
) -> None:
    package = double()
    with pytest.raises(ValueError, match=words):
        engine_llm(package, write_engine(tmp_path / "engine", "1.2.1", tp=2), **args)


def test_cache_type_is_the_engines(double: Make, tmp_path: Path) -> None:
    package = double()
    with pytest.raises(AssertionError, match="dtype"):
        engine_llm(package, write_engine(tmp_path / "engine", "1.2.1"), kv_cache_config={"dtype": "fp8"})


def test_parallelism_of_the_engine_is_taken_over(double: Make, tmp_path: Path) -> None:
    package = double(behaviour={"gpus": 1})
    with pytest.raises(RuntimeError, match="Only 1 GPUs are available, but 2"):
        engine_llm(package, write_engine(tmp_path / "engine", "1.2.1", tp=2))


def test_broken_engines_fail_in_the_worker(double: Make, tmp_path: Path) -> None:
    package = double()
    folder = write_engine(tmp_path / "engine", "1.2.1", tp=2)
    (folder / "rank1.engine").unlink()
    with pytest.raises(RuntimeError, match="worker returned") as caught:
        engine_llm(package, folder)
    assert "rank 1" in str(caught.value.__cause__)
    with pytest.raises(RuntimeError, match="worker returned") as caught:
        engine_llm(package, write_engine(tmp_path / "old", "1.1.0"))
    assert "1.1.0" in str(caught.value.__cause__)
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="config"):
        engine_llm(package, tmp_path / "none")
    (tmp_path / "none" / "config.json").write_text(json.dumps({"architectures": ["X"]}))
    with pytest.raises(NotImplementedError):
        engine_llm(package, tmp_path / "none")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_tokens": 127}, "max_seq_len"),
        ({"use_beam_search": True, "best_of": 2}, "best_of"),
        ({"n": 5, "temperature": 1.0}, "best_of"),
        ({"logprobs": 1}, "gather_generation_logits"),
        ({"prompt_logprobs": 1}, "gather_context_logits"),
    ],
)
def test_requests_beyond_the_engine_are_refused_at_once(
    double: Make, tmp_path: Path, given: dict[str, Any], words: str
) -> None:
    package = double()
    llm = engine_llm(package, write_engine(tmp_path / "engine", "1.2.1"))
    with pytest.raises(ValueError, match=words):
        llm.generate_async([5, 6], sampling_params=package.params(**given))
    llm.shutdown()


def test_newest_release_has_no_such_class(double: Make) -> None:
    package = double("1.4.0rc4")
    with pytest.raises(ImportError):
        package.module("_tensorrt_engine")
    with pytest.raises(AttributeError):
        package.module("llmapi").BuildConfig  # noqa: B018
    with pytest.raises(ValueError, match="invalid argument: build_config"):
        package.llm(build_config={})


def test_pytorch_class_points_to_the_engine_class(double: Make) -> None:
    package = double()
    with pytest.raises(ValueError, match="_tensorrt_engine"):
        package.llm(build_config={})
    with pytest.raises(ValueError, match="LLM got invalid argument: foo"):
        package.llm(foo=1)


def test_folder_without_weights_fails_in_the_worker(double: Make) -> None:
    package = double()
    (package.model / "model.safetensors").unlink()
    with pytest.raises(RuntimeError, match="worker returned"):
        package.llm()
    (package.model / "config.json").unlink()
    with pytest.raises(ValueError, match="config"):
        package.llm()
