"""What people ran into with other tools when they rendered repositories: each report is a test of ours.

References are issues of triton-inference-server/tensorrtllm_backend, NVIDIA/TensorRT-LLM and ai-dynamo.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from toy_bundle import write_bundle
from toy_trtllm import ENGINE_ARGS, PYTORCH_ARGS, toy_trtllm, write_stock_model, write_trtllm

from seekserve.errors import BundleError, ConfigError, ConflictError, InputError
from seekserve.repository.check import parse_config
from seekserve.repository.publish import RenderReport, RenderRequest, publish
from seekserve.settings import Settings


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    return write_trtllm(tmp_path / "engine", toy_trtllm("trtllm-engine", tp=2))


def stock(bundle: Path, out: Path, **more: object) -> RenderReport:
    request = RenderRequest(bundle=bundle, out=out, topology="stock-engine", **more)  # type: ignore[arg-type]
    return publish(request, Settings())


def stock_parameters(repository: Path) -> dict[str, str]:
    config = parse_config((repository / "tensorrt_llm" / "config.pbtxt").read_text(encoding="utf-8"))
    return {key: value.string_value for key, value in config.parameters.items()}


def test_c2_gpu_lists_with_commas_need_no_escaping(engine: Path, tmp_path: Path) -> None:
    """tensorrtllm_backend #616: `gpu_device_ids:0,1` was cut at the comma."""
    stock(engine, tmp_path / "repo", gpus=("0,1",))
    assert stock_parameters(tmp_path / "repo")["gpu_device_ids"] == "0,1"
    with pytest.raises(InputError, match="use --gpus"):
        stock(engine, tmp_path / "other", stock_parameters=("gpu_device_ids=0,1",))


@pytest.mark.parametrize("value", ["s3://bucket/x:y", "/a=b/c", '/a "b"', "/a\\:b", "/a,b;c"])
def test_c2_colons_quotes_and_equals_signs_belong_to_the_value(engine: Path, tmp_path: Path, value: str) -> None:
    stock(engine, tmp_path / "repo", stock_parameters=(f"lora_prefetch_dir={value}",))
    assert stock_parameters(tmp_path / "repo")["lora_prefetch_dir"] == value


@pytest.mark.parametrize("name", ["a\nb", 'a"b', "a=b", "a:b", "a,b", "${x}", "a b"])
def test_c2_such_signs_in_a_name_are_refused(engine: Path, tmp_path: Path, name: str) -> None:
    for flags in ({"name": name}, {"stock_name": name}):
        with pytest.raises(InputError, match="is no model name"):
            stock(engine, tmp_path / "repo", **flags)
    assert not (tmp_path / "repo").exists()


@pytest.mark.parametrize("text", ["a", "=b", "a b=c", "a=b\nc", "1a=b"])
def test_c2_what_is_no_key_and_value_is_refused(engine: Path, tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="--stock-parameter"):
        stock(engine, tmp_path / "repo", stock_parameters=(text,))


def test_c3_an_engine_folder_without_its_file_is_named(engine: Path, tmp_path: Path) -> None:
    """tensorrtllm_backend #61: it showed up as a JSON error at line 1, column 1 when the server started."""
    (engine / "engine" / "config.json").unlink()
    with pytest.raises(BundleError, match=r"engine/config\.json is missing"):
        stock(engine, tmp_path / "repo")


@pytest.mark.parametrize("inside", ["repo/bundle", "repo/deep/er"])
def test_c4_a_bundle_inside_the_repository_is_refused(tmp_path: Path, inside: str) -> None:
    """tensorrtllm_backend #83: Triton takes every folder for a model."""
    bundle = write_bundle(tmp_path / inside)
    with pytest.raises(InputError, match="lies inside the repository"):
        publish(RenderRequest(bundle=bundle, out=tmp_path / "repo"), Settings())


def test_c4_a_tokenizer_in_the_repository_stops_the_rendering(engine: Path, tmp_path: Path) -> None:
    (tmp_path / "repo" / "tokenizer").mkdir(parents=True)
    with pytest.raises(ConflictError, match=r"tokenizer/ has no config\.pbtxt"):
        stock(engine, tmp_path / "repo")


