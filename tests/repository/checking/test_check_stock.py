"""Stock repositories with one thing wrong: the report names it, its file and its line. Numbers are user reports'."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.repository.checking.stock_repository import edit, write_llmapi, write_stock

from seekserve.errors import InputError
from seekserve.repository.checking import check_repository

Break = Callable[[Path], object]


def in_config(model: str, old: str, new: str) -> Break:
    return lambda repository: edit(repository / model / "config.pbtxt", old, new)


def in_yaml(old: str, new: str) -> Break:
    return lambda repository: edit(repository / "tensorrt_llm" / "1" / "model.yaml", old, new)


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    return write_stock(tmp_path)


@pytest.fixture
def llmapi(tmp_path: Path) -> Path:
    return write_llmapi(tmp_path)


@pytest.mark.parametrize("make", [write_stock, write_llmapi])
def test_a_right_repository_is_fit_to_serve(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    report = check_repository(make(tmp_path), version="1.2.1")
    assert not report.findings, report.text()
    assert "is fit to serve" in report.text()


def test_a_repository_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        check_repository(tmp_path / "none")


STOCK: list[tuple[str, Break, str, str, str]] = [
    (
        "C2 a comma in a value is a value",
        in_config("tensorrt_llm", '"0.9"', '"0,9"'),
        "argument-type",
        "tensorrt_llm/config.pbtxt:22",
        "a number",
    ),
    (
        "C3 the engine's path leads nowhere",
        lambda r: shutil.rmtree(r.parent / "engine"),
        "engine",
        "tensorrt_llm/config.pbtxt:19",
        "is not there",
    ),
    (
        "C3 the engine's config.json is empty",
        lambda r: (r.parent / "engine" / "config.json").write_text(""),
        "engine",
        "tensorrt_llm/config.pbtxt:19",
        "is not JSON",
    ),
    (
        "C3 one rank's engine is missing",
        lambda r: (r.parent / "engine" / "rank1.engine").unlink(),
        "engine",
        "tensorrt_llm/config.pbtxt:19",
        "rank1.engine",
    ),
    (
        "C4 a tokenizer folder in the repository",
        lambda r: shutil.copytree(r.parent / "tokenizer", r / "tokenizer"),
        "no-config",
        "tokenizer",
        "it is a tokenizer folder",
    ),
    (
        "C4 an engine folder in the repository",
        lambda r: shutil.copytree(r.parent / "engine", r / "engine"),
        "no-config",
        "engine",
        "it is an engine folder",
    ),
    (
        "C5 decoupled differs between sub-models",
        in_config("tensorrt_llm_bls", "decoupled: true", "decoupled: false"),
        "decoupled",
        "tensorrt_llm_bls/config.pbtxt:4",
        "unless both are decoupled",
    ),
    (
        "C6 a field that the schema does not have",
        in_config("tensorrt_llm", "max_batch_size", "max_batch"),
        "config-syntax",
        "tensorrt_llm/config.pbtxt:3",
        "max_batch",
    ),
    (
        "C7 a parameter that no longer exists",
        in_config(
            "tensorrt_llm",
            'kv_cache_free_gpu_mem_fraction" value: { string_value: "0.9"',
            'enable_trt_overlap" value: { string_value: "true"',
        ),
        "argument-removed",
        "tensorrt_llm/config.pbtxt:22",
        "enable_trt_overlap",
    ),
    (
        "C7 a misspelt parameter names the nearest",
        in_config("tensorrt_llm", "kv_cache_free_gpu_mem_fraction", "kv_cache_free_gpu_memory_fraction"),
        "argument-unknown",
        "tensorrt_llm/config.pbtxt:22",
        "kv_cache_free_gpu_mem_fraction",
    ),
    (
        "an unfilled placeholder",
        in_config("tensorrt_llm", '"0.9"', '"${kv_cache_free_gpu_mem_fraction}"'),
        "placeholder",
        "tensorrt_llm/config.pbtxt:22",
        "the placeholder '${kv_cache_free_gpu_mem_fraction}' was not filled in",
    ),
    (
        "an unfilled structural placeholder",
        in_config("preprocessing", "max_batch_size: 64", "max_batch_size: ${triton_max_batch_size}"),
        "config-syntax",
        "preprocessing/config.pbtxt:3",
        "placeholder",
    ),
    (
        "a tokenizer that is not there",
        lambda r: shutil.rmtree(r.parent / "tokenizer"),
        "tokenizer",
        "preprocessing/config.pbtxt:13",
        "is no folder here",
    ),
    (
        "a model named otherwise than its folder",
        in_config("ensemble", 'name: "ensemble"', 'name: "deepseek"'),
        "name",
        "ensemble/config.pbtxt:1",
        "wants them equal",
    ),
    (
        "an ensemble step that is no model",
        lambda r: shutil.rmtree(r / "postprocessing"),
        "step-missing",
        "ensemble/config.pbtxt:28",
        "postprocessing",
    ),
    (
        "an ensemble step without a needed input",
        in_config("ensemble", '      input_map { key: "input_lengths" value: "lengths" }\n', ""),
        "step-input",
        "ensemble/config.pbtxt:20",
        "input_lengths",
    ),
    (
        "an ensemble output that nothing makes",
        in_config("ensemble", 'key: "OUTPUT" value: "text_output"', 'key: "OUTPUT" value: "text"'),
        "step-output",
        "ensemble/config.pbtxt:8",
        "text_output",
    ),
    (
        "a BLS model that calls what is not there",
        in_config("tensorrt_llm_bls", 'string_value: "tensorrt_llm"', 'string_value: "trtllm"'),
        "call-missing",
        "tensorrt_llm_bls/config.pbtxt:11",
        "trtllm",
    ),
    (
        "no model.py behind the python backend",
        lambda r: (r / "preprocessing" / "1" / "model.py").unlink(),
        "model-file",
        "preprocessing/1/model.py",
        "does not exist",
    ),
    ("no version folder", lambda r: (r / "ensemble" / "1").rmdir(), "no-version", "ensemble", "no numbered version"),
    (
        "dynamic batching without a batch",
        in_config("preprocessing", "max_batch_size: 64", "max_batch_size: 0\ndynamic_batching { }"),
        "batch-zero",
        "preprocessing/config.pbtxt:4",
        "max_batch_size 0",
    ),
    (
        "a priority that does not exist",
        in_config(
            "preprocessing",
            "max_batch_size: 64",
            "max_batch_size: 64\ndynamic_batching { priority_levels: 2\ndefault_priority_level: 9 }",
        ),
        "priority",
        "preprocessing/config.pbtxt:5",
        "9 of 2",
    ),
    (
        "F1 a queue limit that does not limit",
        in_config(
            "tensorrt_llm",
            "max_batch_size: 64",
            "max_batch_size: 64\ndynamic_batching { default_queue_policy { max_queue_size: 4 } }",
        ),
        "queue-limit",
        "tensorrt_llm/config.pbtxt:4",
        "does not limit a decoupled model",
    ),
    (
        "an input declared twice",
        in_config(
            "preprocessing",
            '"REQUEST_OUTPUT_LEN" data_type: TYPE_INT32 dims: [ 1 ] }\n]\noutput',
            '"QUERY" data_type: TYPE_INT32 dims: [ 1 ] }\n]\noutput',
        ),
        "tensor-twice",
        "preprocessing/config.pbtxt:5",
        "twice",
    ),
    (
        "a size of zero",
        in_config("preprocessing", "TYPE_STRING dims: [ 1 ]", "TYPE_STRING dims: [ 0 ]"),
        "dims",
        "preprocessing/config.pbtxt:5",
        "dims [0]",
    ),
    (
        "a cache on a decoupled model",
        in_config("tensorrt_llm", "max_batch_size: 64", "max_batch_size: 64\nresponse_cache { enable: true }"),
        "cache",
        "tensorrt_llm/config.pbtxt:4",
        "refuses to load",
    ),
]


@pytest.mark.parametrize(("broken", "rule", "where", "said"), [case[1:] for case in STOCK], ids=[c[0] for c in STOCK])
def test_what_is_wrong_with_a_stock_repository_is_named(
    stock: Path, broken: Break, rule: str, where: str, said: str
) -> None:
    broken(stock)
    report = check_repository(stock, version="1.2.1")
    hits = [found for found in report.findings if found.rule == rule and said in found.message + found.hint]
    assert hits, report.text()
    assert where in {found.where for found in hits}, report.text()


LLMAPI: list[tuple[str, Break, str, str, str]] = [
    (
        "C5 the two files disagree about decoupled",
        in_yaml("decoupled: true", "decoupled: false"),
        "decoupled",
        "tensorrt_llm/1/model.yaml:8",
        "only the latter counts",
    ),
    (
        "C7 an argument at the wrong level",
        in_yaml("enable_iter_perf_stats: true", "kv_cache_free_gpu_memory_fraction: 0.8"),
        "argument-unknown",
        "tensorrt_llm/1/model.yaml:2",
        "kv_cache_config.free_gpu_memory_fraction",
    ),
    (
        "C11 a list where a mapping is due",
        in_yaml("kv_cache_config:\n  free_gpu_memory_fraction: 0.8", "kv_cache_config: []"),
        "argument-type",
        "tensorrt_llm/1/model.yaml:4",
        "mapping",
    ),
    (
        "C11 a fraction above one",
        in_yaml("0.8", "1.5"),
        "argument-range",
        "tensorrt_llm/1/model.yaml:5",
        "1.5",
    ),
    (
        "a checkpoint that is not there",
        lambda r: shutil.rmtree(r.parent / "checkpoint"),
        "checkpoint",
        "tensorrt_llm/1/model.yaml:1",
        "no config.json",
    ),
    (
        "the stock model cannot do without its tokenizer",
        in_yaml("enable_iter_perf_stats: true", "skip_tokenizer_init: true"),
        "model-yaml",
        "tensorrt_llm/1/model.yaml:2",
        "tokenises",
    ),
    (
        "the model's own code is missing",
        lambda r: (r / "tensorrt_llm" / "1" / "model.py").unlink(),
        "model-file",
        "tensorrt_llm/1/model.py",
        "does not exist",
    ),
]


@pytest.mark.parametrize(("broken", "rule", "where", "said"), [case[1:] for case in LLMAPI], ids=[c[0] for c in LLMAPI])
def test_what_is_wrong_with_an_llmapi_repository_is_named(
    llmapi: Path, broken: Break, rule: str, where: str, said: str
) -> None:
    broken(llmapi)
    report = check_repository(llmapi, version="1.2.1")
    hits = [found for found in report.findings if found.rule == rule and said in found.message + found.hint]
    assert hits, report.text()
    assert where in {found.where for found in hits}, report.text()


def test_a_version_without_engines_has_no_stock_model(stock: Path) -> None:
    report = check_repository(stock, version="1.4.0rc4")
    assert {found.rule for found in report.errors} == {"stock-model"}


def test_an_older_engine_layout_is_read_too(stock: Path) -> None:
    engine = stock.parent / "engine"
    limits = {"max_batch_size": 64, "max_input_len": 2048, "max_output_len": 512}
    old = {"builder_config": {"tensor_parallel": 3, "pipeline_parallel": 1, **limits}, "plugin_config": {}}
    (engine / "config.json").write_text(json.dumps(old), encoding="utf-8")
    assert "rank2.engine" in check_repository(stock, version="1.2.1").text()


def test_everything_is_reported_in_one_go_and_only_what_was_asked(stock: Path) -> None:
    edit(stock / "tensorrt_llm" / "config.pbtxt", '"0.9"', '"nan"')
    (stock / "ensemble" / "1").rmdir()
    whole = check_repository(stock, version="1.2.1")
    assert {found.file.split("/")[0] for found in whole.errors} == {"tensorrt_llm", "ensemble"}
    part = check_repository(stock, version="1.2.1", only=["ensemble", "no_such"])
    assert {found.rule for found in part.errors} == {"no-version", "no-model"}


def test_a_link_out_of_the_repository_is_named(stock: Path) -> None:
    shutil.move(stock / "ensemble", stock.parent / "elsewhere")
    (stock / "ensemble").symlink_to(stock.parent / "elsewhere")
    assert "outside" in {found.rule for found in check_repository(stock, version="1.2.1").errors}