def test_c4_the_stock_model_is_not_taken_from_inside_the_repository(tmp_path: Path) -> None:
    folder = write_stock_model(tmp_path / "repo" / "image")
    request = RenderRequest(
        bundle=write_trtllm(tmp_path / "b"), out=tmp_path / "repo", topology="llmapi", stock_model_dir=folder
    )
    with pytest.raises(InputError, match="lies inside the repository"):
        publish(request, Settings())


@pytest.mark.parametrize("streaming", [True, False])
def test_c5_one_switch_feeds_every_model(engine: Path, tmp_path: Path, streaming: bool) -> None:
    """tensorrtllm_backend #626: decoupled on one model and not on the other."""
    stock(engine, tmp_path / "repo", is_streaming=streaming)
    texts = [path.read_text(encoding="utf-8") for path in (tmp_path / "repo").glob("*/config.pbtxt")]
    assert [parse_config(text).model_transaction_policy.decoupled for text in texts] == [streaming, streaming]


def test_c5_booleans_have_one_spelling(engine: Path, tmp_path: Path) -> None:
    """tensorrtllm_backend #365: `True` is no boolean of config.pbtxt."""
    stock(engine, tmp_path / "repo")
    for path in (tmp_path / "repo").rglob("config.pbtxt"):
        assert "True" not in path.read_text(encoding="utf-8")
    assert stock_parameters(tmp_path / "repo")["enable_chunked_context"] == "true"


def test_c6_arguments_that_a_version_does_not_know_are_refused_for_it(tmp_path: Path) -> None:
    """ai-dynamo/aiconfigurator #541: one template for all versions kept a key that the new one rejects."""
    args = {**PYTORCH_ARGS, "moe_config": {"backend": "WIDEEP"}}
    old = write_trtllm(tmp_path / "old", toy_trtllm(version="1.2.1"), args=args)
    new = write_trtllm(tmp_path / "new", toy_trtllm(version="1.4.0rc4"), args=args)
    publish(RenderRequest(bundle=old, out=tmp_path / "repo", topology="llmapi"), Settings())
    with pytest.raises(ConfigError, match="WIDEEP"):
        publish(RenderRequest(bundle=new, out=tmp_path / "other", topology="llmapi"), Settings())


def test_c7_a_removed_parameter_is_refused_with_since_when(engine: Path, tmp_path: Path) -> None:
    """tensorrtllm_backend #364: `tokenizer_type` was documented long after it was gone."""
    with pytest.raises(ConfigError, match=r"tokenizer_type: is removed before 1\.2"):
        stock(engine, tmp_path / "repo", stock_parameters=("tokenizer_type=auto",))


def test_c7_an_unknown_parameter_is_refused_with_the_nearest_name(engine: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        stock(engine, tmp_path / "repo", stock_parameters=("max_attention_window=4096",))
    assert "max_attention_window_size" in str(caught.value)


def test_c8_the_same_setting_from_two_places_must_agree(engine: Path, tmp_path: Path) -> None:
    """ai-dynamo/dynamo #2624: the flag lost to the file without a word."""
    with pytest.raises(ConflictError, match=r"'0\.5' on the command line, but '0\.85' by the bundle"):
        stock(engine, tmp_path / "repo", stock_parameters=("kv_cache_free_gpu_mem_fraction=0.5",))


def test_c9_what_nobody_set_is_not_in_the_result(tmp_path: Path) -> None:
    """ai-dynamo/dynamo #12117: defaults written out became overrides."""
    bundle = write_trtllm(
        tmp_path / "b", toy_trtllm("trtllm-engine"), args={"kv_cache_config": {"free_gpu_memory_fraction": 0.5}}
    )
    stock(bundle, tmp_path / "repo")
    found = stock_parameters(tmp_path / "repo")
    assert found["kv_cache_free_gpu_mem_fraction"] == "0.5"
    for name in ("enable_kv_cache_reuse", "batch_scheduler_policy", "enable_chunked_context", "decoding_mode"):
        assert name not in found


@pytest.mark.parametrize(("key", "value"), [("max_seq_len", 32768), ("max_batch_size", 1), ("tensor_parallel_size", 4)])
def test_c10_arguments_and_bundle_must_promise_the_same(tmp_path: Path, key: str, value: int) -> None:
    """ai-dynamo/dynamo #8217: the engine had one limit and the router another."""
    bundle = write_trtllm(tmp_path / "b", args={**PYTORCH_ARGS, key: value})
    with pytest.raises(ConflictError, match=f"{key} is {value} in llm_args.yaml"):
        publish(RenderRequest(bundle=bundle, out=tmp_path / "repo", topology="llmapi"), Settings())


def test_c11_values_of_the_wrong_type_are_reported_together(tmp_path: Path) -> None:
    """ai-dynamo/dynamo #10298: `kv_cache_config: []` went through."""
    args = {"kv_cache_config": [], "enable_chunked_prefill": "yes", "max_input_len": True}
    bundle = write_trtllm(tmp_path / "b", args=args)
    with pytest.raises(ConfigError, match="3 problems"):
        publish(RenderRequest(bundle=bundle, out=tmp_path / "repo", topology="llmapi"), Settings())


def test_c12_paths_are_given_once(engine: Path, tmp_path: Path) -> None:
    """tensorrtllm_backend #650: engine and tokenizer had to be repeated in every model."""
    stock(engine, tmp_path / "repo")
    front = parse_config((tmp_path / "repo/chat/config.pbtxt").read_text(encoding="utf-8"))
    assert front.parameters["bundle_dir"].string_value == str(engine)
    assert stock_parameters(tmp_path / "repo")["gpt_model_path"] == str(engine / "engine")
    pytorch = write_trtllm(tmp_path / "p")
    publish(RenderRequest(bundle=pytorch, out=tmp_path / "api", topology="llmapi"), Settings())
    data = yaml.safe_load((tmp_path / "api/chat/1/model.yaml").read_text(encoding="utf-8"))
    assert (data["model"], data["tokenizer"]) == (str(pytorch / "weights"), str(pytorch / "tokenizer"))


def test_c12_the_toy_arguments_are_all_used(engine: Path, tmp_path: Path) -> None:
    stock(engine, tmp_path / "repo")
    assert json.dumps(ENGINE_ARGS).count(":") - 2 <= len(stock_parameters(tmp_path / "repo"))


@pytest.mark.parametrize(
    ("gpus", "word"),
    [
        (("0,1,2,3", "4,5,6"), "holds 3 GPUs where one replica takes 4"),
        (("0,1,2,3", "3,4,5,6"), "GPU 3 is given more than once"),
    ],
)
def test_d7_instances_take_gpus_of_their_own(tmp_path: Path, gpus: tuple[str, ...], word: str) -> None:
    """tensorrtllm_backend #448: [[0..3], [4..7]] could not be said."""
    bundle = write_trtllm(tmp_path / "b", toy_trtllm(tp=4), args={})
    with pytest.raises(ConflictError, match=word):
        publish(RenderRequest(bundle=bundle, out=tmp_path / "repo", gpus=gpus), Settings())
    publish(RenderRequest(bundle=bundle, out=tmp_path / "repo", gpus=("0,1,2,3", "4,5,6,7")), Settings())
    config = parse_config((tmp_path / "repo/chat/config.pbtxt").read_text(encoding="utf-8"))
    assert config.parameters["gpu_device_ids"].string_value == "0,1,2,3;4,5,6,7"
    assert config.instance_group[0].count == 2


def test_j9_no_secret_of_the_environment_is_rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGC_API_KEY", "very-secret")
    monkeypatch.setenv("HF_TOKEN", "very-secret")
    bundle = write_trtllm(tmp_path / "b")
    report = publish(RenderRequest(bundle=bundle, out=tmp_path / "repo", dockerfile="", dry_run=True), Settings())
    assert "very-secret" not in report.text()
